# SPDX-License-Identifier: Apache-2.0
"""The view ``consumequeue``: the units of the consume queues."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from store_core.errors import SegmentVanishedError
from store_core.files.segment_source import open_segment
from store_core.files.store_kind import StoreUse
from store_core.format.columnar.arrow_slices import fixed_array, repeat_text
from store_core.views.config_table import without_file
from store_core.views.queue_listing import QueueKind, TopicFilter, has_queues, list_queues, missing_queues
from store_core.views.queue_units import count_written, fillers, units_of_file
from store_core.views.store_root import root_of
from store_core.views.view_part import make_batch, name_text, timestamps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from store_core.files.segment_source import Segment
    from store_core.files.store_path import StorePaths
    from store_core.store.read.read_options import ReadOptions
    from store_core.views.queue_listing import ListedQueue
    from store_core.views.view_options import ViewOptions

__all__ = ["QueueSlice", "UnitsPart", "plan"]

_log: Final = logging.getLogger("store_core")

_PART_BYTES: Final = 32 << 20
"""Maximum bytes of units in a part of several files, unless the options say otherwise."""

_FILE_COST: Final = 4 << 10
"""What opening a file costs, as bytes of units read in the same time: many small files must be several parts."""


@dataclass(frozen=True, slots=True)
class QueueSlice:
    """The units of one file of a queue.

    Attributes
    ----------
    topic, queue_id, kind
        The queue.
    file : Segment
    count : int or None
        Number of units when the view was planned; None for a file that is not the queue's last, which doesn't change.
    """

    topic: str
    queue_id: int
    kind: QueueKind
    file: Segment
    count: int | None

    @property
    def cost(self) -> int:
        """Bytes to read, plus what opening the file costs."""
        size = self.file.size if self.count is None else self.count * self.kind.dtype.itemsize
        return size + _FILE_COST


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
        for rows in self._rows(options.read):
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

    def _rows(self, read: ReadOptions) -> Iterator[_Rows]:
        for origin in self.slices:
            try:
                yield from _read(origin, read)
            except SegmentVanishedError as error:
                if read.fail_on_data_loss:
                    raise
                _log.warning("%s", error)


def plan(paths: StorePaths, options: ViewOptions) -> list[UnitsPart]:
    """List the requested queues, and group their files; only the last file of each queue is opened.

    Raises
    ------
    StoreNotFoundError
        If there are no queues, unless `fail_on_data_loss` is off.
    UnsupportedStoreError
        If the queues are in a RocksDB.
    """
    root = root_of(paths, StoreUse.OPEN_QUEUES)
    if not has_queues(root):
        without_file(missing_queues(root), options)
    queues = list_queues(root, TopicFilter.of(options.read))
    return list(_grouped(_slices(queues), options.read.max_partition_bytes or _PART_BYTES))


def _slices(queues: Iterable[ListedQueue]) -> Iterator[QueueSlice]:
    for queue in queues:
        make = partial(QueueSlice, queue.topic, queue.queue_id, queue.kind)
        yield from (make(file, None) for file in queue.files[:-1])
        for last in queue.files[-1:]:
            try:
                with open_segment(last) as opened:
                    count = count_written(opened, queue.kind)
            except SegmentVanishedError:
                continue  # deleted since its directory was listed, as with a topic
            if count:
                yield make(last, count)


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


def _read(origin: QueueSlice, read: ReadOptions) -> Iterator[_Rows]:
    """Yield the requested units of a file, a batch at a time."""
    with open_segment(origin.file) as opened:
        count = count_written(opened, origin.kind) if origin.count is None else origin.count
        units = units_of_file(opened, origin.kind)[:count]
        first = origin.file.start_offset // origin.kind.dtype.itemsize
        for start in range(0, len(units), read.max_records_per_batch):
            some = units[start : start + read.max_records_per_batch]
            offsets = np.arange(first + start, first + start + len(some), dtype=np.int64)
            if origin.kind is QueueKind.BATCH:
                offsets = some["msg_base_offset"].astype(np.int64)
            mask = _requested(origin, some, offsets, read)
            yield _Rows(origin, *((some, offsets) if mask.all() else (some[mask], offsets[mask])))


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
            "store_timestamp": lambda: pa.concat_arrays([_times(some) for some in rows]),
            "is_filler": lambda: pa.array(
                np.concatenate([fillers(some.units, some.origin.kind) for some in rows]), pa.bool_()
            ),
            "segment": lambda: text("segment"),
        },
    )


def _text_of(origin: QueueSlice, column: str) -> str:
    texts = {"topic": name_text(origin.topic), "kind": origin.kind.value, "segment": origin.file.name}
    return texts[column]


def _batch_nums(rows: _Rows) -> npt.NDArray[np.int32]:
    if rows.origin.kind is QueueKind.BATCH:
        return rows.units["batch_size"].astype(np.int32)
    return np.where(fillers(rows.units, rows.origin.kind), 0, 1).astype(np.int32)


def _times(rows: _Rows) -> pa.Array:
    if rows.origin.kind is QueueKind.BATCH:
        return timestamps(rows.units["store_timestamp"].astype(np.int64))
    return pa.nulls(len(rows.units), timestamps(np.empty(0, np.int64)).type)
