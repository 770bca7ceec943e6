# SPDX-License-Identifier: Apache-2.0
"""Topics, subscription groups and consumer groups, as a broker holds them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from store_core.broker.config_file import VersionedConfigManager, concurrent_map_order, encode_members, initial_capacity
from store_core.format.releases.release import DEFAULT_RELEASE, rules_of
from store_core.snapshot.config import (
    GROUP_MEMBERS,
    GROUP_MEMBERS_OF_5,
    SUBSCRIPTION_GROUPS,
    TOPIC_MEMBERS,
    TOPICS,
    DataVersion,
)
from store_core.snapshot.config_json import ConfigFields

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from store_core.broker.consumer_filter import SubscriptionData
    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem
    from store_core.format.releases.release import Release
    from store_core.snapshot.config import SubscriptionGroupConfig, TopicConfig
    from store_core.snapshot.config_json import JsonObject

__all__ = [
    "ConsumerGroupInfo",
    "MessageModel",
    "RegisteredSubscription",
    "SubscriptionGroupManager",
    "TopicConfigManager",
]

_CAPACITY: Final = initial_capacity(1024)


class TopicConfigManager(VersionedConfigManager):
    """Topics by name, in ``config/topics.json`` (RocketMQ: ``TopicConfigManager``).

    Topics that a broker creates at its start are not added: a table that was not loaded is empty.

    Parameters
    ----------
    root : path-like
        The store's root.
    file_system : FileSystem, optional
    clock : Clock, optional
    release : str

    Attributes
    ----------
    data_version : DataVersion
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        file_system: FileSystem | None = None,
        clock: Clock | None = None,
        release: Release = DEFAULT_RELEASE,
    ) -> None:
        super().__init__(root, TOPICS.name, file_system, clock, release)
        self._topics: dict[str, TopicConfig] = {}

    def select_topic_config(self, topic: str) -> TopicConfig | None:
        """Return a topic; None if it is unknown."""
        return self._topics.get(topic)

    def topics(self) -> tuple[str, ...]:
        """Return the names of all topics, in the iteration order of Java's table."""
        with self._lock:
            return tuple(concurrent_map_order(self._topics, _CAPACITY))

    def batch_topics(self) -> frozenset[str]:
        """Return the topics with batch consume queues, as an argument for `DefaultMessageStore.open`."""
        with self._lock:
            return frozenset(name for name, topic in self._topics.items() if topic.is_batch)

    def update_topic_config(self, config: TopicConfig) -> None:
        """Add or replace a topic, and advance the data version. `persist` writes it to disk."""
        with self._lock:
            self._topics[config.topic_name] = config
            self._next_version()

    def delete_topic_config(self, topic: str) -> bool:
        """Delete a topic; return whether it existed."""
        with self._lock:
            if self._topics.pop(topic, None) is None:
                return False
            self._next_version()
            return True

    def encode(self) -> JsonObject:
        """Return the contents of the file; topics of 4.x have no attributes."""
        has_attributes = rules_of(self._release).has_topic_attributes
        names = TOPIC_MEMBERS if has_attributes else TOPIC_MEMBERS - {"attributes"}
        with self._lock:
            order = concurrent_map_order(self._topics, _CAPACITY)
            table: JsonObject = {name: encode_members(self._topics[name], names) for name in order}
            return {"dataVersion": self._encode_version(), "topicConfigTable": table}

    def decode(self, value: JsonObject, file: str) -> None:
        """Add the topics of a file to the existing ones, replacing those of the same name."""
        fields = ConfigFields(value, file)
        topics, version = TOPICS.decode(fields, rules_of(self._release)), DataVersion.of(fields)
        with self._lock:
            self._load_version(version)
            self._topics.update(topics)


_FORBIDDEN_CAPACITY: Final = initial_capacity(4)
_FORBIDDEN_TOPICS_CAPACITY: Final = 16
_READ_BIT: Final = 1 << 2


class SubscriptionGroupManager(VersionedConfigManager):
    """Consumer groups by name, in ``config/subscriptionGroup.json`` (RocketMQ: ``SubscriptionGroupManager``).

    Groups that a broker creates at its start are not added: a table that was not loaded is empty.

    Parameters
    ----------
    root : path-like
        The store's root.
    file_system : FileSystem, optional
    clock : Clock, optional
    release : str

    Attributes
    ----------
    data_version : DataVersion
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        file_system: FileSystem | None = None,
        clock: Clock | None = None,
        release: Release = DEFAULT_RELEASE,
    ) -> None:
        super().__init__(root, SUBSCRIPTION_GROUPS.name, file_system, clock, release)
        self._groups: dict[str, SubscriptionGroupConfig] = {}
        self._forbidden: dict[str, dict[str, int]] = {}

    def find_subscription_group_config(self, group: str) -> SubscriptionGroupConfig | None:
        """Return a group; None if it is unknown."""
        return self._groups.get(group)

    def groups(self) -> tuple[str, ...]:
        """Return the names of all groups, in the iteration order of Java's table."""
        with self._lock:
            return tuple(concurrent_map_order(self._groups, _CAPACITY))

    def update_subscription_group_config(self, config: SubscriptionGroupConfig) -> None:
        """Add or replace a group, and advance the data version. `persist` writes it to disk."""
        with self._lock:
            self._groups[config.group_name] = config
            self._next_version()

    def delete_subscription_group_config(self, group: str) -> bool:
        """Delete a group and its forbidden bits; return whether it existed."""
        with self._lock:
            self._forbidden.pop(group, None)
            if self._groups.pop(group, None) is None:
                return False
            self._next_version()
            return True

    def disable_consume(self, group: str) -> None:
        """Stop a group from consuming, if it is known."""
        with self._lock:
            config = self._groups.get(group)
            if config is not None:
                self._groups[group] = replace(config, consume_enable=False)
                self._next_version()

    def forbidden(self, group: str, topic: str) -> int:
        """Return the bits of what a group may not do with a topic (5.x), by the positions of ``PermName``."""
        with self._lock:
            return max(self._forbidden.get(group, {}).get(topic, 0), 0)

    def is_read_forbidden(self, group: str, topic: str) -> bool:
        """Return whether a group may not pull from a topic (5.x)."""
        return bool(self.forbidden(group, topic) & _READ_BIT)

    def encode(self) -> JsonObject:
        """Return the contents of the file."""
        has_all = rules_of(self._release).has_group_attributes
        names = GROUP_MEMBERS if has_all else GROUP_MEMBERS - GROUP_MEMBERS_OF_5
        with self._lock:
            order = concurrent_map_order(self._groups, _CAPACITY)
            table: JsonObject = {name: encode_members(self._groups[name], names) for name in order}
            version = self._encode_version()
            if not rules_of(self._release).has_forbidden_table:
                return {"dataVersion": version, "subscriptionGroupTable": table}
            forbidden: JsonObject = {}
            for group in concurrent_map_order(self._forbidden, _FORBIDDEN_CAPACITY):
                topics = concurrent_map_order(self._forbidden[group], _FORBIDDEN_TOPICS_CAPACITY)
                forbidden[group] = {topic: self._forbidden[group][topic] for topic in topics}
            return {"dataVersion": version, "forbiddenTable": forbidden, "subscriptionGroupTable": table}

    def decode(self, value: JsonObject, file: str) -> None:
        """Add the groups of a file to the existing ones, replacing those of the same name."""
        fields = ConfigFields(value, file)
        groups, version = SUBSCRIPTION_GROUPS.decode(fields, rules_of(self._release)), DataVersion.of(fields)
        forbidden = {
            group: {str(topic): topics.small_integer(topic) for topic in topics.members}
            for group, topics in fields.object("forbiddenTable").objects()
        }
        with self._lock:
            self._load_version(version)
            self._groups.update(groups)
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
