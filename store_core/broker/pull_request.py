# SPDX-License-Identifier: Apache-2.0
"""Pull requests of consumers, and the broker's answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntFlag
from typing import TYPE_CHECKING

from store_core.broker.response_code import ForbiddenType, ResponseCode

if TYPE_CHECKING:
    from store_core.format.message import MessageExt
    from store_core.store.query.get_result import GetMessageResult, GetMessageStatus

__all__ = ["PullMessageRequest", "PullMessageResponse", "PullSysFlag"]


class PullSysFlag(IntFlag):
    """Bits of a pull's ``sysFlag`` (RocketMQ: ``PullSysFlag``)."""

    COMMIT_OFFSET = 0x1
    """`commit_offset` is to be stored."""
    SUSPEND = 0x2
    """The broker may wait for messages before it answers."""
    SUBSCRIPTION = 0x4
    """The request carries its own subscription."""
    CLASS_FILTER = 0x8
    """A filter server was to decide (until 4.8); brokers ignore it."""
    LITE_PULL_MESSAGE = 0x10
    """The consumer is a lite one (4.6 and later); brokers ignore it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullMessageRequest:
    """A pull request (RocketMQ: ``PullMessageRequestHeader``).

    Attributes
    ----------
    consumer_group, topic : str
    queue_id : int
    queue_offset : int
        Index of the first message to return.
    max_msg_nums : int
        Most messages to return.
    sys_flag : int
        Bits of `PullSysFlag`.
    commit_offset : int
        The group's consumed offset in the queue: the index after the last consumed message.
    suspend_timeout_millis : int
        How long the broker may wait for messages, ms.
    subscription, expression_type : str or None
        The subscription, if the flag says that the request carries it: tags, or an expression and its type.
    sub_version : int
        Version of the subscription; usually its creation time.
    """

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_msg_nums: int = 32
    sys_flag: int = 0
    commit_offset: int = 0
    suspend_timeout_millis: int = 15_000
    subscription: str | None = None
    sub_version: int = 0
    expression_type: str | None = None

    def has(self, flag: PullSysFlag) -> bool:
        """Return whether a bit is set."""
        return bool(self.sys_flag & flag)


@dataclass(slots=True, kw_only=True)
class PullMessageResponse:
    """The answer to a pull (RocketMQ: ``PullMessageResponseHeader``, and the body).

    Attributes
    ----------
    code : ResponseCode
    remark : str
        Name of the `GetMessageStatus`, or why the request was refused.
    next_begin_offset : int
        Where the next pull should begin; 0, like the other numbers, if the request was refused.
    min_offset, max_offset : int
        Of the queue.
    suggest_which_broker_id : int
        Broker for the next pull; 0 is the master.
    topic_sys_flag, group_sys_flag : int
        5.x; 0 in 4.x.
    forbidden_type : ForbiddenType or None
        5.x: why it is forbidden.
    result : GetMessageResult or None
        The result of the get; None if the request was refused.
    """

    code: ResponseCode
    remark: str = ""
    next_begin_offset: int = 0
    min_offset: int = 0
    max_offset: int = 0
    suggest_which_broker_id: int = 0
    topic_sys_flag: int = 0
    group_sys_flag: int = 0
    forbidden_type: ForbiddenType | None = None
    result: GetMessageResult | None = field(default=None, repr=False)

    @property
    def message_buffers(self) -> list[memoryview]:
        """The records, whole and without copying; none unless the code is SUCCESS."""
        found = self.result is not None and self.code is ResponseCode.SUCCESS
        return self.result.message_buffers if self.result is not None and found else []

    @property
    def body(self) -> bytes:
        """The bytes that a client would receive: the records one after the other, as the log holds them."""
        return b"".join(self.message_buffers)

    @property
    def messages(self) -> list[MessageExt]:
        """The decoded records; bodies are not checked."""
        return self.result.messages if self.result is not None and self.message_buffers else []

    @property
    def status(self) -> GetMessageStatus | None:
        """The outcome of the get; None if the request was refused."""
        return None if self.result is None else self.result.status
