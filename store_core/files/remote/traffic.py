# SPDX-License-Identifier: Apache-2.0
"""What was asked of a storage: how many requests, and how many bytes came."""

from __future__ import annotations

from threading import Lock
from typing import Final, NamedTuple

__all__ = ["NOTHING", "Moved", "Traffic"]


class Moved(NamedTuple):
    """Requests to a storage, and the bytes of files that they bring.

    Attributes
    ----------
    requests : int
        As this package makes them; a client may make more, as when one has to be repeated.
    bytes : int
    """

    requests: int = 0
    bytes: int = 0

    def since(self, before: Moved) -> Moved:
        """Return what came after an earlier count."""
        return Moved(self.requests - before.requests, self.bytes - before.bytes)

    def and_also(self, other: Moved) -> Moved:
        """Return both together."""
        return Moved(self.requests + other.requests, self.bytes + other.bytes)

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.bytes:,} bytes in {self.requests:,} request{'s' * (self.requests != 1)}"


NOTHING: Final = Moved()


class Traffic:
    """Counts what threads of this process ask of one storage; a pickle begins at zero.

    Attributes
    ----------
    moved : Moved
        So far.
    """

    __slots__ = ("_lock", "moved")

    def __init__(self) -> None:
        self.moved = Moved()
        self._lock = Lock()

    def count(self, requests: int, size: int = 0) -> None:
        """Add requests that bring some bytes."""
        with self._lock:
            self.moved = self.moved.and_also(Moved(requests, size))

    def __reduce__(self) -> tuple[type[Traffic], tuple[()]]:
        """Pickle without what was counted here."""
        return Traffic, ()
