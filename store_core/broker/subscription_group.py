# SPDX-License-Identifier: Apache-2.0
"""The consumer groups of a broker, and the file they are kept in."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Self

from store_core.broker.concurrent_map import concurrent_map_order, initial_capacity
from store_core.broker.config_fields import ConfigFields
from store_core.broker.config_members import encode_members
from store_core.broker.versioned_config import VersionedConfigManager
from store_core.files.config_paths import SUBSCRIPTION_GROUP_FILE
from store_core.format.releases.release import DEFAULT_RELEASE, rules_of

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from store_core.broker.config_json import JsonKey, JsonObject, JsonValue
    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem
    from store_core.format.releases.release import Release

__all__ = ["SubscriptionGroupConfig", "SubscriptionGroupManager"]

_CAPACITY: Final = initial_capacity(1024)
_FORBIDDEN_CAPACITY: Final = initial_capacity(4)
_FORBIDDEN_TOPICS_CAPACITY: Final = 16
_READ_BIT: Final = 1 << 2
_RETRY_POLICY: Final[Mapping[JsonKey, JsonValue]] = {"type": "CUSTOMIZED"}
_SINCE_5: Final = frozenset(
    ("attributes", "consumeMessageOrderly", "consumeTimeoutMinute", "groupRetryPolicy", "groupSysFlag")
)
_NAMES: Final = _SINCE_5 | {
    "brokerId",
    "consumeBroadcastEnable",
    "consumeEnable",
    "consumeFromMinEnable",
    "groupName",
    "notifyConsumerIdsChangedEnable",
    "retryMaxTimes",
    "retryQueueNums",
    "whichBrokerWhenConsumeSlowly",
}
"""Members of the file; each maps to the field of that name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroupConfig:
    """One consumer group (RocketMQ: ``SubscriptionGroupConfig``), with RocketMQ's defaults.

    Attributes
    ----------
    group_name : str
    consume_enable, consume_from_min_enable, consume_broadcast_enable, consume_message_orderly : bool
    retry_queue_nums, retry_max_times : int
        Number of queues of the group's retry topic, and how often a message is retried.
    broker_id, which_broker_when_consume_slowly : int
        Brokers that consumers are sent to: normally, and when they ask for messages no longer in memory.
    consume_timeout_minute : int
        Minutes (5.x).
    group_retry_policy : mapping
        As in the file (5.x).
    others : mapping
        Further members of the file, e.g. ``subscriptionDataSet``; they are preserved on writing.
    """

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    group_retry_policy: Mapping[JsonKey, JsonValue] = field(default_factory=lambda: dict(_RETRY_POLICY))
    attributes: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[JsonKey, JsonValue] = field(default_factory=dict)

    @classmethod
    def decode(cls, fields: ConfigFields, key: str) -> Self:
        """Decode a group; one without a name gets its key in the file as its name.

        Raises
        ------
        CorruptRecordError
            If a member has the wrong type.
        """
        return cls(
            group_name=fields.text("groupName", key),
            consume_enable=fields.flag("consumeEnable", default=True),
            consume_from_min_enable=fields.flag("consumeFromMinEnable", default=True),
            consume_broadcast_enable=fields.flag("consumeBroadcastEnable", default=True),
            consume_message_orderly=fields.flag("consumeMessageOrderly", default=False),
            retry_queue_nums=fields.small_integer("retryQueueNums", 1),
            retry_max_times=fields.small_integer("retryMaxTimes", 16),
            broker_id=fields.integer("brokerId"),
            which_broker_when_consume_slowly=fields.integer("whichBrokerWhenConsumeSlowly", 1),
            notify_consumer_ids_changed_enable=fields.flag("notifyConsumerIdsChangedEnable", default=True),
            group_sys_flag=fields.small_integer("groupSysFlag"),
            consume_timeout_minute=fields.small_integer("consumeTimeoutMinute", 15),
            group_retry_policy=fields.object("groupRetryPolicy").members or _RETRY_POLICY,
            attributes=fields.object("attributes").texts(),
            others=fields.others(_NAMES),
        )

    def encode(self, release: Release) -> JsonObject:
        """Encode it as a release does, members by name."""
        names = _NAMES if rules_of(release).has_group_attributes else _NAMES - _SINCE_5
        return encode_members(self, names)


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
        super().__init__(root, SUBSCRIPTION_GROUP_FILE, file_system, clock, release)
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
        with self._lock:
            order = concurrent_map_order(self._groups, _CAPACITY)
            table: JsonObject = {name: self._groups[name].encode(self._release) for name in order}
            version = self.data_version.encode(self._release)
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
        table = fields.table("subscriptionGroupTable")
        groups = {name: SubscriptionGroupConfig.decode(group, name) for name, group in table.objects()}
        forbidden = {
            group: {str(topic): topics.small_integer(topic) for topic in topics.members}
            for group, topics in fields.object("forbiddenTable").objects()
        }
        version = fields.object("dataVersion")
        with self._lock:
            self._load_version(version)  # first, because nothing may change if it fails
            self._groups.update(groups)
            self._forbidden.update(forbidden)
