# SPDX-License-Identifier: Apache-2.0
"""What `get_message` asks of a filter.

A filter is a function of a queue unit and of a record's properties: bytes in memory. The store asks it, so it stands
below the store; what a broker adds (consumers, their registered expressions) is in `store_core.broker`.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

__all__ = ["ExtUnit", "MessageFilter"]


class ExtUnit(Protocol):
    """The part of a unit of the queue's extension that filters look at."""

    @property
    def msg_store_time(self) -> int:
        """Ms since 1970."""

    @property
    def bit_map(self) -> bytes:
        """Which consumers' expressions were true; empty if none was computed."""


@runtime_checkable
class MessageFilter(Protocol):
    """Says which messages a consumer gets; the second question needs the record (RocketMQ: ``MessageFilter``)."""

    def is_matched_by_consume_queue(self, tags_code: int | None, ext: ExtUnit | None = None) -> bool:
        """Report from a queue unit whether the message may match.

        Parameters
        ----------
        tags_code : int or None
            The 64 bits of the unit; None if they stood in an extension that is lost.
        ext : ExtUnit or None
            The unit of the extension, if there is one.
        """

    def is_matched_by_commit_log(self, record: memoryview) -> bool:
        """Report from the bytes of the record whether the message matches."""
