# SPDX-License-Identifier: Apache-2.0
"""Staged records are appended together or not at all: normally, on failing disks, and on machines that die."""

from __future__ import annotations

import errno
import os
import random
import shutil
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest

from store_core import DefaultMessageStore, Message, MessageStoreConfig, read_messages
from store_core.errors import InvalidOptionError, StoreError
from store_core.format.columnar.encode_batch import encode_batch
from store_core.format.record.encode import place_records
from store_core.queue import index_file
from store_core.queue.dispatch.dispatch_reader import DispatchReader
from store_core.queue.index_service import IndexService
from store_core.store.reput import ReputMessageService
from store_core.store.sink import staged_append
from store_core.store.sink.commit import AppendTransaction, CommitLedger, LedgerEntry
from store_core.store.sink.staged_append import Appended, KnownRecords, append_staged
from tests.builders import Record
from tests.store_core.fakes import FaultyFileSystem, MortalFileSystem
from tests.store_core.store.logs import messages_of
from tests.store_core.store.sink.staging import (
    CONFIG,
    ImpatientClock,
    bodies_of,
    check_queues,
    make_store,
    stage,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store_core.files.file_system import FileSystem
    from store_core.format.release import Release
    from store_core.store.sink.staged_batch import StagedFile

SEED = 8


@pytest.fixture(autouse=True)
def _disk_begins_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Include the threads that sync after writing in all failures and deaths."""
    monkeypatch.setattr(staged_append, "_SYNC_BYTES", 1000)
    monkeypatch.setattr(index_file, "_AHEAD_BYTES", 100)


@dataclass(frozen=True)
class Case:
    """What is in a store, and what is appended to it."""

    before: list[bytes]
    added: list[bytes]
    new_segments: int


CASES = {
    "tail": Case([b"old %d" % n for n in range(7)], [b"new %d" % n for n in range(30)], 0),
    "tail of one": Case([b"old"], [b"new"], 0),
    "one segment": Case([b"o" * 700 for _ in range(9)], [b"new %d" % n + b"n" * 300 for n in range(12)], 1),
    "several segments": Case([b"old %d" % n for n in range(9)], [b"new %d" % n + b"n" * 500 for n in range(60)], 5),
    "a new store": Case([], [b"new %d" % n + b"n" * 500 for n in range(30)], 3),
}


def append(
    root: Path,
    staged: list[StagedFile],
    disk: FileSystem,
    *,
    dispatches: bool = True,
    config: MessageStoreConfig = CONFIG,
) -> Appended:
    ledger = CommitLedger(root / "ledger", disk)

    def note(appended: Appended) -> None:
        ledger.write(LedgerEntry(AppendTransaction("test"), appended, is_committed=False))

    with DefaultMessageStore.open(root, config, file_system=disk, clock=ImpatientClock()) as store:
        return append_staged(store, staged, root / "work", disk, note, dispatches=dispatches)


def staged_case(case: Case, directory: Path) -> list[StagedFile]:
    half = len(case.added) // 2
    batches = case.added[: half // 2], case.added[half // 2 : half]
    return [stage(directory / "a", *batches), stage(directory / "b", case.added[half:])]


@pytest.mark.parametrize("dispatches", [True, False], ids=["dispatched", "left to the next to open the store"])
@pytest.mark.parametrize("name", CASES)
def test_what_is_staged_comes_behind_what_is_there_in_the_order_of_the_files(
    name: str, dispatches: bool, tmp_path: Path
) -> None:
    case, root = CASES[name], tmp_path / "store"
    make_store(root, case.before)
    appended = append(root, staged_case(case, tmp_path), FaultyFileSystem(), dispatches=dispatches)
    stored = messages_of(root / "commitlog")

    assert (root / "abort").exists() is not dispatches
    assert case.before + case.added == bodies_of(root)
    assert (len(case.added), case.new_segments) == (appended.records, appended.new_segments)
    assert {appended.store_timestamp} == {each.store_timestamp for each in stored[len(case.before) :]}
    assert appended.begin_offset == stored[len(case.before)].physical_offset
    assert appended.end_offset == stored[-1].physical_offset + stored[-1].store_size
    assert len(case.before + case.added) == check_queues(root)


def test_a_new_store_is_laid_out_as_if_its_messages_had_been_put(tmp_path: Path) -> None:
    case = CASES["a new store"]
    make_store(tmp_path / "put", case.added)
    times = [messages_of(tmp_path / "put" / "commitlog")[0].store_timestamp] * len(case.added)
    born = read_messages(tmp_path / "put", columns=["born_timestamp"]).read_all()
    append(tmp_path / "staged", [stage(tmp_path / "a", case.added, times=times)], FaultyFileSystem())

    assert born.num_rows == len(case.added)
    for path in (tmp_path / "put" / "commitlog").iterdir():
        put, staged = path.read_bytes(), (tmp_path / "staged" / "commitlog" / path.name).read_bytes()
        assert _without_born_time(put) == _without_born_time(staged)


def _without_born_time(data: bytes) -> list[bytes]:
    """Return the records of messages in pieces, without the field in which the two ways of appending differ."""
    size = int.from_bytes(data[:4])
    if size <= 0 or len(data) < size:
        return [data]
    return [data[:40], data[48:size], *_without_born_time(data[size:])]


@pytest.mark.parametrize("left", [7, 8, 9])
@pytest.mark.parametrize("beside", ["nothing", "the third"])
def test_each_way_of_appending_places_records_as_the_definition_says(beside: str, left: int, tmp_path: Path) -> None:
    size, bodies = CONFIG.mapped_file_size_commit_log, [b"first", b"", b"third"]
    ends = encode_batch(table(bodies)).starts.tolist()
    left += 0 if beside == "nothing" else ends[3] - ends[2]
    bodies[1] = b"x" * (size - left - ends[2])
    sizes = np.diff(encode_batch(table(bodies)).starts).tolist()
    expected = [size * (segment - 1) + at for segment, at in place_records(sizes, 0, size)]
    assert len(expected) == 3
    make_store(tmp_path / "bulk", bodies)
    append(tmp_path / "staged", [stage(tmp_path / "a", bodies)], FaultyFileSystem())
    with DefaultMessageStore.open(tmp_path / "put", CONFIG, file_system=FaultyFileSystem()) as store:
        for row in table(bodies).to_pylist():
            assert store.put_message(Message(**row)).is_ok

    for way in ("put", "bulk", "staged"):
        assert expected == [each.physical_offset for each in messages_of(tmp_path / way / "commitlog")], way


@pytest.mark.parametrize("release", ["4.3", "4.9", "5.3"])
def test_queues_and_index_are_those_of_dispatching_record_by_record(
    release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [b"body %d" % number for number in range(400)]
    times = [1_500_000_000_000 + 10 * number for number in range(400)]
    config = replace(CONFIG, release=release)
    append(tmp_path / "known", [stage(tmp_path / "a", bodies, times=times)], FaultyFileSystem(), config=config)
    staged = [stage(tmp_path / "b", bodies, times=times, derives=False)]
    append(tmp_path / "gathered", staged, FaultyFileSystem(), config=config)
    run_once = ReputMessageService.run_once
    monkeypatch.setattr(ReputMessageService, "run_once", lambda self, **_: run_once(self))
    append(tmp_path / "singly", staged, FaultyFileSystem(), config=config)

    known, gathered, singly = (_derived(tmp_path / name) for name in ("known", "gathered", "singly"))
    assert len(singly) > 4
    assert singly == gathered == known


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("most_bytes", [0, 1, 1000, 1 << 20])
def test_what_is_known_of_records_beforehand_changes_nothing(
    name: str, most_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    times = [1_500_000_000_000 + 10 * number for number in range(len(case.added))]
    monkeypatch.setattr(staged_append, "KnownRecords", partial(KnownRecords, most_bytes))
    make_store(tmp_path / "base", case.before)
    for kind in ("known", "read"):
        shutil.copytree(tmp_path / "base", tmp_path / kind)
        derives = kind == "known"
        staged = [
            stage(tmp_path / f"{kind} a", case.added[:9], times=times[:9], derives=derives),
            stage(tmp_path / f"{kind} b", case.added[9:], times=times[9:], derives=derives),
        ]
        append(tmp_path / kind, staged, FaultyFileSystem())

    assert _derived(tmp_path / "read") == _derived(tmp_path / "known")


def test_records_that_are_known_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the log is read")

    root, case = tmp_path / "store", CASES["several segments"]
    make_store(root, case.before)
    staged = staged_case(case, tmp_path)
    with (
        DefaultMessageStore.open(root, CONFIG, file_system=FaultyFileSystem()) as store,
        monkeypatch.context() as patched,
    ):
        patched.setattr(DispatchReader, "_proven", refuse)
        patched.setattr(DispatchReader, "_one_by_one", refuse)
        append_staged(store, staged, root / "work", FaultyFileSystem())

    assert len(case.before + case.added) == check_queues(root)


def _derived(root: Path) -> dict[str, bytes]:
    """Return the files of queues and index; names of index files are the times at which they were made."""
    index = {f"index {number}": path.read_bytes() for number, path in enumerate(sorted((root / "index").iterdir()))}
    queues = [path for path in (root / "consumequeue").rglob("*") if path.is_file()]
    return index | {str(path.relative_to(root)): path.read_bytes() for path in queues}


def test_what_the_thread_of_the_index_meets_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(IndexService, "build_indexes", fail)
    with pytest.raises(MemoryError):
        append(tmp_path / "store", [stage(tmp_path / "a", [b"body"])], FaultyFileSystem())


def test_store_times_are_kept_where_they_are_given(tmp_path: Path) -> None:
    times = [1_500_000_000_000 + 10 * number for number in range(20)]
    staged = stage(tmp_path / "a", [b"body %d" % number for number in range(20)], times=times)
    appended = append(tmp_path / "store", [staged], FaultyFileSystem())

    assert times == [each.store_timestamp for each in messages_of(tmp_path / "store" / "commitlog")]
    assert times[-1] == appended.store_timestamp


@pytest.mark.parametrize("added", [1, 30], ids=["one segment", "several segments"])
@pytest.mark.parametrize("left", [0, 1, 7, 8, 9])
def test_a_segment_with_no_room_for_a_blank_record_is_followed_by_the_next(
    left: int, added: int, tmp_path: Path
) -> None:
    size, first = CONFIG.mapped_file_size_commit_log, Record(b"first", queue_offset=0).encode()
    room = size - left - len(first) - len(Record(b"").encode())
    data = first + Record(b"x" * room, physical_offset=len(first), queue_offset=1).encode()
    path = tmp_path / "store" / "commitlog" / f"{0:020d}"
    path.parent.mkdir(parents=True)
    path.write_bytes(data + bytes(left))
    bodies = [b"third" * 100] * added
    appended = append(tmp_path / "store", [stage(tmp_path / "a", bodies)], FaultyFileSystem())

    begin = size if added == 1 or left >= 8 else 2 * size  # the segment between has only its blank record
    assert begin == appended.begin_offset
    assert {size} == {path.stat().st_size for path in path.parent.iterdir()}
    assert [b"first", b"x" * room, *bodies] == bodies_of(tmp_path / "store")


def test_a_record_that_no_segment_has_room_for_is_refused_and_nothing_is_appended(tmp_path: Path) -> None:
    root, size = tmp_path / "store", CONFIG.mapped_file_size_commit_log
    make_store(root, [b"old"])
    staged = [stage(tmp_path / "a", [b"new"]), stage(tmp_path / "b", [b"new", b"n" * size])]
    disk = FaultyFileSystem()
    with DefaultMessageStore.open(root, CONFIG, file_system=disk) as store:
        disk.free_blocks = 20
        with pytest.raises(InvalidOptionError, match=f"record 1 has .* bytes: expected at most {size - 8}, for which"):
            append_staged(store, staged, root / "work", disk)
        disk.heal()

    assert [b"old"] == bodies_of(root)
    assert 1 == check_queues(root)


def test_staged_records_that_were_changed_are_refused_and_nothing_is_appended(tmp_path: Path) -> None:
    case, root = CASES["tail"], tmp_path / "store"
    make_store(root, case.before)
    staged = staged_case(case, tmp_path)
    staged[1].path.write_bytes(staged[1].path.read_bytes()[:-100])
    with pytest.raises(StoreError, match=r"wrong file size at offset 0 of .*/b: expected"):
        append(root, staged, FaultyFileSystem())

    assert case.before == bodies_of(root)
    assert len(case.before) == check_queues(root)


# ---- disks that fail

FAILING = ("open", "write", "sync", "grow", "sync_directory", "make_directories")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("operation", FAILING)
def test_a_call_that_fails_leaves_all_or_nothing_and_the_store_usable(
    name: str, operation: str, tmp_path: Path
) -> None:
    case, chance = CASES[name], random.Random(SEED)  # noqa: S311 -- no secret
    make_store(tmp_path / "base", case.before)
    staged = staged_case(case, tmp_path)
    whole = FaultyFileSystem()
    shutil.copytree(tmp_path / "base", tmp_path / "whole")
    append(tmp_path / "whole", staged, whole)
    for after in sorted(chance.sample(range(whole.count(operation)), min(4, whole.count(operation)))):
        root, disk = tmp_path / f"store-{after}", FaultyFileSystem()
        shutil.copytree(tmp_path / "base", root)
        disk.fail(operation, errno.EIO, after=after)
        try:
            appended = append(root, staged, disk).records
        except OSError:
            appended = 0
        stored = check_queues(root) - len(case.before)

        assert stored in (0, len(case.added))
        assert appended in (0, stored)  # it may fail after the commit, but never claim what isn't there
        assert (case.before + case.added)[: len(case.before) + stored] == bodies_of(root)


def test_when_not_even_the_undoing_succeeds_recovery_starts_before_the_new_segments(tmp_path: Path) -> None:
    case, root, disk = CASES["several segments"], tmp_path / "store", UnchangingFileSystem()
    times = [1_500_000_000_000 + 10 * number for number in range(len(case.added))]  # older than the checkpoint's
    make_store(root, case.before)
    staged = [stage(tmp_path / "a", case.added, times=times)]
    with DefaultMessageStore.open(root, CONFIG, file_system=disk) as store:
        disk.renames_left = 3
        with pytest.raises(OSError, match="Input/output error"):
            append_staged(store, staged, root / "work", disk)
        disk.renames_left = None

    assert (root / "abort").exists()
    assert len(case.before) == check_queues(root)
    assert case.before == bodies_of(root)


def test_queues_that_can_not_be_written_are_complete_after_the_next_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_from_here_on(service: ReputMessageService, **options: object) -> None:
        if options:  # the service's own thread has none
            disk.fail("write", errno.EIO, times=10**4)
        run_once(service, **options)  # type: ignore[arg-type]  # what it was called with

    case, root, disk = CASES["several segments"], tmp_path / "store", FaultyFileSystem()
    run_once = ReputMessageService.run_once
    times = [1_500_000_000_000 + 10 * number for number in range(len(case.added))]  # older than the checkpoint's
    make_store(root, case.before)
    staged = [stage(tmp_path / "a", case.added, times=times)]
    store = DefaultMessageStore.open(root, CONFIG, file_system=disk, clock=ImpatientClock())
    with monkeypatch.context() as patched:
        patched.setattr(ReputMessageService, "run_once", fail_from_here_on)
        append_staged(store, staged, root / "work", disk)
    disk.before["write"] = lambda: disk.heal() if disk.calls[-1][1] == "checkpoint" else None
    store.close()
    disk.before.clear()
    disk.heal()

    assert (root / "abort").exists()
    assert case.before + case.added == bodies_of(root)
    assert len(case.before + case.added) == check_queues(root)


class UnchangingFileSystem(FaultyFileSystem):
    """Fails to rename after a while, and then to remove anything, too.

    * `renames_left`: Renames that succeed; None for all.
    """

    renames_left: int | None = None

    def rename(self, source: Path, target: Path) -> None:
        if self.renames_left is not None:
            self._check(source)
            self.renames_left -= 1
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self._check(path)
        super().remove(path)

    def _check(self, path: Path) -> None:
        if self.renames_left == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))


# ---- machines that die


class MortalDisk(MortalFileSystem):
    """Never tears a unit of a queue: a kill ends a write between pages.

    A unit across two pages can still be torn; then it looks like one of another record, as in RocketMQ.

    * `part`: As `torn`, for all files but those of queues.
    """

    part = 0.0

    def change(self, path: Path, *, undo: Callable[[], object] | None = None) -> None:
        self.torn = round(self.part) if "consumequeue" in path.parts else self.part
        super().change(path, undo=undo)


def run_until_death(root: Path, staged: list[StagedFile], disk: MortalDisk) -> bool:
    """Append until the machine dies; return whether it survived."""
    try:
        append(root, staged, disk)
    except OSError:
        return False
    return not disk.is_dead


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("lost_power", [False, True], ids=["process killed", "power lost"])
def test_a_machine_that_dies_at_any_call_leaves_all_or_nothing(name: str, lost_power: bool, tmp_path: Path) -> None:
    case, chance = CASES[name], random.Random(f"{SEED}{name}{lost_power}")  # noqa: S311 -- no secret
    make_store(tmp_path / "base", case.before)
    staged = staged_case(case, tmp_path)
    for number, changes in enumerate(_points(tmp_path, staged, chance)):
        root, disk = tmp_path / f"store-{number}", MortalDisk()
        shutil.copytree(tmp_path / "base", root)
        for path in root.rglob("*"):
            if path.is_file():
                disk.note_synced(path)
        disk.changes_left, disk.part = changes, chance.random()
        lived = run_until_death(root, staged, disk)
        disk.revive(root, chance, lost_power=lost_power)
        seen = _seen(root, case)
        stored = check_queues(root) - len(case.before)

        assert stored in (0, len(case.added)), f"death at change {changes}"
        assert seen in (None, stored), f"death at change {changes}"
        assert stored or not lived
        assert (case.before + case.added)[: len(case.before) + stored] == bodies_of(root)
        with DefaultMessageStore.open(root, CONFIG, file_system=FaultyFileSystem()) as store:
            settled = CommitLedger(root / "ledger", FaultyFileSystem()).settle(AppendTransaction("test"), store, 0)
        assert bool(stored) == (settled is not None)
        shutil.rmtree(root)


def _points(tmp_path: Path, staged: list[StagedFile], chance: random.Random) -> list[int]:
    """Choose at which of the changes of a whole append to die."""
    disk, root = MortalDisk(), tmp_path / "whole"
    shutil.copytree(tmp_path / "base", root)
    disk.changes_left = 10**6
    assert run_until_death(root, staged, disk)
    total = 10**6 - disk.changes_left
    return sorted(chance.sample(range(total), 14))


def _seen(root: Path, case: Case) -> int | None:
    """Count the new records that a reader finds before any recovery; None if it refuses to read."""
    try:
        found = bodies_of(root)
    except StoreError:
        return None
    assert (case.before + case.added)[: len(found)] == found
    return len(found) - len(case.before)
