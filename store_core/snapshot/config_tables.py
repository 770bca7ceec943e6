# SPDX-License-Identifier: Apache-2.0
"""What a broker's configuration files are about: topics, consumer groups, committed offsets, and their version."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from enum import IntFlag
from typing import TYPE_CHECKING, Final, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from store_core.snapshot.config_json import ConfigFields, JsonKey, JsonValue

__all__ = [
    "GROUP_MEMBERS",
    "GROUP_MEMBERS_OF_5",
    "QUEUE_TYPE",
    "TOPIC_GROUP_SEPARATOR",
    "TOPIC_MEMBERS",
    "Committed",
    "ConsumerOffsets",
    "DataVersion",
    "Permission",
    "SubscriptionGroupConfig",
    "TopicConfig",
    "topic_and_group",
]

_log: Final = logging.getLogger("store_core")


@dataclass(frozen=True, slots=True)
class DataVersion:
    """Version of a configuration (RocketMQ: ``DataVersion``)."""

    timestamp: int  # time of the change, ms since 1970
    counter: int = 0  # how many versions preceded this one
    state_version: int = 0  # the broker's in controller mode, else 0 (5.x)

    @classmethod
    def decode(cls, fields: ConfigFields) -> Self:
        """Decode it; missing members are 0."""
        return cls(fields.integer("timestamp"), fields.integer("counter"), fields.integer("stateVersion"))

    @classmethod
    def of(cls, fields: ConfigFields) -> Self | None:
        """Decode the version of a file; None if it has none."""
        version = fields.object("dataVersion")
        return cls.decode(version) if version.members else None

    def next_version(self, now_ms: int, state_version: int = 0) -> DataVersion:
        """Return the next version."""
        return DataVersion(now_ms, self.counter + 1, state_version)


QUEUE_TYPE: Final = "queue.type"
"""Attribute with the kind of a topic's consume queues."""

_BATCH_QUEUE: Final = "BatchCQ"
_FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")
TOPIC_MEMBERS: Final = frozenset(
    ("attributes", "order", "perm", "readQueueNums", "topicFilterType", "topicName", "topicSysFlag", "writeQueueNums")
)
"""Members of a topic in the file; each is the field of that name in snake case."""

GROUP_MEMBERS_OF_5: Final = frozenset(
    ("attributes", "consumeMessageOrderly", "consumeTimeoutMinute", "groupRetryPolicy", "groupSysFlag")
)
"""Members of a consumer group that 4.x does not have."""

GROUP_MEMBERS: Final = GROUP_MEMBERS_OF_5 | {
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
"""Members of a consumer group in the file; each is the field of that name in snake case."""


class Permission(IntFlag):
    """Permitted uses of a topic (RocketMQ: ``PermName``)."""

    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """One topic (RocketMQ: ``TopicConfig``), with RocketMQ's defaults.

    Attributes
    ----------
    topic_name : str
    read_queue_nums, write_queue_nums : int
        Number of queues that consumers and producers see.
    perm : int
        Bits of `Permission`.
    topic_filter_type : str
        ``SINGLE_TAG`` or ``MULTI_TAG``.
    attributes : mapping
        5.x: ``queue.type``, ``cleanup.policy``, ``message.type``, ``reserve.time`` and others.
    others : mapping
        Members of the file that no release up to 5.3 knows; they are preserved on writing.
    given : frozenset of str
        Members that the file has; fields of others have the defaults.
    """

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = int(Permission.READ | Permission.WRITE)
    topic_filter_type: str = _FILTER_TYPES[0]
    topic_sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[JsonKey, JsonValue] = field(default_factory=dict)
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    @property
    def is_readable(self) -> bool:
        """Whether consumers may pull."""
        return bool(self.perm & Permission.READ)

    @property
    def is_writeable(self) -> bool:
        """Whether producers may send."""
        return bool(self.perm & Permission.WRITE)

    @property
    def is_batch(self) -> bool:
        """Whether its queues are batch consume queues (``queue.type=BatchCQ``)."""
        return self.attributes.get(QUEUE_TYPE) == _BATCH_QUEUE

    @classmethod
    def decode(cls, fields: ConfigFields, key: str) -> Self:
        """Decode a topic; one without a name gets its key in the file as its name.

        Raises
        ------
        CorruptRecordError
            If a member has the wrong type.
        """
        filter_type = fields.text("topicFilterType", _FILTER_TYPES[0])
        if filter_type in ("0", "1"):  # the number of a Java enum's constant
            filter_type = _FILTER_TYPES[int(filter_type)]
        if filter_type not in _FILTER_TYPES:  # fastjson then leaves it null, which no broker looks at
            filter_type = _FILTER_TYPES[0]
        return cls(
            topic_name=fields.text("topicName", key),
            read_queue_nums=fields.small_integer("readQueueNums", 16),
            write_queue_nums=fields.small_integer("writeQueueNums", 16),
            perm=fields.small_integer("perm", int(Permission.READ | Permission.WRITE)),
            topic_filter_type=filter_type,
            topic_sys_flag=fields.small_integer("topicSysFlag"),
            order=fields.flag("order", default=False),
            attributes=fields.object("attributes").texts(),
            others=fields.others(TOPIC_MEMBERS),
            given=fields.given,
        )


_RETRY_POLICY: Final[Mapping[JsonKey, JsonValue]] = {"type": "CUSTOMIZED"}


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
    given : frozenset of str
        Members that the file has; fields of others have the defaults.
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
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

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
            others=fields.others(GROUP_MEMBERS),
            given=fields.given,
        )


TOPIC_GROUP_SEPARATOR: Final = "@"
_BROADCAST: Final = "@broadcast"
"""Ends the name of the group under which 5.x keeps the least offset of a broadcasting group's clients
(``BroadcastOffsetManager.broadcastGroupId``)."""


def topic_and_group(key: str) -> tuple[str, str] | None:
    """Split ``topic@group``; None if Java's ``split`` does not return exactly these two.

    Examples
    --------
    >>> topic_and_group("orders@billing"), topic_and_group("orders@"), topic_and_group("a@b@c")
    (('orders', 'billing'), None, None)
    """
    parts = key.rstrip(TOPIC_GROUP_SEPARATOR).split(TOPIC_GROUP_SEPARATOR)
    return (parts[0], parts[1]) if len(parts) == 2 else None  # noqa: PLR2004 -- a topic and a group


class Committed(NamedTuple):
    """One committed offset: the number of the message that a group consumes next in a queue."""

    topic: str
    group: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class ConsumerOffsets:
    """What consumer groups have committed (RocketMQ: ``ConsumerOffsetManager``, ``LmqConsumerOffsetManager``)."""

    file: str  # the file that says so
    version: DataVersion | None  # None in 4.x
    table: Mapping[str, Mapping[int, int]]  # ``topic@group`` -> queue id -> offset, whatever the keys are
    light: tuple[Committed, ...] = ()  # offsets of light message queues, each of which is queue 0 of a topic of its own

    @classmethod
    def decode(cls, fields: ConfigFields, *, has_version: bool = True, has_light: bool = False) -> Self:
        """Decode the parts of a file that its reader looks at."""
        table = {key: queues.offsets() for key, queues in fields.object("offsetTable").objects()}
        version = DataVersion.of(fields) if has_version and not (has_light and _has_no_version(fields)) else None
        return cls(fields.file, version, table, tuple(_light_offsets(fields)) if has_light else ())

    @property
    def by_group(self) -> Mapping[tuple[str, str], Mapping[int, int]]:
        """Topic and group -> queue id -> offset, of any key."""
        keys = ((key.partition(TOPIC_GROUP_SEPARATOR), offsets) for key, offsets in self.table.items())
        return {(topic, group): offsets for (topic, _, group), offsets in keys}

    @property
    def committed(self) -> list[Committed]:
        """All committed offsets; a key that is no topic and group is left out, as RocketMQ does."""
        found = []
        for key, offsets in self.table.items():
            pair = topic_and_group(key)
            if pair is not None:
                found += [Committed(*pair, queue_id, offset) for queue_id, offset in offsets.items()]
            elif not key.endswith(_BROADCAST):
                _log.warning("%s: ignored the offsets of %r: expected topic@group", self.file, key)
        return found

    @property
    def broadcast(self) -> list[Committed]:
        """The least offsets of broadcasting groups' clients, which 5.x keeps for those of a proxy."""
        found = []
        for key, offsets in self.table.items():
            pair = topic_and_group(key.removesuffix(_BROADCAST)) if key.endswith(_BROADCAST) else None
            if pair is not None:
                found += [Committed(*pair, queue_id, offset) for queue_id, offset in offsets.items()]
        return found


def _has_no_version(fields: ConfigFields) -> bool:
    """Return whether the version is an empty text, which ``LmqConsumerOffsetManager`` takes for none."""
    return fields.members.get("dataVersion") == ""


def _light_offsets(fields: ConfigFields) -> Iterator[Committed]:
    table = fields.object("lmqOffsetTable")
    for key in table.members:
        pair = topic_and_group(str(key))
        if pair is None:
            _log.warning("%s: ignored the offset of %r: expected topic@group", fields.file, key)
        else:
            yield Committed(*pair, 0, table.offset(key))
