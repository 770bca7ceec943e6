# SPDX-License-Identifier: Apache-2.0
"""The work of a repair: new files are made beside the store, compared with the log, and put in place."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from store_core.answers.check_job import checked_by
from store_core.answers.index_chains import ChainJob
from store_core.answers.repair_plan import Remedy, RepairFacts, RepairPlan, RepairReport, Repairs, SignedPlan
from store_core.errors import RepairRefusedError, StoreLockedError, UnsupportedStoreError
from store_core.files.access import explained_access
from store_core.files.file_sync import DeferredSyncFileSystem, sync_directories, sync_files
from store_core.files.file_system import FileSystem, OsFileSystem
from store_core.files.names import CONSUME_QUEUE, INDEX_DIRECTORY, QUEUE_KINDS
from store_core.files.store_kind import StoreUse, check_is_root, check_store_kind, interrupted_swap
from store_core.files.store_lock import is_lock_held
from store_core.files.store_path import local_path_of
from store_core.queue.queue_path import is_light, queue_path
from store_core.snapshot.index import Index, KeyFile
from store_core.snapshot.log import Log
from store_core.snapshot.queues import Queues
from store_core.store.rebuild.findings import FindingKind
from store_core.store.rebuild.job import rebuild_by
from store_core.store.rebuild.queue_compare import LogBounds
from store_core.store.rebuild.queue_files import QueuePlace, queue_writer
from store_core.store.rebuild.swap import OutputDirectory, RebuildSwap, locked_for_swap, update_checkpoint
from store_core.store.store_layout import config_of, log_paths

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from store_core.answers.checked_store import CheckedStore
    from store_core.answers.store_check import Compared
    from store_core.store.parts import Engine
    from store_core.store.rebuild.plan import RebuildRules


_LOG_KINDS: Final = (FindingKind.LOG_LAYOUT, FindingKind.LOG_DAMAGE, FindingKind.LOG_CRC)

REPAIRED: Final = "repaired"
"""Directory below the store for new files, until they are in place."""


def plan_by(engine: Engine, path: str | os.PathLike[str], asked: Compared[Any]) -> RepairPlan:
    """Check a store, and plan the least that makes its queues and index right; nothing is written."""
    store = local_path_of(path)
    if is_lock_held(store):
        raise StoreLockedError(
            f"{store} is held by a broker, or another writer, and changes while a plan is made: stop it first. "
            f"To look at a running store, use commitlog check"
        )
    if half_done := interrupted_swap(store, OsFileSystem()):
        raise RepairRefusedError(half_done)
    return _planned(engine, store, asked, is_ours=False)[2]


def repair_by(
    engine: Engine,
    path: str | os.PathLike[str],
    plan: str | os.PathLike[str],
    file_system: FileSystem | None = None,
) -> RepairReport:
    """Carry out a plan with an engine all of whose workers see the store, which is still what the plan was made for.

    Steps: 1. the store is locked, and a replacement that was interrupted is finished; 2. the store is checked again,
    and compared with the plan; 3. the queues and index files that are wrong are made again from the log, beside the
    store's, and compared with it; 4. they are put in place, and the old ones kept; 5. the checkpoint is written. A
    crash before step 4 leaves the old store; after it, the next run finishes the new one.
    """
    store, signed = Path(local_path_of(path)).absolute(), SignedPlan.read(plan)
    files = file_system or OsFileSystem()
    check_is_root(store, files)
    config = config_of(signed.options.config, signed.options.store_path_commit_log)
    log_paths(store, config, files).check_is_certain()
    with explained_access(store), locked_for_swap(store, files) as resumed:
        checked, repairs, now = _planned(engine, store, signed.options, is_ours=True)
        swap = None
        if repairs.queues or repairs.index_files:
            signed.check_is_of(now)
            swap = Replacement(engine, checked, repairs, files).run()
        else:
            OutputDirectory(store / REPAIRED, files).remove()
        is_due = swap is not None or resumed is not None or bool(repairs.checkpoint)
        if is_due:
            _write_checkpoint(checked, files, is_index_new=bool(repairs.index_files) or resumed is not None)
    kept, of_resumed = (None if each is None else each.kept_by(files) for each in (swap, resumed))
    facts = RepairFacts(
        store=now.found.store,
        plan=signed.digest,
        kept=None if kept is None else str(kept),
        is_resumed=resumed is not None,
        resumed=None if of_resumed is None else str(of_resumed),
        is_checkpoint_written=is_due,
        left=sum(now.tables["left"]["count"].to_pylist()),
    )
    new, removed = ((), ()) if swap is None else (swap.places, swap.removed)
    places = [(place, True) for place in new] + [(place, False) for place in removed]
    return RepairReport.of(facts, {"places": [{"place": place, "is_new": is_new} for place, is_new in sorted(places)]})


def _planned(
    engine: Engine, store: Path, asked: Compared[Any], *, is_ours: bool
) -> tuple[CheckedStore, Repairs, RepairPlan]:
    """Check the store, refuse what can't be repaired, and return what has to be done."""
    check_store_kind(store, OsFileSystem(), StoreUse.READ_QUEUES)  # a check reads more kinds than can be repaired
    checked = checked_by(engine, store, asked.comparison(), asked.release, is_ours=is_ours, misses_all=True)
    _refuse_damage(checked)
    _refuse_other_devices(checked.plan.store)
    repairs = Repairs.of(checked)
    if repairs.queues:
        check_store_kind(store, OsFileSystem())  # refuses those in a RocksDB
        _refuse_light_in_rocksdb(store, repairs)
    return checked, repairs, RepairPlan.of_repairs(checked, repairs, asked)


def _refuse_light_in_rocksdb(store: Path, repairs: Repairs) -> None:
    """Refuse to make files of light queues that the broker has in its RocksDB alone: it would not read them."""
    database = Queues(store).light_database
    wrong = next((queue for queue in repairs.queues if is_light(queue.topic)), None)
    if database is not None and wrong is not None:
        raise UnsupportedStoreError(
            f"{store} has its light queues in the RocksDB {database} (combineCQUseRocksdbForLmq), which is read and "
            f"never written: expected wrong queues among the files of {store / CONSUME_QUEUE}, found {wrong.topic}. "
            f"Nothing was changed. For a broker that goes back to files for all queues, make them from the log: "
            f"commitlog rebuild queues {store} --to files --replace, or with --output DIRECTORY anywhere else"
        )


def _refuse_damage(checked: CheckedStore) -> None:
    """Refuse a log that is damaged anywhere but after its last sound record, where a recovery ends it."""
    end = checked.compared.end_offset
    for finding in checked.tally.first:
        if finding.kind in _LOG_KINDS and (finding.begin is None or finding.begin < end):
            where = f"{finding.where}, offset {finding.begin}" if finding.begin is not None else finding.where
            raise RepairRefusedError(
                f"the log is damaged ({where}: {finding.found}), and queues and index follow from it. commitlog "
                f"recover {checked.plan.store} --dry-run says what a restart would cut off, commitlog salvage takes "
                f"what is sound into a new store, and commitlog rebuild queues --accept-damage rebuilds across "
                f"the damage"
            )


def _refuse_other_devices(store: Path) -> None:
    """Refuse queues or an index on another file system: new files are put in place by renaming."""
    device = store.stat().st_dev
    for name in (*QUEUE_KINDS, INDEX_DIRECTORY):
        path = store / name
        if path.exists() and path.stat().st_dev != device:
            raise RepairRefusedError(
                f"{path} is on another file system than {store}, so new files can't be renamed into place: rebuild "
                f"with commitlog rebuild queues --output"
            )


def _write_checkpoint(checked: CheckedStore, files: FileSystem, *, is_index_new: bool) -> None:
    """Lower the times that are later than the last record; the time of a new index is that of its last full file."""
    rules = checked.plan.rules.queue_rules
    index_timestamp = None
    if is_index_new:
        loaded = Index(checked.plan.store, files).loaded(rules).files
        index_timestamp = max((file.header.end_timestamp for file in loaded if file.is_full), default=0)
    update_checkpoint(
        checked.plan.store, files, rules.release,
        last_store_timestamp=checked.compared.last_store_timestamp,
        end_offset=checked.compared.end_offset,
        are_queues_whole=False,
        index_timestamp=index_timestamp,
    )  # fmt: skip


# ---- replacing


@dataclass(frozen=True, slots=True)
class Replacement:
    """Replaces what repairs name; the caller holds the store's lock.

    Steps: 1. new files are written to a directory of their own in the store; 2. they are read back and compared with
    the log; 3. `RebuildSwap` puts them in place, and keeps the old ones; 4. the directory is removed. Until step 3
    nothing in the store has changed, and a run that is killed leaves only that directory, which the next one removes.
    From step 3 on the next run finishes the swap, see `RebuildSwap.resume`.
    """

    engine: Engine
    checked: CheckedStore
    repairs: Repairs
    file_system: FileSystem

    def run(self) -> RebuildSwap:
        """Replace, and return what was moved where."""
        output = OutputDirectory(self._output, self.file_system)
        output.remove()
        output.claim(self._store)
        try:
            self._make()
            self._verify()
        except BaseException:
            with suppress(OSError):  # the original error matters more
                output.remove()
            raise
        places, removed = self._places()
        swap = RebuildSwap.plan(self._store, self._output, places, removed, self.file_system)
        swap.run(self.file_system)
        output.remove()
        return swap

    @property
    def _store(self) -> Path:
        return self.checked.plan.store

    @property
    def _output(self) -> Path:
        return self._store / REPAIRED

    # ---- making

    def _rules(self, index_since_offset: int) -> RebuildRules:
        """Return the rules of the check, for those queues and the index that are made again."""
        queues = frozenset((each.topic, each.queue_id) for each in self.repairs.queues if each.action is Remedy.REBUILD)
        return replace(
            self.checked.plan.rules,
            queues=queues,
            has_queues=bool(queues),
            has_index=bool(self.repairs.index_files),
            index_since_offset=index_since_offset,
        )

    def _make(self) -> None:
        rules = self._rules(self.repairs.index_since_offset)
        if rules.has_queues or rules.has_index:
            rebuild_by(self.engine, self._store, self._output, rules)
        cut = [each for each in self.repairs.queues if each.action is Remedy.CUT]
        for each in cut:
            self._cut(each.topic, each.queue_id)
        if cut:
            sync_files(self._output)
            sync_directories(self._output)

    def _cut(self, topic: str, queue_id: int) -> None:
        """Copy the units of a queue that point to deleted records: its offsets go on after them."""
        rules = replace(self.checked.plan.rules, since_offset=self.checked.plan.min_offset)
        place = QueuePlace(self._store, self._output, DeferredSyncFileSystem())
        queue_writer((topic, queue_id), rules, place).finish()

    # ---- verifying

    def _verify(self) -> None:
        """Compare the new files with the log, as a check does."""
        rules, plan = self._rules(0), self.checked.plan
        wrong: list[str] = []
        if rules.has_queues or rules.has_index:
            bounds = LogBounds(plan.min_offset, end=self.checked.compared.end)
            report = rebuild_by(
                self.engine,
                self._store,
                self._output,
                rules,
                compared=bounds,
                stored_root=self._output,
            )
            wrong += [f"{each.topic}/{each.queue_id}: {unit}" for each in report.judged for unit in each.first]
        if rules.has_index:
            wrong += self._broken_chains(rules)
        if wrong:
            raise RepairRefusedError(
                f"the new files in {self._output} differ from the log in {len(wrong)} places, first {wrong[0]}. "
                f"Nothing was replaced. Please report this, and rebuild with commitlog rebuild queues --replace"
            )

    def _broken_chains(self, rules: RebuildRules) -> Iterator[str]:
        counts = rules.queue_rules.max_hash_slot_num, rules.queue_rules.max_index_num
        files = tuple(KeyFile(path).sized(*counts) for path in Index(self._output).paths)
        log_end = self.checked.compared.end_offset
        for check in self.engine.run(ChainJob(files, Log.of(self._store), log_end)):
            if check.broken or check.problem or check.header:
                yield f"{check.path}: {check.broken} broken links {check.problem} {check.header}"

    # ---- replacing

    def _places(self) -> tuple[list[str], list[str]]:
        """Return the places that get new files, and those that only lose their old ones."""
        names = [
            str(queue_path(self._store / kind, each.topic, each.queue_id).relative_to(self._store))
            for each in self.repairs.queues
            for kind in QUEUE_KINDS
        ]
        files = {each.file: each.action for each in self.repairs.index_files if each.file is not None}
        if self.repairs.index_files:
            files |= {name: files.get(name, "make") for name in self.file_system.names(self._output / INDEX_DIRECTORY)}
            names += [f"{INDEX_DIRECTORY}/{name}" for name in sorted(files) if files[name] != "keep"]
        is_made = {name: self.file_system.status(self._output / name) is not None for name in names}
        is_there = {name: self.file_system.status(self._store / name) is not None for name in names}
        return [name for name in names if is_made[name]], [
            name for name in names if is_there[name] and not is_made[name]
        ]
