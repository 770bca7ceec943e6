# SPDX-License-Identifier: Apache-2.0
"""The view ``consumequeue``: the units of the consume queues."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from store_core.errors import SegmentVanishedError
from store_core.files.remote.url_path import remote_file_of
from store_core.files.store_kind import StoreUse
from store_core.format.columnar.arrow_slices import fixed_array, repeat_text
from store_core.format.columns import TIMESTAMP_TYPE
from store_core.snapshot.file_queues import FileQueue, OpenUnits
from store_core.snapshot.queues import QueueKind, Queues
from store_core.views.asked_queues import asked_queues, missing_queues, topic_filter
from store_core.views.config_table import without_file
from store_core.views.store_root import root_of
from store_core.views.view_part import make_batch, name_text, timestamps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from store_core.files.store_path import StorePaths
    from store_core.snapshot.file_queues import UnitFile
    from store_core.snapshot.units import Queue, QueueName, Units
    from store_core.store.read.read_options import ReadOptions
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
    name : tuple of (str, int)
    kind : QueueKind
    file : UnitFile or None
        None in a RocksDB.
    begin, end : int or None
        In a RocksDB, queue offsets. Of a file, 0 and the number of units when the view was planned; None for a file
        that doesn't change: one that is not the queue's last, or not on this machine.
    """

    name: QueueName
    kind: QueueKind
    file: UnitFile | None
    begin: int
    end: int | None

    @property
    def cost(self) -> int:
        """Bytes to read, plus what opening the file costs."""
        if self.file is not None and self.end is None:
            return self.file.size + _FILE_COST
        return ((self.end or 0) - self.begin) * self.kind.dtype.itemsize + _FILE_COST


class _Rows(NamedTuple):
    """Some units of a slice."""

    origin: QueueSlice
    units: Units


@dataclass(frozen=True, slots=True)
class UnitsPart:
    """Parts of queues that are read together."""

    slices: tuple[QueueSlice, ...]
    queues: Queues

    def batches(self, options: ViewOptions) -> Iterator[pa.RecordBatch]:
        """Yield the units, with those of small files together in one batch."""
        most = options.read.max_records_per_batch
        waiting: list[_Rows] = []
        count = 0
        for rows in self._rows(options):
            taken = 0
            while taken < len(rows.units):
                stop = min(taken + most - count, len(rows.units))
                waiting.append(_Rows(rows.origin, rows.units.chosen(slice(taken, stop))))
                count += stop - taken
                taken = stop
                if count == most:
                    yield _batch(options, waiting)
                    waiting, count = [], 0
        if waiting:
            yield _batch(options, waiting)

    def _rows(self, options: ViewOptions) -> Iterator[_Rows]:
        with self.queues as queues:
            for origin in self.slices:
                try:
                    for units in _units_of(origin, queues):
                        yield _Rows(origin, units.chosen(_requested(origin, units, options)))
                except SegmentVanishedError as error:
                    if options.read.fail_on_data_loss:
                        raise
                    _log.warning("%s", error.problem)


def _units_of(origin: QueueSlice, queues: Queues) -> Iterator[Units]:
    if origin.file is None:
        yield from queues[origin.name].units(origin.begin, origin.end)
        return
    opened = OpenUnits(origin.file)
    try:
        yield from opened.windows(origin.begin, opened.written() if origin.end is None else origin.end)
    finally:
        opened.close()


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
    most = options.read.max_partition_bytes or _PART_BYTES
    with Queues(root) as queues:
        if not queues.exist:
            without_file(missing_queues(root), options)
        asked = asked_queues(queues, topic_filter(options.read))
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
        if remote_file_of(last.path) is None:
            opened = OpenUnits(last)
            try:
                count = opened.written()
            except SegmentVanishedError:
                continue  # deleted since its directory was listed, as with a topic
            finally:
                opened.close()
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


def _batch(options: ViewOptions, rows: Sequence[_Rows]) -> pa.RecordBatch:
    def stored(name: str, kind: type[np.signedinteger]) -> pa.Array:
        return fixed_array(np.concatenate([some.units.stored[name].astype(kind) for some in rows]))

    def text(of: str) -> pa.Array:
        return pa.concat_arrays([repeat_text(_text_of(some.origin, of), len(some.units)) for some in rows])

    return make_batch(
        options,
        {
            "topic": lambda: text("topic"),
            "queue_id": lambda: fixed_array(
                np.concatenate([np.full(len(some.units), some.origin.name[1], np.int32) for some in rows])
            ),
            "queue_offset": lambda: fixed_array(np.concatenate([some.units.offsets for some in rows])),
            "physical_offset": lambda: stored("physical_offset", np.int64),
            "store_size": lambda: stored("store_size", np.int32),
            "tags_code": lambda: stored("tags_code", np.int64),
            "kind": lambda: text("kind"),
            "batch_num": lambda: fixed_array(np.concatenate([_batch_nums(some.units) for some in rows])),
            "store_timestamp": lambda: pa.concat_arrays([_times(some, options) for some in rows]),
            "is_filler": lambda: pa.array(np.concatenate([some.units.are_fillers for some in rows]), pa.bool_()),
            "segment": lambda: pa.concat_arrays([_segments(some) for some in rows]),
        },
    )


def _text_of(origin: QueueSlice, column: str) -> str:
    return name_text(origin.name[0]) if column == "topic" else origin.kind.value


def _segments(rows: _Rows) -> pa.Array:
    file, count = rows.origin.file, len(rows.units)
    return pa.nulls(count, _TEXT) if file is None else repeat_text(file.path.name, count)


def _batch_nums(units: Units) -> npt.NDArray[np.int32]:
    return np.where(units.are_fillers, 0, units.counts).astype(np.int32)


def _times(rows: _Rows, options: ViewOptions) -> pa.Array:
    units = rows.units
    if rows.origin.kind is QueueKind.SIMPLE:
        return pa.nulls(len(units), TIMESTAMP_TYPE)
    queue = f"{name_text(rows.origin.name[0])}/{rows.origin.name[1]}"
    times = units.stored["store_timestamp"].astype(np.int64)
    return timestamps(times, options, "store_timestamp", lambda row: f"the unit {queue}/{units.offsets[row]}")
