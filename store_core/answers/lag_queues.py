# SPDX-License-Identifier: Apache-2.0
"""What the answer `lag` looks at: which queues the groups of a broker consume, and how far each is behind in them."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from store_core.broker.topic_kind import DEAD_LETTER_PREFIX, TopicKind, kind_of_topic
from store_core.errors import InvalidOptionError, SegmentVanishedError
from store_core.files.store_kind import StoreUse
from store_core.format.record.delayed import RETRY_PREFIX
from store_core.format.words import did_you_mean
from store_core.queue.queue_path import LMQ_PREFIX
from store_core.snapshot.config import (
    CONSUMER_OFFSETS,
    LIGHT_OFFSETS,
    REQUEST_MODES,
    SUBSCRIPTION_GROUPS,
    Committed,
    Config,
)
from store_core.snapshot.log import Log
from store_core.snapshot.units import QueueBounds, TopicFilter, compare

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from store_core.files.segment_source import Segment
    from store_core.snapshot.queues import Queues
    from store_core.snapshot.store import Store


_log: Final = logging.getLogger("store_core")

_REVIVE_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
_SYSTEM_GROUPS: Final = frozenset(
    (
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_PULL",
    )
)
"""Groups that every broker configures (RocketMQ: ``SubscriptionGroupManager.init``)."""

_SYSTEM_PREFIX: Final = "CID_RMQ_SYS_"
_POP_SEPARATORS: Final = ("_", "+")
"""Between group and topic in the name of a retry topic of POP consumers (RocketMQ: ``KeyBuilder``)."""


class GroupKind(Enum):
    """How a group consumes a topic; its value is the kind in words."""

    NORMAL = "each message goes to one consumer of the group"
    POP = "the broker hands out messages, and takes an acknowledgement for each (5.x)"
    RETRY = "messages that the group could not process, to be delivered again"
    POP_RETRY = "messages that a group that pops could not process, to be delivered again"
    DEAD_LETTER = "messages whose deliveries all failed, consumed by a group"
    LIGHT = "a light message queue (%LMQ%)"
    BROADCAST = "each consumer gets every message; the offset is that of the slowest consumer behind a proxy (5.x)"
    REVIVE = "the broker itself, which puts popped messages again that nobody acknowledged"
    SYSTEM = "the broker itself, or its tools"


def _is_system_group(group: str) -> bool:
    """Return whether a group is the broker's own."""
    return group in _SYSTEM_GROUPS or group.startswith(_SYSTEM_PREFIX)


def kind_of(topic: str, group: str, pop: Collection[tuple[str, str]] = ()) -> GroupKind:
    """Return how a group consumes a topic.

    * `pop`: Topics and groups whose consumers pop, as the broker's configuration says.

    >>> [kind_of(topic, "g").name for topic in ("t", "%RETRY%g", "%RETRY%g+t", "%DLQ%g", "%LMQ%x")]
    ['NORMAL', 'RETRY', 'POP_RETRY', 'DEAD_LETTER', 'LIGHT']
    """
    if topic.startswith(_REVIVE_PREFIX):
        return GroupKind.REVIVE
    if topic.startswith(LMQ_PREFIX) or group.startswith(LMQ_PREFIX):
        return GroupKind.LIGHT
    named = kind_of_topic(topic)
    if named is TopicKind.RETRY:
        rest = topic.removeprefix(RETRY_PREFIX).removeprefix(group)
        return GroupKind.POP_RETRY if rest.startswith(_POP_SEPARATORS) else GroupKind.RETRY
    if named is TopicKind.DEAD_LETTER:
        return GroupKind.DEAD_LETTER
    if _is_system_group(group) or named not in (TopicKind.APPLICATION, TopicKind.TRACE):
        return GroupKind.SYSTEM
    return GroupKind.POP if (topic, group) in pop else GroupKind.NORMAL


_NO_OFFSET: Final = "no_offset"
"""The state of a group that has committed nothing for a queue of a topic that it consumes."""


_EMPTY: Final = "empty"
"""The state where nothing was consumed of a queue that is not there, as it has never had a message."""


class Consumer(NamedTuple):
    """A group that consumes a queue."""

    group: str
    kind: GroupKind
    committed: int | None  # its offset; None if it has committed nothing for this queue


class ConsumedQueue(NamedTuple):
    """A queue, and the groups whose lag is asked for."""

    topic: str
    queue_id: int
    groups: tuple[Consumer, ...]


# ---- which queues groups consume


class BrokerGroups(NamedTuple):
    """What the files of a broker say of consumer groups."""

    committed: tuple[Committed, ...]
    broadcast: tuple[Committed, ...]  # the least offsets of broadcasting groups' clients
    configured: frozenset[str]  # groups that are configured
    pop: frozenset[tuple[str, str]]  # topics and groups whose consumers pop
    files: tuple[Path, ...]  # those with offsets
    notes: tuple[str, ...]

    @classmethod
    def of(cls, config: Config) -> BrokerGroups:
        """Read the files of a store's broker."""
        plain, light = config.read(CONSUMER_OFFSETS), config.read(LIGHT_OFFSETS)
        found = [each for each in (plain, light) if each is not None]
        if not found:
            raise config.absent(CONSUMER_OFFSETS, ", and broadcasting consumers keep their offsets themselves.")
        newest = max((each.value for each in found), key=lambda each: each.version.timestamp if each.version else 0)
        notes = [note for each in found for note in each.notes]
        notes += (
            f"{each.file} is older than {newest.file}: of ordinary queues, its offsets are not used"
            for each in (one.value for one in found)
            if each is not newest and each.committed
        )
        configured, group_notes = config.known(SUBSCRIPTION_GROUPS)
        popped, mode_notes = config.known(REQUEST_MODES)
        return cls(
            (*newest.committed, *(light.value.light if light is not None else ())),
            tuple(newest.broadcast),
            frozenset(configured or ()),
            popped or frozenset(),
            tuple(config.root / each.file for each in found),
            (*notes, *group_notes, *mode_notes),
        )


def consumed_queues(
    queues: Queues, groups: BrokerGroups, names: Collection[str] = (), topics: Collection[str] = ()
) -> list[ConsumedQueue]:
    """Return the queues of some groups and topics, or of all, with the groups that consume each, sorted.

    They are those for which a group has committed an offset, the others of the same topics, and the queues of its retry
    topic.
    """
    every = [(one, kind_of(one.topic, one.group, groups.pop)) for one in groups.committed]
    every += [(one, GroupKind.BROADCAST) for one in groups.broadcast]
    _check_known("group", names, {one.group for one, _ in every} | groups.configured)
    _check_known("topic", topics, {one.topic for one, _ in every})
    chosen = [
        (one, kind) for one, kind in every if (not names or one.group in names) and (not topics or one.topic in topics)
    ]
    consumed = _consumed(chosen)
    known = _queues_of(queues, {topic for kinds in consumed.values() for topic in kinds})
    rows: defaultdict[tuple[str, int], list[Consumer]] = defaultdict(list)
    for one, kind in chosen:
        rows[one.topic, one.queue_id].append(Consumer(one.group, kind, one.offset))
    done = {(one.group, one.topic, one.queue_id) for one, _ in chosen}
    for group, kinds in consumed.items():
        for topic, kind in kinds.items():
            for queue_id in known.get(topic, ()):
                if (group, topic, queue_id) not in done and (not topics or topic in topics):
                    rows[topic, queue_id].append(Consumer(group, kind, None))
    return [
        ConsumedQueue(*name, tuple(sorted(rows[name], key=lambda each: (each.group, each.kind.name))))
        for name in sorted(rows)
    ]


def _check_known(name: str, asked: Iterable[str], known: Collection[str]) -> None:
    for each in asked:
        if each not in known:
            hint = did_you_mean(each, sorted(known)) or "the view consumer_offsets lists what there is"
            raise InvalidOptionError(f"no {name} {each!r} in the committed offsets; {hint}")


def _consumed(chosen: Iterable[tuple[Committed, GroupKind]]) -> dict[str, dict[str, GroupKind]]:
    """Return the topics that each group consumes, in clustering mode, and how; its retry topic is one of them."""
    found: defaultdict[str, dict[str, GroupKind]] = defaultdict(dict)
    for one, kind in chosen:
        if kind is not GroupKind.BROADCAST:
            found[one.group][one.topic] = kind
            if not _is_system_group(one.group) and kind not in _WITHOUT_RETRY:
                found[one.group].setdefault(f"{RETRY_PREFIX}{one.group}", GroupKind.RETRY)
    return dict(found)


_WITHOUT_RETRY: Final = (GroupKind.SYSTEM, GroupKind.REVIVE, GroupKind.LIGHT)


def _queues_of(queues: Queues, topics: Collection[str]) -> Mapping[str, list[int]]:
    """Return the ids of the queues that topics have."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for topic, queue_id in queues.names(TopicFilter(tuple(topics))) if topics else ():
        found[topic].append(queue_id)
    return found


# ---- how far a group is behind in a queue


class QueueLag(NamedTuple):
    """How far a group is behind in a queue.

    * `min_offset`, `max_offset`, `messages`: Bounds of the queue, and messages that are there and not consumed; None if
      unknown.
    """

    topic: str
    queue_id: int
    asked: Consumer
    state: str  # as in the view ``consumer_offsets``, or ``no_offset`` or ``empty``
    min_offset: int | None
    max_offset: int | None
    messages: int | None
    size: int | None = None  # bytes of their records
    first: tuple[int, int, int] | None = None  # queue offset, physical offset and bytes of the first of them
    oldest: int | None = None  # store time of that one, ms; None without one, or if the log does not have it
    newer: int = 0  # how many of the messages were stored after the offsets were written


def _compared(asked: ConsumedQueue, group: Consumer, bounds: QueueBounds | None, then: QueueBounds | None) -> QueueLag:
    if bounds is None and (group.committed or 0) <= 0:  # below 0 nothing is committed
        return QueueLag(asked.topic, asked.queue_id, group, _EMPTY, None, None, 0)
    columns = compare(0 if group.committed is None else group.committed, bounds, then)
    state = _NO_OFFSET if group.committed is None else columns.state
    return QueueLag(asked.topic, asked.queue_id, group, state, columns.min_offset, columns.max_offset, columns.behind)


def _begin(row: QueueLag) -> int:
    """Return the queue offset of the first message that is not consumed."""
    return max(row.asked.committed or 0, row.min_offset or 0)


# ---- the job

_LAST_FILES: Final = 2
"""Segments that a broker may write: one may be made ahead."""

_PART_QUEUES: Final = 200
"""Queues in a part: the bounds of their files take some hundredths of a second."""

_LOOKS: Final = 3
"""How often a queue is listed: a broker deletes its files one after the other."""

_LISTED_COLUMNS: Final = ("physical_offset", "store_timestamp", "tags", "keys", "unique_key", "born_host")


@dataclass(frozen=True, slots=True)
class FoundLag:
    """What was found in some queues."""

    rows: tuple[QueueLag, ...]
    dead_letters: tuple[tuple[str, int], ...]  # topics of dead letters, and how many messages are in a queue of each
    messages: tuple[dict[str, Any], ...]  # rows of the report's table of messages that are not consumed


class LagJob:
    """Compares committed offsets with queues, some queues at a time; see `store_core.store.parts.Job`.

    * `group`, `topic`: Names; empty for all.
    * `as_of`: Store time, ms: queues are taken as they were then; None for now.
    * `most_messages`: How many of the messages that were not consumed are listed; with 0 none is read.
    """

    def __init__(
        self,
        store: Store,
        group: Collection[str] = (),
        topic: Collection[str] = (),
        as_of: int | None = None,
        most_messages: int = 0,
    ) -> None:
        self.root = store.root_for(StoreUse.READ_QUEUES)
        self.groups = BrokerGroups.of(store.config)
        self.segments: tuple[Segment, ...] = store.log.segments
        self.log_end: int | None = None
        if as_of is not None:
            from store_core.store.read.read_plan import log_end_at  # plans reads, too, of which most lags need nothing

            self.log_end = log_end_at(store, as_of)
        self.queues = store.queues  # of a store that is written: as of when the offsets were read
        self.written = max(store.config.written(file) or 0 for file in self.groups.files)
        self._group, self._topic, self._most = group, topic, most_messages
        self._is_past = as_of is not None

    def plan(self) -> Sequence[Sequence[ConsumedQueue]]:
        """Return the parts: queues that groups consume, then those with their dead letters."""
        asked = consumed_queues(self.queues, self.groups, self._group, self._topic)
        names = {each.group for queue in asked for each in queue.groups}
        dead = tuple(f"{DEAD_LETTER_PREFIX}{name}" for name in sorted(names))
        found = self.queues.names(TopicFilter(dead)) if dead else ()
        queues = [*asked, *(ConsumedQueue(*name, ()) for name in found)]
        return [queues[at : at + _PART_QUEUES] for at in range(0, len(queues), _PART_QUEUES)]

    def run(self, part: Sequence[ConsumedQueue]) -> FoundLag:
        """Look at the queues of a part."""
        rows: list[QueueLag] = []
        dead: list[tuple[str, int]] = []
        with self.queues as queues:
            for asked in part:
                if asked.groups:
                    rows += self._lags(asked)
                else:
                    bounds = queues.bounds(asked.topic, asked.queue_id)
                    dead.append((asked.topic, 0 if bounds is None else bounds.max_offset - bounds.min_offset))
            messages = self._unconsumed(rows) if self._most else []
        return FoundLag(tuple(rows), tuple(dead), tuple(messages))

    def merge(self, partials: Iterable[FoundLag]) -> FoundLag:
        """Return what was found in all queues."""
        found = list(partials)
        rows = tuple(row for each in found for row in each.rows)
        dead = tuple(pair for each in found for pair in each.dead_letters)
        return FoundLag(rows, dead, tuple(row for each in found for row in each.messages)[: self._most])

    @property
    def missing_bytes(self) -> int:
        """Bytes of segments that are missing from the log."""
        return Log(self.segments).missing_bytes

    def unknown_groups(self, rows: Iterable[QueueLag]) -> list[str]:
        """Return the requested groups that are configured and have committed no offset."""
        known = {each.group for each in (*self.groups.committed, *self.groups.broadcast)}
        known |= {row.asked.group for row in rows}
        names = () if self._topic else sorted(self.groups.configured - known)
        return [name for name in names if not _is_system_group(name) and (not self._group or name in self._group)]

    def _lags(self, asked: ConsumedQueue) -> list[QueueLag]:
        name, problem = (asked.topic, asked.queue_id), ""
        for _ in range(_LOOKS):
            try:
                bounds = self.queues.bounds(*name)
                return self._behind(asked, bounds, self.queues.before(*name, bounds, self.log_end))
            except SegmentVanishedError as error:
                problem = error.problem
                self.queues.close()  # lists the queue anew, without the file that a broker has deleted
                queue = self.queues.get(*name)
                if queue is None or not queue.files:
                    break
        _log.warning("%s", problem)
        return self._behind(asked, None, None)

    def _behind(self, asked: ConsumedQueue, bounds: QueueBounds | None, then: QueueBounds | None) -> list[QueueLag]:
        """Compare what groups have committed with a queue; each of its units from the least offset on is read once.

        * `bounds`, `then`: The queue as it is now, and as of the time asked for; None if there is none.
        """
        rows = [_compared(asked, each, bounds, then) for each in asked.groups]
        begins = {each: _begin(each) for each in rows if each.messages}
        sizes, firsts = self._tails(asked, sorted(set(begins.values())), rows[0].max_offset or 0)
        log, newest = Log(self.segments), self._first_newer(asked, rows)
        found = []
        for row in rows:
            begin = begins.get(row)
            first = firsts.get(begin)
            oldest = None if first is None else log.time_at(*first[1:])
            size = None if row.messages is None else sizes.get(begin, 0)
            newer = 0 if begin is None else max((row.max_offset or 0) - max(newest, begin), 0)
            found.append(row._replace(size=size, first=first, oldest=oldest, newer=newer))
        return found

    def _tails(
        self, asked: ConsumedQueue, begins: Sequence[int], end: int
    ) -> tuple[dict[int | None, int], dict[int | None, tuple[int, int, int]]]:
        """Return what a queue has from each of some offsets on: bytes, and the first unit."""
        sizes: dict[int | None, int] = dict.fromkeys(begins, 0)
        firsts: dict[int | None, tuple[int, int, int]] = {}
        for run in self.queues.units(asked.topic, asked.queue_id, begins[0], end) if begins else ():
            after = np.cumsum(run.sizes[::-1])[::-1]
            rows = np.searchsorted(run.ends, np.array(begins, np.int64), side="right")
            for begin, row in zip(begins, rows.tolist(), strict=True):
                if row < after.size:
                    sizes[begin] += int(after[row])
                    firsts.setdefault(begin, (int(run.offsets[row]), *run.place(row)))
        return sizes, firsts

    def _first_newer(self, asked: ConsumedQueue, rows: Sequence[QueueLag]) -> int:
        """Return the queue offset of the first message that was stored after the offsets were written, or the end.

        It is the end, too, if the log's last files were not written later.
        """
        end = max((row.max_offset or 0 for row in rows), default=0)
        begin = min((_begin(row) for row in rows if row.messages), default=end)
        if self._is_past or begin >= end:
            return end
        files = [Path(segment.path) for segment in self.segments[-_LAST_FILES:] if segment.is_plain]
        if not any(file.stat().st_mtime_ns // 1_000_000 > self.written for file in files if file.is_file()):
            return end

        def is_newer(offset: int) -> bool:
            run = next(self.queues.units(asked.topic, asked.queue_id, offset, offset + 1), None)
            return run is not None and (Log(self.segments).time_at(*run.place(0)) or 0) > self.written

        return bisect_left(range(end), True, begin, end, key=is_newer) if is_newer(end - 1) else end  # noqa: FBT003 -- a key

    # ---- messages that are not consumed

    def _unconsumed(self, rows: Iterable[QueueLag]) -> list[dict[str, Any]]:
        """Return the first messages that are not consumed, queue by queue; only their records are read."""
        listed = list(self._first_units(rows))
        if not listed:
            return []
        # Decoding records is a large part of the code, and needed only here.
        from store_core.store.read.message_reader import records_at
        from store_core.store.read.read_options import ReadOptions

        starts, sizes = (np.array([each[name] for each in listed], np.int64) for name in _PLACE)
        read = ReadOptions(columns=_LISTED_COLUMNS, verify_crc=False, fail_on_data_loss=False, nearest_times=True)
        batches = records_at(self.segments, starts, sizes, read)
        found = {row["physical_offset"]: row for batch in batches for row in _messages(batch)}
        return [each | found.get(each["physical_offset"], {}) for each in listed]

    def _first_units(self, rows: Iterable[QueueLag]) -> Iterator[dict[str, Any]]:
        left = self._most
        for row in rows:
            if row.first is None or left <= 0:
                continue
            begin, end = row.first[0], row.max_offset or 0
            name = {"consumer_group": row.asked.group, "topic": row.topic, "queue_id": row.queue_id}
            for run in self.queues.units(row.topic, row.queue_id, begin, min(end, begin + left)):
                for offset, start, size in zip(
                    run.offsets.tolist(), run.starts.tolist(), run.sizes.tolist(), strict=True
                ):
                    if left > 0:
                        left -= 1
                        yield {**name, "queue_offset": offset, "physical_offset": start, "store_size": size}


_PLACE: Final = ("physical_offset", "store_size")


def _messages(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    at = batch.schema.get_field_index("store_timestamp")
    times = batch.column(at).cast("int64")  # a store can hold times that Python's own datetime can't
    return iter(batch.set_column(at, "store_timestamp", times).select(list(_LISTED_COLUMNS)).to_pylist())
