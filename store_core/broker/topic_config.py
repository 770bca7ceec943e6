# SPDX-License-Identifier: Apache-2.0
"""The topics of a broker, and the file they are kept in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store_core.broker.concurrent_map import concurrent_map_order, initial_capacity
from store_core.broker.config_file import VersionedConfigManager, encode_members
from store_core.format.releases.release import DEFAULT_RELEASE, rules_of
from store_core.snapshot.config import TOPICS
from store_core.snapshot.config_json import ConfigFields
from store_core.snapshot.config_tables import TOPIC_MEMBERS, DataVersion

if TYPE_CHECKING:
    import os

    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem
    from store_core.format.releases.release import Release
    from store_core.snapshot.config_json import JsonObject
    from store_core.snapshot.config_tables import TopicConfig

__all__ = ["TopicConfigManager"]

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
