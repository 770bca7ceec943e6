# SPDX-License-Identifier: Apache-2.0
"""Topics, subscription groups and consumer groups, as a broker holds them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from store_core.broker.config_file import VersionedConfigManager, concurrent_map_order, encode_members, initial_capacity
from store_core.snapshot.config import (
    GROUP_MEMBERS,
    GROUP_MEMBERS_OF_5,
    SUBSCRIPTION_GROUPS,
    TOPIC_MEMBERS,
    TOPICS,
    DataVersion,
    SubscriptionGroupConfig,
    TopicConfig,
)
from store_core.snapshot.config_json import ConfigFields, JsonObject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store_core.broker.consumer_filter import SubscriptionData


_CAPACITY: Final = initial_capacity(1024)


_T = TypeVar("_T", "TopicConfig", "SubscriptionGroupConfig")


class _NamedConfigs(VersionedConfigManager, Generic[_T]):
    """Configurations by name, in one file, in the order of Java's table."""

    def _begin(self) -> None:
        super()._begin()
        self._configs: dict[str, _T] = {}

    def _names(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(concurrent_map_order(self._configs, _CAPACITY))

    def _put(self, name: str, config: _T) -> None:
        with self._lock:
            self._configs[name] = config
            self._next_version()

    def _remove(self, name: str) -> bool:
        with self._lock:
            if self._configs.pop(name, None) is None:
                return False
            self._next_version()
            return True

    def _table(self, members: frozenset[str]) -> JsonObject:
        return {name: encode_members(self._configs[name], members) for name in self._names()}


class TopicConfigManager(_NamedConfigs["TopicConfig"]):
    """Topics by name, in ``config/topics.json`` (RocketMQ: ``TopicConfigManager``).

    Topics that a broker creates at its start are not added: a table that was not loaded is empty. Parameters and
    attributes are those of `VersionedConfigManager`.
    """

    name = TOPICS.name

    def select_topic_config(self, topic: str) -> TopicConfig | None:
        """Return a topic; None if it is unknown."""
        return self._configs.get(topic)

    def topics(self) -> tuple[str, ...]:
        """Return the names of all topics, in the iteration order of Java's table."""
        return self._names()

    def batch_topics(self) -> frozenset[str]:
        """Return the topics with batch consume queues, as an argument for `DefaultMessageStore.open`."""
        with self._lock:
            return frozenset(name for name, topic in self._configs.items() if topic.is_batch)

    def update_topic_config(self, config: TopicConfig) -> None:
        """Add or replace a topic, and advance the data version. `persist` writes it to disk."""
        self._put(config.topic_name, config)

    def delete_topic_config(self, topic: str) -> bool:
        """Delete a topic; return whether it existed."""
        return self._remove(topic)

    def encode(self) -> JsonObject:
        """Return the contents of the file; topics of 4.x have no attributes."""
        names = TOPIC_MEMBERS if self._features.has_topic_attributes else TOPIC_MEMBERS - {"attributes"}
        with self._lock:
            return {"dataVersion": self._encode_version(), "topicConfigTable": self._table(names)}

    def decode(self, value: JsonObject, file: str) -> None:
        """Add the topics of a file to the existing ones, replacing those of the same name."""
        fields = ConfigFields(value, file)
        topics, version = TOPICS.decode(fields, self._features), DataVersion.of(fields)
        with self._lock:
            self._load_version(version)
            self._configs.update(topics)


_FORBIDDEN_CAPACITY: Final = initial_capacity(4)
_FORBIDDEN_TOPICS_CAPACITY: Final = 16
_READ_BIT: Final = 1 << 2


class SubscriptionGroupManager(_NamedConfigs["SubscriptionGroupConfig"]):
    """Consumer groups by name, in ``config/subscriptionGroup.json`` (RocketMQ: ``SubscriptionGroupManager``).

    Groups that a broker creates at its start are not added: a table that was not loaded is empty. Parameters and
    attributes are those of `VersionedConfigManager`.
    """

    name = SUBSCRIPTION_GROUPS.name

    def _begin(self) -> None:
        super()._begin()
        self._forbidden: dict[str, dict[str, int]] = {}

    def find_subscription_group_config(self, group: str) -> SubscriptionGroupConfig | None:
        """Return a group; None if it is unknown."""
        return self._configs.get(group)

    def groups(self) -> tuple[str, ...]:
        """Return the names of all groups, in the iteration order of Java's table."""
        return self._names()

    def update_subscription_group_config(self, config: SubscriptionGroupConfig) -> None:
        """Add or replace a group, and advance the data version. `persist` writes it to disk."""
        self._put(config.group_name, config)

    def delete_subscription_group_config(self, group: str) -> bool:
        """Delete a group and its forbidden bits; return whether it existed."""
        with self._lock:
            self._forbidden.pop(group, None)
            return self._remove(group)

    def disable_consume(self, group: str) -> None:
        """Stop a group from consuming, if it is known."""
        with self._lock:
            config = self._configs.get(group)
            if config is not None:
                self._put(group, replace(config, consume_enable=False))

    def forbidden(self, group: str, topic: str) -> int:
        """Return the bits of what a group may not do with a topic (5.x), by the positions of ``PermName``."""
        with self._lock:
            return max(self._forbidden.get(group, {}).get(topic, 0), 0)

    def is_read_forbidden(self, group: str, topic: str) -> bool:
        """Return whether a group may not pull from a topic (5.x)."""
        return bool(self.forbidden(group, topic) & _READ_BIT)

    def encode(self) -> JsonObject:
        """Return the contents of the file."""
        names = GROUP_MEMBERS if self._features.has_group_attributes else GROUP_MEMBERS - GROUP_MEMBERS_OF_5
        with self._lock:
            table, version = self._table(names), self._encode_version()
            if not self._features.has_forbidden_table:
                return {"dataVersion": version, "subscriptionGroupTable": table}
            forbidden: JsonObject = {}
            for group in concurrent_map_order(self._forbidden, _FORBIDDEN_CAPACITY):
                topics = concurrent_map_order(self._forbidden[group], _FORBIDDEN_TOPICS_CAPACITY)
                forbidden[group] = {topic: self._forbidden[group][topic] for topic in topics}
            return {"dataVersion": version, "forbiddenTable": forbidden, "subscriptionGroupTable": table}

    def decode(self, value: JsonObject, file: str) -> None:
        """Add the groups of a file to the existing ones, replacing those of the same name."""
        fields = ConfigFields(value, file)
        groups, version = SUBSCRIPTION_GROUPS.decode(fields, self._features), DataVersion.of(fields)
        forbidden = {
            group: {str(topic): topics.small_integer(topic) for topic in topics.members}
            for group, topics in fields.object("forbiddenTable").objects()
        }
        with self._lock:
            self._load_version(version)
            self._configs.update(groups)
            self._forbidden.update(forbidden)


class MessageModel(Enum):
    """How the consumers of a group share a topic (RocketMQ: ``MessageModel``)."""

    BROADCASTING = "each consumer gets every message"
    CLUSTERING = "each message goes to one consumer"


@dataclass(frozen=True, slots=True)
class RegisteredSubscription:
    """A group's subscription to a topic, as reported by its consumers' heartbeats.

    Attributes
    ----------
    data : SubscriptionData
    sub_version : int
        Version; usually its creation time.
    """

    data: SubscriptionData
    sub_version: int = 0


@dataclass(frozen=True, slots=True)
class ConsumerGroupInfo:
    """A group with connected consumers (RocketMQ: ``ConsumerGroupInfo``).

    Attributes
    ----------
    group_name : str
    message_model : MessageModel
    subscriptions : mapping of str to RegisteredSubscription
        By topic.
    """

    group_name: str
    message_model: MessageModel = MessageModel.CLUSTERING
    subscriptions: Mapping[str, RegisteredSubscription] = field(default_factory=dict)
