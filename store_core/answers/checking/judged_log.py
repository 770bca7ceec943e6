# SPDX-License-Identifier: Apache-2.0
"""The findings in log and queues, what of them a crash explains, and what a restart would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from store_core.answers.checking.check_report import Certificate
from store_core.answers.checking.finding import Finding, FindingKind
from store_core.errors import SegmentLayoutError, UnsupportedStoreError
from store_core.files.file_system import OsFileSystem
from store_core.files.segment_listing import list_for_loading
from store_core.files.store_kind import queue_database
from store_core.files.store_path import log_directories
from store_core.format.record.scan import StopReason
from store_core.queue.queue_path import CONSUME_QUEUE
from store_core.store.configured_store import config_of
from store_core.store.message_store import DefaultMessageStore
from store_core.store.rebuild.compare import UnitVerdict
from store_core.store.rebuild.segment_scan import NO_STORE_TIME, WRONG_RECORD_CRC

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from store_core.answers.checking.check_options import CheckOptions
    from store_core.answers.checking.finding import Tally
    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem
    from store_core.format.releases.release import Release
    from store_core.snapshot.log import Log
    from store_core.store.rebuild.compare import QueueJudgement, UnitFinding
    from store_core.store.rebuild.files import QueueReport
    from store_core.store.rebuild.lost_ranges import LostRange
    from store_core.store.rebuild.options import RebuildOptions
    from store_core.store.rebuild.report import RebuildReport

__all__ = ["NOT_ASKED", "JudgedLog", "add_loading", "dispatch_start"]

NOT_ASKED: Final = -1
_NOWHERE: Final = 2**63 - 1

_KINDS: Final = {
    StopReason.BAD_CRC.value: FindingKind.LOG_CRC,
    WRONG_RECORD_CRC: FindingKind.LOG_RECORD_CRC,
    NO_STORE_TIME: FindingKind.LOG_TIME,
}
"""Why bytes are no record -> the kind of finding, where it is not damage."""


@dataclass(frozen=True, slots=True)
class JudgedLog:
    """Judges a comparison."""

    report: RebuildReport  # of a comparison in which each unit is judged
    store: str
    has_crashed: bool
    """Whether the store was not closed, and no broker has it: then a torn last record, units and entries of it, and
    records that have none yet are what a crash leaves. A restart removes the former, and completes the latter."""
    is_partial: bool  # whether only queues of some topics were compared
    holes: frozenset[int] = frozenset()
    """Physical offsets where segments end before the next one begins: what is damaged up to there belongs to the
    hole."""
    restart_from: int = NOT_ASKED
    """Physical offset from which a restart adds the units that queues lack at their ends; `NOT_ASKED` if that is not
    known, then from after the last record of which any queue has a unit."""

    def add_to(self, tally: Tally) -> None:
        """Add all findings and notes."""
        self._add_log(tally)
        for judged in self.report.judged:
            self._add_units(judged, tally)

    def certificates(self) -> Iterator[Certificate]:
        """Yield what is certain of each queue."""
        judged = {(each.topic, each.queue_id): each for each in self.report.judged}
        for queue in self.report.queues:
            units = judged[queue.topic, queue.queue_id]
            wrong = sum(count - self._left_by_crash(verdict, count, units) for verdict, count in units.counts)
            yield Certificate(
                queue.topic,
                queue.queue_id,
                queue.min_offset,
                queue.max_offset,
                queue.units,
                not (wrong or queue.gap_count or queue.missing_count or queue.refused_count),
                units.digest,
            )

    @property
    def seems_open(self) -> bool:
        """Whether log and queues end as in a store that was not closed: a crash would explain what is wrong there."""
        explained = (self._explained(*count, each) for each in self.report.judged for count in each.counts)
        return bool(self.report.end.tails) or any(explained)

    # ---- the log

    def _add_log(self, tally: Tally) -> None:
        report = self.report
        tally.add_all(Finding(FindingKind.LOG_LAYOUT, self.store, found=text) for text in report.problems)
        for outcome in report.outcomes:
            for kind, ranges in _by_kind(each for each in outcome.lost if each.end not in self.holes).items():
                tally.add(kind, len(ranges), (_lost(kind, outcome.path, each) for each in ranges))
            tally.add(FindingKind.LOG_DAMAGE, outcome.lost_count - len(outcome.lost), ())  # not listed
            bodies = (_lost(FindingKind.LOG_BODY, outcome.path, each) for each in outcome.unexpandable_first)
            tally.add(FindingKind.LOG_BODY, outcome.unexpandable, bodies)
        for tail in report.end.tails:
            if self.has_crashed:
                tally.notes.append(f"a crash, or copying an open store, left the last record unfinished: {tail}")
            else:
                tally.add_all([_lost(FindingKind.LOG_DAMAGE, tail.path, (tail.begin, tail.end, tail.reason.value))])
        for queue in report.queues:
            tally.add(FindingKind.LOG_OFFSETS, queue.gap_count, self._gaps(queue))
        tally.add(FindingKind.LOG_REFUSED, report.refused_count, self._refused())

    def _gaps(self, queue: QueueReport) -> Iterator[Finding]:
        for gap in queue.gaps:
            place = (queue.topic, queue.queue_id, gap.queue_offset, gap.physical_offset)
            expected = f"queue offset {gap.expected}"
            yield Finding(FindingKind.LOG_OFFSETS, self.store, *place, expected=expected, found=f"a {gap.kind}")

    def _refused(self) -> Iterator[Finding]:
        for unit in self.report.refused:
            place = (unit.topic, unit.queue_id, None, unit.physical_offset)
            yield Finding(FindingKind.LOG_REFUSED, self.store, *place, found=unit.reason)

    # ---- queues

    def _add_units(self, judged: QueueJudgement, tally: Tally) -> None:
        where = f"{self.store}/{CONSUME_QUEUE}/{judged.topic}/{judged.queue_id}"
        for verdict, count in judged.counts:
            left = self._left_by_crash(verdict, count, judged)
            if left:
                is_after = verdict is UnitVerdict.AFTER_END
                what = "units of records that are not there" if is_after else "records without a unit"
                name, then = f"queue {judged.queue_id} of {judged.topic}", "cuts" if is_after else "completes"
                tally.notes.append(f"{name}: {left} {what}, at its end; a restart {then} them")
            first = [each for each in judged.first if each.verdict is verdict]
            if left:
                first = [each for each in first if each.physical_offset <= judged.reaches]
            tally.add(_verdict(verdict), count - left, (_wrong_unit(each, where, judged) for each in first))

    def _left_by_crash(self, verdict: UnitVerdict, count: int, judged: QueueJudgement) -> int:
        return self._explained(verdict, count, judged) if self.has_crashed else 0

    def _explained(self, verdict: UnitVerdict, count: int, judged: QueueJudgement) -> int:
        """Return how many units a crash explains: a broker dispatches in the log's order, and goes on there."""
        if verdict is UnitVerdict.AFTER_END:
            return count
        if verdict is not UnitVerdict.MISSING or not judged.missing_behind:
            return 0
        if self.restart_from != NOT_ASKED:
            is_explained = judged.missing_behind_from >= self.restart_from
        else:
            reached = max((each.reaches for each in self.report.judged), default=-1)
            is_explained = not self.is_partial and judged.missing_behind_from > reached
        return judged.missing_behind * is_explained


def _by_kind(ranges: Iterable[LostRange]) -> dict[FindingKind, list[LostRange]]:
    """Sort damaged ranges by what is wrong."""
    found: dict[FindingKind, list[LostRange]] = {}
    for each in ranges:
        found.setdefault(_KINDS.get(each.reason, FindingKind.LOG_DAMAGE), []).append(each)
    return found


def _lost(kind: FindingKind, path: str, lost: tuple[int, int, str]) -> Finding:
    begin, end, reason = lost
    return Finding(kind, path, begin=begin, end=end, found=reason)


def _wrong_unit(unit: UnitFinding, where: str, judged: QueueJudgement) -> Finding:
    return Finding(
        _verdict(unit.verdict), where, judged.topic, judged.queue_id,
        None if unit.queue_offset < 0 else unit.queue_offset,
        None if unit.physical_offset < 0 else unit.physical_offset,
        expected=unit.expected, found=unit.found,
    )  # fmt: skip


def _verdict(verdict: UnitVerdict) -> FindingKind:
    return FindingKind.QUEUE_UNREADABLE if verdict is UnitVerdict.UNREADABLE else FindingKind[f"UNIT_{verdict.name}"]


def add_loading(store: Path, log: Log, release: str, file_system: FileSystem, tally: Tally) -> None:
    """Add why a release would not load a log, or which of its segments it would leave out; others are noted."""
    directories = log_directories(store)
    directory = ", ".join(map(str, directories))
    try:
        loaded = list_for_loading(directories, log.usual_size, file_system, release)
    except SegmentLayoutError as error:
        tally.add_all([Finding(FindingKind.LOG_LAYOUT, directory, found=str(error))])
        return
    if {each.path for each in log.segments} <= set(map(str, loaded.paths)):
        tally.notes += loaded.notes
    else:
        tally.add_all([Finding(FindingKind.LOG_LAYOUT, directory, found="; ".join(loaded.notes))])


def dispatch_start(
    store: Path, options: CheckOptions | RebuildOptions, batch_topics: frozenset[str], clock: Clock
) -> int:
    """Return the physical offset from which a restart puts records into queues that end before them.

    Nothing is written: the recovery runs on changes that are kept in memory.

    * `store`: The store's root.
    * `options`: With the release, and the broker's configuration.

    Returns: After every record if the release refuses the store; `NOT_ASKED` for queues in a RocksDB, and for a kind of
    store that can't be opened.
    """
    if queue_database(store, OsFileSystem()) is not None:
        return NOT_ASKED
    release = cast("Release", options.release)
    config = config_of(options.broker_config, options.store_path_commit_log, release)
    try:
        report = DefaultMessageStore.dry_run(store, config, batch_topics=batch_topics, clock=clock)
    except UnsupportedStoreError:
        return NOT_ASKED
    return _NOWHERE if report.is_refused else min(report.start_offset, report.reput_from_offset)
