# SPDX-License-Identifier: Apache-2.0
"""The result of a put."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from store_core.format.append_result import AppendMessageResult, PutMessageStatus

__all__ = ["PutMessageResult"]


@dataclass(frozen=True, slots=True)
class PutMessageResult:
    """Outcome of a put (RocketMQ: ``PutMessageResult``).

    Attributes
    ----------
    status : PutMessageStatus
    append_message_result : AppendMessageResult or None
        None if the message was refused before anything was appended.
    """

    status: PutMessageStatus
    append_message_result: AppendMessageResult | None = None

    @property
    def is_ok(self) -> bool:
        """Whether the message is in the log, judged by the append alone, as RocketMQ does.

        A result with FLUSH_DISK_TIMEOUT is ok; one with PUT_OK whose append said END_OF_FILE twice is not.
        """
        return self.append_message_result is not None and self.append_message_result.is_ok
