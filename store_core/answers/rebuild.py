# SPDX-License-Identifier: Apache-2.0
"""Rebuilding a store's consume queues and key index from its log, in one call and without Spark.

The steps: the store's lock, finishing an interrupted run, the passes, the swap, the checkpoint.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from store_core.answers.answer import processes as engine_of
from store_core.answers.check_job import checked_by
from store_core.answers.report import Verdict
from store_core.answers.store_check import CheckReport
from store_core.errors import CorruptDatabaseError, InvalidOptionError, UnsupportedStoreError
from store_core.files.access import explained_access
from store_core.files.file_system import FileSystem, OsFileSystem
from store_core.files.machine import Clock, SystemClock
from store_core.files.names import INDEX_DIRECTORY, QUEUE_KINDS
from store_core.snapshot.config import checkpoint_time, configured_batch_topics
from store_core.snapshot.index import Index
from store_core.snapshot.queues import Queues
from store_core.store.rebuild.findings import FindingKind
from store_core.store.rebuild.job import clear, rebuild_by
from store_core.store.rebuild.plan import RebuildOptions, RebuildPlan
from store_core.store.rebuild.report import RebuildReport, as_json, as_text, check_wanted, inference_notes
from store_core.store.rebuild.swap import (
    OutputDirectory,
    RebuildSwap,
    kept_directories,
    locked_for_swap,
    update_checkpoint,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from store_core.store.parts import Engine, LocalEngine, ProgressSink


@dataclass(frozen=True, slots=True)
class RebuildResult:
    """How a rebuild ended, and its report.

    Attributes
    ----------
    verdict : Verdict
        `CLEAN` if the work is done, or a check has no finding; `FINDINGS` if the check of the existing files has some;
        `REFUSED` if nothing was replaced, because the log is damaged; `DAMAGED` if the work is done up to the damage,
        or across it.
    report : RebuildReport or None
        Of what was made; None if nothing was.
    check : CheckReport or None
        Of the files in place, with `RebuildOptions.verify` and `RebuildOptions.discard_old`: as of a check that
        looks at the log, and at the queues and the index that the options choose.
    actions : tuple of str
        Further actions, in order: what was replaced, what was deleted, and where the new files are.
    """

    verdict: Verdict
    report: RebuildReport | None
    check: CheckReport | None
    actions: tuple[str, ...] = ()

    def to_json(self, **more: object) -> dict[str, Any]:
        """Return the result as values for JSON, after `more`; the commands write it for ``--json``."""
        more["actions"] = list(self.actions)
        made = more if self.report is None else as_json(self.report, **more)
        return {**made, "check": None if self.check is None else self.check.to_json()}

    def to_text(self) -> str:
        """Return the result as lines for an operator; long lists are cut."""
        made = [] if self.report is None else [as_text(self.report)]
        return "\n".join(made if self.check is None else [*made, self.check.to_text()])


def plan_rebuild(path: str | os.PathLike[str], options: RebuildOptions | None = None) -> RebuildPlan:
    """Plan a rebuild without doing anything; `RebuildPlan.describe` returns the plan as lines of text.

    Parameters
    ----------
    path : path
        The store root.
    options : RebuildOptions, optional

    Raises
    ------
    StoreError
        As for `rebuild_consume_queue`, as far as it can be known without reading the log.
    """
    with explained_access(Path(path)):
        return RebuildPlan.of(path, options or RebuildOptions(), configured_batch_topics)


def rebuild_consume_queue(  # noqa: PLR0913 -- what is rebuilt, by how many processes, and who is informed
    path: str | os.PathLike[str],
    options: RebuildOptions | None = None,
    *,
    processes: int = 1,
    on_progress: ProgressSink | None = None,
    say: Callable[[str], None] | None = None,
    clock: Clock | None = None,
    engines: EngineSource | None = None,
) -> RebuildResult:
    """Rebuild the consume queues of a store from its commit log, byte for byte as a broker writes them.

    Files and report are the same for any number of processes, and also with Spark. Nothing in the store changes unless
    `RebuildOptions.replace` or `RebuildOptions.discard_old` says so. If a process is killed, or at ^C, the old files
    stay where they are, and the new ones are deleted.

    Parameters
    ----------
    path : path
        The store root.
    options : RebuildOptions, optional
    processes : int
        1 is this process alone. More are started by ``spawn``, so a script has to call this below
        ``if __name__ == "__main__":``.
    on_progress : callable, optional
        Called with a `store_core.store.parts.PartsDone` after each part of the log read, after queues are written, and
        after each file of an index that has several.
    say : callable, optional
        Called with lines for an operator, as things are done.
    clock : Clock, optional
        Names the files of an index; by default the system's.
    engines : callable, optional
        In place of `processes`: called with the name of a step, ``rebuild`` or ``verify``, it returns a context with
        the engine that does it.

    Raises
    ------
    InvalidOptionError
        If options do not fit the store, or it has no such topic or queue.
    StoreNotFoundError
        If there is no log.
    StoreLockedError
        If a broker holds the store; with `RebuildOptions.verify` it may.
    UnsupportedStoreError
        If a store of this kind can't be rebuilt, or the output directory was not made by a rebuild.
    UnsafeSizeError
        If the log names more queues than `RebuildOptions.max_queues`.
    LostWorkerError
        If a process was killed.
    OSError
        As raised by the system.

    Examples
    --------
    >>> from store_core import RebuildOptions, rebuild_consume_queue
    >>> result = rebuild_consume_queue(store, RebuildOptions(with_index=True), processes=4)  # doctest: +SKIP
    >>> print(result.to_text())  # doctest: +SKIP
    """

    def local(_: str) -> AbstractContextManager[LocalEngine]:
        return engine_of(processes, on_progress)

    plan, clock = plan_rebuild(path, options), clock or SystemClock()
    return StoreRebuild(plan, engines or local, say or (lambda _: None), clock=clock).run()


def rebuild_index(  # noqa: PLR0913 -- as for `rebuild_consume_queue`
    path: str | os.PathLike[str],
    options: RebuildOptions | None = None,
    *,
    processes: int = 1,
    on_progress: ProgressSink | None = None,
    say: Callable[[str], None] | None = None,
    clock: Clock | None = None,
    engines: EngineSource | None = None,
) -> RebuildResult:
    """Rebuild the key index of a store from its commit log, and leave its queues alone.

    Everything is as for `rebuild_consume_queue`; `RebuildOptions.with_queues` and `RebuildOptions.with_index` need not
    be given.
    """
    index_only = replace(options or RebuildOptions(), with_queues=False, with_index=True)
    return rebuild_consume_queue(
        path, index_only, processes=processes, on_progress=on_progress, say=say, clock=clock, engines=engines
    )


_DAMAGE: Final = frozenset({FindingKind.LOG_LAYOUT, FindingKind.LOG_DAMAGE})
"""What of a log's findings a rebuild calls damage, too: others are records, and in the queues."""


_Ending: TypeAlias = "tuple[Verdict, RebuildReport | None, CheckReport | None]"

EngineSource: TypeAlias = "Callable[[str], AbstractContextManager[Engine]]"
"""Returns a context with an engine for a step, ``rebuild`` or ``verify``."""


@dataclass(frozen=True, slots=True)
class StoreRebuild:
    """Rebuilds, compares and replaces according to a plan."""

    plan: RebuildPlan
    engines: EngineSource
    say: Callable[[str], None]  # called with lines for the operator
    file_system: FileSystem = field(default_factory=OsFileSystem)  # of the swap and the checkpoint
    clock: Clock = field(default_factory=SystemClock)  # names the files of an index
    actions: list[str] = field(default_factory=list)  # what was done, as of `RebuildResult.actions`

    def run(self) -> RebuildResult:
        """Carry out the plan."""
        with explained_access(self.plan.store):
            verdict, report, check = self._run()
        return RebuildResult(verdict, report, check, tuple(self.actions))

    def _run(self) -> _Ending:
        options = self.plan.options
        if options.verify:
            check = self._verify()
            return (Verdict.FINDINGS if check.counts else Verdict.CLEAN), None, check
        with locked_for_swap(self.plan.store, self.file_system) as swap:
            if swap is not None:
                self._note(f"finished the replacement that an earlier run began{self._old_files(swap)}")
            if options.discard_old and not options.replace:
                return self._discard()
            return self._rebuild()

    def _old_files(self, swap: RebuildSwap) -> str:
        """Return where the files are that a swap replaced, for a note; empty if there were none."""
        kept = swap.kept_by(self.file_system)
        return "" if kept is None else f"; the old ones are in {kept}"

    def _rebuild(self) -> _Ending:
        plan = self.plan
        report = self._rebuilt()
        notes = (*report.notes, *inference_notes(plan, report))
        report = replace(report, unlogged=self._unlogged(report), notes=notes)
        verdict = Verdict.DAMAGED if report.is_damaged else Verdict.CLEAN
        if not plan.options.replace:
            self._note(f"the new files are in {plan.output}")
            return verdict, report, None
        if report.is_damaged and not plan.options.accept_damage:
            self._note(
                f"nothing was replaced, because the log is damaged; the new files are in {plan.output}, and end at the "
                f"damage. To continue after it, and to replace, add --accept-damage"
            )
            return Verdict.REFUSED, report, None
        self._replace(report)
        return self._discard(report) if plan.options.discard_old else (verdict, report, None)

    def _rebuilt(self) -> RebuildReport:
        """Rebuild into the output directory, and remove what was created there on failure."""
        plan, output = self.plan, OutputDirectory(self.plan.output, self.file_system)
        output.claim(plan.store)
        try:
            with self.engines("rebuild") as engine:
                report = rebuild_by(engine, plan.store, plan.output, plan.rules, clock=self.clock)
            self._check_wanted(report)
        except BaseException:
            output.remove_if_empty()
            raise
        return report

    def _check_wanted(self, report: RebuildReport) -> None:
        try:
            check_wanted(report, self.plan.store, self.plan.rules, self.file_system)
        except InvalidOptionError:
            clear(self.plan.output, self.plan.rules)
            raise

    def _unlogged(self, report: RebuildReport) -> tuple[tuple[str, int], ...]:
        """Find requested queues that the store has but the rebuild has not."""
        rules = self.plan.rules
        if not rules.has_queues or rules.since_offset:
            return ()
        known = {(queue.topic, queue.queue_id) for queue in report.queues}
        try:
            with Queues(self.plan.store, file_system=self.file_system) as stored:
                there = set(stored.names())
        except (UnsupportedStoreError, CorruptDatabaseError) as error:
            self._note(f"queues of which the log has no record are not known: {error}")
            return ()
        return tuple(sorted(name for name in there - known if rules.wants(*name)))

    def _replace(self, report: RebuildReport) -> None:
        """Check the new files by opening them, put them in place, and update the checkpoint."""
        plan, files = self.plan, self.file_system
        self._check_new(report)
        places, removed = self._places()
        swap = RebuildSwap.plan(plan.store, plan.output, places, removed, files)
        swap.run(files)
        self._note(f"the new files are in place{self._old_files(swap)}")
        OutputDirectory(plan.output, files).remove()
        rules = plan.rules
        index_timestamp = report.index.full_timestamp if report.index is not None else 0
        checkpoint = update_checkpoint(
            plan.store, files, rules.queue_rules.release,
            last_store_timestamp=report.last_store_timestamp,
            end_offset=report.end_offset,
            are_queues_whole=rules.has_queues and rules.topics is None and rules.queue_id is None,
            index_timestamp=index_timestamp if rules.has_index else None,
        )  # fmt: skip
        times = (checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp)
        log, queues, index = (checkpoint_time(time) or "none" for time in times)
        self._note(f"checkpoint: log {log}, queues {queues}, index {index}")

    def _check_new(self, report: RebuildReport) -> None:
        """Check that all new index files and queues exist, reading the index headers."""
        plan = self.plan
        if plan.rules.has_index:
            index = Index(plan.output)
            found = len(index.loaded(plan.rules.queue_rules).files)
            expected = report.index.files if report.index is not None else 0
            if not found == len(index.names) == expected:
                raise OSError(
                    f"the new index in {plan.output} has {found} files of its configuration, expected {expected}; "
                    f"there are {list(index.names)}"
                )
        if plan.rules.has_queues:
            names = {queue.name for queue in Queues(plan.output).in_files()}
            expected_names = {(queue.topic, queue.queue_id) for queue in report.queues if queue.max_offset}
            missing = expected_names - names
            if missing:
                raise OSError(f"{len(missing)} of the new queues are not in {plan.output}")

    def _places(self) -> tuple[list[str], list[str]]:
        """Choose what to move: whole directories, or single queues for a partial rebuild."""
        plan, files = self.plan, self.file_system
        kinds = [*QUEUE_KINDS * plan.rules.has_queues, *[INDEX_DIRECTORY] * plan.rules.has_index]
        made = [kind for kind in kinds if files.status(plan.output / kind) is not None]
        if not plan.rules.is_partial:
            gone = [kind for kind in kinds if kind not in made and files.status(plan.store / kind) is not None]
            return made, gone
        places = [kind for kind in made if kind == INDEX_DIRECTORY]
        for kind in made:
            if kind != INDEX_DIRECTORY:
                topics = files.names(plan.output / kind)
                places += [
                    f"{kind}/{topic}/{number}" for topic in topics for number in files.names(plan.output / kind / topic)
                ]
        return places, []

    def _verify(self, *, is_ours: bool = False) -> CheckReport:
        """Check what this rebuild makes, where it is in place, and the log that it follows from."""
        options = self.plan.options
        with self.engines("verify") as engine:
            found = checked_by(
                engine, self.plan.path, options.as_comparison(), options.release,
                clock=self.clock, is_ours=is_ours, misses_all=True, is_of_all=False,
            )  # fmt: skip
        return CheckReport.of_checked(found)

    def _discard(self, report: RebuildReport | None = None) -> _Ending:
        """Delete the files that were replaced, if the report of those just put in their place has no finding."""
        check = self._verify(is_ours=True)
        if {kind for kind in FindingKind if kind.is_of_queues or kind.is_of_index} & check.counts.keys():
            self._note("the old files are kept, because what is in their place differs from the log")
            return Verdict.FINDINGS, report, check
        for kept in kept_directories(self.plan.store, self.file_system):
            shutil.rmtree(kept)
            self._note(f"deleted {kept}")
        is_damaged = not _DAMAGE.isdisjoint(check.counts) if report is None else report.is_damaged
        return (Verdict.DAMAGED if is_damaged else Verdict.CLEAN), report, check

    def _note(self, text: str) -> None:
        self.actions.append(text)
        self.say(text)
