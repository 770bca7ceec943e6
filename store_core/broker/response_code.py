# SPDX-License-Identifier: Apache-2.0
"""Response codes of a broker's answers to a consumer."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from store_core.store.query.get_result import GetMessageStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ForbiddenType", "ResponseCode"]


class ResponseCode(IntEnum):
    """Codes of the answers to a pull (RocketMQ: ``ResponseCode``, ``RemotingSysResponseCode``)."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29

    @classmethod
    def of_status(cls, status: GetMessageStatus, queue_offset: int) -> ResponseCode:
        """Return the code for the outcome of a get.

        Parameters
        ----------
        status : GetMessageStatus
        queue_offset : int
            The offset that was asked for: in a queue without messages, only a pull at 0 can wait.
        """
        if status in _WITHOUT_QUEUE:
            return cls.PULL_OFFSET_MOVED if queue_offset != 0 else cls.PULL_NOT_FOUND
        return _CODES[status]


class ForbiddenType(IntEnum):
    """The reason why a pull is answered with NO_PERMISSION; sent by 5.x (RocketMQ: ``ForbiddenType``)."""

    BROKER_FORBIDDEN = 1
    GROUP_FORBIDDEN = 2
    TOPIC_FORBIDDEN = 3
    BROADCASTING_DISABLE_FORBIDDEN = 4
    SUBSCRIPTION_FORBIDDEN = 5


_WITHOUT_QUEUE: Final = frozenset((GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, GetMessageStatus.NO_MESSAGE_IN_QUEUE))

_CODES: Final[Mapping[GetMessageStatus, ResponseCode]] = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}
