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
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import pytest

from store_core import DefaultMessageStore, RebuildOptions, SegmentLayoutError, rebuild_index
from store_core.answers import check
from store_core.errors import SegmentVanishedError
from store_core.files.file_system import FileSystem, OsFileSystem
from store_core.files.machine import SystemClock
from store_core.files.overlay_file_system import OverlayFileSystem
from store_core.format.record.scan import StopReason
from store_core.format.release import DEFAULT_RELEASE
from store_core.format.words import counted
from store_core.store.recovery.log_recovery import RecoveryDecision, RecoveryReport
from store_core.store.store_state import StoreCheckpoint
from tests.builders import LogBuilder
from tests.golden_stores import Golden, UnpackedStore, golden_stores
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
def test_golden_store_is_recovered_as_by_rocketmq(golden: Golden, name: str) -> None:
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


Closed: TypeAlias = "Callable[[Release], MessageStoreConfig]"
"""Makes a store of ten messages in four segments, and closes it."""


@pytest.fixture
def closed(tmp_path: Path) -> Closed:
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
    closed: Closed, tmp_path: Path, release: Release, monkeypatch: pytest.MonkeyPatch
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
    closed: Closed, tmp_path: Path, name: str
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
def test_torn_record_is_named_with_its_file_and_reason(closed: Closed, tmp_path: Path, release: Release) -> None:
    config, at = closed(release), 3 * FILE_SIZE
    spoil(tmp_path, at + 300, b"!")
    report = DefaultMessageStore.dry_run(tmp_path, config)
    ended = next(decision for decision in report.decisions if decision.what.startswith("ended"))

    assert (at, StopReason.BAD_CRC) == (report.max_offset, report.reason)
    assert (f"ended the log at {at}", f"{at:020d}") == (ended.what, ended.where.rsplit("/", 1)[-1])
    assert "the body does not match its checksum: expected body CRC" in str(ended)
    cut = [what for what in decided(report) if "queue" in what]
    assert ["left the queues as they are" if release == "4.3" else "cut 1 queue"] == cut


@pytest.mark.parametrize(("release", "start", "records"), [("4.3", 1, 7), ("4.9", 1, 7), ("5.3", 3, 1)])
def test_report_tells_what_was_found(
    closed: Closed, tmp_path: Path, release: Release, start: int, records: int
) -> None:
    with DefaultMessageStore.open(tmp_path, closed(release)) as store:
        report, end = store.recovery_report, store.max_physical_offset

    assert (True, 4, 0, end) == (report.last_exit_ok, report.files, report.min_offset, report.max_offset)
    assert (start * FILE_SIZE, records) == (report.start_offset, report.records)
    assert (StopReason.UNWRITTEN, 0, ()) == (report.reason, report.truncated_files, report.notes)
    assert (end, 0, 0) == (report.reput_from_offset, report.dispatched, report.refused_units)
    assert [f"checked the log from {start * FILE_SIZE} on"] == decided(report)
    assert f"log 0 to {end} in 4 files, {counted(records, 'record')} checked" in str(report)


@pytest.mark.parametrize(("release", "at"), [("4.3", 0), ("4.9", 0), ("5.3", 0), ("5.3", 1), ("5.3", 2)])
def test_damage_before_the_file_where_the_check_starts_is_not_seen(
    closed: Closed, tmp_path: Path, release: Release, at: int
) -> None:
    config = closed(release)
    spoil(tmp_path, at * FILE_SIZE + 300, b"!")
    report = DefaultMessageStore.dry_run(tmp_path, config)

    assert report.max_offset > 3 * FILE_SIZE
    assert at * FILE_SIZE < report.start_offset


def test_bad_bodies_are_passed_over_if_configured(closed: Closed, tmp_path: Path) -> None:
    config = replace(closed("4.9"), check_crc_on_recover=False)
    spoil(tmp_path, FILE_SIZE + 300, b"!")
    report = DefaultMessageStore.dry_run(tmp_path, config)

    assert (4, 7) == (report.files, report.records)


def test_stale_records_behind_the_end_do_not_come_back(closed: Closed, tmp_path: Path) -> None:
    config, found = closed("4.9"), []
    spoil(tmp_path, FILE_SIZE + 1500, b"!")  # in the second of its three records
    for _ in range(2):
        with DefaultMessageStore.open(tmp_path, config) as store:
            found.append((store.recovery_report.records, store.recovery_report.truncated_files))
            store.put_message(message(b"x" * 1000, keys=["k"]))

    assert [(1, 2), (5, 0)] == found  # then with the first segment, and with the record that was put


@pytest.mark.parametrize("last_exit_ok", [True, False])
@pytest.mark.parametrize(
    ("release", "most", "start"),
    [("5.3", 2, 0), ("5.3.4", 2, 0), ("5.4", 2, 2), ("5.4", 10, 0), ("5.4", 0, 0), ("5.5", 2, 2)],
)
def test_from_5_4_on_lost_queues_come_back_from_the_last_files_only(
    closed: Closed, tmp_path: Path, release: Release, most: int, start: int, last_exit_ok: bool
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
    closed: Closed, tmp_path: Path, flushed: int, start: int
) -> None:
    config = closed("5.5")
    checkpoint = StoreCheckpoint(tmp_path, OsFileSystem(), "5.5").load()
    checkpoint.logics_physical_offset, checkpoint.logics_msg_timestamp = flushed, 0
    checkpoint.flush()
    checkpoint.close()
    (tmp_path / "abort").touch()

    assert start * FILE_SIZE == DefaultMessageStore.dry_run(tmp_path, config).start_offset


def test_from_5_3_4_on_a_file_whose_first_record_is_not_sound_is_passed_over(closed: Closed, tmp_path: Path) -> None:
    starts = {}
    for release in RELEASES:
        config = closed(release)
        spoil(tmp_path, 3 * FILE_SIZE + 300, b"!")
        starts[release] = DefaultMessageStore.dry_run(tmp_path, config).start_offset // FILE_SIZE
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()

    assert {"4.3": 1, "4.9": 1, "5.3": 3, "5.3.4": 2, "5.5": 2} == starts


@pytest.mark.parametrize(
    ("release", "told", "left"), [("4.3", "kept", 5), ("4.9", "deleted", 0), ("5.3", "deleted", 0)]
)
def test_after_a_clean_exit_4_3_alone_keeps_queues_without_a_segment(
    closed: Closed, tmp_path: Path, release: Release, told: str, left: int
) -> None:
    config = closed(release)
    shutil.rmtree(tmp_path / "commitlog")
    with DefaultMessageStore.open(tmp_path, config, read_only=True) as store:
        assert [f"{told} 2 queues"] == decided(store.recovery_report)[:1]
        assert (0, -1) == (store.max_physical_offset, store.min_physical_offset)
        assert left == store.get_max_offset_in_queue("orders", 0)


def test_what_4_9_dispatches_before_it_is_up_is_told(closed: Closed, tmp_path: Path) -> None:
    config = closed("4.9")
    shutil.rmtree(tmp_path / "consumequeue")
    report = DefaultMessageStore.dry_run(tmp_path, config)

    assert (10, report.max_offset) == (report.dispatched, report.caught_up)
    assert f"dispatched 10 records from 0 to {report.max_offset}" in decided(report)


def test_record_that_5_3_leaves_out_is_told(closed: Closed, tmp_path: Path) -> None:
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
def test_store_that_is_read_only_is_left_as_it_is(closed: Closed, tmp_path: Path, release: Release) -> None:
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


def test_refusal_is_told_and_raised(closed: Closed, tmp_path: Path) -> None:
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
    golden: Golden, tmp_path: Path
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
    release: Release, is_refused: bool, golden: Golden, tmp_path: Path
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
    "logics_physical_offset",
)


def values(checkpoint: StoreCheckpoint) -> tuple[int, ...]:
    return tuple(getattr(checkpoint, name) for name in NAMES)


def filled(root: Path, disk: FaultyFileSystem) -> StoreCheckpoint:
    checkpoint = StoreCheckpoint(root, disk, "5.5")
    for number, name in enumerate(NAMES, 1):
        setattr(checkpoint, name, number << 40)
    return checkpoint


def test_a_checkpoint_that_is_not_there_is_all_zero(tmp_path: Path, disk: FaultyFileSystem) -> None:
    checkpoint = StoreCheckpoint(tmp_path, disk).load()

    assert values(checkpoint) == (0,) * 6
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize(("release", "known"), [("4.3", 3), ("4.9", 3), ("5.3", 5), ("5.4", 5), ("5.5", 6)])
def test_a_release_knows_its_fields_and_leaves_the_others(
    tmp_path: Path, disk: FaultyFileSystem, release: str, known: int
) -> None:
    every = [number << 40 for number in range(1, 7)]
    filled(tmp_path, disk).flush()
    stored = (tmp_path / "checkpoint").read_bytes()
    older = StoreCheckpoint(tmp_path, disk, release).load()
    assert [*every[:known], *[0] * (6 - known)] == list(values(older))
    older.physic_msg_timestamp = 77
    older.flush()

    assert struct.pack(">6q", *every).ljust(4096, b"\0") == stored
    assert [77, *every[1:]] == list(values(StoreCheckpoint(tmp_path, disk, "5.5").load()))


@pytest.mark.parametrize("size", [0, 1, 7, 8, 39, 40, 47, 48, 100, 5000])
def test_a_file_of_any_size_is_read_as_far_as_it_goes(tmp_path: Path, disk: FaultyFileSystem, size: int) -> None:
    whole = struct.pack(">6q", 1, 2, 3, 4, 5, 6).ljust(5000, b"\xff")
    (tmp_path / "checkpoint").write_bytes(whole[:size])

    padded = whole[:size].ljust(48, b"\0")
    assert values(StoreCheckpoint(tmp_path, disk, "5.5").load()) == struct.unpack(">6q", padded[:48])


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

    assert values(StoreCheckpoint(tmp_path, disk, "5.5").load()) == values(checkpoint)


@pytest.mark.golden
def test_real_checkpoints_are_read_and_written_back_as_they_were(
    golden_store: UnpackedStore, tmp_path: Path, disk: FaultyFileSystem
) -> None:
    stored = (golden_store.root / "checkpoint").read_bytes()
    checkpoint = StoreCheckpoint(golden_store.root, disk, golden_store.golden.release).load()
    checkpoint.path = tmp_path / "checkpoint"
    checkpoint.flush()

    assert (tmp_path / "checkpoint").read_bytes() == stored
