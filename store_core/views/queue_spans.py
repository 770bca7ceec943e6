# SPDX-License-Identifier: Apache-2.0
"""The units of a queue between two queue offsets, in files or in a RocksDB, for many queues of one store."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.files.segment_source import open_pages
from store_core.views.bounds_finder import BoundsFinder, unflushed_rows
from store_core.views.log_bound import LogBound
from store_core.views.queue_bounds import QueueBounds
from store_core.views.queue_listing import QueueKind, queue_in_files
from store_core.views.queue_units import fillers, units_of_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    import numpy.typing as npt

    from store_core.files.segment_source import PagedBytes, Segment
    from store_core.views.bounds_finder import QueueSource
    from store_core.views.queue_listing import ListedQueue

__all__ = ["QueueSpans", "UnitRun"]

_PLACE: Final = ("queue_offset", "physical_offset", "store_size")
_WINDOW: Final = 1 << 16
"""Units converted at once."""


class UnitRun(NamedTuple):
    """Units of one queue that point to records, in order.

    Attributes
    ----------
    begins, ends : numpy.ndarray
        int64, shape (n,): queue offsets of the first message of each, and after the last; a batch has several.
    positions, sizes : numpy.ndarray
        int64, shape (n,): physical offsets and bytes of the records.
    """

    begins: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]

    def between(self, begin: int, end: int) -> UnitRun:
        """Return the units of messages in a range of queue offsets."""
        rows = slice(
            int(np.searchsorted(self.ends, begin, side="right")), int(np.searchsorted(self.begins, end, side="left"))
        )
        return UnitRun(*(column[rows] for column in self))


class QueueSpans:
    """Reads the units of queues without opening their store; a context manager.

    Parameters
    ----------
    source : QueueSource
    """

    def __init__(self, source: QueueSource) -> None:
        self._source = source
        self._finder = BoundsFinder(source)
        self._log = LogBound(source.root, source.segments)
        self._listed: dict[tuple[str, int], ListedQueue | None] = {}

    def __enter__(self) -> Self:
        self._finder.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finder.__exit__(kind, error, trace)

    def bounds(self, topic: str, queue_id: int) -> QueueBounds | None:
        """Return where a queue begins and ends; None if there is none. Errors as of `BoundsFinder.of`.

        Units of records that the log does not have, because they begin at or after its end, are left out.
        """
        return self._in_log(topic, queue_id, self._finder.find(topic, queue_id))

    def of(self, queue: ListedQueue, log_end: int | None = None) -> QueueBounds:
        """Return where a listed queue begins, and where it ended when the log ended at a position; None for now."""
        name, found = (queue.topic, queue.queue_id), self._finder.of(queue)
        bounds = self._in_log(*name, found) or found
        return self.before(*name, bounds, log_end) or bounds

    def _in_log(self, topic: str, queue_id: int, bounds: QueueBounds | None) -> QueueBounds | None:
        """Return the bounds of a queue as a broker that loads the store has them.

        RocketMQ: ``ConsumeQueue.truncateDirtyLogicFiles``, after the log is recovered.
        """
        if bounds is None or bounds.last is None:
            return bounds
        return self.before(topic, queue_id, bounds, self._log.end_before(*bounds.last))

    def before(self, topic: str, queue_id: int, bounds: QueueBounds | None, log_end: int | None) -> QueueBounds | None:
        """Return the bounds of a queue without the units of records from a position in the log on.

        Parameters
        ----------
        topic, queue_id
        bounds : QueueBounds or None
            Those of the whole queue.
        log_end : int or None
            Physical offset; None if nothing is to be left out.
        """
        if bounds is None or log_end is None or bounds.last is None or bounds.last[0] < log_end:
            return bounds
        end = self.first_at(topic, queue_id, log_end, bounds)
        last = next(self.units(topic, queue_id, end - 1, end), None) if end > bounds.min_offset else None
        if last is None:
            return QueueBounds(bounds.min_offset, bounds.min_offset)
        return QueueBounds(bounds.min_offset, end, bounds.first, (int(last.positions[-1]), int(last.sizes[-1])))

    def first_at(self, topic: str, queue_id: int, position: int, bounds: QueueBounds) -> int:
        """Return the queue offset of the first unit of a record at or after a position in the log; else the end.

        Parameters
        ----------
        topic, queue_id
        position : int
            Physical offset.
        bounds : QueueBounds
            Those of the queue, in which the units' records ascend.
        """
        begin, end = bounds.min_offset, bounds.max_offset
        if self._source.database is not None:
            queues = self._finder.database(self._source.database)
            begin = max(begin, queues.first_at(topic, queue_id, position))
            if begin < queues.end_of(topic, queue_id):
                return begin
            rest = self.units(topic, queue_id, begin, end)
            return next((_first_in(run, position) for run in rest if run.positions[-1] >= position), end)

        def position_of(offset: int) -> int:
            ranges = (offset, offset + 1), (offset, end)  # the second one where a unit was lost
            run = next((run for each in ranges for run in self.units(topic, queue_id, *each)), None)
            return position if run is None else int(run.positions[0])

        return bisect_left(range(end), position, begin, end, key=position_of) if begin < end else end

    def units(self, topic: str, queue_id: int, begin: int, end: int) -> Iterator[UnitRun]:
        """Yield the units of messages between two queue offsets, at least one and at most some thousands at a time.

        Raises
        ------
        SegmentVanishedError
            If a file is gone since the queue was listed.
        """
        if begin >= end:
            return
        if self._source.database is not None:
            yield from self._stored(self._source.database, topic, queue_id, begin, end)
            return
        queue = self._listed_queue(topic, queue_id)
        if queue is not None:
            yield from _in_files(queue, begin, end)

    def _listed_queue(self, topic: str, queue_id: int) -> ListedQueue | None:
        """Return a queue in files; its directory is listed once for all questions that follow each other."""
        if (topic, queue_id) not in self._listed:
            self._listed = {(topic, queue_id): queue_in_files(self._source.root, topic, queue_id)}
        return self._listed[topic, queue_id]

    def _stored(self, database: Path, topic: str, queue_id: int, begin: int, end: int) -> Iterator[UnitRun]:
        queues = self._finder.database(database)
        for offsets, units in queues.units(topic, queue_id, begin, end):
            yield from _with_rows(_run(units, offsets, QueueKind.ROCKSDB))
        more = self._source.unflushed.get((topic, queue_id))
        if more is not None and end > more.first[0]:
            rows = unflushed_rows(self._source.log, more.first[1], topic=[topic], queue_id=queue_id)
            offsets, positions, sizes = (rows[name].to_numpy().astype(np.int64) for name in _PLACE)
            begin = max(begin, queues.end_of(topic, queue_id))
            yield from _with_rows(UnitRun(offsets, offsets + 1, positions, sizes).between(begin, end))


def _with_rows(run: UnitRun) -> Iterator[UnitRun]:
    if run.begins.size:
        yield run


def _first_in(run: UnitRun, position: int) -> int:
    return int(run.begins[int(np.searchsorted(run.positions, position))])


def _in_files(queue: ListedQueue, begin: int, end: int) -> Iterator[UnitRun]:
    for file, following in zip(queue.files, [*queue.files[1:], None], strict=True):
        if following is not None and _first_offset(following, queue.kind) <= begin:
            continue
        if _first_offset(file, queue.kind) >= end:
            return
        with open_pages(file) as opened:
            yield from _of_file(file, opened, queue.kind, begin, end)


def _first_offset(file: Segment, kind: QueueKind) -> int:
    """Return the queue offset at which a file begins."""
    if kind is not QueueKind.BATCH:
        return file.start_offset // kind.dtype.itemsize
    with open_pages(file) as opened:
        opened.load(0, kind.dtype.itemsize)
        units = units_of_file(opened, kind)[:1]
        return int(units["msg_base_offset"][0]) if len(units) else 0


def _of_file(file: Segment, opened: PagedBytes, kind: QueueKind, begin: int, end: int) -> Iterator[UnitRun]:
    units, unit_size = units_of_file(opened, kind), kind.dtype.itemsize
    first, start, stop = 0, 0, len(units)
    if kind is not QueueKind.BATCH:
        first = file.start_offset // kind.dtype.itemsize
        start, stop = max(begin - first, 0), min(end - first, stop)
    for at in range(start, stop, _WINDOW):
        opened.load(at * unit_size, min(at + _WINDOW, stop) * unit_size)
        some = units[at : min(at + _WINDOW, stop)]
        run = _run(some, np.arange(first + at, first + at + len(some), dtype=np.int64), kind)
        yield from _with_rows(run.between(begin, end))


def _run(units: npt.NDArray[np.void], offsets: npt.NDArray[np.int64], kind: QueueKind) -> UnitRun:
    """Return those units that point to a record."""
    counts: npt.NDArray[np.int64] | int = 1
    if kind is QueueKind.BATCH:
        offsets, counts = units["msg_base_offset"].astype(np.int64), units["batch_size"].astype(np.int64)
    is_real = (units["store_size"] > 0) & ~fillers(units, kind)
    columns = offsets, offsets + counts, units["physical_offset"].astype(np.int64), units["store_size"].astype(np.int64)
    return UnitRun(*columns) if is_real.all() else UnitRun(*(column[is_real] for column in columns))
