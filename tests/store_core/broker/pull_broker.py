# SPDX-License-Identifier: Apache-2.0
"""A broker that answers pulls, around any store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from store_core.broker.consumer_filter import ConsumerFilterData, SubscriptionData
from store_core.broker.consumer_offset import ConsumerOffsetManager
from store_core.broker.pull_checks import PullChecks, PullMessageRequest, PullMessageResponse, PullSysFlag
from store_core.broker.pull_message_processor import PullMessageProcessor, PullRequestHoldService
from store_core.broker.subscription_group import (
    ConsumerGroupInfo,
    MessageModel,
    RegisteredSubscription,
    SubscriptionGroupManager,
    TopicConfigManager,
)
from store_core.files.file_system import OsFileSystem
from store_core.format.message import Message, PutMessageStatus
from store_core.snapshot.config import SubscriptionGroupConfig, TopicConfig
from store_core.store.get_message import GetMessageResult, GetMessageStatus
from store_core.store.message_store import DefaultMessageStore
from store_core.store.message_store_config import BrokerConfig, MessageStoreConfig
from store_core.store.put.put_preparation import PutMessageResult
from tests.store_core.fakes import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.format.filter.message_selector import MessageFilter
    from store_core.format.release import Release


CARRIED = PullSysFlag.SUBSCRIPTION


def a_pull(**more: Any) -> PullMessageRequest:  # noqa: ANN401 -- those of a request
    """Return a pull for the first messages of ``orders``, with a subscription to all, unless given otherwise."""
    given: dict[str, Any] = {
        "consumer_group": "billing",
        "topic": "orders",
        "queue_id": 0,
        "queue_offset": 0,
        "sys_flag": CARRIED,
        "subscription": "*",
        "expression_type": "TAG",
    }
    return PullMessageRequest(**(given | more))


class FakeStore(DefaultMessageStore):
    """Returns a given result, and records what it was asked and what was put."""

    def __init__(self, result: GetMessageResult | None = None, **settings: Any) -> None:  # noqa: ANN401 -- those of a store
        self.config = MessageStoreConfig(**settings)
        self.result: GetMessageResult | None = result or GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_ONE)
        self.asked: list[tuple[str, str, int, int, int]] = []
        self.filters: list[MessageFilter | None] = []
        self.put: list[Message] = []
        self.min_offset = 0
        self.max_offset = 0

    def get_message(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        max_msg_nums: int,
        message_filter: MessageFilter | None = None,
    ) -> GetMessageResult | None:
        self.asked.append((group, topic, queue_id, offset, max_msg_nums))
        self.filters.append(message_filter)
        return self.result

    def get_min_offset_in_queue(self, _topic: str, _queue_id: int) -> int:
        return self.min_offset

    def get_max_offset_in_queue(self, _topic: str, _queue_id: int, *, committed: bool = True) -> int:  # noqa: ARG002 -- as the store has it
        return self.max_offset

    def put_message(self, message: Message) -> PutMessageResult:
        self.put.append(message)
        return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)


class PullBroker:
    """All parts that answer pulls, with topic ``orders`` of 4 queues and group ``billing``."""

    def __init__(
        self,
        store: DefaultMessageStore,
        root: Path,
        *,
        min_broker_id: int | None = None,
        **settings: Any,  # noqa: ANN401 -- those of a broker
    ) -> None:
        release: Release = store.config.release
        self.release = release
        self.clock = FakeClock()
        self.config = BrokerConfig(**({"auto_create_subscription_group": False} | settings))
        disk = OsFileSystem()
        self.topics = TopicConfigManager(root, disk, self.clock, release)
        self.groups = SubscriptionGroupManager(root, disk, self.clock, release)
        self.offsets = ConsumerOffsetManager(root, disk, self.clock, release)
        self.consumers: dict[str, ConsumerGroupInfo] = {}
        self.filters: dict[tuple[str, str], ConsumerFilterData] = {}
        self.hold = PullRequestHoldService(store, self.config, self.clock)
        checks = PullChecks(
            self.config, release, self.topics, self.groups, self.consumers,
            lambda topic, group: self.filters.get((topic, group)), self.clock,
        )  # fmt: skip
        self.processor = PullMessageProcessor(
            store, self.config, checks, self.offsets, self.hold, self.clock, min_broker_id_in_group=min_broker_id
        )
        self.answers: list[PullMessageResponse] = []
        self.topic("orders")
        self.group("billing")

    def topic(self, name: str, **more: Any) -> None:  # noqa: ANN401 -- those of a topic
        self.topics.update_topic_config(TopicConfig(topic_name=name, **({"read_queue_nums": 4} | more)))

    def group(self, name: str, **more: Any) -> None:  # noqa: ANN401 -- those of a group
        self.groups.update_subscription_group_config(SubscriptionGroupConfig(group_name=name, **more))

    def connect(
        self, group: str, topic: str, text: str = "*", kind: str = "TAG", *, version: int = 0, model: str = "CLUSTERING"
    ) -> None:
        """Register a consumer's subscription."""
        subscription = RegisteredSubscription(SubscriptionData.build(topic, text, kind), version)
        self.consumers[group] = ConsumerGroupInfo(group, MessageModel[model], {topic: subscription})

    def register(self, group: str, topic: str, expression: str, version: int = 0) -> None:
        """Register an expression."""
        self.filters[topic, group] = ConsumerFilterData.build(
            group, topic, expression, self.clock.now_ms(), release=self.release, client_version=version
        )

    def pull(self, **more: Any) -> PullMessageResponse:  # noqa: ANN401 -- those of a request
        """Pull, and do not wait."""
        response = self.processor.process_request(a_pull(**more))
        assert response is not None
        return response

    def wait(self, **more: Any) -> PullMessageResponse | None:  # noqa: ANN401 -- those of a request
        """Pull, and wait if necessary; the answer is added to `answers`."""
        return self.processor.process_request(
            a_pull(**({"sys_flag": CARRIED | PullSysFlag.SUSPEND} | more)), on_response=self.answers.append
        )
