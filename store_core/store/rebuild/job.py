# SPDX-License-Identifier: Apache-2.0
"""The rebuild job: read parts of segments, then write queues and the index, or compare them.

Between the two steps an engine transports runs of thousands of units, and groups those of some queues in log order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from store_core.files.clock import Clock, SystemClock
from store_core.files.file_sync import DeferredSyncFileSystem
from store_core.format.crc32 import crc32
from store_core.queue.index_format import MessageKeys
from store_core.queue.unit_rows import QueueUnits, empty_units
from store_core.snapshot.queues import Queues
from store_core.store.memory import keep_freed_memory
from store_core.store.parts import RunReader, RunSpill, SpilledRun, packed, unpacked
from store_core.store.rebuild.index_files import IndexComparison, IndexReport, IndexSlice, IndexWriter, slice_entries
from store_core.store.rebuild.lost_ranges import FillBudget, LostBytes
from store_core.store.rebuild.queue_compare import LogBounds, QueueJudgement, StoredQueues, judge_queue
from store_core.store.rebuild.queue_files import QueuePlace, QueueReport, QueueWriters
from store_core.store.rebuild.report import RebuildReport
from store_core.store.rebuild.segment_part import SegmentOutcome, SegmentPart, merge_outcomes
from store_core.store.rebuild.segment_scan import SegmentScan
from store_core.store.rebuild.swap import RebuildAttempt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from store_core.snapshot.index import LoadedIndex
    from store_core.store.rebuild.options import RebuildRules


_FIRST_BUCKET = 0
"""Its task gets the outcomes, and the index if that is to be written; it then takes longest, so it starts first."""

_FIRST_SEQUENCE = -1

_CHUNK = 1 << 20
"""Units that are put into their order, and written, at once."""

_MANY = 1 << 10
"""Units a queue from which on pieces are written as they come: a write has 20 KB then."""

_QUEUE_NAME = attrgetter("topic", "queue_id")


class RunKind(IntEnum):
    """The kind of a run; a task gets its runs in this order."""

    LOST = -1
    OUTCOME = 0
    QUEUES = 1
    INDEX = 2


class RunKey(NamedTuple):
    """The key of a run; a task gets its runs in key order.

    * `part`, `sequence`: The run's position in the log.
    """

    bucket: int  # number of the task that gets the run
    kind: int
    part: int
    sequence: int


class PartOutcome(NamedTuple):
    """How the reading of a part ended, by the number of the part."""

    part: int
    outcome: SegmentOutcome


Run: TypeAlias = bytes | SpilledRun | PartOutcome
"""A table of units or entries, or where it is; or an outcome, which is only passed on."""

_KeyedRun: TypeAlias = tuple[RunKey, Run]

Finding: TypeAlias = PartOutcome | QueueReport | IndexReport | IndexSlice | QueueJudgement
"""A result of a task."""


class RebuildFindings(NamedTuple):
    """What a job found."""

    report: RebuildReport | None
    """None if parts of a segment do not fit together, so that segments have to be read whole."""
    slices: tuple[IndexSlice, ...] = ()  # the files of an index that are still to be written, by `IndexFilesJob`


@dataclass(frozen=True)
class RebuildJob:
    """Rebuilds queues and index, or compares them, in parts; see `store_core.store.parts.GroupedJob`.

    * `store_root`, `target_root`: The store, and where files are written; if nothing is written, the target is not
      used.
    """

    parts: tuple[SegmentPart, ...]  # the parts of the log, in order
    rules: RebuildRules
    store_root: Path
    target_root: Path
    queue_buckets: int  # number of tasks that write queues; one more writes the index, if that is to be written
    compared: LogBounds | None = None  # compare with what the store has, writing nothing
    spill_root: Path | None = None
    """Runs are passed in files below this directory, and the engine transports only their locations. On one machine
    that saves the cost of transport, e.g. through Spark's JVM and back. If None, the engine transports the runs."""
    clock: Clock = field(default_factory=SystemClock)  # names the files of an index
    stored_root: Path | None = None  # for a comparison: where queues are; by default the store
    index: LoadedIndex | None = None  # compare its entries with those of the log
    spilled_kinds: frozenset[RunKind] = frozenset(RunKind)  # which runs are passed in files
    splits_index: bool = False
    """Leave an index of several files to an `IndexFilesJob`. Its runs have to be in files, and no old index file
    kept."""

    @property
    def groups(self) -> int:
        """Number of tasks that write."""
        return self.queue_buckets + (self.rules.has_index and self.compared is None)

    def plan(self) -> Sequence[int]:
        """Return the numbers of the parts."""
        return range(len(self.parts))

    def merge(self, findings: Iterable[Finding]) -> RebuildFindings:
        """Make one report of what the tasks found."""
        listed = list(findings)
        by_part = sorted((each for each in listed if isinstance(each, PartOutcome)), key=itemgetter(0))
        outcomes = merge_outcomes(self.parts, [outcome for _, outcome in by_part])
        if outcomes is None:
            return RebuildFindings(None)
        queues = (each for each in listed if isinstance(each, QueueReport))
        judged = (each for each in listed if isinstance(each, QueueJudgement))
        report = RebuildReport(
            tuple(outcomes),
            tuple(sorted(queues, key=_QUEUE_NAME)),
            next((each for each in listed if isinstance(each, IndexReport)), None),
            judged=tuple(sorted(judged, key=_QUEUE_NAME)),
        )
        return RebuildFindings(report, tuple(each for each in listed if isinstance(each, IndexSlice)))

    # ---- reading

    def run(self, part: int) -> Iterator[tuple[RunKey, Run]]:
        """Read the part with this number; yield its runs and how reading it ended."""
        keep_freed_memory()
        if self.spill_root is None:
            yield from ((key, data) for key, data, _ in self._scan(part))
            return
        with RunSpill(self.spill_root) as spill:
            for key, data, keys in self._scan(part):
                if isinstance(data, bytes) and data and key.kind in self.spilled_kinds:
                    yield key, spill.put(data, keys)
                else:
                    yield key, data

    def _scan(self, number: int) -> Iterator[tuple[RunKey, bytes | PartOutcome, MessageKeys | None]]:
        """Yield runs, with the keys in those of the index."""
        if number == 0:
            yield from self._first_runs()
        scan = SegmentScan(self.parts[number], self.rules, self._comparison(self.parts[number]))
        for sequence, piece in enumerate(scan):
            if isinstance(piece, MessageKeys):
                yield RunKey(_FIRST_BUCKET, RunKind.INDEX, number, sequence), packed(piece.to_table()), piece
            else:
                yield from self._queue_runs(piece, number, sequence)
        if scan.outcome is not None:
            yield RunKey(_FIRST_BUCKET, RunKind.OUTCOME, number, 0), PartOutcome(number, scan.outcome), None
        if self.rules.is_salvaged and scan.lost.count:
            for bucket in range(self.groups):
                yield RunKey(bucket, RunKind.LOST, number, 0), scan.lost.packed(), None

    def _queue_runs(self, units: QueueUnits, part: int, sequence: int) -> Iterator[tuple[RunKey, bytes, None]]:
        """Yield units as runs, by the bucket of their queues."""
        buckets = np.array([self._bucket(*queue) for queue in units.queues], np.int64)
        for bucket, table in units.tables(buckets, is_whole=not self.rules.is_plain):
            yield RunKey(bucket, RunKind.QUEUES, part, sequence), packed(table), None

    def _bucket(self, topic: str, queue_id: int) -> int:
        name = f"{topic}/{queue_id}".encode(errors="surrogatepass")
        return self.groups - 1 - crc32(name) % self.queue_buckets

    def _first_runs(self) -> Iterator[tuple[RunKey, bytes, None]]:
        """Yield runs without units for the queues and the index copied from the store, whether or not more is added."""
        if self.rules.has_index and self.compared is None:
            yield RunKey(_FIRST_BUCKET, RunKind.INDEX, 0, _FIRST_SEQUENCE), b"", None
        is_taken_over = self.rules.has_queues and self.rules.since_offset > 0
        for queue in Queues(self.store_root).in_files() if is_taken_over else ():
            if self.rules.wants(*queue.name):
                yield from self._queue_runs(QueueUnits([queue.name], empty_units()), 0, _FIRST_SEQUENCE)

    def _comparison(self, part: SegmentPart) -> IndexComparison | None:
        if self.compared is None or self.index is None:
            return None
        first, moment = part.segment.start_offset, self.compared.moment
        begin, end = first + part.begin, first + part.end
        end = end if moment is None else max(min(end, moment.indexed), begin)
        return IndexComparison(self.index, self.rules.queue_rules, begin, end)

    # ---- writing

    def gather(self, runs: Iterable[tuple[RunKey, Run]]) -> Iterator[Finding]:
        """Write the queues and index of runs, which come in key order; yield reports."""
        with RunReader() as reader:
            yield from self._gather((key, run if self._is_left(key) else reader.read(run)) for key, run in runs)

    def _is_left(self, key: RunKey) -> bool:
        """Return whether a run may be left where it is."""
        return self.splits_index and key.kind == RunKind.INDEX

    def _gather(self, runs: Iterable[_KeyedRun]) -> Iterator[Finding]:
        grouped = groupby(runs, key=lambda run: run[0].kind == RunKind.LOST)
        lost: list[bytes] = []
        for is_lost, group in grouped:
            if is_lost:
                lost += _payloads(group)
            elif self.compared is not None:
                yield from self._compare_all(group, self.compared, self._budget(lost))
            else:
                with RebuildAttempt(self.target_root) as attempt:
                    findings = list(self._write_all(group, attempt.root, self._budget(lost)))
                    attempt.settle()
                yield from findings

    def _budget(self, lost: Iterable[bytes]) -> FillBudget | None:
        """Return the fill budget for queue writers, from the runs on damage, which come first."""
        if not self.rules.is_salvaged:
            return None
        segments = {part.segment.start_offset: part.segment for part in self.parts}
        return FillBudget(LostBytes(list(segments.values()), lost))

    def _write_all(self, runs: Iterable[_KeyedRun], root: Path, budget: FillBudget | None) -> Iterator[Finding]:
        for kind, group in groupby(runs, key=lambda run: run[0].kind):
            if kind == RunKind.OUTCOME:
                yield from _outcomes(group)
            elif kind == RunKind.QUEUES:
                writers = self._writers(root, budget)
                for chunk in _chunks(_units_of(group)):
                    writers.put(chunk)
                yield from writers.finish()
            elif self.splits_index:
                yield from self._split_index([run for _, run in group if isinstance(run, SpilledRun)], root)
            else:
                yield self._write_index(_payloads(group), root)

    def _writers(self, root: Path | None, budget: FillBudget | None) -> QueueWriters:
        return QueueWriters(self.rules, QueuePlace(self.store_root, root, DeferredSyncFileSystem()), budget)

    def _write_index(self, payloads: Iterable[bytes], root: Path) -> IndexReport:
        writer = IndexWriter(self.rules, self.store_root, root, self.clock)
        for payload in payloads:
            if payload:
                writer.add(MessageKeys.of_table(unpacked(payload)))
        return writer.finish()

    def _split_index(self, runs: Sequence[SpilledRun], root: Path) -> Iterator[IndexReport | IndexSlice]:
        """Yield what goes into each file of an index; write it if that is only one, or can't be told."""
        with RunReader() as reader:
            slices = slice_entries(runs, reader, self.rules.queue_rules.max_index_num - 1)
            if len(slices) > 1:
                yield from slices
            else:
                yield self._write_index(map(reader.read, runs), root)

    # ---- comparing

    def _compare_all(
        self, runs: Iterable[_KeyedRun], bounds: LogBounds, budget: FillBudget | None
    ) -> Iterator[Finding]:
        lost = budget.lost if budget is not None else None
        for kind, group in groupby(runs, key=lambda run: run[0].kind):
            if kind == RunKind.OUTCOME:
                yield from _outcomes(group)
                continue
            writers = self._writers(None, budget)
            for chunk in _chunks(_units_of(group)):
                writers.put(chunk)
            yield from writers.finish()
            with StoredQueues(self.stored_root or self.store_root, self.rules.queue_rules) as stored:
                for name, writer in writers.writers.items():
                    yield judge_queue(*name, writer.side(bounds.min_offset), stored, bounds, lost)


def _payloads(runs: Iterable[_KeyedRun]) -> Iterator[bytes]:
    return (run for _, run in runs if isinstance(run, bytes))


def _units_of(runs: Iterable[_KeyedRun]) -> Iterator[QueueUnits]:
    return (QueueUnits.of_table(unpacked(data)) for data in _payloads(runs))


def _chunks(pieces: Iterable[QueueUnits]) -> Iterator[QueueUnits]:
    """Join pieces until they have enough units."""
    waiting: list[QueueUnits] = []
    for piece in pieces:
        waiting.append(piece)
        queues = max(len(each.queues) for each in waiting)
        if sum(len(each.units.row) for each in waiting) >= min(_MANY * queues, _CHUNK):
            yield QueueUnits.joined(waiting)
            waiting = []
    if waiting:
        yield QueueUnits.joined(waiting)


def _outcomes(runs: Iterable[_KeyedRun]) -> Iterator[PartOutcome]:
    return (run for _, run in runs if isinstance(run, PartOutcome))
