# SPDX-License-Identifier: Apache-2.0
"""The view ``consumequeue``: the units of the consume queues."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from store_core.errors import SegmentVanishedError
from store_core.files.segment_source import Segment, open_segment
from store_core.files.store_kind import StoreUse
from store_core.format.columnar.arrow_slices import fixed_array, repeat_text
from store_core.format.columns import TIMESTAMP_TYPE
from store_core.queue.rocksdb.rocksdb_queues import RocksdbQueues
from store_core.views.config_table import without_file
from store_core.views.queue_listing import (
    QueueKind,
    StoredRange,
    TopicFilter,
    has_queues,
    list_queues,
    missing_queues,
)
from store_core.views.queue_units import count_written, fillers, units_of_file
from store_core.views.store_root import root_of
from store_core.views.view_part import make_batch, name_text, timestamps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from store_core.files.store_path import StorePaths
    from store_core.store.read.read_options import ReadOptions
    from store_core.views.queue_listing import ListedQueue
    from store_core.views.view_options import ViewOptions

__all__ = ["QueueSlice", "UnitsPart", "plan"]

_log: Final = logging.getLogger("store_core")

_TEXT: Final = pa.string()
_PART_BYTES: Final = 32 << 20
"""Maximum bytes of units in a part of several files, unless the options say otherwise."""

_FILE_COST: Final = 4 << 10
"""What opening a file costs, as bytes of units read in the same time: many small files must be several parts."""


@dataclass(frozen=True, slots=True)
class QueueSlice:
    """The units of one file of a queue, or some of a queue in a RocksDB.

    Attributes
    ----------
    topic, queue_id, kind
        The queue.
    source : Segment or StoredRange
    count : int or None
        Number of units when the view was planned; None for a file that doesn't change: one that is not the queue's
        last, or not on this machine.
    """

    topic: str
    queue_id: int
    kind: QueueKind
    source: Segment | StoredRange
    count: int | None

    @property
    def cost(self) -> int:
        """Bytes to read, plus what opening the file costs."""
        if isinstance(self.source, Segment) and self.count is None:
            return self.source.size + _FILE_COST
        return (self.count or 0) * self.kind.dtype.itemsize + _FILE_COST


class _Rows(NamedTuple):
    """Some units of one file, with their queue offsets; both of one length."""

    origin: QueueSlice
    units: npt.NDArray[np.void]
    queue_offsets: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class UnitsPart:
    """Files of queues that are read together.

    Attributes
    ----------
    slices : tuple of QueueSlice
    """

    slices: tuple[QueueSlice, ...]

    def batches(self, options: ViewOptions) -> Iterator[pa.RecordBatch]:
        """Yield the units, with those of small files together in one batch."""
        most = options.read.max_records_per_batch
        waiting: list[_Rows] = []
        count = 0
        for rows in self._rows(options):
            taken = 0
            while taken < len(rows.units):
                stop = min(taken + most - count, len(rows.units))
                waiting.append(_Rows(rows.origin, rows.units[taken:stop], rows.queue_offsets[taken:stop]))
                count += stop - taken
                taken = stop
                if count == most:
                    yield _batch(options, waiting)
                    waiting, count = [], 0
        if waiting:
            yield _batch(options, waiting)

    def _rows(self, options: ViewOptions) -> Iterator[_Rows]:
        with ExitStack() as opened:
            databases: dict[Path, RocksdbQueues] = {}
            for origin in self.slices:
                if isinstance(origin.source, StoredRange):
                    if origin.source.database not in databases:
                        queues = opened.enter_context(RocksdbQueues.open(origin.source.database))
                        databases[origin.source.database] = queues
                    yield from _stored(origin, origin.source, databases[origin.source.database], options)
                    continue
                try:
                    yield from _read(origin, origin.source, options)
                except SegmentVanishedError as error:
                    if options.read.fail_on_data_loss:
                        raise
                    _log.warning("%s", error.problem)


def plan(paths: StorePaths, options: ViewOptions) -> list[UnitsPart]:
    """List the requested queues, and group their files; only the last file of each queue is opened.

    Raises
    ------
    StoreNotFoundError
        If there are no queues, unless `fail_on_data_loss` is off.
    UnsupportedStoreError
        If the queues are in a RocksDB, and the library that reads it is not installed.
    """
    root = root_of(paths, StoreUse.READ_QUEUES)
    if not has_queues(root):
        without_file(missing_queues(root), options)
    queues = list_queues(root, TopicFilter.of(options.read))
    most = options.read.max_partition_bytes or _PART_BYTES
    return list(_grouped(_slices(queues, most), most))


def _slices(queues: Iterable[ListedQueue], most: int) -> Iterator[QueueSlice]:
    for queue in queues:
        if queue.stored is not None:
            yield from _stored_slices(queue, queue.stored, max(most // queue.kind.dtype.itemsize, 1))
        make = partial(QueueSlice, queue.topic, queue.queue_id, queue.kind)
        yield from (make(file, None) for file in queue.files[:-1])
        for last in queue.files[-1:]:
            if last.remote is not None:
                yield make(last, None)  # an object is replaced rather than changed, and counting units reads them all
                continue
            try:
                with open_segment(last) as opened:
                    count = count_written(opened, queue.kind)
            except SegmentVanishedError:
                continue  # deleted since its directory was listed, as with a topic
            if count:
                yield make(last, count)


def _stored_slices(queue: ListedQueue, stored: StoredRange, most: int) -> Iterator[QueueSlice]:
    """Yield a queue in a RocksDB, in pieces of not more than a number of units."""
    for begin in range(stored.begin, stored.end, most):
        some = replace(stored, begin=begin, end=min(begin + most, stored.end))
        yield QueueSlice(queue.topic, queue.queue_id, queue.kind, some, some.end - begin)


def _grouped(slices: Iterable[QueueSlice], most: int) -> Iterator[UnitsPart]:
    group: list[QueueSlice] = []
    size = 0
    for one in slices:
        if group and size + one.cost > most:
            yield UnitsPart(tuple(group))
            group, size = [], 0
        group.append(one)
        size += one.cost
    if group:
        yield UnitsPart(tuple(group))


def _stored(origin: QueueSlice, stored: StoredRange, queues: RocksdbQueues, options: ViewOptions) -> Iterator[_Rows]:
    """Yield the requested units of a range in a RocksDB, a batch at a time."""
    for offsets, units in queues.units(origin.topic, origin.queue_id, stored.begin, stored.end):
        most = options.read.max_records_per_batch
        for start in range(0, len(units), most):
            yield _chosen(origin, units[start : start + most], offsets[start:], options)


def _read(origin: QueueSlice, file: Segment, options: ViewOptions) -> Iterator[_Rows]:
    """Yield the requested units of a file, a batch at a time."""
    with open_segment(file) as opened:
        count = count_written(opened, origin.kind) if origin.count is None else origin.count
        units = units_of_file(opened, origin.kind)[:count]
        first = file.start_offset // origin.kind.dtype.itemsize
        most = options.read.max_records_per_batch
        for start in range(0, len(units), most):
            some = units[start : start + most]
            offsets = np.arange(first + start, first + start + len(some), dtype=np.int64)
            if origin.kind is QueueKind.BATCH:
                offsets = some["msg_base_offset"].astype(np.int64)
            yield _chosen(origin, some, offsets, options)


def _chosen(
    origin: QueueSlice, units: npt.NDArray[np.void], offsets: npt.NDArray[np.int64], options: ViewOptions
) -> _Rows:
    """Return the requested ones of some units; there may be more offsets."""
    offsets = offsets[: len(units)]
    mask = _requested(origin, units, offsets, options.read)
    if options.log_end is not None:
        mask &= units["physical_offset"] < options.log_end
    return _Rows(origin, *((units, offsets) if mask.all() else (units[mask], offsets[mask])))


def _requested(
    origin: QueueSlice, units: npt.NDArray[np.void], offsets: npt.NDArray[np.int64], read: ReadOptions
) -> npt.NDArray[np.bool_]:
    """Report which units are between the starting and the ending offsets."""
    mask = np.ones(len(units), np.bool_)
    for bound, is_end in ((read.starting_offsets, False), (read.ending_offsets, True)):
        if bound.physical is not None:
            positions = units["physical_offset"]
            mask &= positions < bound.physical if is_end else positions >= bound.physical
        for topic, queue_id, offset in bound.queues:
            if (topic, queue_id) == (origin.topic, origin.queue_id):
                mask &= offsets < offset if is_end else offsets >= offset
    return mask


def _batch(options: ViewOptions, rows: Sequence[_Rows]) -> pa.RecordBatch:
    def stored(name: str, kind: type[np.signedinteger]) -> pa.Array:
        return fixed_array(np.concatenate([some.units[name].astype(kind) for some in rows]))

    def text(of: str) -> pa.Array:
        return pa.concat_arrays([repeat_text(_text_of(some.origin, of), len(some.units)) for some in rows])

    return make_batch(
        options,
        {
            "topic": lambda: text("topic"),
            "queue_id": lambda: fixed_array(
                np.concatenate([np.full(len(some.units), some.origin.queue_id, np.int32) for some in rows])
            ),
            "queue_offset": lambda: fixed_array(np.concatenate([some.queue_offsets for some in rows])),
            "physical_offset": lambda: stored("physical_offset", np.int64),
            "store_size": lambda: stored("store_size", np.int32),
            "tags_code": lambda: stored("tags_code", np.int64),
            "kind": lambda: text("kind"),
            "batch_num": lambda: fixed_array(np.concatenate([_batch_nums(some) for some in rows])),
            "store_timestamp": lambda: pa.concat_arrays([_times(some, options) for some in rows]),
            "is_filler": lambda: pa.array(
                np.concatenate([fillers(some.units, some.origin.kind) for some in rows]), pa.bool_()
            ),
            "segment": lambda: pa.concat_arrays([_segments(some) for some in rows]),
        },
    )


def _text_of(origin: QueueSlice, column: str) -> str:
    return name_text(origin.topic) if column == "topic" else origin.kind.value


def _segments(rows: _Rows) -> pa.Array:
    source = rows.origin.source
    return (
        repeat_text(source.name, len(rows.units)) if isinstance(source, Segment) else pa.nulls(len(rows.units), _TEXT)
    )


def _batch_nums(rows: _Rows) -> npt.NDArray[np.int32]:
    if rows.origin.kind is QueueKind.BATCH:
        return rows.units["batch_size"].astype(np.int32)
    return np.where(fillers(rows.units, rows.origin.kind), 0, 1).astype(np.int32)


def _times(rows: _Rows, options: ViewOptions) -> pa.Array:
    if rows.origin.kind is QueueKind.SIMPLE:
        return pa.nulls(len(rows.units), TIMESTAMP_TYPE)
    queue = f"{name_text(rows.origin.topic)}/{rows.origin.queue_id}"
    times = rows.units["store_timestamp"].astype(np.int64)
    return timestamps(times, options, "store_timestamp", lambda row: f"the unit {queue}/{rows.queue_offsets[row]}")
