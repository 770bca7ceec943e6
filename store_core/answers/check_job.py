# SPDX-License-Identifier: Apache-2.0
"""The check of a store whose log, queues and index a broker may hold, as of one moment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from store_core.answers.checked_store import NOT_ASKED, CheckedStore, ConfigFiles, dispatch_start
from store_core.answers.index_chains import ChainJob
from store_core.answers.index_findings import add_index
from store_core.errors import CorruptRecordError, SegmentVanishedError
from store_core.files.access import explained_access
from store_core.files.file_system import OsFileSystem, names_in
from store_core.files.machine import Clock, SystemClock
from store_core.files.names import INDEX_DIRECTORY
from store_core.files.store_kind import StoreUse, check_store_kind, has_queues
from store_core.files.store_lock import ABORT_FILE, is_lock_held
from store_core.files.store_path import absolute_path_of, path_of
from store_core.format.record.delayed import SCHEDULE_TOPIC
from store_core.format.words import counted
from store_core.snapshot.config import configured_batch_topics
from store_core.snapshot.index import Index, LoadedIndex
from store_core.snapshot.likely_release import LikelyRelease
from store_core.snapshot.log import Log
from store_core.snapshot.log_end import LiveMoment, find_end
from store_core.snapshot.store import store_at
from store_core.store.rebuild.findings import FindingKind
from store_core.store.rebuild.job import RebuildJob, rebuild_by
from store_core.store.rebuild.plan import RebuildOptions, RebuildPlan, RebuildRules
from store_core.store.rebuild.queue_compare import LogBounds
from store_core.store.rebuild.report import RebuildReport, check_wanted, inference_notes
from store_core.store.rebuild.segment_scan import arrives_at

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from pathlib import Path

    from store_core.format.release import Release
    from store_core.store.parts import Engine


_MOST_LOOKS: Final = 6
"""Checks of a live store until keys count as missing from an index that stands still."""

_ATTEMPTS: Final = 100
"""Attempts of a check whose segments a broker deletes meanwhile; each deletes one, so that they end."""

_LOG_ALONE: Final = (
    "consume queues and key index are not in this copy: the log was checked, and nothing else. If the broker has none "
    "either, `commitlog repair` makes them from the log"
)
_SEEMS_OPEN: Final = (
    "there is no file abort, so the store counts as closed; but its log and queues do not end at the same place, as in "
    "a copy of an open store. If it is one, make an empty file {}, and check again: then what comes of copying an open "
    "store is not reported as a finding"
)
_OWN_LEVELS: Final = (
    f"units of {SCHEDULE_TOPIC} say when their messages are due, by the broker's messageDelayLevel; RocketMQ's usual "
    f"levels are assumed. If the broker has others, give its configuration (--config): without it "
    f"unit_wrong_tags_code is reported of units that are right, and a repair would change when messages are due"
)
_NO_INDEX: Final = "the index is not checked: by its configuration (messageIndexEnable=false) the broker keeps none"
_NO_INDEX_FILE: Final = (
    "the index is not checked: the store has no index file, as with messageIndexEnable=false, so a search by key finds "
    "nothing. If its broker keeps an index, give the broker's configuration to have each key reported; "
    "commitlog rebuild index makes an index from the log"
)


def checked_by(  # noqa: PLR0913 -- what is checked, how, and what only a repair knows
    engine: Engine,
    path: str | os.PathLike[str],
    options: RebuildOptions,
    release: str | None,
    *,
    clock: Clock | None = None,
    is_ours: bool = False,
    misses_all: bool = False,
    is_of_all: bool = True,
) -> CheckedStore:
    """Compare a store with what a rebuild by these options would make, and judge its other files.

    * `release`: Whose rules are followed; None for the one that served the store last, as far as its files tell.
    * `is_ours`: Whether the caller holds the store's lock, so that no broker is writing.
    * `misses_all`: Whether all units and entries are missing where a copy has neither queues nor an index, for who will
      make them.
    * `is_of_all`: Whether configuration, timers and checkpoint are judged, too.
    """
    engine.expect(RebuildJob, ChainJob)
    with explained_access(path_of(path)):
        is_log_alone = not misses_all and _is_log_alone(path_of(path))
        repeated = _Check(engine, path, clock or SystemClock(), is_ours, is_log_alone, is_of_all)
        if release is not None:
            return repeated.run(replace(options, release=release))
        store = store_at(path, None, options.config, options.store_path_commit_log)
        return _by_likely_release(LikelyRelease.of(absolute_path_of(store)), repeated, options)


def _by_likely_release(told: LikelyRelease, repeated: _Check, options: RebuildOptions) -> CheckedStore:
    """Check a store by the release that its files tell; where several may be, by the one that explains most."""
    tried: list[CheckedStore] = []
    against: list[tuple[int, int]] = []
    for release in told.releases:
        tried.append(repeated.run(replace(options, release=release)))
        against.append(tried[-1].against_release)
        if not any(against[-1]):
            break
    best = tried[against.index(min(against))]
    others = [
        f"by the rules of {each.plan.options.release} it has {counted(each.finding_count, 'finding')}" for each in tried
    ]
    return replace(best, release_why="; ".join([told.why, *(others if best is not tried[0] else ())]))


@dataclass(frozen=True, slots=True)
class _Check:
    """Checks a store, again where a broker writes meanwhile."""

    engine: Engine
    path: str | os.PathLike[str]
    clock: Clock
    is_ours: bool
    is_log_alone: bool
    is_of_all: bool

    def run(self, options: RebuildOptions) -> CheckedStore:
        """Check a store; of a live one keep the findings that the next checks have, too."""
        first = found = self._check_once(options, None)
        if not (first.tally.counts and first.bounds.moment):
            return first
        # What only seems wrong because a broker was writing is not there when it is looked at again.
        for _ in range(_MOST_LOOKS - 1):
            found = self._check_once(options, first.bounds.moment).common_with(found)
            if not found.is_index_pending(first):
                break
        return found

    def _check_once(self, options: RebuildOptions, earlier: LiveMoment | None) -> CheckedStore:
        """Check a store once; begin again if its broker deletes a segment meanwhile."""
        for attempt in range(_ATTEMPTS):
            plan = self._plan(options)
            is_live = not self.is_ours and is_lock_held(plan.store)
            try:
                return self._checked(plan, earlier, is_live=is_live)
            except SegmentVanishedError:
                if not is_live or attempt + 1 == _ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    def _plan(self, options: RebuildOptions) -> RebuildPlan:
        plan = RebuildPlan.of(self.path, options, _readable_batch_topics if self.is_of_all else configured_batch_topics)
        rules = replace(plan.rules, is_proven=True)
        if self.is_log_alone:
            rules = replace(rules, has_queues=False, has_index=False)
            return replace(plan, rules=rules, assumptions=())
        return replace(plan, rules=replace(rules, has_index=_has_index(plan)) if self.is_of_all else rules)

    def _checked(self, plan: RebuildPlan, earlier: LiveMoment | None, *, is_live: bool) -> CheckedStore:
        """Compare queues and index with the log, then judge them and the other files."""
        store, rules = plan.store, plan.rules
        is_open = is_live or (store / ABORT_FILE).exists()
        log = Log.of(store)
        if is_live:
            supposed = LogBounds(plan.min_offset, LiveMoment.take(store, rules.queue_rules, earlier), is_open=True)
        else:  # where a closed one ends is told by its last part
            supposed = LogBounds(plan.min_offset, end=find_end(log.segments, by_tail=True), is_open=is_open)
        index = Index(store).loaded(rules.queue_rules, is_open=is_open)
        chains = ChainJob(index.files if rules.has_index else (), log, supposed.log_end, is_open)
        checks = self.engine.run(chains) if chains.parts else []
        for file, check in zip(chains.parts, checks, strict=True):
            file.reaches = check.reaches  # so that each part of the comparison reads only windows of its own
        bounds, compared = self._compared(plan, log, supposed, index)
        if chains.parts and bounds.log_end != chains.log_end:
            checks = self.engine.run(replace(chains, log_end=bounds.log_end))
        restart = NOT_ASKED
        if bounds.has_crashed and any(each.missing_from >= 0 for each in compared.judged):
            restart = dispatch_start(store, plan.options, rules.queue_rules.batch_topics, self.clock)
        config = ConfigFiles(store, rules.queue_rules.release)
        checked = CheckedStore(plan, bounds, log, compared, index, checks, config, restart)
        checked.add_compared()
        if rules.has_index:
            add_index(checked)
        if self.is_of_all:
            checked.add_beside()
        return replace(checked, notes=tuple(dict.fromkeys(_notes(checked, is_of_all=self.is_of_all))))

    def _compared(
        self, plan: RebuildPlan, log: Log, supposed: LogBounds, index: LoadedIndex
    ) -> tuple[LogBounds, RebuildReport]:
        """Compare queues and index with the log; across damage, so that not everything after it differs.

        The supposed end is proven by the comparison if that arrives there. If not, the log is followed to its end, and
        compared again where that is another one. A live log has to be readable as far as it was dispatched.
        """

        def within(bounds: LogBounds, rules: RebuildRules) -> RebuildReport:
            output, clock = plan.output, self.clock
            return rebuild_by(self.engine, plan.store, output, rules, compared=bounds, index=index, clock=clock)

        bounds, moment = supposed, supposed.moment
        report = within(bounds, plan.rules)
        if moment is None and not arrives_at(report.outcomes, bounds.log_end):
            bounds = bounds._replace(end=find_end(log.segments))
        is_salvaged = report.is_doubtful or report.read_end_offset < (moment.dispatched if moment else bounds.log_end)
        if is_salvaged or bounds != supposed:
            report = within(bounds, replace(plan.rules, is_salvaged=is_salvaged))
        check_wanted(report, plan.store, plan.rules, OsFileSystem())
        return bounds, report


def _notes(checked: CheckedStore, *, is_of_all: bool) -> Iterator[str]:
    """Yield what is no finding, and an operator should know."""
    plan, bounds = checked.plan, checked.bounds
    yield from check_store_kind(plan.store, OsFileSystem(), StoreUse.READ_QUEUES)
    yield from checked.compared.notes
    yield from inference_notes(plan, checked.compared)
    yield from checked.tally.notes
    if is_of_all:
        yield from checked.config.notes
        if not plan.rules.has_queues:
            yield _LOG_ALONE
        elif not plan.rules.has_index:
            yield _NO_INDEX_FILE if plan.options.with_index else _NO_INDEX
    wrong_codes = {place.topic for place in checked.tally.places if place.kind is FindingKind.UNIT_WRONG_TAGS_CODE}
    if SCHEDULE_TOPIC in wrong_codes and plan.options.config is None:
        yield _OWN_LEVELS
    moment = bounds.moment
    if moment is not None:
        yield (
            f"the store is open, its lock is held: the log was read to {moment.log_end}, where it ended when the check "
            f"began; records before {moment.dispatched}, which queues and index had reached then, have to be in them"
        )
    if not bounds.is_open and checked.seems_open:
        yield _SEEMS_OPEN.format(plan.store / ABORT_FILE)


def _is_log_alone(store: Path) -> bool:
    """Return whether there is neither a place for queues nor one for an index: a copy of the log, or what is left."""
    return store.is_dir() and not has_queues(store) and not (store / INDEX_DIRECTORY).is_dir()


def _has_index(plan: RebuildPlan) -> bool:
    """Return whether the broker keeps an index: where only that is missing, options alone can say so."""
    options, has_files = plan.options, bool(names_in(plan.store / INDEX_DIRECTORY, OsFileSystem()))
    is_named = (options.config, options.hash_slot_num, options.index_num) != (None, None, None)
    return plan.rules.has_index and (has_files or is_named or _is_log_alone(plan.store))


def _readable_batch_topics(store: Path, release: Release) -> frozenset[str]:
    """Return the batch topics in the broker's configuration; none if it can't be read, which is a finding."""
    try:
        return configured_batch_topics(store, release)
    except CorruptRecordError:
        return frozenset()
