# SPDX-License-Identifier: Apache-2.0
"""What a consume queue asks of its extension, and how it tells an address in it from a tags code."""

from __future__ import annotations

from typing import Final, Protocol

__all__ = ["LAST_EXT_ADDRESS", "QueueExtension", "is_ext_address"]

LAST_EXT_ADDRESS: Final = -(2**31) - 1
"""The largest tags code that is an address: every hash is larger, and so is every time after 1969."""


def is_ext_address(tags_code: int) -> bool:
    """Whether a unit's tags code is an address in the extension (RocketMQ: ``ConsumeQueueExt.isExtAddr``).

    >>> is_ext_address(-(2**63)), is_ext_address(-(2**31))
    (True, False)
    """
    return tags_code <= LAST_EXT_ADDRESS


class QueueExtension(Protocol):
    """`ConsumeQueueExt` of `consume_queue_ext`, as its queue sees it; addresses are tags codes."""

    def load(self) -> tuple[str, ...]:
        """Take in its files, and say what an operator should know."""
        ...

    def recover(self) -> object:
        """Find where its units end."""
        ...

    def put(self, tags_code: int, store_timestamp: int, bit_map: bytes) -> int | None:
        """Append a unit and give its address; None if that failed."""
        ...

    def truncate_by_min_address(self, address: int) -> object:
        """Delete the files that end before a unit; nothing happens if `address` is none."""
        ...

    def truncate_by_max_address(self, address: int) -> object:
        """End behind a unit; nothing happens if `address` is none."""
        ...

    def flush(self, least_pages: int) -> bool:
        """Bring units to disk; True if nothing changed."""
        ...

    def destroy(self) -> None:
        """Delete its files."""
        ...

    def close(self) -> None:
        """Let go of its files."""
        ...
