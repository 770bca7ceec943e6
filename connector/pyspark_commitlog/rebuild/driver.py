# SPDX-License-Identifier: Apache-2.0
"""Rebuilds consume queues and index of a store with Spark, or compares them with what the log gives.

A task reads a part of a segment, a task writes some queues, and one writes the index.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark_commitlog.job_session import require_classic
from pyspark_commitlog.rebuild.attempt import ATTEMPTS
from pyspark_commitlog.rebuild.report import RebuildReport
from pyspark_commitlog.rebuild.tasks import RebuildTasks, ReportKind
from pyspark_commitlog.worker_objects import with_old_objects_kept
from store_core.errors import UnsafeSizeError
from store_core.files.deferred_sync import sync_directories
from store_core.files.store_path import layout_problems, list_segments
from store_core.queue.index_files import INDEX_DIRECTORY
from store_core.queue.refused_unit import RefusedUnit
from store_core.store.option_values import ReadMode
from store_core.store.read_options import ReadOptions
from store_core.store.read_plan import plan_ranges
from store_core.store.rebuild.compare import QueueDifferences, UnitDifference
from store_core.store.rebuild.files import QUEUE_KINDS, IndexReport, QueueReport
from store_core.store.rebuild.gap_filler import MissingOffsets
from store_core.store.rebuild.lost_ranges import LostRange
from store_core.store.rebuild.read_end import find_rebuilt_end, rebuild_coverage, settle, without_tails
from store_core.store.rebuild.segment_part import SegmentOutcome, SegmentPart, merge_outcomes, split_segments
from store_core.store.rebuild.unit_gaps import UnitGap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from store_core.store.rebuild.compare import LogBounds
    from store_core.store.rebuild.rules import RebuildRules

__all__ = ["Rows", "TaskRunner", "clear", "rebuild", "rebuild_by", "spark_runner"]

Rows: TypeAlias = list[tuple[int, str]]
"""What comes of tasks: `ReportKind` and JSON."""

TaskRunner: TypeAlias = "Callable[[RebuildTasks], Rows]"
"""Runs `RebuildTasks.scan` for each part, and `RebuildTasks.write` for each bucket with its runs in order."""

_ONE_MACHINE: Final = re.compile(r"local(\[.*\])?")
_PARTS_A_CORE: Final = 4
_BUCKETS_A_CORE: Final = 1
_BYTES_A_BUCKET: Final = 4 << 30
"""Of the log: its units, some 5 %, are sorted by one task."""


def rebuild(
    spark: SparkSession, store: Path, target: Path, rules: RebuildRules, *, compared: LogBounds | None = None
) -> RebuildReport:
    """Build queues and index with Spark; see `rebuild_by`.

    Raises
    ------
    UnsupportedStoreError
        If the session is one of Spark Connect.
    """
    require_classic(spark, "rebuilding")
    cores = spark.sparkContext.defaultParallelism
    return rebuild_by(spark_runner(spark), cores, store, target, rules, compared=compared)


def spark_runner(spark: SparkSession) -> TaskRunner:
    """Return a function that runs tasks in a session."""
    is_one_machine = _ONE_MACHINE.fullmatch(spark.sparkContext.master or "") is not None

    def run(tasks: RebuildTasks) -> Rows:
        tasks = replace(tasks, is_spilled=is_one_machine)
        count = len(tasks.parts)
        runs = spark.sparkContext.parallelize(range(count), count).mapPartitions(with_old_objects_kept(tasks.scan))
        placed = runs.repartitionAndSortWithinPartitions(tasks.buckets, attrgetter("bucket"))
        return placed.mapPartitions(with_old_objects_kept(tasks.write)).collect()

    return run


def rebuild_by(  # noqa: PLR0913 -- who runs it, what is read, where it goes, and by what rules
    run: TaskRunner,
    cores: int,
    store: Path,
    target: Path,
    rules: RebuildRules,
    *,
    compared: LogBounds | None = None,
) -> RebuildReport:
    """Build queues and index from the log alone, below `target`; nothing in the store changes.

    Parameters
    ----------
    run : callable
        Runs the tasks.
    cores : int
        How many it runs at once.
    store : Path
        A store root that every worker sees.
    target : Path
        Gets ``consumequeue``, ``batchconsumequeue``, ``consumequeue_ext`` and ``index``; workers write there. What it
        has of these is deleted first, if they are to be made.
    rules : RebuildRules
    compared : LogBounds, optional
        Write nothing there, and compare with what the store has.

    Raises
    ------
    StoreNotFoundError
        If there is no log.
    UnsafeSizeError
        If there are more queues than `RebuildRules.max_queues`.
    """
    listing = list_segments(str(store))
    problems = tuple(map(str, layout_problems(listing.segments)))
    behind = [segment for segment in listing.segments if segment.end_offset > rules.first_offset]
    segments = behind or list(listing.segments[-1:])
    buckets = max(_BUCKETS_A_CORE * cores, sum(segment.size for segment in segments) // _BYTES_A_BUCKET, 1)
    parts = _whole_parts(store, rules) if rules.is_salvaged else ()
    parts = parts or split_segments(segments, _PARTS_A_CORE * cores)
    tasks = RebuildTasks(parts, rules, store, target, buckets, compared)
    report = _run_as_told(run, tasks)
    report = replace(_judged(report, tasks), problems=problems + report.problems, notes=listing.notes)
    if len(report.queues) > rules.max_queues:
        clear(target, rules)
        raise UnsafeSizeError(
            "too many queues", str(store), 0, f"at most {rules.max_queues}", str(len(report.queues)), b"",
            "A log may name a queue in every record. If these are real, raise the bound (--max-queues).",
        )  # fmt: skip
    if compared is None and target.is_dir():
        sync_directories(target)
    return report


def _whole_parts(store: Path, rules: RebuildRules) -> tuple[SegmentPart, ...]:
    """Plan whole segments up to the log's end, as a read in mode DROPMALFORMED does; none for a log without records.

    After damage only the walk from a segment's first byte knows which records count.
    """
    options = ReadOptions(mode=ReadMode.DROPMALFORMED, verify_crc=rules.check_crc, release=rules.queue_rules.release)
    plan = plan_ranges(str(store), options)
    return tuple(
        SegmentPart(part.segment, 0, part.data_end - part.segment.start_offset, is_last=part.is_last)
        for part in plan.ranges
        if part.segment.end_offset > rules.first_offset
    )


def _run_as_told(run: TaskRunner, tasks: RebuildTasks) -> RebuildReport:
    """Run the tasks; once more if records say that topics are batch topics, of which each record has another unit."""
    report = _run_to_end(run, tasks)
    topics = report.told_topics if tasks.rules.infers_batch_topics else ()
    if not topics:
        return report
    again = _run_to_end(run, replace(tasks, rules=tasks.rules.with_batch_topics(topics)))
    return replace(again, inferred_topics=topics)


def _judged(report: RebuildReport, tasks: RebuildTasks) -> RebuildReport:
    """Add to a report where the log ends, and what was checked."""
    segments = list({part.segment.path: part.segment for part in tasks.parts}.values())
    is_live = tasks.compared is not None and tasks.compared.is_live
    outcomes = settle(segments, report.outcomes) if is_live else report.outcomes
    end = find_rebuilt_end(segments, outcomes, is_live=is_live)
    coverage = rebuild_coverage(tasks.rules, is_comparison=tasks.compared is not None)
    return replace(report, outcomes=tuple(without_tails(outcomes, end.tails)), end=end, coverage=coverage)


def _run_to_end(run: TaskRunner, tasks: RebuildTasks) -> RebuildReport:
    """Run the tasks; once more if it turns out that segments have no part in the log, or can't be cut into parts."""
    report = _run(run, tasks)
    if report is None:
        whole = {part.segment.path: SegmentPart(part.segment, 0, part.segment.size) for part in tasks.parts}
        return _run_to_end(run, replace(tasks, parts=tuple(whole.values())))
    end = _end(report.outcomes)
    if tasks.rules.is_salvaged or end == len(report.outcomes):
        return report
    # Units of segments behind the log's end are in the files: once more, without these segments.
    last = report.outcomes[end - 1]
    kept = {outcome.path for outcome in report.outcomes[:end]}
    again = _run_to_end(run, replace(tasks, parts=tuple(p for p in tasks.parts if p.segment.path in kept)))
    is_race = tasks.compared is not None and tasks.compared.is_live and last.is_unwritten
    count = len(report.outcomes) - end
    if is_race:
        return again
    problem = (
        f"{count} segments with records come after bytes that are not a record at {last.end_offset}, and do not count"
    )
    left_out = again.left_out_after + sum(outcome.records for outcome in report.outcomes[end:])
    return replace(again, problems=(*again.problems, problem), left_out_after=left_out)


def _end(outcomes: Sequence[SegmentOutcome]) -> int:
    """Count the segments up to the end of the log; those behind it without a record count too: they change nothing."""
    last = next((number for number, found in enumerate(outcomes) if not found.is_continued), len(outcomes) - 1)
    is_empty_behind = not any(found.records for found in outcomes[last + 1 :])
    return len(outcomes) if is_empty_behind else last + 1


def _run(run: TaskRunner, tasks: RebuildTasks) -> RebuildReport | None:
    """Run the tasks once; None if the parts of a segment do not fit together."""
    if tasks.compared is None:
        clear(tasks.target_root, tasks.rules)
        tasks.target_root.mkdir(parents=True, exist_ok=True)
    rows = run(tasks)
    shutil.rmtree(tasks.target_root / ATTEMPTS, ignore_errors=True)
    by_part = sorted(map(_outcome, _values(rows, ReportKind.OUTCOME)), key=itemgetter(0))
    outcomes = merge_outcomes(tasks.parts, [outcome for _, outcome in by_part])
    if outcomes is None:
        return None
    queues = sorted(map(_queue, _values(rows, ReportKind.QUEUE)), key=attrgetter("topic", "queue_id"))
    differences = filter(None, map(_differences, _values(rows, ReportKind.DIFFERENCE)))
    index = [IndexReport(**values) for values in _values(rows, ReportKind.INDEX)]
    return RebuildReport(
        tuple(outcomes),
        tuple(queues),
        index[0] if index else None,
        tuple(sorted(differences, key=attrgetter("topic", "queue_id"))),
    )


def clear(target: Path, rules: RebuildRules) -> None:
    """Delete what a rebuild by these rules makes anew, and what an interrupted one left."""
    kinds = [*QUEUE_KINDS * rules.has_queues, *[INDEX_DIRECTORY] * rules.has_index, ATTEMPTS]
    for kind in kinds:
        if (target / kind).is_dir():
            shutil.rmtree(target / kind)


def _values(rows: Rows, kind: ReportKind) -> list[dict[str, Any]]:
    return [json.loads(text) for found, text in rows if found == kind]


def _outcome(values: dict[str, Any]) -> tuple[int, SegmentOutcome]:
    number = values.pop("part")
    tuples = {
        "refused": tuple(RefusedUnit(*unit) for unit in values["refused"]),
        "batch_topics": tuple(values["batch_topics"]),
        "passed_over": tuple((topic, queue_id) for topic, queue_id in values["passed_over"]),
        "lost": tuple(LostRange(*bounds) for bounds in values["lost"]),
    }
    return number, SegmentOutcome(**(values | tuples))


def _queue(values: dict[str, Any]) -> QueueReport:
    gaps = tuple(UnitGap(*gap) for gap in values["gaps"])
    missing = tuple(MissingOffsets(*offsets) for offsets in values["missing"])
    refused = tuple(RefusedUnit(*unit) for unit in values["refused"])
    return QueueReport(**(values | {"gaps": gaps, "missing": missing, "refused": refused}))


def _differences(values: dict[str, Any]) -> QueueDifferences:
    return QueueDifferences(**(values | {"first": tuple(UnitDifference(*unit) for unit in values["first"])}))
