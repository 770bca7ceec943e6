# SPDX-License-Identifier: Apache-2.0
"""The topics of a broker, and the file they are kept in."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntFlag
from typing import TYPE_CHECKING, Final, Self

from store_core.broker.concurrent_map import concurrent_map_order, initial_capacity
from store_core.broker.config_fields import ConfigFields
from store_core.broker.config_members import encode_members
from store_core.broker.versioned_config import VersionedConfigManager
from store_core.files.clock import SystemClock
from store_core.files.config_paths import CONFIG_DIRECTORY, TOPICS_FILE
from store_core.files.file_system import OsFileSystem
from store_core.format.releases.release import DEFAULT_RELEASE, rules_of

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from pathlib import Path

    from store_core.broker.config_json import JsonKey, JsonObject, JsonValue
    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem
    from store_core.format.releases.release import Release

__all__ = ["QUEUE_TYPE", "Permission", "TopicConfig", "TopicConfigManager", "configured_batch_topics"]

QUEUE_TYPE: Final = "queue.type"
"""Attribute with the kind of a topic's consume queues."""

_BATCH_QUEUE: Final = "BatchCQ"
_FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")
_NAMES: Final = frozenset(
    ("attributes", "order", "perm", "readQueueNums", "topicFilterType", "topicName", "topicSysFlag", "writeQueueNums")
)
"""Members of the file; each maps to the field of that name."""

_CAPACITY: Final = initial_capacity(1024)


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
            others=fields.others(_NAMES),
        )

    def encode(self, release: Release) -> JsonObject:
        """Encode it as a release does, members by name; 4.x has no attributes."""
        names = _NAMES if rules_of(release).has_topic_attributes else _NAMES - {"attributes"}
        return encode_members(self, names)


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
        super().__init__(root, TOPICS_FILE, file_system, clock, release)
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
        """Return the contents of the file."""
        with self._lock:
            order = concurrent_map_order(self._topics, _CAPACITY)
            table: JsonObject = {name: self._topics[name].encode(self._release) for name in order}
            return {"dataVersion": self.data_version.encode(self._release), "topicConfigTable": table}

    def decode(self, value: JsonObject, file: str) -> None:
        """Add the topics of a file to the existing ones, replacing those of the same name."""
        fields = ConfigFields(value, file)
        topics = {name: TopicConfig.decode(topic, name) for name, topic in fields.table("topicConfigTable").objects()}
        version = fields.object("dataVersion")
        with self._lock:
            self._load_version(version)  # first, because nothing may change if it fails
            self._topics.update(topics)


def configured_batch_topics(store: Path, release: Release) -> frozenset[str]:
    """Return the topics that the broker's ``topics.json`` calls batch topics."""
    if not rules_of(release).has_batch_queues or not (store / CONFIG_DIRECTORY).is_dir():
        return frozenset()
    topics = TopicConfigManager(store, OsFileSystem(), SystemClock(), release)
    topics.load()
    return topics.batch_topics()
