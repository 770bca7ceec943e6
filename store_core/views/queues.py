# SPDX-License-Identifier: Apache-2.0
"""The views ``consumequeue`` and ``topics``: units of queues, and queues beside what the broker has configured."""

from __future__ import annotations

import logging
from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from store_core.errors import WITHOUT_SEGMENT, SegmentVanishedError, StoreError
from store_core.files.names import CONFIG_DIRECTORY
from store_core.files.store_kind import StoreUse
from store_core.files.url_path import UrlPath
from store_core.format.columnar.arrow_slices import fixed_array, repeat_text
from store_core.format.columns import TIMESTAMP_TYPE, table_time
from store_core.snapshot.config import TOPICS, TopicConfig
from store_core.snapshot.log import Log
from store_core.snapshot.queues import DIRECTORIES, FileQueue, NamedQueue, Queues, UnitFile
from store_core.snapshot.units import Queue, QueueBounds, QueueKind, QueueName, TopicFilter, Units
from store_core.store.read.chunk_rows import tell_null_time
from store_core.store.read.read_messages import hint_of, stored_topics
from store_core.views.view import (
    ViewOptions,
    absent,
    going_on,
    make_batch,
    name_text,
    rebatched,
    row_batches,
    tell,
    timestamps,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    import numpy.typing as npt

    from store_core.files.segment_source import Segment
    from store_core.snapshot.store import Store
    from store_core.store.read.read_options import ReadOptions


_log: Final = logging.getLogger("store_core")


def topic_filter(read: ReadOptions) -> TopicFilter:
    """Return the filter that options describe."""
    return TopicFilter.of(read.topic, read.topics_pattern, read.queue_id)


def _asked_queues(queues: Queues, chosen: TopicFilter, known: Collection[str] = ()) -> list[Queue]:
    """Return the queues that are asked for, by kind, topic and id; warn of topics without a queue that are not known.

    Directories that are not queues are left out with a warning.
    """
    found = list(queues.each(chosen))
    missing = set(chosen.topics) - {queue.name[0] for queue in found} - set(known)
    missing -= {topic for topic, _ in queues.names(TopicFilter(tuple(missing)))} if missing else set()
    for note in queues.notes:
        _log.warning("%s", note)
    for topic in sorted(missing):
        hint = hint_of(topic, stored_topics([queues.root]))
        _log.warning("topic %r has no queue below %s: %s", topic, queues.root, hint)
    return found


def _missing_queues(root: Path) -> StoreError:
    """Return the error that a store has no queues at all."""
    places = " nor ".join(str(root / name) for name in DIRECTORIES.values())
    found = f"no consume queues: expected directories TOPIC/NUMBER, found neither {places}"
    return absent(root, f"{found}. Give the root of a whole store", made="queues")


_TEXT: Final = pa.string()
_PART_BYTES: Final = 32 << 20
"""Maximum bytes of units in a part of several files, unless the options say otherwise."""

_FILE_COST: Final = 4 << 10
"""What opening a file costs, as bytes of units read in the same time: many small files must be several parts."""


@dataclass(frozen=True, slots=True)
class QueueSlice:
    """The units of one file of a queue, or some of a queue in a RocksDB.

    * `begin`, `end`: In a RocksDB, queue offsets. Of a file, 0 and the number of units when the view was planned; None
      for a file that doesn't change: one that is not the queue's last, or not on this machine.
    """

    name: QueueName
    kind: QueueKind
    file: UnitFile | None  # None in a RocksDB
    begin: int
    end: int | None

    @property
    def cost(self) -> int:
        """Bytes to read, plus what opening the file costs."""
        if self.file is not None and self.end is None:
            return self.file.size + _FILE_COST
        return ((self.end or 0) - self.begin) * self.kind.dtype.itemsize + _FILE_COST


@dataclass(frozen=True, slots=True)
class UnitsPart:
    """Parts of queues that are read together."""

    slices: tuple[QueueSlice, ...]
    queues: Queues

    def batches(self, options: ViewOptions) -> Iterator[pa.RecordBatch]:
        """Yield the units, with those of small files together in one batch."""
        return rebatched(self._pieces(options), options.read.max_records_per_batch)

    def _pieces(self, options: ViewOptions) -> Iterator[pa.RecordBatch]:
        with self.queues as queues:
            for origin in self.slices:
                with going_on(options):
                    for units in _units_of(origin, queues):
                        yield _batch(origin, units.chosen(_requested(origin, units, options)), options)


def _units_of(origin: QueueSlice, queues: Queues) -> Iterator[Units]:
    if origin.file is None:
        yield from NamedQueue(queues, *origin.name).stored.units(origin.begin, origin.end)
        return
    with closing(origin.file) as file:
        yield from file.windows(origin.begin, file.written() if origin.end is None else origin.end)


def plan_units(store: Store, options: ViewOptions) -> list[UnitsPart]:
    """List the requested queues, and group their files; only the last file of each queue is opened."""
    root = store.root_for(StoreUse.READ_QUEUES)
    most = options.read.max_partition_bytes or _PART_BYTES
    with Queues(root) as queues:
        if not queues.exist:
            tell(_missing_queues(root), options)
        asked = _asked_queues(queues, topic_filter(options.read))
        slices = (each for queue in asked for each in _slices(queue, most))
        return [UnitsPart(group, queues) for group in _grouped(slices, most)]


def _slices(queue: Queue, most: int) -> Iterator[QueueSlice]:
    if not isinstance(queue, FileQueue):
        bounds, step = queue.bounds(0), max(most // queue.kind.dtype.itemsize, 1)
        for begin in range(bounds.min_offset, bounds.max_offset, step):
            yield QueueSlice(queue.name, queue.kind, None, begin, min(begin + step, bounds.max_offset))
        return
    for file in queue.listed[:-1]:
        yield QueueSlice(queue.name, queue.kind, file, 0, None)
    for last in queue.listed[-1:]:
        count = None  # of an object, which is replaced rather than changed: counting units would read them all
        if not isinstance(last.path, UrlPath):
            try:
                with closing(last):
                    count = last.written()
            except SegmentVanishedError:
                continue  # deleted since its directory was listed, as with a topic
        if count != 0:
            yield QueueSlice(queue.name, queue.kind, last, 0, count)


def _grouped(slices: Iterable[QueueSlice], most: int) -> Iterator[tuple[QueueSlice, ...]]:
    group: list[QueueSlice] = []
    size = 0
    for one in slices:
        if group and size + one.cost > most:
            yield tuple(group)
            group, size = [], 0
        group.append(one)
        size += one.cost
    if group:
        yield tuple(group)


def _requested(origin: QueueSlice, units: Units, options: ViewOptions) -> npt.NDArray[np.bool_]:
    """Report which units are between the starting and the ending offsets, and of a log that ended at a time."""
    read: ReadOptions = options.read
    positions, offsets = units.stored["physical_offset"], units.offsets
    mask = np.ones(len(units), np.bool_) if options.log_end is None else positions < options.log_end
    for bound, is_end in ((read.starting_offsets, False), (read.ending_offsets, True)):
        if bound.physical is not None:
            mask &= positions < bound.physical if is_end else positions >= bound.physical
        for topic, queue_id, offset in bound.queues:
            if (topic, queue_id) == origin.name:
                mask &= offsets < offset if is_end else offsets >= offset
    return mask


def _batch(origin: QueueSlice, units: Units, options: ViewOptions) -> pa.RecordBatch:
    topic, queue_id = name_text(origin.name[0]), origin.name[1]
    file, count = origin.file, len(units)

    def stored(name: str, kind: type[np.signedinteger]) -> pa.Array:
        return fixed_array(units.stored[name].astype(kind))

    def times() -> pa.Array:
        if origin.kind is QueueKind.SIMPLE:
            return pa.nulls(count, TIMESTAMP_TYPE)
        milliseconds = units.stored["store_timestamp"].astype(np.int64)
        place = f"the unit {topic}/{queue_id}/"
        return timestamps(milliseconds, options, "store_timestamp", lambda row: f"{place}{units.offsets[row]}")

    return make_batch(
        options,
        {
            "topic": lambda: repeat_text(topic, count),
            "queue_id": lambda: fixed_array(np.full(count, queue_id, np.int32)),
            "queue_offset": lambda: fixed_array(units.offsets),
            "physical_offset": lambda: stored("physical_offset", np.int64),
            "store_size": lambda: stored("store_size", np.int32),
            "tags_code": lambda: stored("tags_code", np.int64),
            "kind": lambda: repeat_text(origin.kind.value, count),
            "batch_num": lambda: fixed_array(np.where(units.are_fillers, 0, units.counts).astype(np.int32)),
            "store_timestamp": times,
            "is_filler": lambda: pa.array(units.are_fillers, pa.bool_()),
            "segment": lambda: pa.nulls(count, _TEXT) if file is None else repeat_text(file.path.name, count),
        },
    )


_BOUNDS: Final = ("min_offset", "max_offset", "messages")
_TIMES: Final = ("oldest_store_timestamp", "newest_store_timestamp")
_CONFIGURED: Final = ("read_queue_nums", "write_queue_nums", "perm", "attributes", "in_config", "config_file")
_PART_ROWS: Final = 1000
"""Queues in a part: their bounds take about a tenth of a second."""


class _TopicRow(NamedTuple):
    """What becomes one row: a queue, a configured topic, or both."""

    topic: str
    queue_id: int | None
    configured: TopicConfig | None


@dataclass(frozen=True, slots=True)
class TopicsPart:
    """Queues and topics that are looked at together."""

    entries: tuple[_TopicRow, ...]  # one for each row
    segments: tuple[Segment, ...]  # the log's, if the columns need them
    queues: Queues | None  # if the columns need their bounds
    config_file: str | None  # the file with the configuration of topics, if there is one

    def batches(self, options: ViewOptions) -> Iterator[pa.RecordBatch]:
        """Yield a row for each entry."""
        rows = []
        with self.queues or nullcontext():
            for entry in self.entries:
                with going_on(options):
                    rows.append(self._row(entry, options))
        yield from row_batches(options, rows)

    def _row(self, entry: _TopicRow, options: ViewOptions) -> dict[str, object]:
        row: dict[str, object] = dict.fromkeys(options.view.column_names)
        row |= {
            "topic": name_text(entry.topic),
            "in_config": entry.configured is not None if self.config_file is not None else None,
            "in_queues": entry.queue_id is not None,
        }
        if (config := entry.configured) is not None:
            row |= {
                "read_queue_nums": config.read_queue_nums,
                "write_queue_nums": config.write_queue_nums,
                "perm": config.perm,
                "attributes": list(config.attributes.items()) if "attributes" in config.given else None,
                "config_file": self.config_file,
            }
        if entry.queue_id is not None:
            row["queue_id"] = entry.queue_id
            if self.queues is not None:
                queue = f"{entry.topic}/{entry.queue_id}"
                bounds = self.queues.bounds(entry.topic, entry.queue_id, options.log_end)
                if bounds is None:
                    raise SegmentVanishedError(
                        f"queue {name_text(queue)} of {self.queues.root} was there when the view was planned, and is "
                        f"gone: a broker deletes the queues of a deleted topic"
                    ).advised(WITHOUT_SEGMENT)
                row |= self._bounds(bounds, options, queue)
        return row

    def _bounds(self, bounds: QueueBounds, options: ViewOptions, queue: str) -> dict[str, object]:
        found: dict[str, object] = {
            "min_offset": bounds.min_offset,
            "max_offset": bounds.max_offset,
            "messages": bounds.max_offset - bounds.min_offset,
        }
        for column, place in zip(_TIMES, (bounds.first, bounds.last), strict=True):
            if place is not None and options.asks_for(column):
                time = Log(self.segments).time_at(*place)
                found[column] = table_time(time)
                if time is not None and found[column] is None:
                    tell_null_time(options.read, f"queue {name_text(queue)}", column, time)
        return found


def plan_topics(store: Store, options: ViewOptions) -> list[TopicsPart]:
    """List queues and configured topics; no queue is opened."""
    root = store.root_for(StoreUse.READ_QUEUES)
    found = store.config.of_release(options.read.release).read(TOPICS)
    needs_bounds = options.asks_for(*_BOUNDS, *_TIMES)
    segments = store.log.segments if needs_bounds else ()
    with store.queues if needs_bounds else Queues(root) as queues:
        if found is None:
            if options.asks_for(*_CONFIGURED):
                path = queues.root / CONFIG_DIRECTORY / TOPICS.name
                _log.warning("%s is missing or empty: topics are known by their queues alone", path)
            if not queues.exist:
                tell(_missing_queues(queues.root), options)
        configured, file = ({}, None) if found is None else (found.value, found.file)
        entries = _entries(queues, topic_filter(options.read), configured)
    groups = (tuple(entries[first : first + _PART_ROWS]) for first in range(0, len(entries), _PART_ROWS))
    return [TopicsPart(group, segments, queues if needs_bounds else None, file) for group in groups]


def _entries(queues: Queues, chosen: TopicFilter, configured: Mapping[str, TopicConfig]) -> list[_TopicRow]:
    """Return an entry for each requested queue, then those of topics that have none, sorted by topic and queue.

    A queue that only the log has, because its RocksDB was not flushed since it began, is one of them.
    """
    known = chosen.narrowed(configured)
    unflushed = [name for name in queues.unflushed if chosen.takes(*name)]
    listed = _asked_queues(queues, chosen, {*known, *(topic for topic, _ in queues.unflushed)})
    names: set[QueueName] = {*(queue.name for queue in listed), *unflushed}
    found = [_TopicRow(topic, queue_id, configured.get(topic)) for topic, queue_id in names]
    if not chosen.queue_ids:
        queued = {topic for topic, _ in names}
        found += [_TopicRow(topic, None, config) for topic, config in known.items() if topic not in queued]
    return sorted(found, key=lambda entry: (entry.topic, -1 if entry.queue_id is None else entry.queue_id))
