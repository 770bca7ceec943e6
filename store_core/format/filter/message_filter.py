# SPDX-License-Identifier: Apache-2.0
"""The protocol of filters that `get_message` takes.

A filter is a function of a queue unit and of a record's properties: bytes in memory. The store calls it, so it is below
the store; what a broker adds (consumers, their registered expressions) is in `store_core.broker`.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

__all__ = ["ExtUnit", "MessageFilter"]


class ExtUnit(Protocol):
    """The part of a queue extension's unit that filters read."""

    @property
    def msg_store_time(self) -> int:
        """Store time of the record, ms since 1970."""

    @property
    def bit_map(self) -> bytes:
        """Bit map of the consumers whose expressions were true; empty if none was computed."""


@runtime_checkable
class MessageFilter(Protocol):
    """Decides in two steps which messages a consumer gets; the second needs the record (Java: ``MessageFilter``)."""

    def is_matched_by_consume_queue(self, tags_code: int | None, ext: ExtUnit | None = None) -> bool:
        """Return from a queue unit whether the message may match.

        Parameters
        ----------
        tags_code : int or None
            The 64 bits of the unit; None if they were in an extension that is lost.
        ext : ExtUnit or None
            The unit of the extension, if there is one.
        """

    def is_matched_by_commit_log(self, record: memoryview) -> bool:
        """Return from the bytes of the record whether the message matches."""
