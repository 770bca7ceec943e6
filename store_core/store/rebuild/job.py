# SPDX-License-Identifier: Apache-2.0
"""The rebuild job: read parts of segments, then write queues and the index, or compare them.

Between the two steps an engine transports runs of thousands of units, and groups those of some queues in log order.
One pass of the job over the log is enough, unless reading shows something unknown before: where the log ends, or which
topics are batch topics.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from store_core.errors import UnsafeSizeError
from store_core.files.file_sync import DeferredSyncFileSystem, sync_directories
from store_core.files.file_system import OsFileSystem
from store_core.files.machine import Clock, SystemClock, keep_freed_memory
from store_core.files.names import INDEX_DIRECTORY, QUEUE_KINDS
from store_core.format.crc32 import crc32
from store_core.queue.index_format import MessageKeys
from store_core.queue.queue_assignment import QueueUnits, empty_units
from store_core.snapshot.index import Index, LoadedIndex
from store_core.snapshot.log import Log
from store_core.snapshot.queues import Queues
from store_core.store.parts import Engine, RunReader, RunSpill, SpilledRun, packed, unpacked
from store_core.store.read.option_values import ReadMode
from store_core.store.read.read_options import ReadOptions
from store_core.store.read.read_plan import plan_ranges
from store_core.store.rebuild.findings import FillBudget, LostBytes
from store_core.store.rebuild.index_files import (
    IndexComparison,
    IndexFilesJob,
    IndexReport,
    IndexSlice,
    IndexWriter,
    KeptIndex,
    slice_entries,
)
from store_core.store.rebuild.queue_compare import LogBounds, QueueJudgement, StoredQueues, judge_queue
from store_core.store.rebuild.queue_files import QueuePlace, QueueReport, QueueWriters
from store_core.store.rebuild.report import RebuildReport
from store_core.store.rebuild.segment_scan import (
    SegmentOutcome,
    SegmentPart,
    SegmentScan,
    find_rebuilt_end,
    merge_outcomes,
    rebuild_coverage,
    split_segments,
    without_tails,
)
from store_core.store.rebuild.swap import ATTEMPTS, RebuildAttempt

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from store_core.store.rebuild.plan import RebuildRules


_FIRST_BUCKET = 0
"""Its task gets the outcomes, and the index if that is to be written; it then takes longest, so it starts first."""

_FIRST_SEQUENCE = -1

_CHUNK = 1 << 20
"""Units that are put into their order, and written, at once."""

_MANY = 1 << 10
"""Units a queue from which on pieces are written as they come: a write has 20 KB then."""


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

TaskResult: TypeAlias = PartOutcome | QueueReport | IndexReport | IndexSlice | QueueJudgement
"""A result of a task."""


class JobResult(NamedTuple):
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

    def merge(self, results: Iterable[TaskResult]) -> JobResult:
        """Make one report of what the tasks found."""
        listed = list(results)
        by_part = sorted((each for each in listed if isinstance(each, PartOutcome)), key=lambda each: each.part)
        outcomes = merge_outcomes(self.parts, [outcome for _, outcome in by_part])
        if outcomes is None:
            return JobResult(None)
        queues = (each for each in listed if isinstance(each, QueueReport))
        judged = (each for each in listed if isinstance(each, QueueJudgement))
        report = RebuildReport(
            tuple(outcomes),
            tuple(sorted(queues, key=lambda each: (each.topic, each.queue_id))),
            next((each for each in listed if isinstance(each, IndexReport)), None),
            judged=tuple(sorted(judged, key=lambda each: (each.topic, each.queue_id))),
        )
        return JobResult(report, tuple(each for each in listed if isinstance(each, IndexSlice)))

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
        for bucket, table in units.tables(buckets):
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

    def gather(self, runs: Iterable[tuple[RunKey, Run]]) -> Iterator[TaskResult]:
        """Write the queues and index of runs, which come in key order; yield reports."""
        with RunReader() as reader:
            yield from self._gather(
                (key, run if self.splits_index and key.kind == RunKind.INDEX else reader.read(run)) for key, run in runs
            )

    def _gather(self, runs: Iterable[_KeyedRun]) -> Iterator[TaskResult]:
        grouped = groupby(runs, key=lambda run: run[0].kind == RunKind.LOST)
        lost: list[bytes] = []
        for is_lost, group in grouped:
            if is_lost:
                lost += _payloads(group)
            elif self.compared is not None:
                yield from self._compare_all(group, self.compared, self._budget(lost))
            else:
                with RebuildAttempt(self.target_root) as attempt:
                    results = list(self._write_all(group, attempt.root, self._budget(lost)))
                    attempt.settle()
                yield from results

    def _budget(self, lost: Iterable[bytes]) -> FillBudget | None:
        """Return the fill budget for queue writers, from the runs on damage, which come first."""
        if not self.rules.is_salvaged:
            return None
        segments = {part.segment.start_offset: part.segment for part in self.parts}
        return FillBudget(LostBytes(list(segments.values()), lost))

    def _write_all(self, runs: Iterable[_KeyedRun], root: Path, budget: FillBudget | None) -> Iterator[TaskResult]:
        for kind, group in groupby(runs, key=lambda run: run[0].kind):
            if kind == RunKind.OUTCOME:
                yield from _outcomes(group)
            elif kind == RunKind.QUEUES:
                yield from self._written(group, root, budget).finish()
            elif self.splits_index:
                yield from self._split_index([run for _, run in group if isinstance(run, SpilledRun)], root)
            else:
                yield self._write_index(_payloads(group), root)

    def _written(self, runs: Iterable[_KeyedRun], root: Path | None, budget: FillBudget | None) -> QueueWriters:
        """Put the units of runs into their queues, below a directory or, without one, in memory."""
        writers = QueueWriters(self.rules, QueuePlace(self.store_root, root, DeferredSyncFileSystem()), budget)
        for chunk in _chunks(QueueUnits.of_table(unpacked(data)) for data in _payloads(runs)):
            writers.put(chunk)
        return writers

    def _write_index(self, payloads: Iterable[bytes], root: Path) -> IndexReport:
        rules = self.rules.queue_rules
        kept = KeptIndex.find(self.store_root, rules, self.rules.index_since_offset, OsFileSystem())
        writer = IndexWriter(rules, kept, root, self.clock)
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
    ) -> Iterator[TaskResult]:
        lost = budget.lost if budget is not None else None
        for kind, group in groupby(runs, key=lambda run: run[0].kind):
            if kind == RunKind.OUTCOME:
                yield from _outcomes(group)
                continue
            writers = self._written(group, None, budget)
            yield from writers.finish()
            with StoredQueues(self.stored_root or self.store_root, self.rules.queue_rules) as stored:
                for name, writer in writers.writers.items():
                    yield judge_queue(name, writer.side(bounds.min_offset), stored, bounds, lost)


def _payloads(runs: Iterable[_KeyedRun]) -> Iterator[bytes]:
    return (run for _, run in runs if isinstance(run, bytes))


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


# ---- the passes over a log

_PARTS_A_SLOT: Final = 4
_BUCKETS_A_SLOT: Final = 1
_BYTES_A_BUCKET: Final = {True: 1 << 30, False: 4 << 30}
"""Bytes of log per task that compares, which holds all its units, some 5 %; and that writes, which holds a million."""

_LEAST_BYTES_A_KEY: Final = 64
"""Of log per entry of the index. Where messages are smaller, or have more keys, one task writes all files."""


def rebuild_by(  # noqa: PLR0913 -- the engine, what is read, where it goes, and by which rules
    engine: Engine,
    store: Path,
    target: Path,
    rules: RebuildRules,
    *,
    compared: LogBounds | None = None,
    stored_root: Path | None = None,
    index: LoadedIndex | None = None,
    clock: Clock | None = None,
) -> RebuildReport:
    """Build queues and index from the log alone, below `target`; nothing in the store changes.

    * `store`: A store root that is accessible wherever parts run.
    * `target`: Where parts write ``consumequeue``, ``batchconsumequeue``, ``consumequeue_ext`` and ``index``. Those to
      be rebuilt are deleted there first, and also after a failure.
    * `compared`: Compare with what the store has, and write nothing to the target.
    * `stored_root`: Compare with the queues and index below this directory, not with the store's.
    * `index`: The index to compare with, by who has loaded it.
    * `clock`: Names the files of the index; by default the system's clock.
    """
    listing = Log.of(store)
    problems = tuple(error.problem for error in listing.problems)
    behind = [segment for segment in listing.segments if segment.end_offset > rules.first_offset]
    segments = behind or list(listing.segments[-1:])
    size = sum(segment.size for segment in segments)
    buckets = max(_BUCKETS_A_SLOT * engine.slots, size // _BYTES_A_BUCKET[compared is not None], 1)
    parts = _whole_parts(store, rules) if rules.is_salvaged else ()
    parts = parts or split_segments(segments, _PARTS_A_SLOT * engine.slots)
    if compared is not None and compared.moment is not None:
        parts = _up_to(parts, compared.moment.log_end)
    if compared is None or not rules.has_index:
        index = None
    elif index is None:
        index = Index(stored_root or store).loaded(rules.queue_rules, is_open=compared.is_open)
    job = RebuildJob(
        parts, rules, store, target, buckets, compared,
        clock=clock or SystemClock(), stored_root=stored_root, index=index,
    )  # fmt: skip
    with _cleared_on_failure(job), _places_for_runs(engine, job) as placed:
        report = _judged(_run_as_told(engine, placed), job)
        if len(report.queues) > rules.max_queues:
            raise UnsafeSizeError(
                "too many queues", str(store), 0, f"at most {rules.max_queues}", str(len(report.queues)), b"",
                "A log may name a queue in every record. If these are real, raise the bound (--max-queues).",
            )  # fmt: skip
    if compared is None and target.is_dir():
        sync_directories(target)
    return replace(report, problems=problems + report.problems, notes=listing.notes)


@contextmanager
def _cleared_on_failure(job: RebuildJob) -> Iterator[None]:
    """Delete incomplete results on failure, including ^C."""
    try:
        yield
    except BaseException:
        if job.compared is None:
            with suppress(OSError):  # the original error matters more
                clear(job.target_root, job.rules)
        raise


@contextmanager
def _places_for_runs(engine: Engine, job: RebuildJob) -> Iterator[RebuildJob]:
    """Set where runs wait to be gathered: in files, if all parts run on one machine.

    Entries of an index also wait in files on a cluster if the index may have several: which of them an entry goes into
    is known when all before it are counted.

    A comparison writes nothing beside the store, so its runs wait in scratch files if this process would otherwise have
    to keep them in memory.
    """
    if job.compared is None:
        splits = engine.slots > 1 and job.rules.has_index and not job.rules.index_since_offset
        if engine.is_one_machine:
            yield replace(job, spill_root=job.target_root / ATTEMPTS, splits_index=splits)
        elif splits and _may_fill_a_file(job):
            only = frozenset({RunKind.INDEX})
            yield replace(job, spill_root=job.target_root / ATTEMPTS, spilled_kinds=only, splits_index=True)
        else:
            yield job
    elif not engine.keeps_pieces:
        yield job
    else:
        with tempfile.TemporaryDirectory(prefix="commitlog-compared-") as scratch:
            yield replace(job, spill_root=Path(scratch))


def _may_fill_a_file(job: RebuildJob) -> bool:
    """Return whether a log is large enough for more than one index file, with usual messages."""
    size = sum(part.end - part.begin for part in job.parts)
    return size > _LEAST_BYTES_A_KEY * job.rules.queue_rules.max_index_num


def _whole_parts(store: Path, rules: RebuildRules) -> tuple[SegmentPart, ...]:
    """Plan whole segments up to the log's end, like a read in mode DROPMALFORMED; none for a log without records.

    After damage, only a walk from a segment's first byte shows which records count.
    """
    options = ReadOptions(mode=ReadMode.DROPMALFORMED, verify_crc=rules.check_crc, release=rules.queue_rules.release)
    plan = plan_ranges(store, options)
    return tuple(
        SegmentPart(part.segment, 0, part.data_end - part.segment.start_offset, is_last=part.is_last)
        for part in plan.ranges
        if part.segment.end_offset > rules.first_offset
    )


def _up_to(parts: Sequence[SegmentPart], end: int) -> tuple[SegmentPart, ...]:
    """Leave out what a log has after an end, which is that of a record; one part is left in any case."""
    last = next((n for n, part in reversed([*enumerate(parts)]) if part.segment.start_offset + part.begin < end), 0)
    cut = parts[last]
    stop = max(min(cut.end, end - cut.segment.start_offset), cut.begin)
    return (*parts[:last], replace(cut, end=stop, is_last=True))


def _run_as_told(engine: Engine, job: RebuildJob) -> RebuildReport:
    """Run the job; run it again if records show that topics are batch topics, which changes all their units."""
    report = _run_to_end(engine, job)
    topics = report.told_topics if job.rules.infers_batch_topics else ()
    if not topics:
        return report
    again = _run_to_end(engine, replace(job, rules=job.rules.with_batch_topics(topics)))
    return replace(again, inferred_topics=topics)


def _judged(report: RebuildReport, job: RebuildJob) -> RebuildReport:
    """Add where the log ends, and what was checked, to a report."""
    segments = list({part.segment.path: part.segment for part in job.parts}.values())
    bounds = job.compared
    live_end = None if bounds is None or bounds.moment is None else bounds.moment.log_end
    known = None if bounds is None else bounds.end
    end = known or find_rebuilt_end(segments, report.outcomes, live_end=live_end)
    coverage = rebuild_coverage(job.rules, is_comparison=job.compared is not None)
    return replace(report, outcomes=tuple(without_tails(report.outcomes, end.tails)), end=end, coverage=coverage)


def _run_to_end(engine: Engine, job: RebuildJob) -> RebuildReport:
    """Run the job; run it again if segments turn out not to belong to the log, or can't be split into parts."""
    report = _run(engine, job)
    if report is None:
        whole = {part.segment.path: SegmentPart(part.segment, 0, part.segment.size) for part in job.parts}
        return _run_to_end(engine, replace(job, parts=tuple(whole.values())))
    end = _end(report.outcomes)
    if job.rules.is_salvaged or end == len(report.outcomes):
        return report
    # The files have units of segments after the log's end, so run again without these segments.
    last = report.outcomes[end - 1]
    kept = {outcome.path for outcome in report.outcomes[:end]}
    again = _run_to_end(engine, replace(job, parts=tuple(p for p in job.parts if p.segment.path in kept)))
    count = len(report.outcomes) - end
    problem = (
        f"{count} segments with records come after bytes that are not a record at {last.end_offset}, and do not count"
    )
    left_out = again.left_out_after + sum(outcome.records for outcome in report.outcomes[end:])
    return replace(again, problems=(*again.problems, problem), left_out_after=left_out)


def _end(outcomes: Sequence[SegmentOutcome]) -> int:
    """Count the segments up to the end of the log, and later ones without a record, which change nothing."""
    last = next((number for number, found in enumerate(outcomes) if not found.is_continued), len(outcomes) - 1)
    is_empty_behind = not any(found.records for found in outcomes[last + 1 :])
    return len(outcomes) if is_empty_behind else last + 1


def _run(engine: Engine, job: RebuildJob) -> RebuildReport | None:
    """Run the job once; return None if the parts of a segment do not fit together."""
    if job.compared is not None:
        return engine.run_grouped(job).report
    clear(job.target_root, job.rules)
    job.target_root.mkdir(parents=True, exist_ok=True)
    report, slices = engine.run_grouped(job)
    if report is not None and slices:
        index = IndexFilesJob(slices, job.rules.queue_rules, job.target_root, job.clock)
        report = replace(report, index=engine.run(index))
    shutil.rmtree(job.target_root / ATTEMPTS, ignore_errors=True)
    return report


def clear(target: Path, rules: RebuildRules) -> None:
    """Delete what a rebuild by these rules recreates, and what an interrupted one left."""
    kinds = [*QUEUE_KINDS * rules.has_queues, *[INDEX_DIRECTORY] * rules.has_index, ATTEMPTS]
    for kind in kinds:
        if (target / kind).is_dir():
            shutil.rmtree(target / kind)
