# SPDX-License-Identifier: Apache-2.0
"""What opening a store decides and reports, compared with RocketMQ's own recovery, and the checkpoint that it uses."""

from __future__ import annotations

import errno
import json
import mmap
import os
import pickle
import shutil
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

import pytest

from store_core import DefaultMessageStore, RebuildOptions, SegmentLayoutError, rebuild_index
from store_core.answers import check
from store_core.errors import SegmentVanishedError
from store_core.files.file_system import FileSystem, OsFileSystem
from store_core.files.machine import SystemClock
from store_core.files.overlay_file_system import OverlayFileSystem
from store_core.format.record.scan import StopReason
from store_core.format.release import DEFAULT_RELEASE
from store_core.store.recovery.log_recovery import RecoveryDecision, RecoveryReport
from store_core.store.store_state import StoreCheckpoint
from tests.builders import LogBuilder
from tests.golden_stores import UnpackedStore, golden_stores
from tests.store_core.fakes import FakeClock
from tests.store_core.store.damaged_stores import batch_topics_of, config_of, open_damaged
from tests.store_core.store.logs import FILE_SIZE, message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store_core import MessageStoreConfig
    from store_core.files.file_system import OpenFile
    from store_core.store.message_store_config import Release
    from tests.store_core.fakes import FaultyFileSystem


RELEASES: Final[list[Release]] = ["4.3", "4.9", "5.3", "5.3.4", "5.5"]
CONF: Final = {"cl-size": str(FILE_SIZE), "cq-size": "800", "slot-num": "100", "index-num": "400"}
NOT_RECOVERYS: Final = ("abort", "abort.bak", "lock", "config/", "compaction/", "index/", "rocksdbstore/", "timer")
"""RocketMQ's files that recovery does not touch, or whose names are times."""


# ---- RocketMQ's recovery of golden stores


def recovered(store: UnpackedStore) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(store.path.joinpath("recovered.json").read_text(encoding="utf-8"))
    for state in ("afterLoad", "afterStart"):
        queues = answer[state]["queues"]
        answer[state]["queues"] = {name: [q["min"], q["max"], q["maxPhysicOffset"]] for name, q in queues.items()}
        answer[state].pop("committedWhere")
    return answer


def files_of(root: Path, system: FileSystem, path: Path | None = None) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in system.names(path or root):
        each = (path or root) / name
        status = system.status(each)
        assert status is not None
        found |= files_of(root, system, each) if status.is_directory else {str(each.relative_to(root)): status.size}
    return {name: size for name, size in found.items() if not name.startswith(NOT_RECOVERYS)}


@pytest.mark.golden
@pytest.mark.parametrize("name", [store.name for store in golden_stores() if store.scenario != "live"])
def test_golden_store_is_recovered_as_by_rocketmq(golden: Callable[[str], UnpackedStore], name: str) -> None:
    store = golden(name)
    answer, conf = recovered(store), store.conf
    system = OverlayFileSystem(OsFileSystem(), FakeClock())
    config = config_of(conf, store.golden.version)
    opened = open_damaged(store.root, config, batch_topics_of(conf), [], system)

    assert opened.load is answer["load"]
    for ours, theirs in ((opened.after_load, answer["afterLoad"]), (opened.after_start, answer["afterStart"])):
        assert theirs["checkpoint"].pop("indexMsgTimestamp") in opened.index_times
        ours["checkpoint"].pop("indexMsgTimestamp")
        assert theirs == ours
    files = {name: size for name, size in answer["filesAfterRecovery"].items() if not name.startswith(NOT_RECOVERYS)}
    assert files == files_of(store.root, system)
    assert opened.report is not None
    assert opened.report.reput_from_offset == opened.report.max_offset


# ---- what is decided and reported


@pytest.fixture
def closed(tmp_path: Path) -> Callable[[Release], MessageStoreConfig]:
    """Return a function that makes a store of ten messages in four segments, and closes it."""

    def make(release: Release) -> MessageStoreConfig:
        config = replace(config_of(CONF, "5.3.3"), release=release)
        with DefaultMessageStore.open(tmp_path, config) as store:
            for number in range(10):
                store.put_message(message(bytes([number]) * 1000, queue_id=number % 2, keys=["k"]))
        return config

    return make


def decided(report: RecoveryReport) -> list[str]:
    return [decision.what for decision in report.decisions]


def spoil(root: Path, offset: int, data: bytes) -> None:
    segment = sorted(root.joinpath("commitlog").iterdir())[offset // FILE_SIZE]
    with segment.open("r+b") as file:
        file.seek(offset % FILE_SIZE)
        file.write(data)


@pytest.mark.parametrize("release", RELEASES)
def test_a_dry_run_maps_no_file(
    closed: Callable[[Release], MessageStoreConfig],
    tmp_path: Path,
    release: Release,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = closed(release)
    (tmp_path / "abort").touch()
    expected = DefaultMessageStore.dry_run(tmp_path, config, clock=FakeClock())
    monkeypatch.setattr("mmap.mmap", _AnonymousAlone)

    assert expected.max_offset > FILE_SIZE
    assert expected == DefaultMessageStore.dry_run(tmp_path, config, clock=FakeClock())


class _AnonymousAlone(mmap.mmap):
    def __new__(cls, fileno: int, *arguments: int, **options: int) -> Self:
        assert -1 == fileno
        return super().__new__(cls, fileno, *arguments, **options)


@pytest.mark.parametrize("name", ["commitlog", "consumequeue"])
def test_a_file_that_shrinks_while_it_is_read_ends_a_dry_run_with_its_name(
    closed: Callable[[Release], MessageStoreConfig], tmp_path: Path, name: str
) -> None:
    class Shrinking(OsFileSystem):
        def open(self, path: Path, *, create: bool = False, writable: bool = True) -> OpenFile:
            file = super().open(path, create=create, writable=writable)
            if name in path.parts and file.read(8, 0).strip(b"\0"):
                os.truncate(path, 7)
            return file

    config = closed("5.3")
    with pytest.raises(SegmentVanishedError, match=rf"{name}.* bytes when it was .*, and has 7 now"):
        DefaultMessageStore.dry_run(tmp_path, config, file_system=Shrinking())


@pytest.mark.parametrize("release", RELEASES)
def test_torn_record_is_named_with_its_file_and_reason(
    closed: Callable[[Release], MessageStoreConfig], tmp_path: Path, release: Release
) -> None:
    config, at = closed(release), 3 * FILE_SIZE
    spoil(tmp_path, at + 300, b"!")
    report = DefaultMessageStore.dry_run(tmp_path, config)
    ended = next(decision for decision in report.decisions if decision.what.startswith("ended"))

    assert (at, StopReason.BAD_CRC) == (report.max_offset, report.reason)
    assert (f"ended the log at {at}", f"{at:020d}") == (ended.what, ended.where.rsplit("/", 1)[-1])
    assert "the body does not match its checksum: expected body CRC" in str(ended)
    cut = [what for what in decided(report) if "queue" in what]
    assert ["left the queues as they are" if release == "4.3" else "cut 1 queue"] == cut


@pytest.mark.parametrize("last_exit_ok", [True, False])
@pytest.mark.parametrize(
    ("release", "most", "start"),
    [("5.3", 2, 0), ("5.3.4", 2, 0), ("5.4", 2, 2), ("5.4", 10, 0), ("5.4", 0, 0), ("5.5", 2, 2)],
)
def test_from_5_4_on_lost_queues_come_back_from_the_last_files_only(
    closed: Callable[[Release], MessageStoreConfig],
    tmp_path: Path,
    release: Release,
    most: int,
    start: int,
    last_exit_ok: bool,
) -> None:
    config = replace(closed(release), commit_log_recover_max_num=most)
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "checkpoint").unlink()
    if not last_exit_ok:
        (tmp_path / "abort").touch()
    report = DefaultMessageStore.dry_run(tmp_path, config)

    assert 4 == len(list((tmp_path / "commitlog").iterdir()))
    assert start * FILE_SIZE == report.start_offset
    assert bool(start) == any(f"no more than the last {most} files" in each.why for each in report.decisions)


@pytest.mark.parametrize(("flushed", "start"), [(0, 0), (FILE_SIZE, 1), (4 * FILE_SIZE, 3)])
def test_after_a_crash_5_5_starts_where_queues_are_flushed(
    closed: Callable[[Release], MessageStoreConfig], tmp_path: Path, flushed: int, start: int
) -> None:
    config = closed("5.5")
    checkpoint = StoreCheckpoint(tmp_path, OsFileSystem(), "5.5").load()
    checkpoint.logics_physical_offset, checkpoint.logics_msg_timestamp = flushed, 0
    checkpoint.flush()
    checkpoint.close()
    (tmp_path / "abort").touch()

    assert start * FILE_SIZE == DefaultMessageStore.dry_run(tmp_path, config).start_offset


def test_from_5_3_4_on_a_file_whose_first_record_is_not_sound_is_passed_over(
    closed: Callable[[Release], MessageStoreConfig], tmp_path: Path
) -> None:
    starts = {}
    for release in RELEASES:
        config = closed(release)
        spoil(tmp_path, 3 * FILE_SIZE + 300, b"!")
        starts[release] = DefaultMessageStore.dry_run(tmp_path, config).start_offset // FILE_SIZE
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()

    assert {"4.3": 1, "4.9": 1, "5.3": 3, "5.3.4": 2, "5.5": 2} == starts


@pytest.mark.parametrize(
    ("release", "last_exit_ok", "told", "queues"),
    [
        ("4.3", True, ["kept 2 queues"], 5),
        ("4.3", False, ["deleted 2 queues"], 0),
        ("4.9", True, ["deleted 2 queues"], 0),
        ("5.3", True, ["deleted 2 queues"], 0),
        ("5.3", False, ["deleted 2 queues"], 0),
    ],
)
def test_without_a_segment_queues_are_deleted(
    closed: Callable[[Release], MessageStoreConfig],
    tmp_path: Path,
    release: Release,
    last_exit_ok: bool,
    told: list[str],
    queues: int,
) -> None:
    config = closed(release)
    shutil.rmtree(tmp_path / "commitlog")
    if not last_exit_ok:
        (tmp_path / "abort").touch()
    with DefaultMessageStore.open(tmp_path, config, read_only=True) as store:
        assert told == decided(store.recovery_report)[:1]
        assert (0, -1, queues) == (
            store.max_physical_offset,
            store.min_physical_offset,
            store.get_max_offset_in_queue("orders", 0),
        )


@pytest.mark.parametrize(
    ("release", "last_exit_ok", "dispatched", "caught_up"),
    [
        ("4.3", True, 0, False),
        ("4.3", False, 10, False),
        ("4.9", True, 10, True),
        ("4.9", False, 10, False),
        ("5.3", True, 10, False),
        ("5.3", False, 10, False),
    ],
)
def test_queues_that_are_gone_are_rebuilt_by_the_rule_of_the_release(
    closed: Callable[[Release], MessageStoreConfig],
    tmp_path: Path,
    release: Release,
    last_exit_ok: bool,
    dispatched: int,
    caught_up: bool,
) -> None:
    config = closed(release)
    for name in ("consumequeue", "index"):
        shutil.rmtree(tmp_path / name)
    if not last_exit_ok:
        (tmp_path / "abort").touch()
        (tmp_path / "checkpoint").unlink()
    with DefaultMessageStore.open(tmp_path, config) as store:
        report = store.recovery_report
        assert (dispatched, caught_up) == (report.dispatched, report.caught_up > 0)
        assert dispatched // 2 == store.get_max_offset_in_queue("orders", 1)
        assert dispatched == len(store.index_service.query_offset("orders", "k", 64, 0, 2**63 - 1).physical_offsets)


def test_record_that_5_3_leaves_out_is_told(closed: Callable[[Release], MessageStoreConfig], tmp_path: Path) -> None:
    config = closed("5.3")
    for queue_id, kept in ((0, 3), (1, 2)):  # records 0 to 4 are in their queues
        path = tmp_path / "consumequeue" / "orders" / str(queue_id) / f"{0:020d}"
        path.write_bytes(path.read_bytes()[: kept * 20].ljust(800, b"\0"))
    with DefaultMessageStore.open(tmp_path, config, read_only=True) as store:
        report = store.recovery_report

        assert 4 == report.dispatched
        assert f"left out the record at {report.queues_cover}" in decided(report)
        assert [5, 4] == [store.get_max_offset_in_queue("orders", queue_id) for queue_id in range(2)]


@pytest.mark.parametrize("release", RELEASES)
def test_store_that_is_read_only_is_left_as_it_is(
    closed: Callable[[Release], MessageStoreConfig], tmp_path: Path, release: Release
) -> None:
    config = closed(release)
    (tmp_path / "abort").touch()
    (tmp_path / "checkpoint").unlink()  # so that recovery starts at the first file
    spoil(tmp_path, 2 * FILE_SIZE + 300, b"!")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with DefaultMessageStore.open(tmp_path, config, read_only=True) as store:
        assert 2 * FILE_SIZE == store.max_physical_offset
        assert store.recovery_report.changes
        assert 3 == store.get_max_offset_in_queue("orders", 0)

    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_refusal_is_told_and_raised(closed: Callable[[Release], MessageStoreConfig], tmp_path: Path) -> None:
    config = closed("5.3")
    (tmp_path / "commitlog" / "notes.txt").write_bytes(bytes(FILE_SIZE))
    report = DefaultMessageStore.dry_run(tmp_path, config)

    assert report.is_refused
    assert "notes.txt is not named like a segment" in str(report).splitlines()[-1]
    assert () == report.changes
    with pytest.raises(SegmentLayoutError, match=r"notes\.txt"):
        DefaultMessageStore.open(tmp_path, config)


def test_reports_travel_between_processes_and_read_well() -> None:
    decision = RecoveryDecision("ended the log at 12345", "f", "the body does not match its checksum")
    report = RecoveryReport(
        decisions=(decision,), notes=("a note",), min_offset=0, max_offset=12345, files=2, records=7
    )

    assert report == pickle.loads(pickle.dumps(report))  # noqa: S301 -- our own
    assert [
        f"RocketMQ {DEFAULT_RELEASE}: the store was closed",
        "ended the log at 12345 in f: the body does not match its checksum",
        "a note",
        "log 0 to 12345 in 2 files, 7 records checked",
    ] == str(report).splitlines()


@pytest.mark.golden
def test_keys_that_a_recovery_leaves_out_of_the_index_are_told_with_the_command_for_them(
    golden: Callable[[str], UnpackedStore], tmp_path: Path
) -> None:
    source = golden("5.3.3/propcrc")
    root = shutil.copytree(source.root, tmp_path / "store")
    (root / "abort").touch()
    conf = source.conf
    config = replace(config_of(conf, source.golden.version), release="5.5")
    with DefaultMessageStore.open(root, config) as store:
        (told,) = (each for each in store.recovery_report.decisions if each.what.startswith("left keys"))
    begin = int(told.why.partition("--since-offset ")[2].partition(" ")[0])
    before = check(root, release="5.5").counts
    rebuild_index(root, RebuildOptions(since_offset=begin, replace=True, release="5.5"))

    assert before["index_missing"] > 0
    assert {} == check(root, release="5.5").counts


@pytest.mark.golden
@pytest.mark.timeout(60)
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("is_refused", [True, False])
def test_a_dry_run_ends_although_units_of_a_queue_are_swapped(
    release: Release, is_refused: bool, golden: Callable[[str], UnpackedStore], tmp_path: Path
) -> None:
    """Batch queues hold units in the wrong order, and simple ones are gone, or a file is in their place."""
    source = golden("5.3.3/bcq")
    root = shutil.copytree(source.root, tmp_path / "store")
    (root / "abort").touch()
    for path in root.glob("batchconsumequeue/*/*/*"):
        units = path.read_bytes()
        path.write_bytes(units[46:92] + units[:46] + units[92:])
    shutil.rmtree(root / "consumequeue")
    if is_refused:
        (root / "consumequeue").write_bytes(b"no directory")
    conf = source.conf
    config = replace(config_of(conf, source.golden.version), release=release)
    report = DefaultMessageStore.dry_run(root, config, batch_topics=batch_topics_of(conf))

    assert is_refused == report.is_refused
    assert is_refused == ("consumequeue: expected a directory" in report.refusal)


def test_stores_in_memory_do_not_wait_for_a_file_in_the_place_of_a_topic_to_go(tmp_path: Path) -> None:
    class StandingClock(SystemClock):
        def sleep(self, seconds: float) -> None:
            raise AssertionError(seconds)

    log = LogBuilder(segment_size=1 << 14)
    log.append(b"x", topic="orders")
    root = log.write(tmp_path / "store")
    (root / "consumequeue").mkdir()
    (root / "consumequeue" / "orders").write_bytes(b"in the way")
    (root / "abort").touch()

    DefaultMessageStore.dry_run(root, clock=StandingClock())
    DefaultMessageStore.open(root, read_only=True, clock=StandingClock()).close()


NAMES = (
    "physic_msg_timestamp",
    "logics_msg_timestamp",
    "index_msg_timestamp",
    "master_flushed_offset",
    "confirm_physical_offset",
)


def values(checkpoint: StoreCheckpoint) -> tuple[int, ...]:
    return tuple(getattr(checkpoint, name) for name in NAMES)


def filled(root: Path, disk: FaultyFileSystem, release: str = "5.3") -> StoreCheckpoint:
    checkpoint = StoreCheckpoint(root, disk, release)
    for number, name in enumerate(NAMES, 1):
        setattr(checkpoint, name, number << 40)
    return checkpoint


def test_a_checkpoint_that_is_not_there_is_all_zero(tmp_path: Path, disk: FaultyFileSystem) -> None:
    checkpoint = StoreCheckpoint(tmp_path, disk).load()

    assert values(checkpoint) == (0, 0, 0, 0, 0)
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize("release", ["4.3", "4.9"])
def test_release_4_knows_three_fields_and_leaves_the_others(
    tmp_path: Path, disk: FaultyFileSystem, release: str
) -> None:
    filled(tmp_path, disk).flush()
    older = StoreCheckpoint(tmp_path, disk, release).load()
    older.physic_msg_timestamp = 77
    older.flush()

    assert values(older) == (77, 2 << 40, 3 << 40, 0, 0)
    assert values(StoreCheckpoint(tmp_path, disk).load()) == (77, 2 << 40, 3 << 40, 4 << 40, 5 << 40)


@pytest.mark.parametrize("release", ["4.9", "5.3", "5.4"])
def test_only_5_5_knows_up_to_where_queues_are_flushed(tmp_path: Path, disk: FaultyFileSystem, release: str) -> None:
    newest = filled(tmp_path, disk, "5.5")
    newest.logics_physical_offset = 6 << 40
    newest.flush()
    older = StoreCheckpoint(tmp_path, disk, release).load()
    older.physic_msg_timestamp = 77
    older.flush()
    stored = (tmp_path / "checkpoint").read_bytes()

    assert older.logics_physical_offset == 0
    assert stored[40:48] == struct.pack(">q", 6 << 40)
    assert not any(stored[48:])
    assert StoreCheckpoint(tmp_path, disk, "5.5").load().logics_physical_offset == 6 << 40


@pytest.mark.parametrize("size", [0, 1, 7, 8, 39, 40, 100, 5000])
def test_a_file_of_any_size_is_read_as_far_as_it_goes(tmp_path: Path, disk: FaultyFileSystem, size: int) -> None:
    whole = struct.pack(">5q", 1, 2, 3, 4, 5).ljust(5000, b"\xff")
    (tmp_path / "checkpoint").write_bytes(whole[:size])

    padded = whole[:size].ljust(40, b"\0")
    assert values(StoreCheckpoint(tmp_path, disk).load()) == struct.unpack(">5q", padded[:40])


@pytest.mark.parametrize(
    ("physic", "logics", "index", "minimum", "with_index"),
    [
        (0, 0, 0, 0, 0),
        (10_000, 20_000, 5_000, 7_000, 5_000),
        (20_000, 10_000, 9_999, 7_000, 7_000),
        (2_999, 10_000, 10_000, 0, 0),
        (3_001, 3_001, 0, 1, 0),
        (-(2**63), 2**63 - 1, 1, 0, 0),
    ],
)
def test_recovery_goes_back_three_seconds(
    tmp_path: Path, disk: FaultyFileSystem, physic: int, logics: int, index: int, minimum: int, with_index: int
) -> None:
    checkpoint = StoreCheckpoint(tmp_path, disk)
    checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp = physic, logics
    checkpoint.index_msg_timestamp = index

    assert (checkpoint.min_timestamp, checkpoint.min_timestamp_index) == (minimum, with_index)


def test_a_flush_syncs_the_file_and_the_first_time_its_directory(tmp_path: Path, disk: FaultyFileSystem) -> None:
    checkpoint = filled(tmp_path, disk)
    checkpoint.flush()
    checkpoint.flush()
    steps = [call for call, _ in disk.calls if call in {"write", "sync", "sync_directory"}]

    assert steps == ["write", "sync", "sync_directory", "write", "sync"]


@pytest.mark.parametrize("operation", ["open", "grow", "write", "sync", "sync_directory"])
def test_a_flush_that_failed_is_tried_anew(tmp_path: Path, disk: FaultyFileSystem, operation: str) -> None:
    checkpoint = filled(tmp_path, disk)
    disk.fail(operation, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        checkpoint.flush()
    checkpoint.flush()
    checkpoint.close()

    assert values(StoreCheckpoint(tmp_path, disk).load()) == values(checkpoint)


@pytest.mark.golden
def test_real_checkpoints_are_read_and_written_back_as_they_were(
    golden_store: UnpackedStore, tmp_path: Path, disk: FaultyFileSystem
) -> None:
    stored = (golden_store.root / "checkpoint").read_bytes()
    checkpoint = StoreCheckpoint(golden_store.root, disk, golden_store.golden.release).load()
    checkpoint.path = tmp_path / "checkpoint"
    checkpoint.flush()

    assert (tmp_path / "checkpoint").read_bytes() == stored
