# SPDX-License-Identifier: Apache-2.0
"""Passes over a log that rebuild its consume queues and index, or compare them with the log.

One pass is enough, unless reading shows something unknown before: where the log ends, or which topics are batch topics.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from store_core.errors import UnsafeSizeError
from store_core.files.clock import Clock, SystemClock
from store_core.files.file_sync import sync_directories
from store_core.files.names import INDEX_DIRECTORY
from store_core.snapshot.index import Index
from store_core.snapshot.log import Log
from store_core.store.read.option_values import ReadMode
from store_core.store.read.read_options import ReadOptions
from store_core.store.read.read_plan import plan_ranges
from store_core.store.rebuild.index_files import IndexFilesJob
from store_core.store.rebuild.job import RebuildJob, RunKind
from store_core.store.rebuild.queue_files import QUEUE_KINDS
from store_core.store.rebuild.segment_part import (
    SegmentOutcome,
    SegmentPart,
    find_rebuilt_end,
    rebuild_coverage,
    split_segments,
    without_tails,
)
from store_core.store.rebuild.swap import ATTEMPTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store_core.snapshot.index import LoadedIndex
    from store_core.store.parts import Engine
    from store_core.store.rebuild.options import RebuildRules
    from store_core.store.rebuild.queue_compare import LogBounds
    from store_core.store.rebuild.report import RebuildReport


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

    * `engine`: Runs the parts.
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
        _check_count(report, store, rules)
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


def _check_count(report: RebuildReport, store: Path, rules: RebuildRules) -> None:
    if len(report.queues) > rules.max_queues:
        raise UnsafeSizeError(
            "too many queues", str(store), 0, f"at most {rules.max_queues}", str(len(report.queues)), b"",
            "A log may name a queue in every record. If these are real, raise the bound (--max-queues).",
        )  # fmt: skip


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
