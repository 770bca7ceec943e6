# SPDX-License-Identifier: Apache-2.0
"""A store that is checked: what is wrong in log, queues, configuration and checkpoint that no crash explains."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, cast

import numpy as np

from store_core.answers.delay_states import stray_timers
from store_core.errors import CorruptRecordError, SegmentLayoutError, UnsupportedStoreError
from store_core.files.file_system import OsFileSystem
from store_core.files.names import CHECKPOINT_FILE
from store_core.files.segment_listing import list_for_loading
from store_core.files.store_kind import queue_database
from store_core.files.store_path import log_directories
from store_core.format.columns import iso_time
from store_core.format.record.delayed import SCHEDULE_TOPIC
from store_core.format.record.scan import StopReason
from store_core.queue.queue_path import is_light
from store_core.snapshot.config import (
    CONFIG_KINDS,
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    LOG_OFFSETS,
    LOG_TIMES,
    RECOVERY_MARGIN_MS,
    TOPICS,
    Config,
    ConfigFile,
    checkpoint_fields,
    read_checkpoint,
)
from store_core.snapshot.index import Index, LoadedIndex
from store_core.snapshot.timers import Timers
from store_core.store.message_store import DefaultMessageStore
from store_core.store.rebuild.findings import Finding, FindingKind, LostBytes, LostRange, Tally
from store_core.store.rebuild.queue_compare import NO_UNITS, LogBounds, QueueJudgement, StoredQueues, judge_queue
from store_core.store.rebuild.segment_scan import NO_STORE_TIME, WRONG_RECORD_CRC
from store_core.store.store_layout import config_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from store_core.answers.index_chains import ChainCheck
    from store_core.files.machine import Clock
    from store_core.format.release import Release
    from store_core.snapshot.log import Log
    from store_core.store.rebuild.plan import RebuildOptions, RebuildPlan
    from store_core.store.rebuild.queue_files import QueueReport
    from store_core.store.rebuild.report import RebuildReport


NOT_ASKED: Final = -1
_NOWHERE: Final = 2**63 - 1

_KINDS: Final = {
    StopReason.BAD_CRC.value: FindingKind.LOG_CRC,
    WRONG_RECORD_CRC: FindingKind.LOG_RECORD_CRC,
    NO_STORE_TIME: FindingKind.LOG_TIME,
}
"""Why bytes are no record -> the kind of finding, where it is not damage."""


@dataclass(frozen=True, slots=True)
class CheckedStore:
    """What a check has compared and read, and a tally of what is wrong with it."""

    plan: RebuildPlan  # of the comparison: the rules that were followed
    bounds: LogBounds
    log: Log
    compared: RebuildReport  # the comparison, in which each unit is judged
    index: LoadedIndex
    chains: Sequence[ChainCheck]  # of the index files that are loaded, oldest first; none if the index is not checked
    config: ConfigFiles
    restart_from: int = NOT_ASKED
    """Physical offset from which a restart adds the units that queues lack at their ends; `NOT_ASKED` if that is not
    known, then from after the last record of which any queue has a unit."""
    tally: Tally = field(default_factory=Tally)  # has all places with findings
    notes: tuple[str, ...] = ()
    release_why: str = ""  # why of the release whose rules were followed; empty if it was asked for

    @property
    def is_live(self) -> bool:
        """Whether a broker holds the store."""
        return self.bounds.moment is not None

    @property
    def finding_count(self) -> int:
        """How many findings there are."""
        return sum(count for _, count in self.tally.counts)

    @property
    def against_release(self) -> tuple[int, int]:
        """How many findings are of what the release does not leave, and how many more lack where some are.

        What is missing may be lost, whoever wrote it; and of a queue without units, or no index, all is.
        """
        counts = dict(self.tally.counts)
        foreign = (kind for kind in counts if kind.depends_on_release and not kind.endswith("_missing"))
        missing = (
            dict(each.counts).get(FindingKind.UNIT_MISSING, 0) for each in self.compared.judged if each.reaches >= 0
        )
        keys = counts.get(FindingKind.INDEX_MISSING, 0) if Index(self.plan.store).paths else 0
        return sum(counts[kind] for kind in foreign), sum(missing) + keys

    def is_index_pending(self, first: Self) -> bool:
        """Whether keys are missing from an index that stood still since a first look, while the log grew.

        A writer may gather entries for some seconds, so that alone is no finding yet.
        """
        now, then = self.bounds.moment, first.bounds.moment
        if now is None or then is None or FindingKind.INDEX_MISSING not in dict(self.tally.counts):
            return False
        return now.index_end == then.index_end and now.log_end > then.log_end

    def common_with(self, earlier: Self) -> Self:
        """Return the check with only those findings that an earlier one also has."""
        return replace(self, tally=self.tally.common_with(earlier.tally))

    def certificates(self) -> Iterator[dict[str, Any]]:
        """Yield what is certain of each queue: rows of the table ``certificates``."""
        judged = {(each.topic, each.queue_id): each for each in self.compared.judged}
        for queue in self.compared.queues:
            units = judged[queue.topic, queue.queue_id]
            wrong = sum(count - self._left_by_crash(kind, count, units) for kind, count in units.counts)
            yield {
                "topic": queue.topic,
                "queue_id": queue.queue_id,
                "first_offset": queue.min_offset,
                "next_offset": queue.max_offset,
                "records": queue.units,
                "is_complete": not (wrong or queue.gap_count or queue.missing_count or queue.refused_count),
                "digest": units.digest,
            }

    @property
    def seems_open(self) -> bool:
        """Whether log and queues end as in a store that was not closed: a crash would explain what is wrong there."""
        explained = (self._explained(*count, each) for each in self.compared.judged for count in each.counts)
        return bool(self.compared.end.tails) or any(explained)

    def add_compared(self) -> None:
        """Add what is wrong with the log and with its queues, and which others have units."""
        self._add_log()
        for judged in self.compared.judged:
            self._add_units(judged)
        if not self.compared.problems:
            self._add_loading()
        if self.plan.rules.has_queues:
            self._add_unknown()

    # ---- the log

    def _add_log(self) -> None:
        report, tally, store = self.compared, self.tally, str(self.plan.store)
        holes = {begin for begin, _ in self.log.missing}  # what is damaged up to one belongs to it
        tally.add_all(Finding(FindingKind.LOG_LAYOUT, store, found=text) for text in report.problems)
        for outcome in report.outcomes:
            for kind, ranges in _by_kind(each for each in outcome.lost if each.end not in holes).items():
                tally.add(kind, len(ranges), (_lost(kind, outcome.path, each) for each in ranges))
            tally.add(FindingKind.LOG_DAMAGE, outcome.lost_count - len(outcome.lost), ())  # not listed
            bodies = (_lost(FindingKind.LOG_BODY, outcome.path, each) for each in outcome.unexpandable_first)
            tally.add(FindingKind.LOG_BODY, outcome.unexpandable, bodies)
        for tail in report.end.tails:
            if self.bounds.has_crashed:
                tally.notes.append(f"a crash, or copying an open store, left the last record unfinished: {tail}")
            else:
                tally.add_all([_lost(FindingKind.LOG_DAMAGE, tail.path, (tail.begin, tail.end, tail.reason.value))])
        for queue in report.queues:
            tally.add(FindingKind.LOG_OFFSETS, queue.gap_count, _gaps(queue, store))
        tally.add(FindingKind.LOG_REFUSED, report.refused_count, _refused(report, store))

    def _add_loading(self) -> None:
        """Add why the release would not load the log, or which of its segments it would leave out; others are noted."""
        directories = log_directories(self.plan.store)
        directory = ", ".join(map(str, directories))
        release = self.plan.rules.queue_rules.release
        try:
            loaded = list_for_loading(directories, self.log.usual_size, OsFileSystem(), release)
        except SegmentLayoutError as error:
            self.tally.add_all([Finding(FindingKind.LOG_LAYOUT, directory, found=str(error))])
            return
        if {each.path for each in self.log.segments} <= set(map(str, loaded.paths)):
            self.tally.notes += loaded.notes
        else:
            self.tally.add_all([Finding(FindingKind.LOG_LAYOUT, directory, found="; ".join(loaded.notes))])

    # ---- queues

    def _add_units(self, judged: QueueJudgement) -> None:
        for kind, count in judged.counts:
            left = self._left_by_crash(kind, count, judged)
            if left:
                is_after = kind is FindingKind.UNIT_AFTER_END
                what = "units of records that are not there" if is_after else "records without a unit"
                name, then = f"queue {judged.queue_id} of {judged.topic}", "cuts" if is_after else "completes"
                self.tally.notes.append(f"{name}: {left} {what}, at its end; a restart {then} them")
            first = (each for each in judged.first if each.kind is kind)
            known = (each for each in first if not left or (each.begin or 0) <= judged.reaches)
            self.tally.add(kind, count - left, known)

    def _left_by_crash(self, kind: FindingKind, count: int, judged: QueueJudgement) -> int:
        return self._explained(kind, count, judged) if self.bounds.has_crashed else 0

    def _explained(self, kind: FindingKind, count: int, judged: QueueJudgement) -> int:
        """Return how many wrong units a crash explains: a broker dispatches records in the order of the log."""
        if kind is FindingKind.UNIT_AFTER_END:
            return count
        if kind is not FindingKind.UNIT_MISSING or not judged.missing_behind:
            return 0
        if self.restart_from != NOT_ASKED:
            is_explained = judged.missing_behind_from >= self.restart_from
        else:
            reached = max((each.reaches for each in self.compared.judged), default=-1)
            is_explained = self.plan.options.topic is None and judged.missing_behind_from > reached
        return judged.missing_behind * is_explained

    def _add_unknown(self) -> None:
        """Add queues that have units, though the log has no record of them, and topics that have records alone."""
        rules = self.plan.rules
        known = {(queue.topic, queue.queue_id) for queue in self.compared.queues}
        logged = {topic for topic, _ in known} | self.config.topics
        damaged = [lost[:2] for outcome in self.compared.outcomes for lost in outcome.lost]
        lost = LostBytes(self.log.segments, [np.array(damaged, np.int64).tobytes()])
        with StoredQueues(self.plan.store, rules.queue_rules) as stored:
            names = stored.names()
            self._note_deleted({topic for topic, _ in names})
            for topic, queue_id in sorted(names - known):
                if not rules.wants(topic, queue_id):
                    continue
                judged = judge_queue((topic, queue_id), NO_UNITS, stored, self.bounds, lost)
                is_left = self.bounds.is_open
                wrong = [each for each in judged.first if not (is_left and each.kind is FindingKind.UNIT_AFTER_END)]
                if wrong:
                    kind = FindingKind.UNKNOWN_QUEUE if topic in logged else FindingKind.UNKNOWN_TOPIC
                    if wrong[0].kind is FindingKind.QUEUE_UNREADABLE:
                        kind = wrong[0].kind
                    self.tally.add_all([Finding(kind, str(self.plan.store), topic, queue_id, found=wrong[0].found)])

    def _note_deleted(self, with_queues: set[str]) -> None:
        """Note topics that have messages, but neither a queue nor a place in the broker's configuration."""
        incomplete = {judged.topic for judged in self.compared.judged if judged.counts}
        for topic in sorted(incomplete - self.config.topics - with_queues):
            if self.config.topics and not is_light(topic):
                gone = f"topic {topic} has messages without a queue, and is not in config/topics.json, either"
                self.tally.notes.append(f"{gone}, as after it was deleted")

    # ---- what is beside log, queues and index

    def add_beside(self) -> None:
        """Add what is wrong with configuration, timers and checkpoint."""
        store, release, is_open = self.plan.store, self.plan.rules.queue_rules.release, self.bounds.is_open
        self.tally.add_all(self.config.findings)
        ends = {(queue.topic, queue.queue_id): queue.max_offset for queue in self.compared.queues}
        self.tally.add_all(self.config.impossible(ends, is_open=is_open))
        stray = None if is_open else stray_timers(Timers.of(store), self.log, release)
        if stray is not None:
            expected = "timers in the log"
            self.tally.add_all([Finding(FindingKind.TIMER_UNIT, stray.path, expected=expected, found=stray.note)])
        self.tally.add_all(checkpoint_findings(store, release, self._reach(), is_open=is_open))

    def _reach(self) -> LogReach | None:
        """Return how far the log reaches; None if there are signs of later records."""
        signs, end = {FindingKind.UNIT_AFTER_END, FindingKind.LOG_LAYOUT}, self.compared.end_offset
        is_later = any(file.reach[1] >= end for file in self.index.used)  # of records that were cut off
        if is_later or any(self.bounds.torn) or signs & {kind for kind, _ in self.tally.counts}:
            return None
        last = max((outcome.last_store_timestamp for outcome in self.compared.outcomes), default=0)
        return LogReach(last, end)


def _by_kind(ranges: Iterable[LostRange]) -> dict[FindingKind, list[LostRange]]:
    """Sort damaged ranges by what is wrong."""
    found: dict[FindingKind, list[LostRange]] = {}
    for each in ranges:
        found.setdefault(_KINDS.get(each.reason, FindingKind.LOG_DAMAGE), []).append(each)
    return found


def _lost(kind: FindingKind, path: str, lost: tuple[int, int, str]) -> Finding:
    begin, end, reason = lost
    return Finding(kind, path, begin=begin, end=end, found=reason)


def _gaps(queue: QueueReport, store: str) -> Iterator[Finding]:
    for gap in queue.gaps:
        place = (queue.topic, queue.queue_id, gap.queue_offset, gap.physical_offset)
        expected = f"queue offset {gap.expected}"
        yield Finding(FindingKind.LOG_OFFSETS, store, *place, expected=expected, found=f"a {gap.kind}")


def _refused(report: RebuildReport, store: str) -> Iterator[Finding]:
    for unit in report.refused:
        place = (unit.topic, unit.queue_id, None, unit.physical_offset)
        yield Finding(FindingKind.LOG_REFUSED, store, *place, found=unit.reason)


def dispatch_start(store: Path, options: RebuildOptions, batch_topics: frozenset[str], clock: Clock) -> int:
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
    config = config_of(options.config, options.store_path_commit_log, release)
    try:
        report = DefaultMessageStore.dry_run(store, config, batch_topics=batch_topics, clock=clock)
    except UnsupportedStoreError:
        return NOT_ASKED
    return _NOWHERE if report.is_refused else min(report.start_offset, report.reput_from_offset)


# ---- configuration and checkpoint


class KeptOffset(NamedTuple):
    """Where a consumer, or a delay level, goes on in a queue: a queue offset, in a file."""

    file: str
    who: str
    topic: str
    queue_id: int
    offset: int


class ConfigFiles:
    """Reads the configuration files of a store's broker."""

    def __init__(self, store: Path, release: Release) -> None:
        self.findings: list[Finding] = []
        self.notes: list[str] = []  # which backups would be used
        self.topics: set[str] = set()  # those that topics.json knows
        self.offsets: list[KeptOffset] = []  # where consumers, and delay levels, go on
        config = Config(store, release)
        for kind in CONFIG_KINDS:
            try:
                found = config.read(kind)
            except CorruptRecordError as error:
                expected = "JSON as a broker writes it"
                place = str(config.path(kind))
                finding = Finding(FindingKind.CONFIG_UNREADABLE, place, expected=expected, found=str(error))
                self.findings.append(finding)
                continue
            self.notes += () if found is None else found.notes
            self._see(store, kind.name, found)

    def _see(self, store: Path, name: str, found: ConfigFile[Any] | None) -> None:
        if found is None:
            return
        file = str(store / found.file)
        if name == TOPICS.name:
            self.topics |= set(found.value)
        elif name == CONSUMER_OFFSETS.name:
            for (topic, group), offsets in found.value.by_group.items():
                for queue_id, offset in offsets.items():
                    self.offsets.append(KeptOffset(file, f"group {group}", topic, queue_id, offset))
        elif name == DELAY_OFFSETS.name:
            for level, offset in found.value.items():
                self.offsets.append(KeptOffset(file, f"delay level {level}", SCHEDULE_TOPIC, level - 1, offset))

    def impossible(self, ends: Mapping[tuple[str, int], int], *, is_open: bool) -> Iterator[Finding]:
        """Yield the offsets that a queue can't have: negative ones, and those after its end.

        * `ends`: Topic and id of each queue -> the queue offset after its last message.
        * `is_open`: Whether the store was not closed: a crash may have taken the last messages, so offsets after the
          end are none.
        """
        for kept in self.offsets:
            end = ends.get((kept.topic, kept.queue_id))
            is_after = end is not None and kept.offset > end and not is_open
            if kept.offset < 0 or is_after:
                expected = "an offset of 0 or more" if end is None else f"an offset from 0 to {end}"
                place = kept.topic, kept.queue_id, kept.offset
                found = f"{kept.offset}, of {kept.who}"
                yield Finding(FindingKind.CONFIG_OFFSET, kept.file, *place, expected=expected, found=found)


_LEAST_BYTES: Final = 8 * len(LOG_TIMES)
_LOST_MS: Final = 24 * 3600 * 1000
"""How much of a log a crash may have taken: times that are later than its last record by more were never right."""


@dataclass(frozen=True, slots=True)
class LogReach:
    """How far a log reaches."""

    last_timestamp: int  # store time of its last record, ms
    end_offset: int  # physical offset one past that record


class WrongValue(NamedTuple):
    """A value that can't be right: the name of its field, and what is expected there."""

    name: str
    value: int
    expected: str


def wrong_values(
    checkpoint: Mapping[str, int], release: Release, reach: LogReach | None, margin_ms: int = 0
) -> Iterator[WrongValue]:
    """Yield the values of a checkpoint that can't be right.

    * `checkpoint`: By field; what is missing is 0.
    * `reach`: Of the log, if its end is known to be there: nothing can be later.
    * `margin_ms`: By how much a time may be later all the same.
    """
    for name in LOG_TIMES:
        time = checkpoint.get(name, 0)
        if time < 0 or (reach is not None and time > reach.last_timestamp + margin_ms):
            bound = "0 or more" if reach is None else f"0 to {iso_time(reach.last_timestamp)}, of the last record"
            yield WrongValue(name, time, f"a time of {bound}")
    known = {field.name for field in checkpoint_fields(release)}
    for name in LOG_OFFSETS:
        offset = checkpoint.get(name, 0)
        if name in known and reach is not None and offset > reach.end_offset:
            yield WrongValue(name, offset, f"an offset up to {reach.end_offset}, the log's end")


def checkpoint_findings(store: Path, release: Release, reach: LogReach | None, *, is_open: bool) -> Iterator[Finding]:
    """Yield what can't be right in a checkpoint: one finding at most.

    * `reach`: Of the log, if its end is known to be there. A later time or offset lets a recovery start after records
      that no queue has.
    * `is_open`: Whether the store was not closed: then a crash may have taken the log's end.
    """
    path = store / CHECKPOINT_FILE
    if not path.is_file():
        return
    size = path.stat().st_size
    if size < _LEAST_BYTES:
        expected, found = f"{_LEAST_BYTES} bytes or more", f"{size} bytes"
        yield Finding(FindingKind.CHECKPOINT, str(path), expected=expected, found=found)
        return
    checkpoint = read_checkpoint(store) or {}
    margin = _LOST_MS if is_open else RECOVERY_MARGIN_MS
    for wrong in wrong_values(checkpoint, release, reach, margin):
        if not (is_open and wrong.name in LOG_OFFSETS):
            found = f"{wrong.value} as {wrong.name}"
            yield Finding(FindingKind.CHECKPOINT, str(path), expected=wrong.expected, found=found)
            return
