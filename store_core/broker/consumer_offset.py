# SPDX-License-Identifier: Apache-2.0
"""How far consumer groups and delay levels are, as a broker holds and writes it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from store_core.broker.config_file import VersionedConfigManager, concurrent_map_order, initial_capacity
from store_core.errors import InvalidOptionError
from store_core.files.service_thread import ServiceThread
from store_core.format.java import DEFAULT_CAPACITY, hash_map_order
from store_core.format.release import DEFAULT_RELEASE, Release
from store_core.snapshot.config import (
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    TOPIC_GROUP_SEPARATOR,
    DataVersion,
    topic_and_group,
)
from store_core.snapshot.config_json import ConfigFields, JsonObject

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping

    from store_core.files.file_system import FileSystem
    from store_core.files.machine import Clock
    from store_core.store.message_store_config import BrokerConfig


_MS: Final = 1000.0
_LOG: Final = logging.getLogger("store_core")

_FIRST_SECONDS: Final = 10.0


class FlushConsumerOffsetService(ServiceThread):
    """Service that writes committed offsets to ``config/consumerOffset.json``, as a broker does on a schedule.

    It writes 10 s after the start, then every ``flushConsumerOffsetInterval``, and once more at shutdown (RocketMQ, all
    releases: ``BrokerController``). A crash loses the commits since the last write, and consumers of the group then get
    those messages again. A failed write is reported, and repeated after the next interval.

    Nothing is written before the file has been read, so a broker that failed to start keeps its offsets.

    Parameters
    ----------
    offsets : ConsumerOffsetManager
    broker : BrokerConfig
        ``flushConsumerOffsetInterval``, ms.
    clock : Clock
    on_error : callable, optional
        Called with each `OSError`, in the service's thread.

    Raises
    ------
    InvalidOptionError
        If the interval is not positive; RocketMQ's broker does not start with such an interval either.
    """

    def __init__(
        self,
        offsets: ConsumerOffsetManager,
        broker: BrokerConfig,
        clock: Clock,
        on_error: Callable[[OSError], None] | None = None,
    ) -> None:
        super().__init__(clock, on_error)
        interval = broker.flush_consumer_offset_interval
        if interval <= 0:
            raise InvalidOptionError(f"flush_consumer_offset_interval must be positive (ms), found {interval}")
        self._offsets = offsets
        self._interval = interval / _MS
        self._due = clock.monotonic() + _FIRST_SECONDS

    def start(self) -> None:
        """Read the file unless it has been read, and start the thread unless it is running.

        Raises
        ------
        CorruptRecordError
            If the file and its backup are both broken.
        OSError
            As raised by the system.
        """
        if not self.is_running:
            if not self._offsets.is_loaded:
                self._offsets.load()
            self._due = self._clock.monotonic() + _FIRST_SECONDS
        super().start()

    def pause(self) -> None:
        """Wait until it is time to write."""
        self.wait_for_running(max(self._due - self._clock.monotonic(), 0.0))

    def run_once(self) -> None:
        """Write the file if it is due."""
        now = self._clock.monotonic()
        if now >= self._due:
            self._due = now + self._interval
            self._persist()

    def finish(self) -> None:
        """Write the file one last time."""
        self._persist()

    def _persist(self) -> None:
        if self._offsets.is_loaded:
            self._offsets.persist()


NO_OFFSET: Final = -1
"""The result if a group has committed nothing."""

_TABLE_CAPACITY: Final = initial_capacity(512)
_QUEUES_CAPACITY: Final = initial_capacity(32)
_GROUPS_CAPACITY: Final = 128
_TOPICS_CAPACITY: Final = 8


class ConsumerOffsetManager(VersionedConfigManager):
    """Committed offsets by topic, group and queue, in ``config/consumerOffset.json`` (``ConsumerOffsetManager``).

    An offset is the index of the next message to consume. A commit may also move it back: that is the client's choice.
    Every method may be called by any thread.

    Parameters
    ----------
    root, file_system, clock, release
        Those of `ConfigManager`. 5.x also writes a data version and which topics a group consumes, and keeps pull
        offsets and resets by the server.
    version_step : int
        After how many commits the data version advances (``consumerOffsetUpdateVersionStep``).
    uses_reset : bool
        Whether a reset by the server takes precedence over the committed offset (``useServerSideResetOffset``).

    Attributes
    ----------
    data_version : DataVersion
    """

    name = CONSUMER_OFFSETS.name

    def __init__(  # noqa: PLR0913 -- where it is kept, and two switches of the broker
        self,
        root: str | os.PathLike[str],
        file_system: FileSystem | None = None,
        clock: Clock | None = None,
        release: Release = DEFAULT_RELEASE,
        *,
        version_step: int = 500,
        uses_reset: bool = True,
    ) -> None:
        super().__init__(root, file_system, clock, release)
        self._version_step = version_step
        self._uses_reset = uses_reset and self._features.has_server_side_reset
        self._commits = 0
        self._capacity = _TABLE_CAPACITY
        self._offsets: dict[str, _Queues] = {}
        self._pull_offsets: dict[str, dict[int, int]] = {}
        self._reset_offsets: dict[str, dict[int, int]] = {}

    # ---- committing and querying

    def commit_offset(self, client_host: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Record that a group has consumed a queue up to `offset`; moving back is logged, with the client's host.

        Raises
        ------
        ValueError
            If the queue id has more than 32 bits or the offset more than 64.
        """
        _check(queue_id, offset)
        key = _key(topic, group)
        with self._lock:
            queues = self._offsets.setdefault(key, _Queues(_QUEUES_CAPACITY))
            before = queues.offsets.get(queue_id)
            queues.offsets[queue_id] = offset
            self._commits += 1
            if self._features.versions_consumer_offsets and self._commits % self._version_step == 0:
                self._next_version()
        if before is not None and offset < before:
            _LOG.warning(
                "%s commits offset %d of %s, queue %d, back from %d", client_host, offset, key, queue_id, before
            )

    def query_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return where a group continues in a queue, -1 if unknown; in 5.x a reset by the server takes precedence."""
        key = _key(topic, group)
        with self._lock:
            if self._uses_reset and queue_id in self._reset_offsets.get(key, {}):
                return self._reset_offsets[key][queue_id]
            queues = self._offsets.get(key)
            return NO_OFFSET if queues is None else queues.offsets.get(queue_id, NO_OFFSET)

    def query_offsets(self, group: str, topic: str) -> Mapping[int, int] | None:
        """Return the offsets that a group has committed for a topic, by queue; None if it never committed any."""
        with self._lock:
            queues = self._offsets.get(_key(topic, group))
            return None if queues is None else dict(queues.offsets)

    def offset_table(self) -> dict[str, dict[int, int]]:
        """Return a copy of all committed offsets: ``topic@group`` to queue to offset."""
        with self._lock:
            return {key: dict(queues.offsets) for key, queues in self._offsets.items()}

    # ---- pulling (5.x, in memory only)

    def commit_pull_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Record up to where a group has pulled a queue, whether consumed or not."""
        _check(queue_id, offset)
        with self._lock:
            self._pull_offsets.setdefault(_key(topic, group), {})[queue_id] = offset

    def query_pull_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return up to where a group has pulled a queue; if it has not pulled, the result of `query_offset`."""
        with self._lock:
            pulled = self._pull_offsets.get(_key(topic, group), {}).get(queue_id)
        return self.query_offset(group, topic, queue_id) if pulled is None else pulled

    def clear_pull_offset(self, group: str, topic: str) -> None:
        """Forget up to where a group has pulled a topic."""
        with self._lock:
            self._pull_offsets.pop(_key(topic, group), None)

    # ---- resets by the server (5.x)

    def assign_reset_offset(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Make a group continue elsewhere; its next pull is answered with this offset, whatever it asks for.

        An empty name, or a negative queue id or offset, is ignored, as in RocketMQ.
        """
        if not topic or not group or queue_id < 0 or offset < 0:
            _LOG.warning("reset of %r, group %r, queue %d to %d is ignored", topic, group, queue_id, offset)
            return
        _check(queue_id, offset)
        key = _key(topic, group)
        with self._lock:
            self._reset_offsets.setdefault(key, {})[queue_id] = offset
            self._offsets.setdefault(key, _Queues(DEFAULT_CAPACITY)).offsets[queue_id] = offset

    def has_offset_reset(self, topic: str, group: str, queue_id: int) -> bool:
        """Return whether a reset is waiting for the group's next pull."""
        with self._lock:
            return queue_id in self._reset_offsets.get(_key(topic, group), {})

    def query_then_erase_reset_offset(self, topic: str, group: str, queue_id: int) -> int | None:
        """Return and forget a waiting reset; None if there is none."""
        with self._lock:
            return self._reset_offsets.get(_key(topic, group), {}).pop(queue_id, None)

    # ---- topics and groups

    def which_topic_by_consumer(self, group: str) -> set[str]:
        """Return the topics for which a group has committed offsets."""
        return {topic for topic, other in self._pairs() if other == group}

    def which_group_by_topic(self, topic: str) -> set[str]:
        """Return the groups that have committed offsets for a topic."""
        return {group for other, group in self._pairs() if other == topic}

    def clone_offset(self, group: str, new_group: str, topic: str) -> None:
        """Make a new group continue where another one is."""
        with self._lock:
            queues = self._offsets.get(_key(topic, group))
            if queues is not None:
                copied = _Queues(initial_capacity(len(queues.offsets)), dict(queues.offsets))
                self._offsets[_key(topic, new_group)] = copied

    def remove_offset(self, group: str) -> None:
        """Forget a group, for all topics."""
        self._remove(lambda pair: pair[1] == group, everywhere=True)

    def clean_offset_by_topic(self, topic: str) -> None:
        """Forget the offsets of all groups for a topic."""
        self._remove(lambda pair: pair[0] == topic, everywhere=False)

    def _remove(self, is_gone: Callable[[tuple[str, str]], bool], *, everywhere: bool) -> None:
        tables = (self._offsets, self._reset_offsets, self._pull_offsets) if everywhere else (self._offsets,)
        with self._lock:
            for table in tables:
                for key in tuple(table):
                    pair = topic_and_group(key)
                    if pair is not None and is_gone(pair):
                        del table[key]

    def _pairs(self) -> Iterator[tuple[str, str]]:
        with self._lock:
            keys = concurrent_map_order(self._offsets, self._capacity)
        return (pair for key in keys if (pair := topic_and_group(key)) is not None)

    # ---- the file

    def encode(self) -> JsonObject:
        """Return the contents of the file: in 4.x the offsets alone."""
        table: JsonObject = {}
        with self._lock:
            for key in concurrent_map_order(self._offsets, self._capacity):
                queues = self._offsets[key]
                order = concurrent_map_order(queues.offsets, queues.capacity)
                table[key] = {queue_id: queues.offsets[queue_id] for queue_id in order}
            if not self._features.versions_consumer_offsets:
                return {"offsetTable": table}
            version = self._encode_version()
            written: JsonObject = {
                "dataVersion": version,
                "groupTopicMap": self._group_topic_map(),
                "offsetTable": table,
            }
            return written | {"pullOffsetTable": self._pull_table()} if self._features.writes_pull_offsets else written

    def _pull_table(self) -> JsonObject:
        written: JsonObject = {}
        for key in concurrent_map_order(self._pull_offsets, _TABLE_CAPACITY):
            table = self._pull_offsets[key]
            written[key] = {queue_id: table[queue_id] for queue_id in sorted(table)}
        return written

    def _group_topic_map(self) -> JsonObject:
        """Return the topics of each group, in the order of Java's ``HashMap`` and ``HashSet``."""
        topics_of: dict[str, list[str]] = {}
        for topic, group in self._pairs():
            topics_of.setdefault(group, []).append(topic)
        groups = _hash_order(list(topics_of), _GROUPS_CAPACITY)
        return {group: _hash_order(topics_of[group], _TOPICS_CAPACITY) for group in groups}

    def decode(self, value: JsonObject, file: str) -> None:
        """Read the offsets of a file; ``groupTopicMap`` follows from them and is ignored."""
        found = CONSUMER_OFFSETS.decode(ConfigFields(value, file), self._features)
        with self._lock:
            self._load_version(found.version)
            self._capacity = DEFAULT_CAPACITY
            self._offsets = {key: _Queues(DEFAULT_CAPACITY, dict(offsets)) for key, offsets in found.table.items()}


@dataclass(slots=True)
class _Queues:
    """The offsets of a group for a topic, and the number of buckets of the Java map that would hold them."""

    capacity: int
    offsets: dict[int, int] = field(default_factory=dict)


def _key(topic: str, group: str) -> str:
    return f"{topic}{TOPIC_GROUP_SEPARATOR}{group}"


def _check(queue_id: int, offset: int) -> None:
    if not -(1 << 31) <= queue_id < 1 << 31:
        raise ValueError(f"a queue id has 32 bits, found {queue_id}")
    if not -(1 << 63) <= offset < 1 << 63:
        raise ValueError(f"an offset has 64 bits, found {offset}")


def _hash_order(names: list[str], capacity: int) -> tuple[str, ...]:
    """Sort names in the order of a ``HashMap`` with this many buckets at first, which doubles over three quarters."""
    while len(names) > capacity * 3 // 4:
        capacity *= 2
    return hash_map_order(tuple(names), capacity)


_CAPACITY: Final = initial_capacity(32)


class DelayOffsetTable(VersionedConfigManager):
    """Offsets in the queues of ``SCHEDULE_TOPIC_XXXX`` by delay level, in ``config/delayOffset.json``.

    (RocketMQ: the persisted part of ``ScheduleMessageService``.) Level 1 is queue 0. An offset is the index of the next
    message to deliver.

    Parameters
    ----------
    root, file_system, clock, release
        Those of `ConfigManager`. 5.x also writes a data version.
    version_step : int
        After how many updates the data version advances (``delayOffsetUpdateVersionStep``).

    Attributes
    ----------
    data_version : DataVersion
    """

    name = DELAY_OFFSETS.name

    def __init__(
        self,
        root: str | os.PathLike[str],
        file_system: FileSystem | None = None,
        clock: Clock | None = None,
        release: Release = DEFAULT_RELEASE,
        *,
        version_step: int = 200,
    ) -> None:
        super().__init__(root, file_system, clock, release)
        self._has_version = self._features.versions_delay_offsets
        self._version_step = version_step
        self._updates = 0
        self._offsets: dict[int, int] = {}

    def offset_of(self, level: int) -> int:
        """Return the index of a level's next message; 0 if none was ever delivered."""
        return self._offsets.get(level, 0)

    def offset_table(self) -> dict[int, int]:
        """Return a copy of all offsets by level."""
        with self._lock:
            return dict(self._offsets)

    def update_offset(self, level: int, offset: int) -> None:
        """Record that a level has been delivered up to `offset`."""
        with self._lock:
            self._offsets[level] = offset
            self._updates += 1
            if self._has_version and self._updates % self._version_step == 0:
                self._next_version()

    def correct(self, bounds_of: Callable[[int], tuple[int, int] | None]) -> tuple[int, ...]:
        """Limit every known offset to its queue; return the levels that were changed.

        (RocketMQ: ``ScheduleMessageService.correctDelayOffset``.)

        Parameters
        ----------
        bounds_of : callable
            Returns the min and max index of a level's queue, or None if there is no such queue.
        """
        corrected = []
        with self._lock:
            for level, offset in self._offsets.items():
                bounds = bounds_of(level)
                kept = offset if bounds is None else min(max(offset, bounds[0]), bounds[1])
                if kept != offset:
                    _LOG.error(
                        "delay level %d continues at %d: %d is outside its queue %s", level, kept, offset, bounds
                    )
                    self._offsets[level] = kept
                    corrected.append(level)
        return tuple(corrected)

    def encode(self) -> JsonObject:
        """Return the contents of the file: in 4.x the offsets alone."""
        with self._lock:
            order = concurrent_map_order(self._offsets, _CAPACITY)
            table: JsonObject = {level: self._offsets[level] for level in order}
            if not self._has_version:
                return {"offsetTable": table}
            return {"dataVersion": self._encode_version(), "offsetTable": table}

    def decode(self, value: JsonObject, file: str) -> None:
        """Add the offsets of a file to the existing ones, replacing those of the same level."""
        fields = ConfigFields(value, file)
        offsets = DELAY_OFFSETS.decode(fields, self._features)
        version = DataVersion.of(fields) if self._has_version else None
        with self._lock:
            self._load_version(version)
            self._offsets.update(offsets)
