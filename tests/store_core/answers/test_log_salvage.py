# SPDX-License-Identifier: Apache-2.0
"""What proves itself is salvaged, nothing is invented, and every byte of the log is accounted for."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import DefaultMessageStore, InvalidOptionError, MessageStoreConfig, read_messages
from store_core.answers import SalvageReport, check, recover, salvage
from store_core.answers.report import Verdict
from store_core.files.file_system import OsFileSystem
from store_core.files.store_lock import StoreLock
from store_core.format.record.scan import check_record
from store_core.store import new_directory
from tests.budgets import budget
from tests.builders import BODY_AT, SIZE_AT, LogBuilder, blank_record
from tests.store_core.files.store_kinds import every_file
from tests.store_core.store.damaged_stores import damaged_archives, unpack_damaged

if TYPE_CHECKING:
    from pathlib import Path

    from tests.golden_stores import Golden

GOLDEN = ["4.3.0/basic", "4.9.7/ipv6", "5.3.3/aged", "5.3.3/bcq", "5.3.3/propcrc", "5.3.3/v2topic"]
TORN = ["4.3.0/torn-garble", "4.9.7/torn-zero", "5.3.3/torn-garble", "5.3.3/torn-header"]
NAMES = {"garble-size-a", "fz0095", "gap-n", "poison-behind-a", "hole-before-cqmax-n", "v2rec-a", "g-lmq-nocq-a"}
NAMES |= {"cut-mid-a", "exact-prealloc-a", "bodylen-neg-n", "aged-zerotail-n", "fz0031", "fz0059", "blank-neg-size-n"}
SLICE = [archive for archive in damaged_archives() if archive.name.removesuffix(".tar.xz") in NAMES]
KEPT = [
    "topic",
    "queue_id",
    "queue_offset",
    "store_timestamp",
    "born_host",
    "properties",
    "body",
    "sys_flag",
    "store_size",
]


def log_of(count: int = 60, size: int = 4096) -> LogBuilder:
    log = LogBuilder(size)
    for number in range(count):
        log.append(b"body %d " % number * 4, topic=f"t{number % 3}", properties={"KEYS": f"k{number}"})
    return log


def damaged(directory: Path) -> Path:
    """Write a log with a wrong body, a wrong size and a hole of zeros."""
    log = log_of()
    log.flip(log.records[10].physical_offset + BODY_AT)
    log.patch(log.records[30].physical_offset + SIZE_AT, b"\x7f\xff\xff\xff")
    log.patch(log.records[40].physical_offset, bytes(log.records[40].size))
    return log.write(directory / "damaged", preallocated=1)


def assert_tiles(report: SalvageReport) -> None:
    """Check that the ranges are the whole log, without a gap and without an overlap."""
    ranges = report.tables["ranges"].to_pylist()
    bounds = [report.found.begin, *(row["end"] for row in ranges)]

    assert bounds[:-1] == [row["begin"] for row in ranges]
    assert report.found.end == bounds[-1]
    assert all(begin < end for begin, end in pairwise(bounds))
    assert report.found.records == sum(row["records"] for row in ranges)


def read_ranges(store: Path) -> tuple[list[int], int]:
    """Return offsets of the rows, and bytes of the damage, that a reader has."""
    kept = read_messages(store, columns=["physical_offset", "body", "topic"], mode="DROPMALFORMED").read_all()
    columns = ["body", "topic", "_corrupt_record"]
    lost = read_messages(store, columns=columns, mode="PERMISSIVE").read_all()["_corrupt_record"].to_pylist()
    return kept["physical_offset"].to_pylist(), sum(len(piece) for piece in lost if piece is not None)


def offsets_in(path: Path) -> list[int]:
    """Return the offsets of rows; Python has not all times that other columns have."""
    offsets: list[int] = pq.read_table(path)["physical_offset"].to_pylist()
    return offsets


# ---- as RocketMQ and as the reader


@pytest.mark.golden
@pytest.mark.parametrize("release", ["4.3", "4.9", "5.3", "5.5"])
def test_a_message_that_a_broker_refuses_is_kept_and_its_new_store_says_so(tmp_path: Path, release: str) -> None:
    log = log_of(20)
    log.append(b"due", topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "x"})
    log.append(b"last")
    refused, last = log.records[-2:]

    report = salvage(log.write(tmp_path / "store"), into=tmp_path / "new")
    checked = check(tmp_path / "new", release=release)
    recovered = recover(tmp_path / "new", release=[release])

    assert (len(log.records), 0) == (report.found.records, report.found.lost_ranges)
    assert b"due" in read_messages(tmp_path / "new").read_all()["body"].to_pylist()
    assert [("log_damage", refused.physical_offset)] == [
        (row["kind"], row["begin"]) for row in checked.tables["findings"].to_pylist()
    ]
    cut_off = recovered.tables["messages"].to_pylist()
    assert [refused.physical_offset, last.physical_offset] == [row["physical_offset"] for row in cut_off]


@pytest.mark.parametrize("name", [*GOLDEN, *TORN])
def test_all_is_salvaged_that_rocketmq_keeps(name: str, golden: Golden, tmp_path: Path) -> None:
    store = golden(name)
    report = salvage(store.root, tmp_path / "rows", "parquet")
    found = report.found

    assert [row["physical_offset"] for row in store.expected()] == offsets_in(tmp_path / "rows")
    assert_tiles(report)
    assert all(row["reason"] for row in report.to_json()["tables"]["lost"])
    if name in GOLDEN:
        assert Verdict.CLEAN is report.verdict
        assert (0, 0, 0, 0) == (
            found.covered_records, found.lost_bytes, found.missing_bytes, found.mismatched_property_crc
        )  # fmt: skip


@given(st.data())
@budget(0.6)
def test_salvage_has_the_rows_and_the_damage_that_a_reader_has(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    log = log_of(data.draw(st.integers(1, 40)), data.draw(st.sampled_from([1024, 2048])))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, log.end - 1))
        size = data.draw(st.integers(1, min(150, log.end - at)))
        if data.draw(st.booleans()):
            log.flip(at, size)
        else:
            log.patch(at, bytes(size))
    root = log.write(tmp_path_factory.mktemp("logs") / "store", preallocated=data.draw(st.integers(0, 1)))
    (root / "lock").touch()
    target = root.parent / "rows"
    report = salvage(root, target, "parquet")
    offsets, damage = read_ranges(root)

    assert offsets == offsets_in(target)
    assert damage == report.found.lost_bytes
    assert_tiles(report)


def test_lost_ranges_are_exact_and_say_why(tmp_path: Path) -> None:
    records = log_of().records
    lost = salvage(damaged(tmp_path)).tables["lost"].select(["begin", "end", "reason"]).to_pylist()
    reasons = {
        10: "bad body CRC",
        30: "the record runs past the end of the file",
        40: "zeros: nothing has been written here yet",
    }

    assert [(records[at].physical_offset, records[at].end, reason) for at, reason in reasons.items()] == [
        (row["begin"], row["end"], row["reason"]) for row in lost
    ]


def test_a_segment_that_is_not_there_is_missing(tmp_path: Path) -> None:
    store = log_of(90).write(tmp_path / "store")
    sorted((store / "commitlog").iterdir())[1].unlink()
    report = salvage(store)

    assert 4096 == report.found.missing_bytes
    assert Verdict.DAMAGED is report.verdict
    assert_tiles(report)


def test_records_that_a_blank_record_covers_are_counted(tmp_path: Path) -> None:
    log = log_of()
    at = log.records[10].physical_offset
    log.patch(at, blank_record(4096 - at)[:8])
    report = salvage(log.write(tmp_path / "store"))
    covered = [record for record in log.records if at < record.physical_offset < 4096]

    assert len(covered) == report.found.covered_records
    assert Verdict.DAMAGED is report.verdict
    log.patch(at, bytes(8))
    assert 59 == salvage(log.write(tmp_path / "store")).found.records


@pytest.mark.parametrize("records", [7, 6])
def test_zeros_in_place_of_a_blank_record_are_lost_only_if_a_record_fits(records: int, tmp_path: Path) -> None:
    log = log_of(29, 1024)
    at = log.records[21 + records].physical_offset if records < 7 else log.records[27].end
    log.patch(at, bytes(4096 - at))
    report = salvage(log.write(tmp_path / "store"))

    assert report.found.lost_bytes == (4096 - at if records < 7 else 0)
    assert 29 - (7 - records) == report.found.records
    assert report.verdict is (Verdict.DAMAGED if records < 7 else Verdict.CLEAN)
    assert_tiles(report)


def test_older_records_after_the_end_are_not_salvaged(tmp_path: Path) -> None:
    log = log_of()
    behind = log.truncate(log.records[55].physical_offset)
    log.append(b"new" * 9)
    log.append_raw(bytes(7) + behind[len(log.records[-1].encode()) + 7 :])
    report = salvage(log.write(tmp_path / "store"))

    assert 56 == report.found.records
    assert "stale" in report.tables["ranges"]["kind"].to_pylist()
    assert_tiles(report)


def test_what_a_broker_may_be_writing_is_not_lost(tmp_path: Path) -> None:
    log = log_of(10)
    log.append_raw(log_of(11).records[10].encode()[:70])
    live = log.write(tmp_path / "live")
    lock = StoreLock(live, OsFileSystem()).acquire()
    try:
        report = salvage(live)
    finally:
        lock.release()

    assert (10, 0) == (report.found.records, report.found.lost_bytes)
    assert "in progress" in report.tables["ranges"]["kind"].to_pylist()
    assert 1 == salvage(live).found.lost_ranges


@pytest.mark.golden
@pytest.mark.parametrize("archive", SLICE, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_of_a_damaged_store_the_records_are_salvaged_that_rocketmq_serves(archive: Path, tmp_path: Path) -> None:
    path = unpack_damaged(archive, tmp_path)
    (path / "store" / "lock").touch()
    report = salvage(path / "store", tmp_path / "rows", "parquet")
    offsets = offsets_in(tmp_path / "rows")

    assert (offsets, report.found.lost_bytes) == read_ranges(path / "store")
    assert set() == sound_units(path) - set(offsets)
    assert_tiles(report)


def sound_units(path: Path) -> set[int]:
    """Return where sound records are that RocketMQ's queues point to after it has recovered the store."""
    segments = {int(each.name): each.read_bytes() for each in (path / "store" / "commitlog").iterdir()}
    answers = json.loads((path / "expected.json").read_text()).values()
    queues = [units for answer in answers for units in answer.get("units", {}).values()]
    return {offset for units in queues for _, offset, *_ in units if is_sound(segments, offset)}


def is_sound(segments: dict[int, bytes], offset: int) -> bool:
    """Return whether a record is at an offset, by the definition of one."""
    start = max((each for each in segments if each <= offset < each + len(segments[each])), default=None)
    if start is None:
        return False
    return check_record(memoryview(segments[start]), offset - start, start, verify_crc=True).reason is None


# ---- into a store


@pytest.mark.golden
@pytest.mark.parametrize("name", [*GOLDEN, *TORN])
def test_a_new_store_has_the_same_messages(name: str, golden: Golden, tmp_path: Path) -> None:
    store = golden(name).root
    salvage(store, tmp_path / "new")
    before, after = (messages_of(root) for root in (store, tmp_path / "new"))
    again = salvage(tmp_path / "new")

    assert before == after
    assert {"commitlog"} == {path.name for path in (tmp_path / "new").iterdir()}
    assert Verdict.CLEAN is again.verdict
    assert 0 == again.found.mismatched_property_crc
    assert sizes_of(store) >= sizes_of(tmp_path / "new")


def messages_of(store: Path) -> list[dict[str, Any]]:
    """Return the messages, without the checksum over the record, which covers its place."""
    rows: list[dict[str, Any]] = read_messages(store, columns=KEPT, mode="DROPMALFORMED").read_all().to_pylist()
    return [row | {"properties": [item for item in row["properties"] if item[0] != "__CRC32#"]} for row in rows]


def sizes_of(store: Path) -> set[int]:
    return {segment.stat().st_size for segment in (store / "commitlog").iterdir()}


def test_a_new_store_opens_and_serves_what_was_salvaged(tmp_path: Path) -> None:
    source = damaged(tmp_path)
    before = every_file(source)
    salvage(source, tmp_path / "new")
    with DefaultMessageStore.open(tmp_path / "new", MessageStoreConfig(mapped_file_size_commit_log=4096)) as store:
        got = store.get_message("group", "t0", 0, 0, 32)

    assert before == every_file(source)
    assert got is not None
    kept = [record.body for at, record in enumerate(log_of().records) if not at % 3 and at not in {10, 30, 40}]
    assert kept[:32] == [message.body for message in got.messages]


# ---- all or nothing


@pytest.mark.parametrize("kind", ["store", "parquet"])
def test_a_failure_leaves_nothing(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = damaged(tmp_path)

    def fail(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(new_directory, "sync_files", fail)
    with pytest.raises(OSError, match="No space left"):
        salvage(store, tmp_path / "new", kind)

    assert [store] == list(tmp_path.iterdir())


def test_targets_that_would_harm_are_refused(tmp_path: Path) -> None:
    store = damaged(tmp_path)
    (tmp_path / "there" / "file").mkdir(parents=True)
    for target in (store, store / "new", store / "commitlog" / "new", tmp_path / "there", tmp_path / "no" / "new"):
        with pytest.raises(InvalidOptionError, match="into"):
            salvage(store, target)
    with pytest.raises(InvalidOptionError, match="kind"):
        salvage(store, tmp_path / "new", "orc")

    assert {"damaged", "there"} == {path.name for path in tmp_path.iterdir()}
