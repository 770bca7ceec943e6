# SPDX-License-Identifier: Apache-2.0
"""Rebuilds consume queues and index of a store with Spark: a task reads a segment, a task writes some queues."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING

from pyspark_commitlog.rebuild_tasks import ATTEMPTS, RebuildTasks, ReportKind
from store_core.files.store_path import layout_problems, list_segments
from store_core.queue.consume_queue_store import RefusedUnit
from store_core.store.rebuild_files import IndexReport, QueueReport
from store_core.store.rebuild_scan import SegmentOutcome
from store_core.store.unit_gaps import UnitGap

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from store_core.store.rebuild_scan import RebuildRules

__all__ = ["RebuildReport", "rebuild"]


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What a rebuild found and made.

    Attributes
    ----------
    outcomes : tuple of SegmentOutcome
        Of the segments up to the log's end, in order.
    queues : tuple of QueueReport
        By topic and id.
    index : IndexReport or None
    notes : tuple of str
    """

    outcomes: tuple[SegmentOutcome, ...]
    queues: tuple[QueueReport, ...]
    index: IndexReport | None
    notes: tuple[str, ...]

    @property
    def records(self) -> int:
        """Records of the log."""
        return sum(outcome.records for outcome in self.outcomes)

    @property
    def end_offset(self) -> int:
        """Where the log ends; physical offset."""
        return self.outcomes[-1].end_offset if self.outcomes else 0

    @property
    def is_damaged(self) -> bool:
        """Whether the log ends in bytes that are no record, or segments with records follow its end."""
        return any(outcome.is_damaged for outcome in self.outcomes) or any(
            "behind the log's end" in n for n in self.notes
        )


def rebuild(spark: SparkSession, store: Path, target: Path, rules: RebuildRules) -> RebuildReport:
    """Build queues and index from the log alone, below `target`; nothing in the store changes.

    Parameters
    ----------
    spark : SparkSession
    store : Path
        A store root that every worker sees.
    target : Path
        Gets ``consumequeue``, ``batchconsumequeue``, ``consumequeue_ext`` and ``index``; workers write there.
    rules : RebuildRules

    Raises
    ------
    StoreNotFoundError
        If there is no log.
    """
    listing = list_segments(str(store))
    notes = [*listing.notes, *map(str, layout_problems(listing.segments))]
    segments = tuple(segment for segment in listing.segments if segment.end_offset > rules.since_offset)
    buckets = max(2 * spark.sparkContext.defaultParallelism, 1)
    tasks = RebuildTasks(segments, rules, store, target, buckets)
    target.mkdir(parents=True, exist_ok=True)
    report = _run(spark, tasks, notes)
    end = _end(report.outcomes)
    if end < len(segments):
        # Units of segments behind the end are in the files: once more, without these segments.
        _clear(target)
        notes.append(
            f"{len(segments) - end} segments lie behind the log's end, at {report.outcomes[end - 1].end_offset}"
        )
        report = _run(spark, replace(tasks, segments=segments[:end]), notes)
    return report


def _end(outcomes: tuple[SegmentOutcome, ...]) -> int:
    """Count the segments up to the end of the log; those behind it without a record count too: they change nothing."""
    last = next((number for number, found in enumerate(outcomes) if not found.is_continued), len(outcomes) - 1)
    is_empty_behind = not any(found.records for found in outcomes[last + 1 :])
    return len(outcomes) if is_empty_behind else last + 1


def _run(spark: SparkSession, tasks: RebuildTasks, notes: list[str]) -> RebuildReport:
    rows: list[tuple[int, str]] = []
    if tasks.segments:
        count = len(tasks.segments)
        runs = spark.sparkContext.parallelize(range(count), count).mapPartitions(tasks.scan)
        placed = runs.repartitionAndSortWithinPartitions(tasks.queue_buckets + 1, attrgetter("bucket"))
        rows = placed.mapPartitions(tasks.write).collect()
    shutil.rmtree(tasks.target_root / ATTEMPTS, ignore_errors=True)
    outcomes = sorted(map(_outcome, _texts(rows, ReportKind.OUTCOME)), key=lambda found: found.start_offset)
    queues = sorted(map(_queue, _texts(rows, ReportKind.QUEUE)), key=lambda found: (found.topic, found.queue_id))
    index = [IndexReport(**json.loads(text)) for text in _texts(rows, ReportKind.INDEX)]
    return RebuildReport(tuple(outcomes), tuple(queues), index[0] if index else None, tuple(notes))


def _clear(target: Path) -> None:
    for directory in target.iterdir():
        shutil.rmtree(directory)


def _texts(rows: list[tuple[int, str]], kind: ReportKind) -> list[str]:
    return [text for found, text in rows if found == kind]


def _outcome(text: str) -> SegmentOutcome:
    values = json.loads(text)
    return SegmentOutcome(**(values | {"refused": tuple(RefusedUnit(*unit) for unit in values["refused"])}))


def _queue(text: str) -> QueueReport:
    values = json.loads(text)
    return QueueReport(**(values | {"gaps": tuple(UnitGap(*gap) for gap in values["gaps"])}))
