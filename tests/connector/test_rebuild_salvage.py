# SPDX-License-Identifier: Apache-2.0
"""Rebuilds that continue after damage: what they recover, what they report as lost, and that offsets stay correct."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pyspark_commitlog.answers import SparkEngine
from store_core import read_messages
from store_core.queue.consume_queue_unit import UNIT_DTYPE
from store_core.queue.queue_path import QueueRules
from store_core.snapshot.index import Index
from store_core.store.rebuild.index_files import IndexComparison
from store_core.store.rebuild.job import rebuild_by
from store_core.store.rebuild.plan import RebuildRules
from store_core.store.rebuild.queue_compare import LogBounds
from tests.budgets import budget
from tests.builders import BODY_AT, MAGIC_AT, LogBuilder
from tests.connector.called import differing, log_of, rebuild_here, rebuilt_queues
from tests.store_core.rebuilt import index_files, queue_files

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from store_core.store.rebuild.report import RebuildReport
    from tests.golden_stores import Golden

SIZES = QueueRules(consume_queue_file_size=200, max_hash_slot_num=10, max_index_num=25)
RULES = RebuildRules(SIZES, has_index=True, is_salvaged=True)
BAD_MAGIC = b"\xff\xff\xff\xff"


def units_of(root: Path, topic: str, queue_id: int = 0) -> dict[int, tuple[int, int, int]]:
    """Return the units of a queue by their queue offset."""
    found: dict[int, tuple[int, int, int]] = {}
    for path in sorted((root / "consumequeue" / topic / str(queue_id)).iterdir()):
        for number, unit in enumerate(np.fromfile(path, UNIT_DTYPE).tolist()):
            if unit[1]:
                found[int(path.name) // 20 + number] = unit
    return found


def rows_of(store: Path) -> list[dict[str, Any]]:
    """Read a log as DROPMALFORMED does, without looking at bodies."""
    columns = "topic,queue_id,queue_offset,physical_offset,store_size,sys_flag,unique_key,keys,tags"
    table = read_messages(str(store), mode="DROPMALFORMED", columns=columns, verify_crc=False).read_all()
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def records_of(rows: list[dict[str, Any]]) -> dict[tuple[str, int], dict[int, tuple[int, int]]]:
    """Return position and length of the records that have a unit, by queue and queue offset."""
    found: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}
    for row in rows:
        if row["sys_flag"] & 12 in (0, 8):
            queue = found.setdefault((row["topic"], row["queue_id"]), {})
            queue[row["queue_offset"]] = (row["physical_offset"], row["store_size"])
    return found


def assert_is_salvaged(report: RebuildReport, store: Path, root: Path) -> None:
    """Check that queues and index are those of the records that are read, and what fills the gaps."""
    rows = rows_of(store)
    expected = records_of(rows)
    assert report.records == len(rows)
    assert set(expected) == {(queue.topic, queue.queue_id) for queue in report.queues}
    for queue in report.queues:
        units, records = units_of(root, queue.topic), expected[queue.topic, queue.queue_id]
        listed = {offset for each in queue.missing for offset in range(each.first, each.last + 1)}
        assert records == {offset: unit[:2] for offset, unit in units.items() if offset in records}
        assert max(records) + 1 == queue.max_offset
        assert listed.isdisjoint(records)
        assert listed | set(range(min(records))) | set(records) == set(range(queue.max_offset))
        assert not queue.gap_count
    keys = {
        row["physical_offset"]: (row["unique_key"] is not None) + len(row["keys"] or ()) + bool(row["tags"])
        for row in rows
    }
    assert +Counter(keys) == indexed(root)


def indexed(root: Path) -> Counter[int]:
    """Count the entries of the index by physical offset."""
    compared = IndexComparison(Index(root).loaded(SIZES), SIZES, 0, 1 << 31)
    return Counter(number >> 31 for part in compared._stored(1 << 31) for number in part.tolist())


# ---- what is recovered


def test_records_after_damage_keep_their_queue_offsets(tmp_path: Path) -> None:
    log = log_of(90)
    lost = log.records[40]
    log.patch(lost.physical_offset + MAGIC_AT, BAD_MAGIC)
    store = log.write(tmp_path / "store")
    report = rebuild_here(store, tmp_path / "found", RULES)
    (queue,) = (each for each in report.queues if each.topic == "topic1")

    assert_is_salvaged(report, store, tmp_path / "found")
    assert 89 == report.records
    assert [(13, 13, "repeated")] == [tuple(each) for each in queue.missing]
    assert units_of(tmp_path / "found", "topic1")[12] == units_of(tmp_path / "found", "topic1")[13]
    (outcome,) = (outcome for outcome in report.outcomes if outcome.lost)
    (found,) = outcome.lost
    assert (lost.physical_offset, lost.end) == (found.begin, found.end)
    assert "magic code" in found.reason
    assert report.is_damaged


def test_a_lost_segment_is_bridged_by_units_that_nothing_can_read(tmp_path: Path) -> None:
    store = log_of(120).write(tmp_path / "store")
    gone = sorted((store / "commitlog").iterdir())[1]
    gone.unlink()
    report = rebuild_here(store, tmp_path / "found", RULES)
    border = int(gone.name) + 4096

    assert_is_salvaged(report, store, tmp_path / "found")
    assert {"skipped"} == {each.stand_in for queue in report.queues for each in queue.missing}
    stand_ins = {
        units_of(tmp_path / "found", queue.topic)[offset]
        for queue in report.queues
        for each in queue.missing
        for offset in range(each.first, each.last + 1)
    }
    assert {(border - 1, 2, 0)} == stand_ins


def test_what_is_lost_below_a_queues_first_record_is_listed(tmp_path: Path) -> None:
    log = log_of(30)
    for record in log.records[:6]:
        log.patch(record.physical_offset + MAGIC_AT, BAD_MAGIC)
    store = log.write(tmp_path / "store")
    report = rebuild_here(store, tmp_path / "found", RULES)

    assert_is_salvaged(report, store, tmp_path / "found")
    assert {(0, 1, "below")} == {tuple(each) for queue in report.queues for each in queue.missing}
    assert {2} == {queue.min_offset for queue in report.queues}


def test_without_salvage_the_log_ends_at_damage_and_the_report_says_what_follows(tmp_path: Path) -> None:
    log = log_of(120)
    record = log.records[10]
    log.patch(record.physical_offset + MAGIC_AT, BAD_MAGIC)
    store = log.write(tmp_path / "store")
    report = rebuild_here(store, tmp_path / "found", replace(RULES, is_salvaged=False))
    lost = [(each.begin, each.end) for outcome in report.outcomes for each in outcome.lost]

    assert 10 == report.records
    assert record.physical_offset == report.read_end_offset
    assert [(record.physical_offset, record.end)] == lost
    assert 109 == report.left_out
    assert not report.missing_count


damages = st.lists(
    st.tuples(st.integers(0, 2**20), st.sampled_from([1, 4, 30, 200, 2500]), st.integers(0, 255)), max_size=4
)


@budget(0.25)
@given(damages, st.integers(0, 2), st.booleans())
def test_queues_and_index_are_those_of_the_records_that_a_read_gives(
    tmp_path_factory: pytest.TempPathFactory, places: list[tuple[int, int, int]], gone: int, is_cut: bool
) -> None:
    tmp_path = tmp_path_factory.mktemp("salvage")
    log = log_of(80, start_offset=8192 * is_cut)
    for place, size, byte in places:
        begin = place % (log.end - log.start_offset - size)
        log.patch(log.start_offset + begin, bytes([byte]) * size)
    store = log.write(tmp_path / "store")
    for path in sorted((store / "commitlog").iterdir())[1 : 1 + gone]:
        path.unlink()
    assume(is_still_a_log(store))
    report = rebuild_here(store, tmp_path / "found", RULES)

    assert_is_salvaged(report, store, tmp_path / "found")
    for kind in ("consumequeue", "index"):
        shutil.copytree(tmp_path / "found" / kind, store / kind)
    compared = rebuild_here(store, tmp_path / "none", RULES, LogBounds(0))

    assert ({}, (0, 0)) == (differing(compared), compared.index_differences[:2])


def is_still_a_log(store: Path) -> bool:
    """Return whether damage left the name, id and offset of each whole record unchanged."""
    rows = rows_of(store)
    found = records_of(rows)
    sound = read_messages(str(store), mode="DROPMALFORMED", columns=["physical_offset"]).read_all().num_rows
    columns = [[records[offset][0] for offset in sorted(records)] for records in found.values()]
    is_known = all(name in {("topic0", 0), ("topic1", 0), ("topic2", 0)} for name in found)
    is_small = all(max(records) < 40 and min(records) >= 0 for records in found.values())
    is_text = sound == len(rows)  # a broker accepts a name that is not UTF-8, too
    is_once = sum(map(len, columns)) == sum(row["sys_flag"] & 12 in (0, 8) for row in rows)
    is_sorted = all(column == sorted(column) for column in columns)
    return bool(found) and is_known and is_text and is_small and is_once and is_sorted


def test_bodies_are_looked_at_only_if_that_is_asked_for(tmp_path: Path) -> None:
    log = log_of(60, segment_size=1 << 14)
    log.flip(log.records[32].physical_offset + BODY_AT)
    store = log.write(tmp_path / "store")
    plain = rebuild_here(store, tmp_path / "plain", RULES)
    checked = rebuild_here(store, tmp_path / "checked", replace(RULES, check_crc=True))

    assert (60, 59) == (plain.records, checked.records)
    assert ["the body does not match its checksum"] == [
        lost.reason for outcome in checked.outcomes for lost in outcome.lost
    ]
    assert [(10, 10)] == [each[:2] for queue in checked.queues for each in queue.missing]


def test_records_that_a_release_does_not_know_are_left_out_one_by_one(tmp_path: Path) -> None:
    log = LogBuilder(segment_size=1 << 15)
    for number in range(100):
        is_new = number % 3 == 1
        log.append(b"x", topic="t", queue_offset=number, version=2 if is_new else 1)
    store = log.write(tmp_path / "store")
    old = replace(RULES, queue_rules=replace(SIZES, release="4.9"), has_index=False)
    report = rebuild_here(store, tmp_path / "found", old)

    assert 67 == report.records
    assert 33 == report.missing_count
    assert {"a broker of release 4.9 considers the record damaged"} == {
        lost.reason for outcome in report.outcomes for lost in outcome.lost
    }


# ---- what damage does not explain, and hostile logs


def test_a_jump_that_damage_does_not_explain_is_filed_as_a_broker_files_it(tmp_path: Path) -> None:
    log = LogBuilder(segment_size=1 << 14)
    for offset in (0, 1, 2):
        log.append(b"x", topic="t", queue_offset=offset)
    bad = log.append(b"x", topic="t", queue_offset=3)
    log.append(b"x", topic="t", queue_offset=1 << 40)
    log.patch(bad.physical_offset + MAGIC_AT, BAD_MAGIC)
    (queue,) = rebuild_here(log.write(tmp_path / "store"), tmp_path / "found", RULES).queues

    assert 4 == queue.max_offset
    assert 0 == queue.missing_count
    assert ["jump"] == [gap.kind for gap in queue.gaps]


def test_a_jump_without_damage_is_no_gap_to_fill(tmp_path: Path) -> None:
    log = LogBuilder(segment_size=1 << 14)
    for offset in (0, 1, 5, 6):
        log.append(b"x" * 1000, topic="t", queue_offset=offset)
    log.patch(log.append(b"x" * 1000, topic="t", queue_offset=7).physical_offset + MAGIC_AT, BAD_MAGIC)
    log.append(b"x", topic="t", queue_offset=8)
    (queue,) = rebuild_here(log.write(tmp_path / "store"), tmp_path / "found", RULES).queues

    assert [("jump", 5, 2)] == [(gap.kind, gap.queue_offset, gap.expected) for gap in queue.gaps]
    assert [(4, 7)] == [each[:2] for each in queue.missing]  # back at its true offset: 4 units were too few before it
    assert 9 == queue.max_offset


def test_stand_ins_are_bounded_by_what_damage_can_have_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store_core.store.rebuild.findings._FREE_UNITS", 0)
    log = LogBuilder(segment_size=1 << 16)
    for topic in range(40):
        log.append(b"x", topic=f"t{topic}", queue_offset=0)
    bad = log.append(b"x" * 9000, topic="t", queue_offset=0)
    for topic in range(40):
        log.append(b"x", topic=f"t{topic}", queue_offset=91)
    log.patch(bad.physical_offset + MAGIC_AT, BAD_MAGIC)
    report = rebuild_here(log.write(tmp_path / "store"), tmp_path / "found", RULES)
    written = sum(queue.max_offset for queue in report.queues)

    assert written <= 80 + 5 * (9100 // 91)


# ---- the commands


@pytest.fixture
def damaged(golden: Golden, tmp_path: Path) -> Path:
    """Damage a record of the second segment of a store, which has three."""
    store = shutil.copytree(golden("5.3.3/propcrc").root, tmp_path / "store")
    second = sorted((store / "commitlog").iterdir())[1]
    data = bytearray(second.read_bytes())
    size = int.from_bytes(data[:4])
    data[size + 4 : size + 8] = BAD_MAGIC
    second.write_bytes(data)
    return store


@pytest.mark.golden
def test_accepted_damage_costs_one_record_and_is_listed(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = rebuilt_queues(damaged)
    words = capsys.readouterr().out
    report = rebuilt_queues(damaged, "--replace", "--accept-damage", "--with-index", "--discard-old")

    assert 5 == report["exit_code"]
    assert 461 == report["records"]
    assert 461 == plain["records"] + plain["left_out_records"]
    assert 1 == report["damaged_range_count"] == len(report["damaged_ranges"])
    assert plain["damaged_ranges"] == report["damaged_ranges"]
    assert "sound records after damage are left out" in words
    assert f"offsets {report['damaged_ranges'][0]['begin_offset']} to" in words
    assert 0 == report["left_out_records"]
    assert report["missing_offset_count"] in (0, 1)
    assert not (damaged / "replaced-1").exists()  # what is in place was compared with the log
    assert "queue offsets missing" in capsys.readouterr().out or not report["missing_offset_count"]


@pytest.mark.golden
@pytest.mark.parametrize("after", [False, True])
def test_since_an_offset_gives_what_the_whole_damaged_log_gives(after: bool, damaged: Path) -> None:
    options = ("--replace", "--accept-damage", "--with-index")
    ((begin, end),) = {
        (lost["begin_offset"], lost["end_offset"]) for lost in rebuilt_queues(damaged, *options)["damaged_ranges"]
    }
    queues, index = queue_files(damaged), index_files(damaged)
    report = rebuilt_queues(damaged, *options, "--since-offset", str(end if after else begin - 5000))

    assert 5 == report["exit_code"]
    assert queues == queue_files(damaged)
    assert index == index_files(damaged)


@pytest.mark.spark
def test_spark_salvages_as_one_process_does(spark: SparkSession, tmp_path: Path) -> None:
    log = log_of(400, segment_size=1 << 13)
    for number in (20, 21, 190, 350):
        log.patch(log.records[number].physical_offset + MAGIC_AT, BAD_MAGIC)
    store = log.write(tmp_path / "store")
    sorted((store / "commitlog").iterdir())[2].unlink()
    expected = rebuild_here(store, tmp_path / "expected", RULES)
    report = rebuild_by(SparkEngine(spark), store, tmp_path / "found", RULES)

    assert_is_salvaged(report, store, tmp_path / "found")
    assert expected.queues == report.queues
    assert queue_files(tmp_path / "expected") == queue_files(tmp_path / "found")
    assert index_files(tmp_path / "expected") == index_files(tmp_path / "found")
