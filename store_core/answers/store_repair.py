# SPDX-License-Identifier: Apache-2.0
"""Repairing a store: a plan from a check, and the least deed that makes its queues and index right again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from store_core.answers.checked_store import checked_by
from store_core.answers.findings import FindingKind
from store_core.answers.local_engine import local_engine
from store_core.answers.repairing.deeds import Deeds
from store_core.answers.repairing.repair_plan import RepairPlan, SignedPlan
from store_core.answers.repairing.repair_report import RepairFacts, RepairReport
from store_core.answers.repairing.replacement import REPAIRED, Replacement
from store_core.answers.store_check import Check
from store_core.errors import RepairRefusedError, StoreLockedError, UnsupportedStoreError
from store_core.files.access import explained_access
from store_core.files.clock import SystemClock
from store_core.files.file_system import OsFileSystem
from store_core.files.store_kind import StoreUse, check_is_no_url, check_is_root, check_store_kind
from store_core.files.store_lock import is_lock_held
from store_core.files.store_parts import CONSUME_QUEUE, INDEX_DIRECTORY
from store_core.files.store_path import path_of
from store_core.queue.dispatch.lmq_units import is_light
from store_core.snapshot.index import Index
from store_core.snapshot.queues import Queues
from store_core.store.rebuild.queue_files import QUEUE_KINDS
from store_core.store.rebuild.swap import JOURNAL, OutputDirectory, locked_for_swap, update_checkpoint
from store_core.store.store_layout import check_log_is_certain

if TYPE_CHECKING:
    import os

    from store_core.answers.checked_store import CheckedStore
    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem
    from store_core.store.parts import Engine, ProgressSink
    from store_core.store.rebuild.swap import RebuildSwap

__all__ = ["plan_repair", "plan_repair_by", "repair", "repair_by"]

_LOG_KINDS: Final = (FindingKind.LOG_LAYOUT, FindingKind.LOG_DAMAGE, FindingKind.LOG_CRC)


def plan_repair(  # noqa: PLR0913 -- what is asked, of which store, and by how many processes
    path: str | os.PathLike[str],
    options: Check | None = None,
    *,
    config: str | os.PathLike[str] | None = None,
    processes: int = 1,
    on_progress: ProgressSink | None = None,
    clock: Clock | None = None,
) -> RepairPlan:
    """Check a store, and plan the least that makes its queues and index right; nothing is written.

    * `path`: The store root.
    * `options`: Without `topic`: a repair is of the whole store.
    * `config`: The broker's configuration, as of option `config` of `store_core.read_messages`.
    * `processes`: As for `store_core.rebuild_consume_queue`.
    * `on_progress`: Called with a `store_core.store.parts.PartsDone` after each part.

    Examples
    --------
    >>> from store_core.answers import plan_repair
    >>> plan = plan_repair(store)  # doctest: +SKIP
    >>> print(plan.to_text())  # doctest: +SKIP
    """
    options = (options or Check()).told(config)
    with local_engine(processes, on_progress) as engine:
        return plan_repair_by(engine, path, options, clock=clock)


def plan_repair_by(
    engine: Engine, path: str | os.PathLike[str], options: Check | None = None, *, clock: Clock | None = None
) -> RepairPlan:
    """Plan a repair as `plan_repair` does, with an engine that runs the parts."""
    check_is_no_url(Path(path))
    store = path_of(path)
    if is_lock_held(store):
        raise StoreLockedError(
            f"{store} is held by a broker, or another writer, and changes while a plan is made: stop it first. "
            f"commitlog check looks at a running store"
        )
    if (store / JOURNAL).exists():
        raise RepairRefusedError(
            f"{store / JOURNAL} tells of a replacement that was interrupted: finish it first, by running what was "
            f"interrupted once more (commitlog repair --apply with its plan, or the rebuild)"
        )
    return _planned(engine, store, options or Check(), clock, is_ours=False)[2]


def repair(  # noqa: PLR0913 -- what is repaired, by which plan, by how many processes, and who is informed
    path: str | os.PathLike[str],
    plan: str | os.PathLike[str],
    *,
    processes: int = 1,
    on_progress: ProgressSink | None = None,
    clock: Clock | None = None,
    file_system: FileSystem | None = None,
) -> RepairReport:
    """Carry out the plan of a repair, if the store is still what the plan was made for.

    Steps: 1. the store is locked, and a replacement that was interrupted is finished; 2. the store is checked again,
    and compared with the plan; 3. the queues and index files that are wrong are made again from the log, beside the
    store's, and compared with it; 4. they are put in place, and the old ones kept; 5. the checkpoint is written. A
    crash before step 4 leaves the old store; after it, the next run finishes the new one.

    * `path`: The store root.
    * `plan`: File with what `plan_repair` returned, as JSON.
    * `processes`, `on_progress`, `clock`: As for `plan_repair`.
    * `file_system`: Used for what changes the store.
    """
    with local_engine(processes, on_progress) as engine:
        return repair_by(engine, path, plan, clock=clock, file_system=file_system)


def repair_by(
    engine: Engine,
    path: str | os.PathLike[str],
    plan: str | os.PathLike[str],
    *,
    clock: Clock | None = None,
    file_system: FileSystem | None = None,
) -> RepairReport:
    """Carry out a plan as `repair` does, with an engine that runs the parts, all of whose workers see the store."""
    check_is_no_url(Path(path))
    store, signed = Path(path).absolute(), SignedPlan.read(plan)
    files, clock = file_system or OsFileSystem(), clock or SystemClock()
    check_is_root(store, files)
    check_log_is_certain(store, signed.options.broker_config, signed.options.store_path_commit_log)
    with explained_access(store), locked_for_swap(store, files) as resumed:
        checked, deeds, now = _planned(engine, store, signed.options, clock, is_ours=True)
        swap = None
        if deeds.queues or deeds.index:
            signed.check_is_of(now)
            swap = Replacement(engine, checked, deeds, files, clock).run()
        else:
            OutputDirectory(store / REPAIRED, files).remove()
        is_due = swap is not None or resumed is not None or bool(deeds.checkpoint)
        if is_due:
            is_index_new = deeds.index is not None or resumed is not None
            _write_checkpoint(checked, files, is_index_new=is_index_new)
    return _report(signed, now, swap, resumed, files, is_checkpoint_written=is_due)


def _planned(
    engine: Engine, store: Path, options: Check, clock: Clock | None, *, is_ours: bool
) -> tuple[CheckedStore, Deeds, RepairPlan]:
    """Check the store, refuse what can't be repaired, and return what has to be done."""
    check_store_kind(store, OsFileSystem(), StoreUse.READ_QUEUES)  # a check reads more kinds than can be repaired
    checked = checked_by(
        engine, store, options.comparison(), options.release, clock=clock, is_ours=is_ours, misses_all=True
    )
    _refuse_damage(checked)
    _refuse_other_devices(checked.plan.store)
    deeds = Deeds.of(checked)
    if deeds.queues:
        check_store_kind(store, OsFileSystem())  # refuses those in a RocksDB
        _refuse_light_in_rocksdb(store, deeds)
    return checked, deeds, RepairPlan.of_deeds(checked, deeds, options)


def _refuse_light_in_rocksdb(store: Path, deeds: Deeds) -> None:
    """Refuse to make files of light queues that the broker has in its RocksDB alone: it would not read them."""
    database = Queues(store).light_database
    wrong = next((queue for queue in deeds.queues if is_light(queue.topic)), None)
    if database is not None and wrong is not None:
        raise UnsupportedStoreError(
            f"{store} has its light queues in the RocksDB {database} (combineCQUseRocksdbForLmq), which is read and "
            f"never written: expected wrong queues among the files of {store / CONSUME_QUEUE}, found {wrong.topic}. "
            f"Nothing was changed. For a broker that goes back to files for all queues, make them from the log: "
            f"commitlog rebuild queues {store} --to files --replace, or with --output DIRECTORY anywhere else"
        )


def _refuse_damage(checked: CheckedStore) -> None:
    """Refuse a log that is damaged anywhere but after its last sound record, where a recovery ends it."""
    end = checked.end_offset
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


def _report(  # noqa: PLR0913 -- what was done, and to what
    signed: SignedPlan,
    now: RepairPlan,
    swap: RebuildSwap | None,
    resumed: RebuildSwap | None,
    files: FileSystem,
    *,
    is_checkpoint_written: bool,
) -> RepairReport:
    kept, of_resumed = (None if each is None else each.kept_by(files) for each in (swap, resumed))
    facts = RepairFacts(
        store=now.found.store,
        plan=signed.digest,
        kept=None if kept is None else str(kept),
        is_resumed=resumed is not None,
        resumed=None if of_resumed is None else str(of_resumed),
        is_checkpoint_written=is_checkpoint_written,
        left=sum(now.tables["left"]["count"].to_pylist()),
    )
    new, removed = ((), ()) if swap is None else (swap.places, swap.removed)
    places = [(place, True) for place in new] + [(place, False) for place in removed]
    rows = [{"place": place, "is_new": is_new} for place, is_new in sorted(places)]
    return RepairReport.of(facts, {"places": rows})
