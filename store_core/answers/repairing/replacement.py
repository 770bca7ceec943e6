# SPDX-License-Identifier: Apache-2.0
"""Making queues and index files again beside the store, comparing them with the log, and putting them in place."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from store_core.answers.findings import Tally
from store_core.answers.index_chains import ChainJob
from store_core.answers.log_findings import JudgedLog
from store_core.answers.repairing.deeds import Deed
from store_core.errors import RepairRefusedError
from store_core.files.file_sync import DeferredSyncFileSystem, sync_directories, sync_files
from store_core.files.store_parts import INDEX_DIRECTORY
from store_core.queue.queue_path import queue_path
from store_core.snapshot.index import Index, KeyFile
from store_core.snapshot.log import Log
from store_core.store.rebuild.compare import LogBounds
from store_core.store.rebuild.passes import rebuild_by
from store_core.store.rebuild.queue_files import QUEUE_KINDS, QueuePlace, queue_writer
from store_core.store.rebuild.swap import OutputDirectory, RebuildSwap

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store_core.answers.checked_store import CheckedStore
    from store_core.answers.repairing.deeds import Deeds
    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem
    from store_core.store.parts import Engine
    from store_core.store.rebuild.options import RebuildRules

__all__ = ["REPAIRED", "Replacement"]

REPAIRED: Final = "repaired"
"""Directory below the store for new files, until they are in place."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """Replaces what deeds name; the caller holds the store's lock.

    Steps: 1. new files are written to a directory of their own in the store; 2. they are read back and compared with
    the log; 3. `RebuildSwap` puts them in place, and keeps the old ones; 4. the directory is removed. Until step 3
    nothing in the store has changed, and a run that is killed leaves only that directory, which the next one removes.
    From step 3 on the next run finishes the swap, see `RebuildSwap.resume`.
    """

    engine: Engine
    checked: CheckedStore
    deeds: Deeds
    file_system: FileSystem
    clock: Clock

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
        queues = frozenset((each.topic, each.queue_id) for each in self.deeds.queues if each.deed is Deed.REBUILD)
        return replace(
            self.checked.plan.rules,
            queues=queues,
            has_queues=bool(queues),
            has_index=self.deeds.index is not None,
            index_since_offset=index_since_offset,
        )

    def _make(self) -> None:
        index = self.deeds.index
        rules = self._rules(index.end_physical_offset if index is not None else 0)
        if rules.has_queues or rules.has_index:
            rebuild_by(self.engine, self._store, self._output, rules, clock=self.clock)
        cut = [each for each in self.deeds.queues if each.deed is Deed.CUT]
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
        tally = Tally()
        if rules.has_queues or rules.has_index:
            bounds = LogBounds(plan.min_offset, log_end=self.checked.end_offset)
            report = rebuild_by(
                self.engine,
                self._store,
                self._output,
                rules,
                compared=bounds,
                stored_root=self._output,
                clock=self.clock,
            )
            JudgedLog(report, str(self._output), has_crashed=False, is_partial=True).add_to(tally)
        wrong = [str(finding) for finding in tally.first if finding.kind.is_of_queues or finding.kind.is_of_index]
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
        log_end = self.checked.end_offset
        for check in self.engine.run(ChainJob(files, Log.of(self._store), log_end)):
            if check.broken or check.problem or check.header:
                yield f"{check.path}: {check.broken} broken links {check.problem} {check.header}"

    # ---- replacing

    def _places(self) -> tuple[list[str], list[str]]:
        """Return the places that get new files, and those that only lose their old ones."""
        names = [
            str(queue_path(self._store / kind, each.topic, each.queue_id).relative_to(self._store))
            for each in self.deeds.queues
            for kind in QUEUE_KINDS
        ]
        index = self.deeds.index
        if index is not None:
            made = set(self._names(self._output / INDEX_DIRECTORY)) - set(index.kept)
            names += [f"{INDEX_DIRECTORY}/{name}" for name in sorted(made | set(index.replaced))]
        is_made = {name: self.file_system.status(self._output / name) is not None for name in names}
        is_there = {name: self.file_system.status(self._store / name) is not None for name in names}
        return [name for name in names if is_made[name]], [
            name for name in names if is_there[name] and not is_made[name]
        ]

    def _names(self, directory: Path) -> list[str]:
        return self.file_system.names(directory)
