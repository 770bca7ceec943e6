# SPDX-License-Identifier: Apache-2.0
"""A reference-counted resource that is cleaned up when its last user releases it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.files.clock import Clock

__all__ = ["ReferenceResource"]

_FORCED: Final = -1000
"""Java's mark of a resource taken away from its users: the count stays below this, whatever they release."""


class ReferenceResource(ABC):
    """Counts its users; after `shutdown` it accepts no new ones, and cleans up when the last has gone.

    The count starts at one, the owner's. A user that never releases it (a hung file, in RocketMQ's words) is overruled
    by a later `shutdown` once enough time has passed since the first (RocketMQ: ``ReferenceResource``).
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._references = 1
        self._first_shutdown: float | None = None
        self._cleanup_over = False
        self._reference_lock = RLock()

    @abstractmethod
    def _cleanup(self) -> None:
        """Release what is held; called once, under the lock."""

    @property
    def is_available(self) -> bool:
        """Whether new users are accepted."""
        return self._first_shutdown is None

    @property
    def reference_count(self) -> int:
        """Number of users, the owner included; below zero after they were overruled."""
        return self._references

    @property
    def is_cleanup_over(self) -> bool:
        """Whether it was shut down, has no users left, and was cleaned up."""
        return self._references <= 0 and self._cleanup_over

    def hold(self) -> bool:
        """Become a user; False after a shutdown. Each success needs a `release`."""
        with self._reference_lock:
            if not self.is_available or self._references <= 0:
                return False
            self._references += 1
            return True

    def release(self) -> None:
        """Stop being a user."""
        with self._reference_lock:
            self._references -= 1
            if self._references <= 0 and not self._cleanup_over:
                self._cleanup()
                self._cleanup_over = True

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Be a user for the duration of a block; the block gets False if that was refused."""
        held = self.hold()
        try:
            yield held
        finally:
            if held:
                self.release()

    def shutdown(self, forcibly_after: float) -> None:
        """Accept no more users; if some remain `forcibly_after` seconds after the first call, clean up regardless."""
        with self._reference_lock:
            now = self._clock.monotonic()
            if self._first_shutdown is None:
                self._first_shutdown = now
                self.release()
            elif self._references > 0 and now - self._first_shutdown >= forcibly_after:
                self._references = _FORCED - self._references
                self.release()
