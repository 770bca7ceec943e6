# SPDX-License-Identifier: Apache-2.0
"""Commits of jobs: exactly once, with leftovers cleaned, and with stores that are overwritten."""

from __future__ import annotations

import errno
import json
import shutil
import threading
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from store_core import DefaultMessageStore, RebuildOptions, read_messages, rebuild_index
from store_core.errors import (
    AppendConflictError,
    CorruptRecordError,
    InvalidOptionError,
    RepairRefusedError,
    SegmentLayoutError,
    StoreLockedError,
    StoreNotFoundError,
    UnsupportedStoreError,
)
from store_core.store.sink import staged_batch as sink_directory
from store_core.store.sink.commit import (
    AppendTransaction,
    CommitLedger,
    CommitReport,
    LedgerEntry,
    SinkCommit,
    check_target,
    with_sizes_of,
)
from store_core.store.sink.staged_append import Appended
from store_core.store.sink.staged_batch import SinkDirectory
from tests.budgets import budget
from tests.store_core.fakes import FaultyFileSystem
from tests.store_core.store.sink.staging import (
    CONFIG,
    JOB,
    ImpatientClock,
    bodies_of,
    check_queues,
    commit,
    make_store,
    stage,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Callable

OTHER = f"job-{'1' * 32}"


def test_a_transaction_is_committed_once_whatever_is_staged_again(tmp_path: Path) -> None:
    first = commit(tmp_path, [b"a"], transaction=AppendTransaction("query", 3), left_out=2)
    again = commit(tmp_path, [b"a"], OTHER, transaction=AppendTransaction("query", 3))
    earlier = commit(tmp_path, [b"z"], OTHER, transaction=AppendTransaction("query", 2))  # of a job's own numbers
    later = commit(tmp_path, [b"b"], OTHER, transaction=AppendTransaction("query", 4))
    other = commit(tmp_path, [b"c"], OTHER, transaction=AppendTransaction("another", 4))

    assert [False, True, True, False, False] == [r.is_repeat for r in (first, again, earlier, later, other)]
    assert (first.appended, 2) == (again.appended, again.left_out)
    assert [b"a", b"b", b"c"] == bodies_of(tmp_path)
    assert [] == list((tmp_path / "commitlog-sink" / "staged").iterdir())


def test_a_batch_is_refused_if_a_later_one_was_made_or_the_same_one_of_other_rows(tmp_path: Path) -> None:
    def batch(bodies: list[bytes], number: int, left_out: int = 0) -> CommitReport:
        transaction = AppendTransaction("query", number, is_batch=True)
        return commit(tmp_path, bodies, OTHER, transaction=transaction, left_out=left_out)

    batch([b"a"], 0)
    batch([b"b"], 1, left_out=1)
    with pytest.raises(
        AppendConflictError, match=r"last batch was 1, with 2 rows, .* and the query now delivers batch 0"
    ):
        batch([b"a"], 0)
    with pytest.raises(AppendConflictError, match=r"this batch 1 has 3 rows.* set records to 2 in the ledger"):
        batch([b"b", b"c", b"d"], 1)

    assert batch([b"b", b"bad"], 1).is_repeat
    assert not batch([b"c"], 2).is_repeat
    assert [b"a", b"b", b"c"] == bodies_of(tmp_path)


def test_a_batch_with_as_many_other_bodies_is_taken_for_the_repeat_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bodies = [b"a", b"b", b"c"]
    again = AppendTransaction("query", 0, is_batch=True)
    commit(tmp_path, bodies, OTHER, transaction=again)

    assert commit(tmp_path, bodies[::-1], OTHER, transaction=again).is_repeat
    assert "other bodies" not in caplog.text
    assert commit(tmp_path, [b"a", b"b", b"d"], OTHER, transaction=again).is_repeat
    assert "has batch 0 of the query query with other bodies than those that it has now" in caplog.text
    assert bodies == bodies_of(tmp_path)


def test_an_entry_of_an_earlier_version_says_nothing_of_bodies(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    again = AppendTransaction("query", 0, is_batch=True)
    commit(tmp_path, [b"a"], OTHER, transaction=again)
    (path,) = (tmp_path / "commitlog-sink" / "ledger").iterdir()
    entry = json.loads(path.read_text())
    del entry["body_sum"]
    path.write_text(json.dumps(entry))

    assert commit(tmp_path, [b"b"], OTHER, transaction=again).is_repeat
    assert "other bodies" not in caplog.text


def test_a_stream_that_goes_on_in_another_store_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in (3, 4):
        commit(tmp_path, [b"a"], OTHER, transaction=AppendTransaction("query", number, is_batch=True))

    assert 1 == caplog.text.count("has no batch of the query query, which goes on with batch 3")


def test_a_transaction_without_records_is_committed_too(tmp_path: Path) -> None:
    commit(tmp_path, [], transaction=AppendTransaction("query", 0))

    assert commit(tmp_path, [], transaction=AppendTransaction("query", 0)).is_repeat


def test_an_entry_that_was_about_to_be_committed_is_settled_by_the_log(tmp_path: Path) -> None:
    ledger = CommitLedger(tmp_path / "ledger", FaultyFileSystem())
    commit(tmp_path / "store", [b"a"])
    appended = commit(tmp_path / "store", [b"b", b"c"]).appended
    with DefaultMessageStore.open(tmp_path / "store", CONFIG) as store:
        for entry, is_in in (
            (appended, True),
            (Appended(2, appended.begin_offset, 0, 0, 0, appended.first_size, appended.first_crc ^ 1), False),
            (Appended(2, appended.end_offset, 0, 0, 0, appended.first_size, appended.first_crc), False),
        ):
            ledger.write(LedgerEntry(AppendTransaction("query", 7), entry, is_committed=False))
            assert is_in == (ledger.settle(AppendTransaction("query", 7), store, 2) is not None)
        assert ledger.settle(AppendTransaction("query", 8), store, 2) is None


DAMAGES: Final[dict[str, Callable[[int, int], bytes]]] = {
    "zeros": lambda size, _: bytes(size),
    "garbage": lambda size, _: b"\xff" * size,
    "zeros to the segment's end": lambda _, to_end: bytes(to_end),
}
"""What is written over a record, by its size and the bytes from it to the end of its segment."""


@pytest.mark.parametrize("state", ["closed", "crashed", "crashed, without a checkpoint"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_an_append_cuts_off_no_message_behind_damage(damage: str, state: str, tmp_path: Path) -> None:
    make_store(tmp_path / "sound", [b"%02d" % number * 400 for number in range(30)])
    records = read_messages(tmp_path / "sound", columns=["physical_offset", "store_size"]).read_all().to_pylist()
    outcomes = []
    for record in records:
        store = shutil.copytree(tmp_path / "sound", tmp_path / f"at-{record['physical_offset']}")
        number, position = divmod(record["physical_offset"], CONFIG.mapped_file_size_commit_log)
        with sorted((store / "commitlog").iterdir())[number].open("r+b") as segment:
            segment.seek(position)
            segment.write(DAMAGES[damage](record["store_size"], CONFIG.mapped_file_size_commit_log - position))
        if state != "closed":
            (store / "abort").touch()
        if state.endswith("without a checkpoint"):
            (store / "checkpoint").unlink()
        before = read_messages(store, columns=["body"], mode="DROPMALFORMED").read_all()["body"].to_pylist()
        outcomes.append("refused")
        with suppress(RepairRefusedError):
            commit(store, [b"new"])
            outcomes[-1] = "appended"
        after = read_messages(store, columns=["body"], mode="DROPMALFORMED").read_all()["body"].to_pylist()
        assert before == after[: len(before)], record

    assert {"appended", "refused"} == set(outcomes)
    assert "appended" == outcomes[-1]


def test_an_append_is_not_made_twice_after_a_later_one_was_interrupted(tmp_path: Path) -> None:
    appended = commit(tmp_path, [b"a"], transaction=AppendTransaction("query", 1)).appended
    ledger = CommitLedger(SinkDirectory(tmp_path, FaultyFileSystem()).ledger, FaultyFileSystem())
    planned = Appended(1, appended.end_offset, appended.end_offset + 100, 0, 0, 100, 7)
    ledger.write(LedgerEntry(AppendTransaction("query", 2), planned, is_committed=False))

    assert commit(tmp_path, [b"a"], OTHER, transaction=AppendTransaction("query", 1)).is_repeat
    assert not commit(tmp_path, [b"b"], OTHER, transaction=AppendTransaction("query", 2)).is_repeat
    assert [b"a", b"b"] == bodies_of(tmp_path)


def test_an_entry_whose_place_was_deleted_is_told_and_not_guessed(tmp_path: Path) -> None:
    ledger = CommitLedger(tmp_path / "ledger", FaultyFileSystem())
    make_store(tmp_path / "store", [b"x" * 900] * 20)
    first = next(iter(sorted((tmp_path / "store" / "commitlog").iterdir())))
    first.unlink()
    ledger.write(LedgerEntry(AppendTransaction("query", 7), Appended(1, 0, 9, 0, 0, 9, 9), is_committed=False))
    with (
        DefaultMessageStore.open(tmp_path / "store", CONFIG) as store,
        pytest.raises(UnsupportedStoreError, match="append 7 of 'query' was interrupted, and the part of the log"),
    ):
        ledger.settle(AppendTransaction("query", 7), store, 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"transaction": {"sender": "query", "number": "x"}}',
        "\0" * 99,
        "[" * 9999,
        '{"transaction": {"sender": "query", "number": 1e999}}',
    ],
)
def test_an_entry_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    ledger = CommitLedger(tmp_path, FaultyFileSystem())
    ledger.path_of("query").write_text(text)

    with pytest.raises(CorruptRecordError, match="no ledger entry"):
        ledger.entry("query")


def test_a_store_that_somebody_has_open_is_refused(tmp_path: Path) -> None:
    make_store(tmp_path, [b"old"])
    with DefaultMessageStore.open(tmp_path, CONFIG):
        with pytest.raises(StoreLockedError):
            check_target(tmp_path, CONFIG, FaultyFileSystem(), is_dry=True)
        with pytest.raises(StoreLockedError):
            commit(tmp_path, [b"new"])
        with pytest.raises(StoreLockedError):
            commit(tmp_path, [b"new"], overwrite=True)
    check_target(tmp_path, CONFIG, FaultyFileSystem(), is_dry=True)

    assert [b"old"] == bodies_of(tmp_path)


def test_of_two_commits_at_once_one_wins_and_the_other_is_told(tmp_path: Path) -> None:
    make_store(tmp_path, [b"old"])
    together, said = threading.Barrier(2), dict[str, str]()

    def run(job: str) -> None:
        directory = SinkDirectory(tmp_path, FaultyFileSystem()).claim(job, "me", "1")
        staged = [stage(directory / "part", [f"{job} {number}".encode() for number in range(50)])]
        together.wait()
        try:
            SinkCommit(tmp_path, job, CONFIG, ImpatientClock(), FaultyFileSystem()).run(staged)
        except StoreLockedError as error:
            said[job] = str(error)

    jobs = [threading.Thread(target=run, args=(job,)) for job in (JOB, OTHER)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    stored = check_queues(tmp_path)

    assert 1 + 50 * (2 - len(said)) == stored
    assert len(said) < 2
    assert all("a store has one writer" in text for text in said.values())


def found_by_key(root: Path) -> list[int]:
    with DefaultMessageStore.open(root, CONFIG, read_only=True) as store:
        found = store.query_message("orders", "key1", 99, 0, 2**60)
    return sorted(message.physical_offset for message in found.messages)


def test_an_append_without_index_loses_nothing_that_was_found_and_says_what_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bodies = [b"a", b"b"]  # the second one has the key
    commit(tmp_path, bodies)
    commit(tmp_path, bodies, OTHER, rebuild="none")
    assert (tmp_path / "abort").exists()
    commit(tmp_path, bodies, rebuild="queues")  # a recovery has to complete the index, and this append with it
    assert 3 == len(found_by_key(tmp_path))
    last = commit(tmp_path, bodies, rebuild="queues").appended
    after = found_by_key(tmp_path)

    assert 3 == len(after)
    says = f"the keys of the 2 records from offset {last.begin_offset} to {last.end_offset} are not in the index"
    assert says in caplog.text
    commit(tmp_path, bodies, OTHER)
    assert 5 == len(found_by_key(tmp_path))
    rebuild_index(tmp_path, RebuildOptions(replace=True))
    assert 5 == len(found_by_key(tmp_path))


@budget(0.1)
@given(st.lists(st.sampled_from(["none", "queues", "all", "deleted", "emptied"]), min_size=1, max_size=7))
@example(["all", "deleted", "all"])
@example(["all", "emptied", "all"])
def test_appends_with_and_without_index_in_any_order_lose_no_key(kinds: list[str]) -> None:
    with TemporaryDirectory() as name:
        root, found, appended = Path(name), 0, 0
        for kind in kinds:
            if kind in {"deleted", "emptied"}:
                shutil.rmtree(root / "index", ignore_errors=True)
                found = 0
                if kind == "emptied":
                    (root / "index").mkdir()
                continue
            commit(root, [b"a", b"b"], f"job-{appended:032x}", rebuild=kind)
            appended += 1
            if kind == "none":
                continue
            assert found <= len(found_by_key(root))
            found = len(found_by_key(root))
            if kind == "all":
                assert appended == found
                assert not (root / "commitlog-sink" / "unindexed.json").exists()


def test_an_append_for_a_broker_without_index_keeps_the_note_of_keys_left_out(tmp_path: Path) -> None:
    for of in ({}, {"rebuild": "queues"}, {"config": replace(CONFIG, message_index_enable=False)}):
        commit(tmp_path, [b"a", b"b"], **of)
    assert 1 == len(found_by_key(tmp_path))
    commit(tmp_path, [b"a", b"b"])

    assert 4 == len(found_by_key(tmp_path))


def test_keys_that_can_not_be_added_any_more_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    commit(tmp_path, [b"a", b"b"], rebuild="queues")
    with DefaultMessageStore.open(tmp_path, CONFIG) as store:
        assert store.append_batch(table([b"a", b"b"])).is_ok
    commit(tmp_path, [b"a", b"b"], OTHER)

    assert 2 == len(found_by_key(tmp_path))
    assert "keys of records from offset 0 on are not in the index" in caplog.text


def test_leftovers_are_named_and_deleted_unless_their_job_may_run(tmp_path: Path) -> None:
    sink = SinkDirectory(tmp_path, FaultyFileSystem())
    names = [f"job-{uuid.uuid4().hex}" for _ in range(2)]
    for name, owner in zip(names, ("dead", "alive"), strict=True):
        stage(sink.claim(name, owner, "1") / "part", [b"x"])
    (sink.staging / "notes").mkdir()
    report = commit(tmp_path, [b"new"], is_alive=lambda owner: owner == "alive")

    assert len(report.cleaned) == 1
    assert f"{sink.staging / names[0]}: 2 files of " in report.cleaned[0]
    assert {names[1], "notes"} == {path.name for path in sink.staging.iterdir()}


def test_a_batch_deletes_what_earlier_ones_of_its_query_left_and_nothing_else(tmp_path: Path) -> None:
    sink, query = SinkDirectory(tmp_path, FaultyFileSystem()), {"query": "a"}
    owners = (
        query | {"created": 1.5},
        query | {"created": 2.5},  # of a batch that is tried again, while a late task of this one begins
        {"query": "b", "created": 1.5},
        {"created": 1.5},
    )
    names = [f"job-{uuid.uuid4().hex}" for _ in owners]
    for name, owner in zip(names, owners, strict=True):
        stage(sink.claim(name, json.dumps(owner), "1") / "part", [b"x"])
    sink.claim(JOB, json.dumps(query | {"created": 2.0}), "1")

    assert {*names[1:], JOB} == {path.name for path in sink.staging.iterdir()}


def test_a_task_that_starts_after_its_job_was_discarded_stages_nothing(tmp_path: Path) -> None:
    sink, job = SinkDirectory(tmp_path, FaultyFileSystem()), f"job-{uuid.uuid4().hex}"
    directory = sink.claim(job, "me", "driver")
    stage(directory / "part", [b"x"])
    sink.remove(sink.claimed(job))

    assert [] == list(sink.staging.iterdir())
    with pytest.raises(
        StoreNotFoundError, match="job has been aborted, or another one has replaced the store, or this"
    ):
        sink.claimed(job)
    with pytest.raises(FileNotFoundError):
        stage(directory / "later", [b"x"])
    assert [] == list(sink.staging.iterdir())


def test_what_was_being_deleted_is_a_leftover_even_if_its_job_may_run(tmp_path: Path) -> None:
    sink, job = SinkDirectory(tmp_path, FaultyFileSystem()), f"job-{uuid.uuid4().hex}"
    stage(sink.claim(job, "alive", "driver") / "part", [b"x"])
    sink.job_path(job).rename(sink.staging / f"{job}.removed")
    report = commit(tmp_path, [b"new"], is_alive=lambda _: True)

    assert len(report.cleaned) == 1
    assert [] == list(sink.staging.iterdir())


def test_a_replacement_that_fails_leaves_the_old_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"
    make_store(root, [b"old"])

    def fail(*_: object) -> None:
        raise OSError("no swap today")

    monkeypatch.setattr("store_core.store.sink.commit.swap", fail)
    with pytest.raises(OSError, match="no swap today"):
        commit(root, [b"new"], overwrite=True)

    assert ([b"old"], [root]) == (bodies_of(root), list(tmp_path.iterdir()))


@pytest.mark.parametrize("stages_in_store", [True, False])
@pytest.mark.parametrize("steps", range(4))
def test_a_swap_in_steps_that_is_interrupted_is_ended_by_the_next_job(
    steps: int, stages_in_store: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, disk = tmp_path / "store", FaultyFileSystem()
    new = sink_directory.new_store_path(root, OTHER)
    make_store(root, [b"old"])
    make_store(new, [b"new"])
    monkeypatch.setattr(sink_directory, "_exchange", lambda *_: False)
    left = steps

    def counted(source: Path, target: Path) -> None:
        nonlocal left
        if not left:
            raise InterruptedError
        left -= 1
        source.replace(target)

    monkeypatch.setattr(disk, "rename", counted)
    if steps < 3:
        with pytest.raises(InterruptedError):
            sink_directory.swap(root, new, disk)
    else:
        sink_directory.swap(root, new, disk)
    staging = SinkDirectory(root, FaultyFileSystem()).claim(JOB, "me", "1") if stages_in_store else tmp_path
    report = SinkCommit(root, JOB, CONFIG, ImpatientClock(), FaultyFileSystem()).run(
        [stage(staging / "part", [b"more"])]
    )

    assert [b"old" if steps == 0 else b"new", b"more"] == bodies_of(root)
    assert len(report.cleaned) == 1
    assert [root] == list(tmp_path.iterdir())


def test_neither_store_of_an_interrupted_swap_is_waste_where_something_made_a_third(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "store"
    new = sink_directory.new_store_path(root, OTHER)
    old = new.with_name(f"{new.name}.old")
    for path in (root, new, old):
        make_store(path, [path.name.encode()])
    report = commit(root, [b"more"])

    assert () == report.cleaned
    assert [[b"store", b"more"], [new.name.encode()], [old.name.encode()]] == list(map(bodies_of, (root, new, old)))
    assert [path for path in (new, old) if f"{path} is left" in caplog.text] == [new, old]


def test_a_swap_of_a_job_that_is_alive_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, disk = tmp_path / "store", FaultyFileSystem()
    make_store(root, [b"old"])
    monkeypatch.setattr(sink_directory, "_exchange", lambda *_: False)
    refused: list[int] = []

    def rename(source: Path, target: Path) -> None:
        source.replace(target)
        if not root.exists():
            with pytest.raises(StoreLockedError, match=r"store\.job-.*\.old"):
                commit(root, [b"more"])
            refused.append(len(refused))

    monkeypatch.setattr(disk, "rename", rename)
    directory = SinkDirectory(root, disk).claim(JOB, "me", "1")
    overwriting = SinkCommit(root, JOB, CONFIG, ImpatientClock(), disk, overwrite=True)
    overwriting.run([stage(directory / "part", [b"new"], file_system=disk)])

    assert refused == [0]
    assert [b"new"] == bodies_of(root)
    assert [root] == list(tmp_path.iterdir())


def test_two_directories_change_places_in_one_step_where_the_system_can(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / f"was {name}").touch()
    sink_directory.swap(tmp_path / "a", tmp_path / "b", FaultyFileSystem())

    assert (tmp_path / "a" / "was b").exists()
    assert (tmp_path / "b" / "was a").exists()


def test_sizes_of_a_store_are_taken_over_and_segments_of_several_named(tmp_path: Path) -> None:
    disk, default = FaultyFileSystem(), type(CONFIG)()
    make_store(tmp_path, [b"old %d" % number for number in range(9)])
    taken = with_sizes_of(tmp_path, default, disk)

    assert (8192, 2000) == (taken.mapped_file_size_commit_log, taken.mapped_file_size_consume_queue)
    assert (40, 4000) == (taken.max_hash_slot_num, taken.max_index_num)
    with pytest.raises(InvalidOptionError, match="option mappedFileSizeCommitLog says 16384, but the store at"):
        with_sizes_of(tmp_path, replace(default, mapped_file_size_commit_log=16384), disk)
    (tmp_path / "commitlog" / f"{8192:020d}").write_bytes(bytes(100))
    with pytest.raises(SegmentLayoutError, match=r"of 100 and 8192 bytes: expected one size\. .*commitlog ls"):
        with_sizes_of(tmp_path, default, disk)


def test_an_index_that_does_not_tell_its_sizes_needs_them(tmp_path: Path) -> None:
    disk, default = FaultyFileSystem(), type(CONFIG)()
    make_store(tmp_path, [b"old"])
    for path in (tmp_path / "index").iterdir():
        path.write_bytes(bytes(path.stat().st_size))

    with pytest.raises(InvalidOptionError, match="Give both as its broker has them"):
        with_sizes_of(tmp_path, default, disk)
    assert with_sizes_of(tmp_path, CONFIG, disk).max_index_num == 4000
    shutil.rmtree(tmp_path / "index")
    assert with_sizes_of(tmp_path, default, disk).max_index_num == 20_000_000


def test_staged_files_are_deleted_while_the_log_is_written_and_few_are_read_ahead(tmp_path: Path) -> None:
    disk, few = FaultyFileSystem(), 8
    directory = SinkDirectory(tmp_path, disk).claim(JOB, "me", "1")
    bodies = [b"%d" % number * 300 for number in range(5 * few)]
    staged = [stage(directory / f"part-{number}", [body], file_system=disk) for number, body in enumerate(bodies)]
    disk.calls.clear()
    SinkCommit(tmp_path, JOB, CONFIG, ImpatientClock(), disk).run(staged)
    removals = {name: place for place, (call, name) in enumerate(disk.calls) if call == "remove"}
    writes = [
        place for place, (call, name) in enumerate(disk.calls) if call == "write" and len(name) == len(f"{0:020d}")
    ]
    deleted = [removals[file.path.name] for file in staged]

    assert sorted(deleted) == deleted
    for number, place in enumerate(deleted):
        assert sum(write < place for write in writes) >= number - few
    assert bodies == bodies_of(tmp_path)


def test_a_staged_file_that_can_not_be_deleted_does_not_stop_the_commit(tmp_path: Path) -> None:
    disk = FaultyFileSystem()
    directory = SinkDirectory(tmp_path, disk).claim(JOB, "me", "1")
    staged = [stage(directory / f"part-{number}", [b"body"], file_system=disk) for number in range(2)]
    commit = SinkCommit(tmp_path, JOB, CONFIG, ImpatientClock(), disk)
    disk.before["remove"] = lambda: disk.fail("remove", errno.EACCES) if disk.calls[-1][1] == "part-0" else None

    assert commit.run(staged).appended.records == 2
    assert [b"body"] * 2 == bodies_of(tmp_path)
