# SPDX-License-Identifier: Apache-2.0
"""Writing the files of queues from arrays, each queue by one process.

Where queue offsets do not increase by one, records are missing, or a segment is duplicated. A queue's files are
truncated before the first unit of a record that will be put again.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

import numpy as np

from store_core.files.access import naming
from store_core.files.file_system import FileSystem, write_all
from store_core.files.machine import SystemClock
from store_core.files.mapped_file import file_name_of
from store_core.files.names import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT, QUEUE_KINDS
from store_core.format.layout import MIN_RECORD_SIZE
from store_core.queue.consume_queue.batch_consume_queue import BatchConsumeQueue
from store_core.queue.consume_queue.consume_queue import ConsumeQueue, PutUnits, QueueServices
from store_core.queue.consume_queue.consume_queue_ext import ConsumeQueueExt
from store_core.queue.consume_queue_unit import (
    BATCH_UNIT_DTYPE,
    CQ_STORE_UNIT_SIZE,
    UNIT_DTYPE,
    BatchCqUnit,
    CqUnit,
    are_valid,
    pre_blank,
    uncovered_batches,
    units_per_file,
)
from store_core.queue.queue_assignment import RefusedUnit, index_limit
from store_core.queue.queue_path import queue_path
from store_core.store.rebuild.findings import FillBudget, LostBytes, MissingOffsets, StandIn
from store_core.store.rebuild.queue_compare import NO_UNITS, Side, plain_columns

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from store_core.queue.queue_assignment import QueueUnits, UnitRows
    from store_core.store.rebuild.plan import RebuildRules


_BLANK_SIZE: Final = 2**31 - 1


def cut_queue(directory: Path, since_offset: int, *, is_batch: bool) -> None:
    """Zero everything after the units of records before `since_offset`, and delete files without any.

    A queue's units are in log order, so the ones kept are at its beginning. A broker's own truncation
    (``truncateDirtyLogicFiles``) is not usable here: it takes whatever a file begins with for a unit.

    * `directory`: The queue's directory, not in use.
    * `since_offset`: Physical offset.
    """
    dtype = BATCH_UNIT_DTYPE if is_batch else UNIT_DTYPE
    is_over = False
    for path in sorted(
        (path for path in directory.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name)
    ):
        units = np.fromfile(path, dtype)
        size = units["store_size"]
        is_blank = (size == _BLANK_SIZE) & (units["physical_offset"] == 0)
        is_kept = (size > 0) & (units["physical_offset"] >= 0) & (is_blank | (units["physical_offset"] < since_offset))
        kept = 0 if is_over else len(units) if is_kept.all() else int(is_kept.argmin())
        if not kept or is_blank[:kept].all():
            path.unlink()
        elif kept < len(units):
            units[kept:] = np.zeros(1, dtype)
            with naming(path), path.open("r+b") as file:
                file.write(units.tobytes())
        is_over |= kept < len(units)


_KEPT: Final = 20


class UnitGap(NamedTuple):
    """A record whose queue offset is not the next."""

    physical_offset: int
    queue_offset: int  # the record's queue offset
    expected: int  # one more than that of the previous record in this queue

    @property
    def kind(self) -> str:
        """``"jump"`` forward, ``"duplicate"`` of the previous one, or ``"back"``."""
        if self.queue_offset > self.expected:
            return "jump"
        return "duplicate" if self.queue_offset == self.expected - 1 else "back"


class UnitGaps:
    """Finds where the indexes of a queue's units, in log order, are not the next; keeps the `first` few.

    Without an index that is `expected`, any may come first.
    """

    def __init__(self, expected: int | None = None) -> None:
        self._expected = expected
        self.count = 0
        self.first: list[UnitGap] = []

    def expect(self, queue_offset: int) -> None:
        """Expect this offset next; earlier ones are known to be missing."""
        self._expected = queue_offset

    def expects(self, queue_offset: int) -> bool:
        """Return whether there is no gap before an index."""
        return self._expected in (None, queue_offset)

    def look_at(self, queue_offset: npt.NDArray[np.int64], physical_offset: npt.NDArray[np.int64]) -> None:
        """Examine the next units."""
        first = int(queue_offset[0]) if self._expected is None else self._expected
        expected = np.concatenate(([first], queue_offset[:-1] + 1))
        places = np.flatnonzero(queue_offset != expected)
        self.count += len(places)
        for place in places[: _KEPT - len(self.first)].tolist():
            self.first.append(UnitGap(int(physical_offset[place]), int(queue_offset[place]), int(expected[place])))
        self._expected = int(queue_offset[-1]) + 1


_REFUSED_KEPT: Final = 100
_MISSING_KEPT: Final = 100
_CHUNK: Final = 1 << 16
_FILES_RECOVERED: Final = 3
"""How many of a queue's last files a broker checks when it loads them."""


@dataclass(frozen=True, slots=True)
class QueueReport:
    """Result of rebuilding a queue.

    * `min_offset`, `max_offset`: Its bounds after the rebuild.
    """

    topic: str
    queue_id: int
    units: int  # number of records indexed in it
    min_offset: int
    max_offset: int
    gap_count: int = 0
    """Places where the log's queue offsets do not increase by one; such records are queued as a broker does."""
    gaps: tuple[UnitGap, ...] = ()  # the first of these
    missing_count: int = 0  # number of queue offsets whose records are lost to damage
    missing: tuple[MissingOffsets, ...] = ()  # the first ranges of these
    refused_count: int = 0
    """Number of records that did not fit, because the queue ends in the last file that a queue can have."""
    refused: tuple[RefusedUnit, ...] = ()  # the first of these


class QueuePlace(NamedTuple):
    """Where queues are written."""

    store_root: Path  # the store; with `RebuildRules.since_offset` its queues are copied up to there
    root: Path | None  # directory for ``consumequeue`` and so on; None to keep the units in memory, for a comparison
    file_system: FileSystem


class _QueueFiles:
    """The files of one queue, each made in its full size, and where it ends in them, bytes; nothing is synced."""

    def __init__(self, directory: Path, file_size: int, file_system: FileSystem, end: int = 0) -> None:
        self._directory = directory
        self._file_size = file_size
        self._file_system = file_system
        self.end = end
        self._is_there = end > 0

    def append(self, data: memoryview) -> None:
        """Write bytes at the end; the first ones of a queue at the start of a file."""
        if not self._is_there:
            self._file_system.add_directories(self._directory)
            self._is_there = True
        done = 0
        while done < len(data):
            position = self.end % self._file_size
            part = data[done : done + self._file_size - position]
            path = self._directory / file_name_of(self.end - position)
            with naming(path):
                self._write(path, part, position)
            self.end += len(part)
            done += len(part)

    def _write(self, path: Path, part: memoryview, position: int) -> None:
        file = self._file_system.open(path, create=not position)
        try:
            if not position:
                file.grow(self._file_size)
            write_all(file, part, position)
        finally:
            file.close()


class QueueWriter(ABC):
    """Writes one queue: its units are `put` in log order, as a broker puts them; then it reports what it wrote.

    * `min_offset`, `max_offset`: The bounds of the queue.
    * `covered`: `ConsumeQueue.max_physical_offset` or `BatchConsumeQueue.max_physical_offset`.
    """

    KIND: ClassVar[str]
    DTYPE: ClassVar[np.dtype[np.void]]

    def __init__(self, name: tuple[str, int], rules: RebuildRules, place: QueuePlace, file_size: int) -> None:
        self._name = name
        self._rules = rules
        self._place = place
        self._services = QueueServices(rules.queue_rules, place.file_system, SystemClock())
        self._count = 0
        self._refused: list[RefusedUnit] = []
        self._refused_count = 0
        self._files: _QueueFiles | None = None
        self._kept: list[tuple[int, npt.NDArray[np.void]]] = []
        self._per_file = file_size // self.DTYPE.itemsize
        self.min_offset = self.max_offset = 0
        self.covered = -1
        if place.root is not None:
            end = self._taken_over(place.root) if rules.since_offset else 0
            directory = queue_path(place.root / self.KIND, *name)
            self._files = _QueueFiles(directory, file_size, place.file_system, end)
        self._gaps = UnitGaps(self.max_offset or None)
        self._missing_count = 0
        self._missing: list[MissingOffsets] = []

    def _taken_over(self, root: Path) -> int:
        """Copy the existing queue, truncated before the first record that is put again; return its end, bytes."""
        for kind in QUEUE_KINDS:
            source = queue_path(self._place.store_root / kind, *self._name)
            if source.is_dir():
                target = queue_path(root / kind, *self._name)
                self._place.file_system.make_directories(target.parent)
                shutil.copytree(source, target)
                if kind != CONSUME_QUEUE_EXT:
                    cut_queue(target, self._rules.since_offset, is_batch=kind == BATCH_CONSUME_QUEUE)
        directory = queue_path(root / self.KIND, *self._name)
        if not directory.is_dir():
            return 0
        queue = self._opened(directory)
        try:
            queue.load()
            queue.recover()
            queue.clear_tail()
            self._go_on(queue)
            return queue.mapped_file_queue.max_offset
        finally:
            queue.mapped_file_queue.close()  # its extension goes on being written

    @abstractmethod
    def _opened(self, directory: Path) -> ConsumeQueue | BatchConsumeQueue:
        """Return the broker's queue of a directory."""

    def _go_on(self, queue: ConsumeQueue | BatchConsumeQueue) -> None:
        """Go on where a queue ends."""
        self.min_offset, self.max_offset = queue.min_offset_in_queue, queue.max_offset_in_queue
        self.covered = queue.max_physical_offset

    def put(self, units: QueueUnits, stored: PutUnits, start: int, stop: int) -> None:
        """Put a range of units of this queue, in log order; `stored` are all of them as a simple queue stores them."""
        self._count += stop - start
        self._put(units.units, stored, start, stop)

    @abstractmethod
    def _put(self, units: UnitRows, stored: PutUnits, start: int, stop: int) -> None: ...

    def _append(self, index: int, units: npt.NDArray[np.void]) -> None:
        """Append units as they are stored, the first of them the queue's unit `index`."""
        if self._files is None:
            self._kept.append((index, units))
        else:
            self._files.append(units.view(np.uint8).data)

    def _refuse(self, units: UnitRows, start: int, stop: int) -> None:
        """Refuse the units that a full queue can't take."""
        reason = f"the queue is full: it ends at queue offset {self.max_offset}, the largest there can be"
        self._refused_count += stop - start
        for position in units.physical_offset[start : min(stop, start + _REFUSED_KEPT - len(self._refused))].tolist():
            self._refused.append(RefusedUnit(*self._name, position, reason))

    def finish(self) -> QueueReport:
        """Report what is in the queue."""
        return QueueReport(
            *self._name,
            self._count - self._refused_count,
            self.min_offset,
            self.max_offset,
            self._gaps.count,
            tuple(self._gaps.first),
            self._missing_count,
            tuple(self._missing),
            refused_count=self._refused_count,
            refused=tuple(self._refused),
        )

    def side(self, min_offset: int) -> Side:
        """Return the units that a broker has when it has loaded the queue, and that point at or after an offset.

        As with its files, the queue ends at the first invalid unit in the last three.
        """
        if not self._kept:
            return NO_UNITS
        indexes = np.concatenate([np.arange(first, first + len(units)) for first, units in self._kept])
        # As bytes, because joining structured arrays would change the order of the bytes in their fields.
        units = np.concatenate([units.view(np.uint8) for _, units in self._kept]).view(self.DTYPE)
        last_files = max(int(indexes[-1]) // self._per_file - _FILES_RECOVERED + 1, 0) * self._per_file
        invalid = np.flatnonzero(~are_valid(units) & (indexes >= last_files))
        end = int(invalid[0]) if len(invalid) else len(units)
        found = self._compared(indexes[:end], units[:end])
        is_live = found.units["physical_offset"] >= min_offset
        return found if is_live.all() else found.chosen(is_live)

    @abstractmethod
    def _compared(self, indexes: npt.NDArray[np.int64], units: npt.NDArray[np.void]) -> Side: ...


class SimpleQueueWriter(QueueWriter):
    """Writes a simple queue, with its extension; `ConsumeQueue` is the definition.

    * `last`: With a budget, the newest unit; None if there is none.
    """

    KIND = CONSUME_QUEUE
    DTYPE = UNIT_DTYPE

    def __init__(
        self, name: tuple[str, int], rules: RebuildRules, place: QueuePlace, budget: FillBudget | None = None
    ) -> None:
        self.last: CqUnit | None = None
        self._ext: ConsumeQueueExt | None = None
        if rules.queue_rules.is_ext_enabled and place.root is not None:
            directory = queue_path(place.root / CONSUME_QUEUE_EXT, *name)
            self._ext = ConsumeQueueExt(directory, rules.queue_rules, place.file_system)
        size = units_per_file(rules.queue_rules.consume_queue_file_size) * CQ_STORE_UNIT_SIZE
        super().__init__(name, rules, place, size)
        self._limit = index_limit(rules.queue_rules)
        self._budget = budget

    def _opened(self, directory: Path) -> ConsumeQueue:
        return ConsumeQueue(*self._name, directory, self._services, self._ext)

    def _go_on(self, queue: ConsumeQueue | BatchConsumeQueue) -> None:
        super()._go_on(queue)
        self.last = queue.last_unit if isinstance(queue, ConsumeQueue) else None

    def _put(self, units: UnitRows, stored: PutUnits, start: int, stop: int) -> None:
        if self._budget is not None:
            start = self._put_across_damage(self._budget, units, stored, start, stop)
        self._put_between(units, stored, start, stop)

    def _put_between(self, units: UnitRows, stored: PutUnits, start: int, stop: int) -> None:
        """Put units between which nothing is filled in."""
        if start == stop:
            return
        if stored.are_consecutive(start, stop) and self._gaps.expects(int(stored.queue_offset[start])):
            self._gaps.expect(int(stored.queue_offset[stop - 1]) + 1)
        else:
            self._gaps.look_at(stored.queue_offset[start:stop], units.physical_offset[start:stop])
        while self._ext is not None and start < stop and self.max_offset < self._limit:
            # One by one where the queue may become full: a unit that is refused has none in the extension.
            count = stop - start if max(self.max_offset, stored.largest_index + 1) + stop - start <= self._limit else 1
            own = units.slice(start, start + count)
            features = self._rules.queue_rules.features
            tags = self._ext.put_rows(own)
            replaced = PutUnits.of(own.physical_offset, own.size, tags, own.queue_offset, features)
            self._put_runs(own, replaced, 0, count)
            start += count
        self._put_runs(units, stored, start, stop)

    def _put_runs(self, units: UnitRows, stored: PutUnits, start: int, stop: int) -> None:
        while start < stop:
            if self.max_offset >= self._limit:
                self._refuse(units, start, stop)
                return
            end = stored.run_end(start, stop)
            start += stored.count_covered(start, end, self.covered)
            if start < end:
                start += stored.count_behind(start, end, self.max_offset * CQ_STORE_UNIT_SIZE)
            if start < end:
                start += self._append_run(stored, start, end)

    def _append_run(self, stored: PutUnits, start: int, stop: int) -> int:
        """Append leading units of a run, of which the first is not in the queue yet; return how many."""
        index = int(stored.queue_offset[start])
        if not self.max_offset:
            self._begin(index)
        elif not index:
            stop = start + 1  # index 0 is never compared, so it may lie before the end
        stop = min(stop, start + self._limit - self.max_offset)
        self._append(self.max_offset, stored.units[start:stop])
        self.covered = int(stored.covers[stop - 1])
        self.max_offset += stop - start
        if self._budget is not None:
            self.last = CqUnit.of(stored.units, stop - 1, self.max_offset - 1)
        return stop - start

    def _begin(self, index: int) -> None:
        """Begin the queue with an index, with filler units before it in its file."""
        self.min_offset = self.max_offset = index
        blanks = index % self._per_file
        if self._files is not None:
            self._files.end = (index - blanks) * CQ_STORE_UNIT_SIZE
        if self._files is not None and blanks:
            self._files.append(pre_blank(blanks).view(np.uint8).data)

    # ---- across damage

    def _put_across_damage(self, budget: FillBudget, units: UnitRows, stored: PutUnits, start: int, stop: int) -> int:
        """Put units, and stand-ins wherever damage explains missing queue offsets; return where the rest begins."""
        for place in self._places_behind_damage(budget.lost, stored, start, stop):
            self._put_between(units, stored, start, place)
            index = int(stored.queue_offset[place])
            if self._bridge(budget, index, int(units.physical_offset[place])):
                self._gaps.expect(index)
            start = place
        return start

    def _places_behind_damage(self, lost: LostBytes, units: PutUnits, start: int, stop: int) -> list[int]:
        """Find the units of a range before which queue offsets are missing, with lost bytes between the records."""
        position = lost.log_start if self.last is None else self.last.physical_offset
        positions = units.units["physical_offset"][start:stop].astype(np.int64)
        offsets = np.concatenate(([self.max_offset - 1], units.queue_offset[start:stop]))
        before = np.concatenate(([position], positions[:-1]))
        is_jump = np.diff(offsets) > 1
        found: list[int] = (np.flatnonzero(is_jump & (lost.between(before, positions) > 0)) + start).tolist()
        return found

    def _bridge(self, budget: FillBudget, queue_offset: int, physical_offset: int) -> bool:
        """Fill the queue up to an index, if lost bytes explain that it ends earlier.

        * `queue_offset`, `physical_offset`: Offsets of the next record.

        Returns: Whether the record's unit will be at its own index; if not, nothing was written.
        """
        last, lost, first = self.last, budget.lost, self.max_offset
        count = queue_offset - first
        begin = lost.log_start if last is None else last.physical_offset
        bytes_lost = int(lost.between(np.array([begin]), np.array([physical_offset]))[0])
        if not 0 < count <= bytes_lost // MIN_RECORD_SIZE:
            return False
        if last is None:  # the queue begins with the record; earlier offsets existed only if the log is whole
            if not lost.log_start:
                self._note_missing(first, queue_offset, "below")
            return True
        if not budget.take(count):
            return False
        stand_in = StandIn.between(last, lost.segment_start(physical_offset))
        self._repeat(stand_in, count)
        self._note_missing(first, queue_offset, "repeated" if stand_in.is_copy else "skipped")
        return True

    def _note_missing(self, first: int, end: int, stand_in: str) -> None:
        self._missing_count += end - first
        if len(self._missing) < _MISSING_KEPT:
            self._missing.append(MissingOffsets(first, end - 1, stand_in))

    def _repeat(self, stand_in: StandIn, count: int) -> None:
        """Append a unit a number of times, however much it covers of the log."""
        unit = np.array([stand_in[:3]], UNIT_DTYPE)
        while count:
            some = min(count, _CHUNK)
            self._append(self.max_offset, np.repeat(unit, some))
            self.max_offset += some
            count -= some
        self.last = CqUnit(self.max_offset - 1, *stand_in[:3])

    def finish(self) -> QueueReport:
        """Close the extension, and report what is in the queue."""
        if self._ext is not None:
            self._ext.close()
        return super().finish()

    def _compared(self, indexes: npt.NDArray[np.int64], units: npt.NDArray[np.void]) -> Side:
        return Side(indexes, plain_columns(units))


class _BatchQueueWriter(QueueWriter):
    """Writes the queue of a batch topic; `BatchConsumeQueue` is the definition."""

    KIND = BATCH_CONSUME_QUEUE
    DTYPE = BATCH_UNIT_DTYPE

    def __init__(self, name: tuple[str, int], rules: RebuildRules, place: QueuePlace) -> None:
        unit = BATCH_UNIT_DTYPE.itemsize
        super().__init__(name, rules, place, -(-rules.queue_rules.batch_consume_queue_file_size // unit) * unit)
        self._number = 0
        if not self.max_offset:
            self.min_offset = -1

    def _opened(self, directory: Path) -> BatchConsumeQueue:
        return BatchConsumeQueue(*self._name, directory, self._services)

    def _put(self, units: UnitRows, stored: PutUnits, start: int, stop: int) -> None:  # noqa: ARG002 -- of simple ones
        own = uncovered_batches(units.slice(start, stop).batch_units(), self.covered)
        if not len(own):
            return
        self._append(self._number, own)
        self._number += len(own)
        last = BatchCqUnit.of(own, len(own) - 1)
        if self.min_offset < 0:
            self.min_offset = int(own["msg_base_offset"][0])
        self.max_offset = last.queue_offset + last.batch_size
        self.covered = last.physical_offset

    def _compared(self, indexes: npt.NDArray[np.int64], units: npt.NDArray[np.void]) -> Side:  # noqa: ARG002
        compared = plain_columns(units)
        compared["count"] = units["batch_size"]
        return Side(units["msg_base_offset"].astype(np.int64), compared)


def queue_writer(
    name: tuple[str, int], rules: RebuildRules, place: QueuePlace, budget: FillBudget | None = None
) -> QueueWriter:
    """Return the writer of a queue.

    With a budget, of a log that is read across damage, stand-ins are written where it explains that units are missing;
    without, a unit after a gap is put at the end of the queue, as in a broker.
    """
    if name[0] in rules.queue_rules.batch_topics:
        return _BatchQueueWriter(name, rules, place)  # units of batch queues hold their own index
    return SimpleQueueWriter(name, rules, place, budget)


class QueueWriters:
    """Writes many queues: `put` units of any of them, in log order, then `finish`."""

    def __init__(self, rules: RebuildRules, place: QueuePlace, budget: FillBudget | None = None) -> None:
        self._rules = rules
        self._place = place
        self._budget = budget
        self.writers: dict[tuple[str, int], QueueWriter] = {}

    def put(self, units: QueueUnits) -> None:
        """Put units; a queue without any is made if it is not there."""
        for queue in units.queues:
            if queue not in self.writers:
                self.writers[queue] = queue_writer(queue, self._rules, self._place, self._budget)
        rows = units.units
        features = self._rules.queue_rules.features
        stored = PutUnits.of(rows.physical_offset, rows.size, rows.tags_code, rows.queue_offset, features)
        for code, start, stop in rows.bounds():
            self.writers[units.queues[code]].put(units, stored, start, stop)

    def finish(self) -> list[QueueReport]:
        """Report what is in the queues."""
        return [writer.finish() for writer in self.writers.values()]
