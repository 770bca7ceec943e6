# SPDX-License-Identifier: Apache-2.0
"""The commands that rebuild: options, exit codes, reports, the lock, replacement."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from store_core import DefaultMessageStore, read_messages
from store_core.command.exit_code import INTERRUPTED, NO_READER
from store_core.errors import UnsupportedStoreError
from store_core.files.file_system import OsFileSystem
from store_core.files.names import SWAP_JOURNAL
from store_core.files.store_lock import StoreLock
from store_core.format.columns import iso_time
from store_core.snapshot.config import REWOUND
from store_core.store.rebuild.swap import RebuildSwap
from store_core.store.store_state import StoreCheckpoint
from tests.builders import LogBuilder
from tests.connector.called import commitlog, rebuild_consume_queue, rebuild_index, rebuilt_queues
from tests.store_core.files.store_kinds import add_rocksdb, every_file
from tests.store_core.rebuilt import index_files, queue_files
from tests.store_core.store.sink.staging import check_queues, commit, make_store

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.golden_stores import Golden

SIZES = ["--consume-queue-file-size", "800", "--hash-slot-num", "100", "--index-num", "400", "--release", "5.3"]


@pytest.fixture
def store(golden: Golden, tmp_path: Path) -> Path:
    return shutil.copytree(golden("5.3.3/propcrc").root, tmp_path / "store")


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_lost_queues_and_index_are_back_after_two_commands(
    store: Path, tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    queues, index = queue_files(store), index_files(store)
    for kind in ("consumequeue", "index"):
        shutil.rmtree(store / kind)
    arguments = [str(store), *SIZES, "--replace", "--discard-old", "--json", str(tmp_path / "report.json"), "--spark"]

    assert spark.sparkContext.defaultParallelism > 1
    assert 0 == rebuild_consume_queue(arguments)
    assert queues == queue_files(store)
    assert 0 == rebuild_index(arguments)
    assert index == index_files(store)
    assert 462 == json.loads((tmp_path / "report.json").read_text())["records"]
    assert 0 == rebuild_consume_queue([str(store), "--verify", "--with-index"])
    assert "no findings" in capsys.readouterr().out
    assert not {"rebuilt", "replaced-1", "replaced-2", SWAP_JOURNAL} & {path.name for path in store.iterdir()}


def test_without_replace_the_store_stays_as_it_is(store: Path) -> None:
    before = queue_files(store)
    shutil.rmtree(store / "index")

    assert 0 == rebuild_consume_queue([str(store), *SIZES])
    assert before == queue_files(store) == queue_files(store / "rebuilt")
    assert 0 == rebuild_consume_queue([str(store), *SIZES, "--output", str(store.parent / "elsewhere")])
    assert before == queue_files(store.parent / "elsewhere")
    assert not (store / "index").exists()


def test_replaced_files_are_kept_until_they_are_discarded(store: Path) -> None:
    last = max((store / "consumequeue").rglob("0" * 20))
    last.write_bytes(bytes(800))
    damaged = queue_files(store)

    assert 1 == rebuild_consume_queue([str(store), "--verify"])
    assert 0 == rebuild_consume_queue([str(store), "--replace"])
    assert damaged == queue_files(store / "replaced-1")
    assert 0 == rebuild_consume_queue([str(store), "--verify"])
    assert 0 == rebuild_consume_queue([str(store), "--discard-old"])
    assert not (store / "replaced-1").exists()


def test_old_files_are_not_discarded_for_such_that_differ(store: Path) -> None:
    assert 0 == rebuild_consume_queue([str(store), "--replace"])
    max((store / "consumequeue").rglob("0" * 20)).write_bytes(bytes(800))

    assert 1 == rebuild_consume_queue([str(store), "--discard-old"])
    assert (store / "replaced-1").exists()


def test_a_single_queue_is_replaced_alone(store: Path) -> None:
    whole = queue_files(store)
    topic = min((store / "consumequeue").iterdir())
    queue_id = min(topic.iterdir()).name
    shutil.rmtree(topic / queue_id)

    assert 0 == rebuild_consume_queue([str(store), "--topic", topic.name, "--queue-id", queue_id, "--replace", *SIZES])
    assert whole == queue_files(store)
    assert {} == queue_files(store / "replaced-1")


def test_since_an_offset_replaces_what_is_behind_it_alone(store: Path) -> None:
    whole, index = queue_files(store), index_files(store)

    assert 0 == rebuild_consume_queue(
        [str(store), "--since-offset", "100000", "--with-index", "--replace", "--release", "5.3"]
    )
    assert whole == queue_files(store)
    assert index == index_files(store)


def test_a_store_that_a_broker_holds_is_read_and_not_rebuilt(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with StoreLock(store, OsFileSystem()):
        assert 4 == rebuild_consume_queue([str(store)])
        assert 4 == rebuild_index([str(store), "--replace"])
        assert 4 == rebuild_index([str(store), "--discard-old"])
        assert "is locked by" in capsys.readouterr().err
        assert 0 == rebuild_consume_queue([str(store), "--verify", "--with-index"])
        assert "lock is held" in capsys.readouterr().out
    assert not (store / "rebuilt").exists()


def test_a_verify_leaves_nothing_behind(store: Path) -> None:
    (store / "lock").unlink()
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}

    assert 0 == rebuild_consume_queue([str(store), "--verify", "--with-index"])
    assert before == {path: path.stat().st_mtime_ns for path in store.rglob("*")}


def test_damage_is_an_exit_code_of_its_own_and_not_put_in_place_unasked(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = queue_files(store)
    segment = max((store / "commitlog").iterdir())
    data = bytearray(segment.read_bytes())
    data[4:8] = b"\xff\xff\xff\xff"
    segment.write_bytes(data)

    report = rebuilt_queues(store, "--replace")
    assert 4 == report["exit_code"]
    assert before == queue_files(store)
    assert "nothing was replaced" in capsys.readouterr().out
    assert report["is_damaged"]
    assert report["read_end_offset"] <= int(segment.name) < report["end_offset"]
    assert "body_checksums" in report["not_checked"]
    assert 5 == rebuild_consume_queue([str(store)])
    assert 1 == rebuild_consume_queue([str(store), "--verify"])
    assert 5 == rebuild_consume_queue([str(store), "--replace", "--accept-damage"])
    assert 1 == rebuild_consume_queue([str(store), "--verify"])  # of the log alone
    assert before != queue_files(store)
    assert before == queue_files(store / "replaced-1")


def test_a_replacement_that_was_killed_is_finished_by_the_next_run(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = queue_files(store)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RebuildSwap, "move_all", killed)
        assert INTERRUPTED == rebuild_consume_queue([str(store), "--replace"])
    assert (store / SWAP_JOURNAL).exists()
    assert before == queue_files(store)
    assert 0 == rebuild_consume_queue([str(store), "--discard-old"])
    assert "finished the replacement that an earlier run began" in capsys.readouterr().out
    assert before == queue_files(store)
    assert not {SWAP_JOURNAL, "replaced-1"} & {path.name for path in store.iterdir()}


@pytest.mark.parametrize("moves", range(4))
def test_nothing_is_written_to_a_store_whose_replacement_was_interrupted(
    moves: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store, left = tmp_path / "store", [None] * moves
    make_store(store, [b"%d" % number for number in range(12)])
    rename = RebuildSwap._rename

    def mortal(source: Path, target: Path, file_system: OsFileSystem) -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        rename(source, target, file_system)

    with monkeypatch.context() as patch:
        patch.setattr(RebuildSwap, "_rename", staticmethod(mortal))
        assert INTERRUPTED == rebuild_consume_queue([str(store), "--replace", "--topic", "orders"])
    with pytest.raises(UnsupportedStoreError, match=f"{SWAP_JOURNAL} tells of an interrupted replacement"):
        commit(store, [b"more"])
    assert SWAP_JOURNAL in DefaultMessageStore.dry_run(store).refusal
    capsys.readouterr()
    for command in ("info", "check", "ls"):
        commitlog(command, str(store))
        assert SWAP_JOURNAL in "".join(capsys.readouterr()).replace("\n", "").replace(" ", "")
    assert 0 == rebuild_consume_queue([str(store), "--replace", "--topic", "orders"])
    commit(store, [b"%d" % number for number in range(12)])
    assert 24 == check_queues(store)


def test_the_checkpoint_says_how_far_queues_and_index_go(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = StoreCheckpoint(store, OsFileSystem()).load()
    assert 0 == rebuild_consume_queue([str(store), "--replace", "--with-index", "--release", "5.3"])
    after = StoreCheckpoint(store, OsFileSystem()).load()

    assert after.physic_msg_timestamp <= before.physic_msg_timestamp
    assert after.logics_msg_timestamp >= before.logics_msg_timestamp
    assert before.index_msg_timestamp == after.index_msg_timestamp  # the end of the last full file, as RocketMQ has it
    log, queues, index = map(
        iso_time, (after.physic_msg_timestamp, after.logics_msg_timestamp, after.index_msg_timestamp)
    )
    assert f"checkpoint: log {log}, queues {queues}, index {index}" in capsys.readouterr().out


def test_a_checkpoint_that_a_dead_job_rewound_has_no_time_of_the_log(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = StoreCheckpoint(store, OsFileSystem()).load()
    checkpoint.physic_msg_timestamp = checkpoint.logics_msg_timestamp = REWOUND
    checkpoint.flush()
    checkpoint.close()

    assert 0 == rebuild_consume_queue([str(store), "--replace", "--topic", "orders"])
    assert "checkpoint: log none, queues none, index 2" in capsys.readouterr().out


def test_times_in_the_json_report_are_readable(store: Path) -> None:
    report = rebuilt_queues(store, "--with-index", *SIZES)
    assert 0 == report["exit_code"]
    times = read_messages(store, columns=["store_timestamp", "segment"]).read_all().to_pylist()
    last = {row["segment"]: iso_time(round(row["store_timestamp"].timestamp() * 1000)) for row in times}

    assert list(last.values()) == [segment["last_store_timestamp"] for segment in report["segments"]]
    assert report["index"]["full_timestamp"] in {
        iso_time(round(row["store_timestamp"].timestamp() * 1000)) for row in times
    }


def test_a_dry_run_says_what_would_be_done_and_does_nothing(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(store.rglob("*"))

    assert 0 == rebuild_consume_queue([str(store), "--dry-run", "--replace", "--with-index"])
    assert before == sorted(store.rglob("*"))
    told = capsys.readouterr().out
    assert "queue files of 800 bytes" in told
    assert "index files of 100 slots and 400 entries" in told
    assert "in place of the old files" in told
    assert told.endswith("nothing was changed: this is what would be done without --dry-run\n")


def test_places_that_can_not_be_are_told_with_exit_code_2(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == rebuild_consume_queue([str(tmp_path / "nowhere")])
    capsys.readouterr()
    for below in ("commitlog", "consumequeue", f"commitlog/{0:020d}"):
        assert 2 == rebuild_consume_queue([str(store / below), *SIZES, "--replace"])
        assert capsys.readouterr().err.rstrip().endswith(f"Give {store}")
    assert 2 == rebuild_consume_queue([str(store), "--output", str(store / "consumequeue")])
    assert 2 == rebuild_consume_queue([str(store), "--output", str(store / "index" / "new")])
    assert 2 == rebuild_index([str(store), "--hash-slot-num", "5", "--index-num", "1"])


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """Return a store with three topics in the log, one of them with queues that lack another one's."""
    log = LogBuilder(segment_size=1 << 14)
    for number in range(12):
        log.append(b"x", topic="orders", queue_id=number % 4)
    log.append(b"x", topic="payments", queue_id=7)
    store = log.write(tmp_path / "orders")
    (store / "consumequeue" / "expired" / "0").mkdir(parents=True)
    (store / "config").mkdir()
    (store / "config" / "topics.json").write_text('{"topicConfigTable": {"planned": {"topicName": "planned"}}}')
    return store


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--topic", "ordes"], "'ordes': did you mean 'orders'?"),
        (["--topic", "ORDERS"], "'ORDERS': did you mean 'orders'?"),
        (["--topic", "plannned"], "'plannned': did you mean 'planned'?"),
        (["--topic", "payments", "--topic", "zzz"], "'zzz': the topics are expired, orders, payments, planned"),
        (["--topic", "orders", "--queue-id", "7"], "queue 7 of 'orders' is neither in the log"),
        (["--topic", "orders", "--queue-id", "7"], "the ids are 0, 1, 2, 3"),
        (["--queue-id", "5"], "the ids are 0, 1, 2, 3, 7"),
    ],
)
@pytest.mark.parametrize("mode", [[], ["--replace"], ["--verify"], ["--replace", "--discard-old"], ["--discard-old"]])
def test_what_is_not_in_the_store_is_told_and_nothing_is_written(
    arguments: list[str], says: str, mode: list[str], orders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (orders / "replaced-1" / "consumequeue").mkdir(parents=True)
    before = sorted(path for path in orders.rglob("*") if path.name != "lock")

    assert 2 == rebuild_consume_queue([str(orders), *arguments, *mode])
    assert says in capsys.readouterr().err
    assert before == sorted(path for path in orders.rglob("*") if path.name != "lock")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--topic", "expired"],
        ["--topic", "planned"],
        ["--topic", "planned", "--queue-id", "3"],
        ["--topic", "orders", "--topic", "expired", "--queue-id", "3"],
        ["--queue-id", "7"],
    ],
)
def test_a_topic_without_messages_is_no_error(arguments: list[str], orders: Path) -> None:
    assert 0 == rebuild_consume_queue([str(orders), *arguments])


def test_a_typo_takes_nothing_from_an_earlier_rebuild(orders: Path) -> None:
    assert 0 == rebuild_index([str(orders), *SIZES[2:]])
    built = index_files(orders / "rebuilt")

    assert 2 == rebuild_consume_queue([str(orders), "--topic", "ordes"])
    assert built == index_files(orders / "rebuilt")


def test_a_topic_asked_for_is_known_in_a_log_with_more_queues_than_are_remembered(tmp_path: Path) -> None:
    log = LogBuilder(segment_size=1 << 20)
    for number in range(1100):
        log.append(b"", topic="many", queue_id=number)
    log.append(b"", topic="orders", queue_id=0)
    store = log.write(tmp_path / "store")

    assert 0 == rebuild_consume_queue([str(store), "--topic", "orders", "--topic", "many", "--queue-id", "1"])
    assert 0 == rebuild_consume_queue([str(store), "--topic", "orders", "--queue-id", "0"])
    assert 2 == rebuild_consume_queue([str(store), "--topic", "orders", "--queue-id", "1"])


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--output", "{here}/file"), 2, "{here}/file is not a directory. Give another path"),
        (("--output", "{here}/file/new"), 2, "{here}/file is not a directory. Give another path"),
        (("--output", "{here}/lost/new"), 2, "{here}/lost is not a directory. Give another path"),
        (("--output", "hdfs:/new"), 4, "hdfs://new looks like a URL"),
        (("--output", "/proc/no/such"), 3, "/proc/no: No such file or directory. Check the path"),
        (("--json", "{here}"), 2, "it is a directory: expected a file"),
    ],
)
def test_a_place_that_cannot_be_written_is_named_in_one_sentence(
    options: tuple[str, ...], code: int, words: str, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("precious")
    (tmp_path / "lost").symlink_to(tmp_path / "gone")

    assert code == rebuild_consume_queue([str(store), *(option.format(here=tmp_path) for option in options)])
    (error,) = capsys.readouterr().err.splitlines()
    assert words.format(here=tmp_path) in error
    assert "Errno" not in error
    assert not (store / "rebuilt").exists()


def test_an_output_with_files_of_others_is_refused(store: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("precious")

    assert 4 == rebuild_consume_queue([str(store), "--output", str(tmp_path / "other")])
    assert "precious" == (tmp_path / "other" / "file").read_text()


def test_queues_in_a_rocksdb_are_not_replaced_but_made_elsewhere(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queues = queue_files(store)
    shutil.rmtree(store / "consumequeue")
    database = add_rocksdb(store / "consumequeue")
    files = every_file(database)

    for arguments in (["--replace"], ["--replace", "--dry-run"], ["--replace", "--topic", "T5"]):
        assert 4 == rebuild_consume_queue([str(store), *SIZES, *arguments])
    assert 3 == rebuild_consume_queue([str(store), *SIZES, "--verify"])  # it would be read, but is not whole
    assert f"the RocksDB {database} is damaged" in capsys.readouterr().err
    assert not (store / "rebuilt").exists()
    assert 0 == rebuild_consume_queue([str(store), *SIZES, "--output", str(tmp_path / "new")])
    assert queues == queue_files(tmp_path / "new")
    assert files == every_file(database)


def test_a_rocksdb_among_the_topics_stays_when_single_topics_are_replaced(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_rocksdb(store / "consumequeue")
    topic = next(path for path in sorted((store / "consumequeue").iterdir()) if path.is_dir())
    queues = queue_files(store)
    shutil.rmtree(topic)

    assert 4 == rebuild_consume_queue([str(store), *SIZES, "--replace"])
    assert "--topic" in capsys.readouterr().err
    assert 0 == rebuild_consume_queue([str(store), *SIZES, "--replace", "--topic", topic.name])
    assert queues == queue_files(store)
    assert 0 == rebuild_consume_queue([str(store), *SIZES, "--verify"])


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_too_many_queues_are_refused_also_by_a_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = LogBuilder(segment_size=1 << 14)
    for number in range(30):
        log.append(b"x", topic=f"topic{number}")
    store = log.write(tmp_path / "store")

    assert 4 == rebuild_consume_queue([str(store), "--max-queues", "7", "--spark"])
    assert "too many queues" in capsys.readouterr().err
    assert not (store / "rebuilt" / "consumequeue").exists()


@pytest.mark.parametrize(
    ("what", "more"),
    [("queues", ["--replace"]), ("queues", []), ("index", [])],
)
def test_a_closed_pipe_ends_it_as_it_ends_other_programs(what: str, more: list[str], store: Path) -> None:
    before = every_file(store)
    receives, sends = os.pipe()
    os.close(receives)
    main = "import sys; from store_core.command.main import main; sys.exit(main())"
    program = [sys.executable, "-c", main, "rebuild", what, str(store), *SIZES, *more]
    done = subprocess.run(program, check=False, stdout=sends, stderr=subprocess.PIPE, text=True)  # noqa: S603 -- ours
    os.close(sends)

    assert (NO_READER, "") == (done.returncode, done.stderr)
    assert before == every_file(store)
