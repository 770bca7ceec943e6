# SPDX-License-Identifier: Apache-2.0
"""A pull: its request, its answer's code, and what is checked before it."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, Final

from store_core.broker.consumer_filter import (
    BloomFilter,
    ConsumerFilterData,
    ExpressionForRetryMessageFilter,
    ExpressionMessageFilter,
    SubscriptionData,
)
from store_core.broker.subscription_group import (
    ConsumerGroupInfo,
    MessageModel,
    SubscriptionGroupManager,
    TopicConfigManager,
)
from store_core.errors import FilterError
from store_core.format.filter.sql92_parser import Sql92Expression
from store_core.format.properties import PropertyParser
from store_core.format.release import Release, rules_of
from store_core.snapshot.config import Permission, SubscriptionGroupConfig, TopicConfig
from store_core.store.get_message import GetMessageResult, GetMessageStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from store_core.files.machine import Clock
    from store_core.format.message import MessageExt
    from store_core.format.release_rules import ReleaseRules
    from store_core.store.message_store_config import BrokerConfig


_LOG: Final = logging.getLogger("store_core")


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


_LONGEST_GROUP: Final = 255
_GROUP_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]*")
_SYSTEM_GROUP: Final = "CID_RMQ_SYS_"
_SQL92: Final = "SQL92"


@dataclass(frozen=True, slots=True)
class CheckedPull:
    """A pull that passed all checks."""

    group: SubscriptionGroupConfig
    topic: TopicConfig
    message_filter: ExpressionMessageFilter


class _RefusedError(Exception):
    """Ends the checks; caught in this module."""

    def __init__(self, code: ResponseCode, remark: str, forbidden: ForbiddenType | None = None) -> None:
        super().__init__(code, remark, forbidden)
        self.code = code
        self.remark = remark
        self.forbidden = forbidden


@dataclass(frozen=True)
class PullChecks:
    """The checks of a pull, in RocketMQ's order (``PullMessageProcessor.processRequest``).

    Attributes
    ----------
    broker : BrokerConfig
    release : str
    topics : TopicConfigManager
    groups : SubscriptionGroupManager
    consumers : mapping of str to ConsumerGroupInfo
        Groups with connected consumers; read at each pull, so it may change.
    find_filter_data : callable
        Returns the registration of a group for a topic, None if there is none.
    clock : Clock
    bloom_filter : BloomFilter, optional
    """

    broker: BrokerConfig
    release: Release
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    consumers: Mapping[str, ConsumerGroupInfo]
    find_filter_data: Callable[[str, str], ConsumerFilterData | None]
    clock: Clock
    bloom_filter: BloomFilter | None = field(default=None, kw_only=True)

    @property
    def _features(self) -> ReleaseRules:
        return rules_of(self.release)

    def check(self, request: PullMessageRequest) -> CheckedPull | PullMessageResponse:
        """Check a pull; return what it needs, or the answer that refuses it."""
        try:
            self._check_broker()
            group = self._group(request)
            topic = self._topic(request)
            subscription, data = self._subscription(request, group)
        except _RefusedError as refused:
            _LOG.info("pull of %s by %s: %s", request.topic, request.consumer_group, refused.remark)
            forbidden = refused.forbidden if self._features.reports_forbidden_type else None
            return PullMessageResponse(code=refused.code, remark=refused.remark, forbidden_type=forbidden)
        return CheckedPull(group, topic, self._message_filter(subscription, data))

    # ---- permissions

    def _check_broker(self) -> None:
        if not self.broker.broker_permission & Permission.READ:
            raise _RefusedError(
                ResponseCode.NO_PERMISSION,
                f"broker {self.broker.broker_ip1} may not be read",
                ForbiddenType.BROKER_FORBIDDEN,
            )

    def _group(self, request: PullMessageRequest) -> SubscriptionGroupConfig:
        name = request.consumer_group
        group = self.groups.find_subscription_group_config(name) or self._new_group(name)
        if group is None:
            raise _RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"there is no subscription group {name!r}: create it first"
            )
        if not group.consume_enable:
            raise _RefusedError(
                ResponseCode.NO_PERMISSION, f"group {name!r} may not consume", ForbiddenType.GROUP_FORBIDDEN
            )
        return group

    def _new_group(self, name: str) -> SubscriptionGroupConfig | None:
        """Create a group, without persisting it, if the broker creates unknown ones; RocketMQ's own are always created.

        RocketMQ: ``SubscriptionGroupManager.findSubscriptionGroupConfig``; 5.x validates the name first.
        """
        is_legal = len(name) <= _LONGEST_GROUP and _GROUP_NAME.fullmatch(name) is not None
        may_be_made = self.broker.auto_create_subscription_group or name.startswith(_SYSTEM_GROUP)
        if not may_be_made or (self._features.checks_group_names and not is_legal):
            return None
        group = SubscriptionGroupConfig(group_name=name)
        self.groups.update_subscription_group_config(group)
        return group

    def _topic(self, request: PullMessageRequest) -> TopicConfig:
        name = request.topic
        topic = self.topics.select_topic_config(name)
        if topic is None:
            raise _RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"there is no topic {name!r}: create it first")
        if not topic.is_readable:
            raise _RefusedError(
                ResponseCode.NO_PERMISSION, f"topic {name!r} may not be read", ForbiddenType.TOPIC_FORBIDDEN
            )
        if not 0 <= request.queue_id < topic.read_queue_nums:
            is_parameter = self._features.reports_wrong_queue_as_parameter
            code = ResponseCode.INVALID_PARAMETER if is_parameter else ResponseCode.SYSTEM_ERROR
            raise _RefusedError(
                code, f"topic {name!r} has {topic.read_queue_nums} queues to read, found queue {request.queue_id}"
            )
        return topic

    # ---- subscriptions

    def _subscription(
        self, request: PullMessageRequest, group: SubscriptionGroupConfig
    ) -> tuple[SubscriptionData, ConsumerFilterData | None]:
        if request.has(PullSysFlag.SUBSCRIPTION):
            subscription, data = self._carried(request)
        else:
            subscription, data = self._registered(request, group)
        if not subscription.is_by_tag and not self.broker.enable_property_filter:
            raise _RefusedError(
                ResponseCode.SYSTEM_ERROR, f"the broker does not filter by {subscription.expression_type}"
            )
        return subscription, data

    def _carried(self, request: PullMessageRequest) -> tuple[SubscriptionData, ConsumerFilterData | None]:
        """Parse the subscription in a request. An expression that does not compile filters nothing, as in RocketMQ."""
        text, kind = request.subscription or "", request.expression_type
        try:
            subscription = SubscriptionData.build(request.topic, text, "TAG" if kind is None else kind)
        except FilterError as error:
            raise _RefusedError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"the subscription {text!r} can't be parsed"
            ) from error
        compiled = None if subscription.is_by_tag else self._compiled(subscription)
        if compiled is None:
            return subscription, None
        return subscription, ConsumerFilterData(
            request.consumer_group, request.topic, text, compiled, self.clock.now_ms(),
            client_version=request.sub_version, expression_type=subscription.expression_type,
        )  # fmt: skip

    def _compiled(self, subscription: SubscriptionData) -> Sql92Expression | None:
        try:
            if subscription.expression_type == _SQL92:
                return Sql92Expression(subscription.tags.text, self.release)
        except FilterError as error:
            _LOG.warning("all messages of %s match: %s", subscription.topic, error)
        return None

    def _registered(
        self, request: PullMessageRequest, group: SubscriptionGroupConfig
    ) -> tuple[SubscriptionData, ConsumerFilterData | None]:
        """Return the subscription that the group's consumers reported."""
        name, topic = request.consumer_group, request.topic
        info = self.consumers.get(name)
        if info is None:
            raise _RefusedError(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"no consumer of group {name!r} is connected")
        if not group.consume_broadcast_enable and info.message_model is MessageModel.BROADCASTING:
            raise _RefusedError(
                ResponseCode.NO_PERMISSION,
                f"group {name!r} may not consume by broadcasting",
                ForbiddenType.BROADCASTING_DISABLE_FORBIDDEN,
            )
        if self._features.has_forbidden_table and self.groups.is_read_forbidden(group.group_name, topic):
            raise _RefusedError(
                ResponseCode.NO_PERMISSION,
                f"topic {topic!r} is forbidden to group {name!r}",
                ForbiddenType.SUBSCRIPTION_FORBIDDEN,
            )
        found = info.subscriptions.get(topic)
        if found is None:
            raise _RefusedError(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"group {name!r} does not subscribe to {topic!r}")
        if found.sub_version < request.sub_version:
            raise _RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                f"the subscription has version {found.sub_version}, the pull {request.sub_version}",
            )
        return found.data, None if found.data.is_by_tag else self._registered_filter(request)

    def _registered_filter(self, request: PullMessageRequest) -> ConsumerFilterData:
        data = self.find_filter_data(request.topic, request.consumer_group)
        if data is None:
            raise _RefusedError(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                f"group {request.consumer_group!r} has no registered expression; it may have been invalid",
            )
        if data.client_version < request.sub_version:
            raise _RefusedError(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                f"the expression has version {data.client_version}, the pull {request.sub_version}",
            )
        return data

    def _message_filter(
        self, subscription: SubscriptionData, data: ConsumerFilterData | None
    ) -> ExpressionMessageFilter:
        parser = PropertyParser.of_release(self.release)
        if not self.broker.filter_support_retry:
            return ExpressionMessageFilter(subscription, data, self.bloom_filter, parser)
        return ExpressionForRetryMessageFilter(
            subscription, self.find_filter_data, data, self.bloom_filter, parser, release=self.release
        )
