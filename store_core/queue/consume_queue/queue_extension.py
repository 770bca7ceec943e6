# SPDX-License-Identifier: Apache-2.0
"""Interface of a consume queue's extension, and the test whether a tags code is an address in it."""

from __future__ import annotations

from typing import Final, Protocol

__all__ = ["LAST_EXT_ADDRESS", "QueueExtension", "is_ext_address"]

LAST_EXT_ADDRESS: Final = -(2**31) - 1
"""The largest tags code that is an address: every hash is larger, and so is every time after 1969."""


def is_ext_address(tags_code: int) -> bool:
    """Return whether a unit's tags code is an address in the extension (RocketMQ: ``ConsumeQueueExt.isExtAddr``).

    >>> is_ext_address(-(2**63)), is_ext_address(-(2**31))
    (True, False)
    """
    return tags_code <= LAST_EXT_ADDRESS


class QueueExtension(Protocol):
    """`ConsumeQueueExt` of `consume_queue_ext` as its queue uses it; addresses are tags codes."""

    def load(self) -> tuple[str, ...]:
        """Load the existing files, and return what an operator should know."""
        ...

    def recover(self) -> object:
        """Find the end of the units."""
        ...

    def put(self, tags_code: int, store_timestamp: int, bit_map: bytes) -> int | None:
        """Append a unit and return its address; None if that failed."""
        ...

    def truncate_by_min_address(self, address: int) -> object:
        """Delete the files that end before a unit; do nothing if `address` is not an address."""
        ...

    def truncate_by_max_address(self, address: int) -> object:
        """End after a unit; do nothing if `address` is not an address."""
        ...

    def flush(self, least_pages: int) -> bool:
        """Flush units to disk; True if nothing changed."""
        ...

    def destroy(self) -> None:
        """Delete all files."""
        ...

    def close(self) -> None:
        """Release all files."""
        ...
