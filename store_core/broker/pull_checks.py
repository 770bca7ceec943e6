# SPDX-License-Identifier: Apache-2.0
"""Checks of a pull before a broker serves it: permissions and subscription."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from store_core.broker.consumer_filter import ConsumerFilterData
from store_core.broker.consumer_group import MessageModel
from store_core.broker.expression_message_filter import (
    ExpressionForRetryMessageFilter,
    ExpressionMessageFilter,
    SubscriptionData,
)
from store_core.broker.pull_request import PullMessageResponse, PullSysFlag
from store_core.broker.response_code import ForbiddenType, ResponseCode
from store_core.errors import FilterError
from store_core.format.filter.sql92_expression import Sql92Expression
from store_core.format.properties import PropertyParser
from store_core.format.releases.release import rules_of
from store_core.snapshot.config_tables import Permission, SubscriptionGroupConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from store_core.broker.bloom_filter import BloomFilter
    from store_core.broker.consumer_group import ConsumerGroupInfo
    from store_core.broker.pull_request import PullMessageRequest
    from store_core.broker.subscription_group import SubscriptionGroupManager
    from store_core.broker.topic_config import TopicConfigManager
    from store_core.files.clock import Clock
    from store_core.format.releases.release import Release
    from store_core.snapshot.config_tables import TopicConfig
    from store_core.store.config.broker_config import BrokerConfig

__all__ = ["CheckedPull", "PullChecks"]

_LOG: Final = logging.getLogger("store_core")
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


class PullChecks:
    """The checks of a pull, in RocketMQ's order (``PullMessageProcessor.processRequest``).

    Parameters
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

    def __init__(  # noqa: PLR0913 -- what a broker knows
        self,
        broker: BrokerConfig,
        release: Release,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: Mapping[str, ConsumerGroupInfo],
        find_filter_data: Callable[[str, str], ConsumerFilterData | None],
        clock: Clock,
        *,
        bloom_filter: BloomFilter | None = None,
    ) -> None:
        self._broker = broker
        self._release: Release = release
        self._features = rules_of(release)
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._find_filter_data = find_filter_data
        self._clock = clock
        self._bloom_filter = bloom_filter

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
        if not self._broker.broker_permission & Permission.READ:
            raise _RefusedError(
                ResponseCode.NO_PERMISSION,
                f"broker {self._broker.broker_ip1} may not be read",
                ForbiddenType.BROKER_FORBIDDEN,
            )

    def _group(self, request: PullMessageRequest) -> SubscriptionGroupConfig:
        name = request.consumer_group
        group = self._groups.find_subscription_group_config(name) or self._new_group(name)
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
        may_be_made = self._broker.auto_create_subscription_group or name.startswith(_SYSTEM_GROUP)
        if not may_be_made or (self._features.checks_group_names and not is_legal):
            return None
        group = SubscriptionGroupConfig(group_name=name)
        self._groups.update_subscription_group_config(group)
        return group

    def _topic(self, request: PullMessageRequest) -> TopicConfig:
        name = request.topic
        topic = self._topics.select_topic_config(name)
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
        if not subscription.is_by_tag and not self._broker.enable_property_filter:
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
            request.consumer_group, request.topic, text, compiled, self._clock.now_ms(),
            client_version=request.sub_version, expression_type=subscription.expression_type,
        )  # fmt: skip

    def _compiled(self, subscription: SubscriptionData) -> Sql92Expression | None:
        try:
            if subscription.expression_type == _SQL92:
                return Sql92Expression(subscription.tags.text, self._release)
        except FilterError as error:
            _LOG.warning("all messages of %s match: %s", subscription.topic, error)
        return None

    def _registered(
        self, request: PullMessageRequest, group: SubscriptionGroupConfig
    ) -> tuple[SubscriptionData, ConsumerFilterData | None]:
        """Return the subscription that the group's consumers reported."""
        name, topic = request.consumer_group, request.topic
        info = self._consumers.get(name)
        if info is None:
            raise _RefusedError(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"no consumer of group {name!r} is connected")
        if not group.consume_broadcast_enable and info.message_model is MessageModel.BROADCASTING:
            raise _RefusedError(
                ResponseCode.NO_PERMISSION,
                f"group {name!r} may not consume by broadcasting",
                ForbiddenType.BROADCASTING_DISABLE_FORBIDDEN,
            )
        if self._features.has_forbidden_table and self._groups.is_read_forbidden(group.group_name, topic):
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
        data = self._find_filter_data(request.topic, request.consumer_group)
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
        parser = PropertyParser.of_release(self._release)
        if not self._broker.filter_support_retry:
            return ExpressionMessageFilter(subscription, data, self._bloom_filter, parser)
        return ExpressionForRetryMessageFilter(
            subscription, self._find_filter_data, data, self._bloom_filter, parser, release=self._release
        )
