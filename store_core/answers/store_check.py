# SPDX-License-Identifier: Apache-2.0
"""Is a store whole? Commit log, consume queues and key index against each other, in one call and without Spark."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from store_core.answers.checking.check_options import CheckOptions
from store_core.answers.checking.check_report import CheckFacts, CheckReport, digest_of
from store_core.answers.checking.config_files import ConfigFiles
from store_core.answers.checking.finding import Finding, FindingKind
from store_core.answers.checking.index_chains import ChainJob
from store_core.answers.checking.judged_log import JudgedLog
from store_core.answers.checking.tally import Tally
from store_core.answers.local_engine import local_engine
from store_core.answers.rebuild import configured_batch_topics
from store_core.errors import CorruptRecordError
from store_core.files.abort_file import ABORT_FILE
from store_core.files.clock import SystemClock
from store_core.files.file_system import OsFileSystem, names_in
from store_core.files.store_lock import is_lock_held
from store_core.files.store_path import list_segments
from store_core.queue.index.index_files import INDEX_DIRECTORY, IndexFiles
from store_core.store.read.option_values import ReadMode
from store_core.store.read.read_options import ReadOptions
from store_core.store.read.read_plan import plan_ranges
from store_core.store.rebuild.compare import LogBounds, StoredQueues, judge_queue
from store_core.store.rebuild.inferred import inference_notes
from store_core.store.rebuild.lost_ranges import LostBytes
from store_core.store.rebuild.passes import rebuild_by
from store_core.store.rebuild.plan import RebuildPlan
from store_core.store.rebuild.unit_verdicts import UnitVerdict
from store_core.store.rebuild.wanted import check_wanted

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from store_core.answers.checking.index_chains import ChainCheck
    from store_core.files.clock import Clock
    from store_core.format.releases.release import Release
    from store_core.queue.index.index_file import IndexFile
    from store_core.store.parts import Engine, ProgressSink
    from store_core.store.rebuild.report import RebuildReport

__all__ = ["CheckedStore", "check", "check_by", "checked_by"]


def check(
    path: str | os.PathLike[str],
    options: CheckOptions | None = None,
    *,
    processes: int = 1,
    on_progress: ProgressSink | None = None,
    clock: Clock | None = None,
) -> CheckReport:
    """Check a store: each record against its unit and its entries, and each unit and entry against its record.

    Nothing in the store changes, and no lock is taken: scratch files are in the system's directory for temporary files.
    What a crash or a running broker leaves at the end of the log, aged files, preallocated files and fillers are no
    findings. The report is the same for any number of processes.

    Parameters
    ----------
    path : path
        The store root.
    options : CheckOptions, optional
    processes : int
        As for `store_core.rebuild_consume_queue`.
    on_progress : callable, optional
        Called with a `store_core.store.parts.PartsDone` after each part.
    clock : Clock, optional

    Raises
    ------
    StoreError
        As for `store_core.rebuild_consume_queue` with ``verify``.
    OSError
        As raised by the system.

    Examples
    --------
    >>> from store_core.answers import check
    >>> report = check(store)  # doctest: +SKIP
    >>> print(report.to_text())  # doctest: +SKIP
    """
    with local_engine(processes, on_progress) as engine:
        return check_by(engine, path, options, clock=clock)


def check_by(
    engine: Engine, path: str | os.PathLike[str], options: CheckOptions | None = None, *, clock: Clock | None = None
) -> CheckReport:
    """Check a store as `check` does, with an engine that runs the parts."""
    return checked_by(engine, path, options, clock=clock).report


def checked_by(
    engine: Engine,
    path: str | os.PathLike[str],
    options: CheckOptions | None = None,
    *,
    clock: Clock | None = None,
    is_ours: bool = False,
) -> CheckedStore:
    """Check a store as `check_by` does, for who has to know more than the report says.

    Parameters
    ----------
    is_ours : bool
        Whether the caller holds the store's lock, so that no broker is writing.
    """
    options = options or CheckOptions()
    plan = RebuildPlan.of(path, options.as_comparison(), _readable_batch_topics)
    is_live = not is_ours and is_lock_held(plan.store)
    return _Check(engine, plan, options, clock or SystemClock(), is_live).run()


@dataclass(frozen=True, slots=True)
class CheckedStore:
    """A check, with what its report was made of.

    Attributes
    ----------
    report : CheckReport
    plan : RebuildPlan
        Of the comparison: the rules that were followed.
    compared : RebuildReport
        The comparison.
    tally : Tally
        Has all places with findings.
    index : tuple of IndexFile
        The files of the index that the release loads, oldest first.
    """

    report: CheckReport
    plan: RebuildPlan
    compared: RebuildReport
    tally: Tally
    index: tuple[IndexFile, ...]


def _readable_batch_topics(store: Path, release: Release) -> frozenset[str]:
    """Return the batch topics in the broker's configuration; none if it can't be read, which is a finding."""
    try:
        return configured_batch_topics(store, release)
    except CorruptRecordError:
        return frozenset()


@dataclass(frozen=True, slots=True)
class _Check:
    """A check: compares queues and index with the log, then looks at what the log can't tell."""

    engine: Engine
    plan: RebuildPlan
    options: CheckOptions
    clock: Clock
    is_live: bool

    def run(self) -> CheckedStore:
        store = self.plan.store
        is_open = self.is_live or (store / ABORT_FILE).exists()
        bounds = LogBounds(self.plan.min_offset, self.is_live, self._log_end())
        compared = self._compared(bounds)
        tally = Tally()
        index = self._index_files()
        index_end = max((file.end_physical_offset for file in index if file.header.index_count > 1), default=-1)
        judged = JudgedLog(compared, str(store), is_open, self.options.topic is not None, index_end)
        judged.add_to(tally)
        config = ConfigFiles(store, OsFileSystem())
        self._add_unknown(compared, bounds, config.topics, tally, is_open=is_open)
        self._add_index(index, compared, tally, is_open=is_open)
        tally.add_all(config.findings)
        notes = (*compared.notes, *inference_notes(self.plan, compared), *tally.notes, *config.notes)
        certificates = list(judged.certificates())
        facts = CheckFacts(
            store=str(store),
            release=self.plan.rules.queue_rules.release,
            was_closed=not is_open,
            segments=len(compared.outcomes),
            records=compared.records,
            min_offset=self.plan.min_offset,
            end_offset=compared.end_offset,
            queues=len(certificates),
            complete_queues=sum(each.is_complete for each in certificates),
            digest=digest_of(certificates),
            notes=notes,
            coverage=compared.coverage,
        )
        report = CheckReport.of_tally(facts, tally, certificates)
        return CheckedStore(report, self.plan, compared, tally, tuple(index))

    def _log_end(self) -> int:
        """Find where the log ends, whatever damage precedes it."""
        options = ReadOptions(mode=ReadMode.DROPMALFORMED, release=self.options.release)
        end = plan_ranges(str(self.plan.store), options).end
        return end.end_offset if end is not None else 0

    def _compared(self, bounds: LogBounds) -> RebuildReport:
        """Compare queues and index with the log; across damage, so that not everything after it differs."""
        plan = self.plan
        report = rebuild_by(self.engine, plan.store, plan.output, plan.rules, compared=bounds, clock=self.clock)
        if report.is_damaged:
            rules = replace(plan.rules, is_salvaged=True)
            report = rebuild_by(self.engine, plan.store, plan.output, rules, compared=bounds, clock=self.clock)
        check_wanted(report, plan.store, plan.rules, OsFileSystem())
        return report

    def _index_files(self) -> list[IndexFile]:
        index = IndexFiles(
            self.plan.store / INDEX_DIRECTORY,
            self.plan.rules.queue_rules,
            OsFileSystem(),
            self.clock,
            is_writable=False,
        )
        index.load(last_exit_ok=True, index_msg_timestamp=0)
        return list(index.files)

    # ---- what the log can't tell

    def _add_unknown(
        self, compared: RebuildReport, bounds: LogBounds, topics: set[str], tally: Tally, *, is_open: bool
    ) -> None:
        """Add queues that have units, though the log has no record of them."""
        rules, files = self.plan.rules, OsFileSystem()
        nothing = StoredQueues(self.plan.output / "nothing", rules.queue_rules, files, self.clock)
        lost = self._lost(compared)
        known = {(queue.topic, queue.queue_id) for queue in compared.queues}
        logged = {topic for topic, _ in known} | topics
        with StoredQueues(self.plan.store, rules.queue_rules, files, self.clock) as stored:
            for topic, queue_id in sorted(stored.names() - known):
                if bounds.is_live or not rules.wants(topic, queue_id):
                    continue
                judged = judge_queue(topic, queue_id, nothing, stored, bounds, lost)
                wrong = [each for each in judged.first if not (is_open and each.verdict is UnitVerdict.AFTER_END)]
                if wrong:
                    kind = FindingKind.UNKNOWN_QUEUE if topic in logged else FindingKind.UNKNOWN_TOPIC
                    if wrong[0].verdict is UnitVerdict.UNREADABLE:
                        kind = FindingKind.QUEUE_UNREADABLE
                    tally.add_all([Finding(kind, str(self.plan.store), topic, queue_id, found=wrong[0].found)])

    def _lost(self, compared: RebuildReport) -> LostBytes:
        """Return what is lost of the log: damaged ranges, and missing segments."""
        ranges = [lost[:2] for outcome in compared.outcomes for lost in outcome.lost]
        segments = list_segments(str(self.plan.store)).segments
        return LostBytes(segments, [np.array(ranges, np.int64).tobytes()])

    def _add_index(self, files: list[IndexFile], compared: RebuildReport, tally: Tally, *, is_open: bool) -> None:
        """Add index files that reach after the log's end or can't be read, and chains that are broken."""
        for file in files:
            end = file.end_physical_offset
            if file.header.index_count > 1 and end >= compared.end_offset:
                text = f"it ends at {end}, and the log at {compared.end_offset}"
                if is_open:
                    tally.notes.append(f"{file.path}: {text}, as a crash leaves it")
                else:
                    tally.add_all([Finding(FindingKind.INDEX_AFTER_END, str(file.path), begin=end, found=text)])
        for path, problem in self._unloaded(files):
            tally.add_all([Finding(FindingKind.INDEX_UNREADABLE, str(path), found=problem)])
        job = ChainJob(tuple(Path(file.path) for file in files), self.plan.rules.queue_rules)
        for check in self.engine.run(job):
            tally.add(FindingKind.INDEX_CHAIN, check.broken, _links(check))
            if check.problem:
                tally.add_all([Finding(FindingKind.INDEX_UNREADABLE, check.path, found=check.problem)])

    def _unloaded(self, files: list[IndexFile]) -> Iterator[tuple[Path, str]]:
        """Find files of the index that the release did not load."""
        directory = self.plan.store / INDEX_DIRECTORY
        loaded = {Path(file.path) for file in files}
        for name in names_in(directory, OsFileSystem()) if directory.is_dir() else ():
            path = directory / name
            if path not in loaded and path.is_file() and path.stat().st_size:
                yield path, "the release does not load this file"


def _links(check: ChainCheck) -> Iterator[Finding]:
    for link in check.first:
        place = f"entry {link.number}" if link.number else f"slot {link.slot}"
        expected, found = f"entry {link.expected} after {place}", f"entry {link.found}"
        yield Finding(FindingKind.INDEX_CHAIN, check.path, expected=expected, found=found)
