# SPDX-License-Identifier: Apache-2.0
"""When delayed messages are due is what RocketMQ's queues and timers hold; timers that lead elsewhere are named."""

from __future__ import annotations

import json
import os
import struct
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core.answers import DelaysReport, check, delays, trace
from store_core.answers.delay_states import stray_timers
from store_core.answers.report import Verdict
from store_core.snapshot.log import Log
from store_core.snapshot.timers import Timers
from tests.builders import BODY_AT, LogBuilder, Timer, write_timers
from tests.golden_stores import GoldenStore, UnpackedStore, golden_stores, stores_of_kind, unpack
from tests.life_logs import BEGIN, SCHEDULE, LifeLog, write_config
from tests.store_core.files.store_kinds import add_rocksdb

if TYPE_CHECKING:
    from pathlib import Path

    from tests.golden_stores import Golden


DELAY_STORES: Final = [store.name for store in golden_stores() if store.scenario == "delay"]
TIMER_STORES: Final = {store.name: store for store in stores_of_kind("timer")}
SECOND: Final = 1000


def told(root: Path, **options: Any) -> DelaysReport:  # noqa: ANN401 -- options
    return delays(root, **{"now": BEGIN, "lists_all": True} | options)


def states(report: DelaysReport) -> dict[str, str]:
    return {row["unique_key"]: row["state"] for row in report.tables["messages"].to_pylist()}


def reasons(report: DelaysReport) -> list[str]:
    return [row["reason"] for row in report.tables["messages"].to_pylist() if row["reason"]]


def lines_of(unpacked: UnpackedStore, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in unpacked.path.joinpath(name).read_text().splitlines()]


# ---- stores that RocketMQ wrote


@pytest.mark.golden
@pytest.mark.parametrize("name", DELAY_STORES)
def test_messages_are_due_when_the_units_of_rocketmq_say_so(name: str, golden: Golden) -> None:
    unpacked = golden(name)
    queues = [line for line in lines_of(unpacked, "queues.jsonl") if line.get("topic") == SCHEDULE]
    expected = {unit["pos"]: unit["tagsCode"] for line in queues for unit in line.get("units", [])}
    report = told(unpacked.root, release=unpacked.golden.release, now=0)
    rows = report.tables["messages"].to_pylist()
    found = {row["physical_offset"]: round(row["due"].timestamp() * 1000) for row in rows if row["kind"] == "level"}
    delivered = expected.keys() - found.keys()

    assert found.items() <= expected.items()
    assert len(delivered) == report.found.delivered
    assert 240 == len(expected)
    if report.found.has_delay_offsets:  # level 1 was delivered by the broker; 4.3 keeps no offsets there
        assert 10 == report.found.delivered
    assert (Verdict.CLEAN, 0) == (report.verdict, report.found.orphaned)


@pytest.mark.golden
@pytest.mark.parametrize("name", DELAY_STORES)
def test_levels_other_than_those_of_the_queues_are_noted(name: str, golden: Golden, tmp_path: Path) -> None:
    unpacked = golden(name)
    root, release = unpacked.root, unpacked.golden.release
    config = tmp_path / "broker.conf"
    config.write_text("messageDelayLevel=1s 5s 10s 31s\n")
    waiting = [told(root, release=release, config=given) for given in (None, config)]
    row = next(row for row in waiting[0].tables["messages"].to_pylist() if row["level"] == 4 and row["unique_key"])
    traced = [trace(root, row["unique_key"], release=release, config=given) for given in (None, config)]
    notes = [*(report.found.notes for report in waiting), *(report.found.notes for report in traced)]
    noted = [[note for note in each if "messageDelayLevel" in note] for each in notes]

    assert [0, 1, 0, 1] == list(map(len, noted))
    assert f"the message at {row['physical_offset']} is due at" in noted[3][0]
    assert all(note.startswith("level 4: ") for (note,) in noted[1::2])


@pytest.mark.golden
@pytest.mark.parametrize("name", TIMER_STORES)
def test_timers_are_pending_as_the_wheel_of_rocketmq_says(name: str, golden_directory: Path) -> None:
    unpacked = unpack(TIMER_STORES[name], golden_directory)
    checkpoint, *slots = lines_of(unpacked, "timers.jsonl")
    read_until = checkpoint["lastReadTimeMs"]
    units = [unit | {"due": unit["currWriteTime"] + unit["delayedTime"]} for slot in slots for unit in slot["chain"]]
    pending = {unit["offsetPy"]: unit for unit in units if unit["due"] >= read_until and not unit["magic"] & 4}
    report = told(unpacked.root, release=unpacked.golden.release, now=read_until)
    rows = report.tables["messages"].to_pylist()
    waiting = {
        row["physical_offset"]: round(row["due"].timestamp() * 1000) for row in rows if row["state"] == "waiting"
    }

    assert pending.keys() == waiting.keys()
    for offset, unit in pending.items():  # one beyond the wheel's reach is in a slot where it will be put again
        assert waiting[offset] == unit["due"] or (unit["magic"] & 2 and waiting[offset] > unit["due"])
    assert (264, 15, 15) == (report.found.waiting, report.found.delivered, report.found.orphaned)
    assert {"has an empty body, which the timer never delivers"} == set(reasons(report))


@pytest.mark.golden
@pytest.mark.parametrize("name", [store.name for store in golden_stores() if store.scenario == "live"])
def test_what_a_real_broker_delivered_is_delivered(name: str, golden: Golden) -> None:
    found = told(golden(name).root).found

    assert (30, 30, 0) == (found.messages, found.delivered, found.orphaned)


# ---- delay levels


@pytest.mark.parametrize("kind", ["level", "timer"])
def test_what_was_due_since_the_broker_wrote_its_file_is_told_apart(log: LifeLog, kind: str, tmp_path: Path) -> None:
    for number, due in enumerate((10, 30, 55, 58, 75, 100, 170, 200)):
        if kind == "level":
            log.delayed(f"{due}", 3, store_timestamp=BEGIN + (due - 10) * SECOND)
        else:
            log.timer(f"{due}", BEGIN + due * SECOND, store_timestamp=BEGIN + number * SECOND)
    log.send("last", store_timestamp=BEGIN + 90 * SECOND)
    root = log.write(tmp_path)
    write_config(root, delayOffset={"offsetTable": {"3": 1}})
    write_check(root, BEGIN + 20 * SECOND, 8)
    for name in ("delayOffset.json", "timercheck"):
        os.utime(root / "config" / name, ns=(0, (BEGIN + 60 * SECOND) * 10**6))
    report = told(root, now=BEGIN + 180 * SECOND)
    found = {int(key.removeprefix("U-")): state for key, state in states(report).items()}

    assert {30: "overdue", 55: "overdue", 58: "unsettled", 75: "unsettled"} == {
        due: found[due] for due in (30, 55, 58, 75)
    }
    assert {100: "overdue", 170: "overdue", 200: "waiting"} == {due: found[due] for due in (100, 170, 200)}
    assert (4, 2, 1) == (report.found.overdue, report.found.unsettled, report.found.delivered)
    assert (3, 2) == (report.found.late, told(root, now=BEGIN + 180 * SECOND, late_after=100).found.late)
    assert "what is delivered is as of 2023-11-14T22:14:20.000Z" in report.to_text(width=None)
    os.utime(root / "config" / "delayOffset.json")
    os.utime(root / "config" / "timercheck")
    assert (6, 0) == (
        told(root, now=BEGIN + 180 * SECOND).found.overdue,
        told(root, now=BEGIN + 180 * SECOND).found.unsettled,
    )


def test_what_offsets_have_passed_before_it_was_due_is_orphaned(log: LifeLog, tmp_path: Path) -> None:
    log.delayed("lost", 18)
    log.send("last", store_timestamp=BEGIN + 60 * SECOND)
    root = log.write(tmp_path)
    write_config(root, delayOffset={"offsetTable": {"18": 1}})

    assert {"U-lost": "orphaned"} == states(told(root))
    assert "delayOffset.json is past it" in reasons(told(root))[0]


def test_a_level_that_the_broker_does_not_have_is_orphaned(log: LifeLog, tmp_path: Path) -> None:
    log.delayed("a", 3)
    root = log.write(tmp_path / "store")
    config = tmp_path / "broker.conf"
    config.write_text("messageDelayLevel=1s 5s\n")

    assert {"U-a": "waiting"} == states(told(root))
    assert {"U-a": "orphaned"} == states(told(root, config=config))


def test_a_message_that_does_not_name_its_topic_is_orphaned(log: LifeLog, tmp_path: Path) -> None:
    log.append(b"-", topic=SCHEDULE, properties={"DELAY": "1", "UNIQ_KEY": "a"})
    log.delayed("b", 1, properties={"REAL_QID": "x"})

    assert {"a": "orphaned", "U-b": "orphaned"} == states(told(log.write(tmp_path)))


def test_an_empty_body_in_a_level_is_named_once_it_is_due(log: LifeLog, tmp_path: Path) -> None:
    log.delayed("a", 1, body=b"")
    root = log.write(tmp_path)

    assert [] == reasons(told(root))
    assert "gets no further in its level" in reasons(told(root, now=BEGIN + 10 * SECOND))[0]


def test_the_level_of_a_property_decides_and_a_higher_one_is_the_highest(log: LifeLog, tmp_path: Path) -> None:
    log.delayed("a", 1, properties={"DELAY": "+99"})
    log.delayed("b", 1, properties={"DELAY": "soon"})
    rows = told(log.write(tmp_path), now=0).tables["messages"].to_pylist()

    assert {"U-a": 7200 * SECOND + 1, "U-b": 2} == {
        row["unique_key"]: round(row["due"].timestamp() * 1000) - BEGIN for row in rows
    }


def test_an_offset_beyond_the_queue_is_noted(log: LifeLog, tmp_path: Path) -> None:
    log.delayed("a", 1)
    root = log.write(tmp_path)
    write_config(root, delayOffset={"offsetTable": {"1": 7}})

    assert any("delayOffset.json has 7" in note for note in told(root).found.notes)


# ---- timers


def write_check(root: Path, read_until: int, offset: int) -> None:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "timercheck").write_bytes(struct.pack(">qqq", read_until, 0, offset).ljust(4096, b"\0"))


@pytest.mark.parametrize("holds_data", [True, False])
def test_a_database_with_timers_is_noted_as_the_check_file_does_not_tell_of_it(
    log: LifeLog, holds_data: bool, tmp_path: Path
) -> None:
    log.timer("a", BEGIN)
    root = log.write(tmp_path)
    add_rocksdb(root / "rocksdbstore", holds_data=holds_data)

    assert [holds_data] == [any("timers in it may be delivered" in note for note in told(root).found.notes)]


def test_a_timer_that_the_file_is_past_before_it_was_due_is_orphaned(log: LifeLog, tmp_path: Path) -> None:
    log.timer("a", BEGIN + 10 * SECOND)
    log.timer("b", BEGIN + 30 * SECOND)
    root = log.write(tmp_path)
    write_check(root, BEGIN + 30 * SECOND, 2)
    report = told(root)

    assert {"U-a": "orphaned", "U-b": "waiting"} == states(report)
    assert ["config/timercheck is past it, and it was not due when the log ended"] == reasons(report)


def test_a_timer_that_is_not_in_the_wheel_yet_is_not_delivered(log: LifeLog, tmp_path: Path) -> None:
    log.timer("a", BEGIN + 10 * SECOND)
    root = log.write(tmp_path)
    write_check(root, BEGIN + 20 * SECOND, 0)

    assert {"U-a": "overdue"} == states(told(root, now=BEGIN + 20 * SECOND))


@pytest.mark.parametrize(("release", "name"), [("5.3", "orders+U-a"), ("5.4", "U-a"), ("5.5", "U-a")])
def test_a_timer_is_cancelled_by_another_of_its_time(log: LifeLog, tmp_path: Path, release: str, name: str) -> None:
    log.timer("a", BEGIN + 10 * SECOND)
    log.timer("b", BEGIN + 20 * SECOND)
    log.timer("x", BEGIN + 10 * SECOND, properties={"TIMER_DEL_UNIQKEY": name})
    log.timer("y", BEGIN + 10 * SECOND, properties={"TIMER_DEL_UNIQKEY": "U-b"})
    report = told(log.write(tmp_path), release=release)

    assert {"U-b": "waiting"} == states(report)
    assert (1, 2) == (report.found.cancelled, report.found.messages)


@pytest.mark.parametrize(("name", "release", "other"), [("orders+U-a", "5.5", "5.3"), ("U-a", "5.3", "5.5")])
def test_a_cancellation_as_another_release_has_it_is_noted(
    log: LifeLog, tmp_path: Path, name: str, release: str, other: str
) -> None:
    log.timer("a", BEGIN + 10 * SECOND)
    log.timer("x", BEGIN + 10 * SECOND, properties={"TIMER_DEL_UNIQKEY": name})
    store = log.write(tmp_path)
    report = told(store, release=release)

    assert "waiting" == states(report)["U-a"]
    assert [True] == [f"use release {other}" in note for note in report.found.notes]
    assert () == told(store, release=other).found.notes


def test_of_a_timer_that_was_put_again_the_last_copy_counts(log: LifeLog, tmp_path: Path) -> None:
    log.timer("a", BEGIN + 10 * SECOND)
    log.timer("a", BEGIN + 10 * SECOND, properties={"TIMER_ROLL_TIMES": "1"})
    log.timer("b", BEGIN + 10 * SECOND)
    log.timer("b", BEGIN + 10 * SECOND)
    report = told(log.write(tmp_path))

    assert (3, 1) == (report.found.waiting, report.found.rolled)


# ---- reports


def test_the_calendar_has_each_message_once(log: LifeLog, tmp_path: Path) -> None:
    for number in range(90):
        log.delayed(f"k{number}", 1 + number % 18)
    log.timer("t", BEGIN + 3600 * SECOND)
    report = told(log.write(tmp_path))
    cells = report.tables["calendar"].to_pylist()

    assert (90, 1) == (sum(cell["level"] for cell in cells), sum(cell["timer"] for cell in cells))
    assert {60} == {cell["seconds"] for cell in cells}
    assert sorted(cells, key=lambda cell: cell["begin"]) == cells
    assert "When messages are due that are not delivered (UTC)" in report.to_html()
    assert "90" in report.to_text(200)


@pytest.mark.parametrize(("days", "seconds"), [(2, 3600), (300, 86400)])
def test_a_longer_calendar_has_larger_cells(log: LifeLog, days: int, seconds: int, tmp_path: Path) -> None:
    for number in range(days):
        log.timer(f"k{number}", BEGIN + number * 86400 * SECOND)
    report = told(log.write(tmp_path), now=0)

    assert {seconds} == {cell["seconds"] for cell in report.tables["calendar"].to_pylist()}
    assert days == sum(cell["timer"] for cell in report.tables["calendar"].to_pylist())
    assert "<path" in report.to_html()


def test_times_that_no_clock_shows_are_left_out_of_the_calendar(log: LifeLog, tmp_path: Path) -> None:
    log.timer("far", 10**18 - 1)
    log.timer("none", 5, properties={"TIMER_OUT_MS": "x" * 30})
    report = told(log.write(tmp_path))

    assert 2 == report.found.messages
    assert "far" in report.to_text(300)
    assert report.to_html()


def test_a_timer_whose_body_is_damaged_at_the_end_of_the_log_is_none(log: LifeLog, tmp_path: Path) -> None:
    log.timer("sound", BEGIN)
    log.timer("torn", BEGIN)
    log.flip(log.records[-1].physical_offset + BODY_AT)
    report = told(log.write(tmp_path))

    assert ["U-sound"] == list(states(report))
    assert any("the log ends at offset" in note for note in report.found.notes)


DUE = 1_700_000_100


def store_with(tmp_path: Path, *timers: tuple[int, int]) -> tuple[Path, list[int], int]:
    """Make a log of two timers and a message, and timers that lead to (offset, size)."""
    log = LogBuilder()
    sent = [log.append(b"body", topic=topic) for topic in ("rmq_sys_wheel_timer", "orders", "rmq_sys_wheel_timer")]
    root = log.write(tmp_path / "store")
    places = [record.physical_offset for record in sent]
    units = [Timer(DUE, DUE - 100, *timer) for timer in timers]
    write_timers(root, units, DUE - 50)
    return root, places, sent[0].size


@pytest.mark.parametrize(
    ("number", "found"), [(1, "a message of topic 'orders'"), (99, "no record begins there"), (10**9, "ends at")]
)
def test_timers_that_lead_elsewhere_are_named(number: int, found: str, tmp_path: Path) -> None:
    _, places, size = store_with(tmp_path / "first", (0, 1))
    offset = places[1] if number == 1 else number
    root, _, _ = store_with(tmp_path / "second", (places[0], size), (offset, size), (offset, size))
    report = delays(root, now=DUE * 1000)
    (note,) = [note for note in report.found.notes if "pending timers of timerlog" in note]

    assert note.startswith("2 pending timers of timerlog lead past the log's end or to other records")
    assert f"leads to offset {offset}: " in note
    assert found in note
    assert 1 == check(root).counts["timer_unit"]


def test_a_record_of_another_size_is_another_timer(tmp_path: Path) -> None:
    root, _, size = store_with(tmp_path, (0, 1))
    stray = stray_timers(Timers.of(root), Log.of(root), "5.3")

    assert stray is not None
    assert f"a timer of {size} bytes, not of 1" == stray.found


def test_what_a_crash_explains_is_no_finding(tmp_path: Path) -> None:
    root, _, _ = store_with(tmp_path, (10**9, 100))
    (root / "abort").touch()

    assert "timer_unit" not in check(root).counts


@pytest.mark.golden
@pytest.mark.parametrize("store", stores_of_kind("timer"), ids=lambda store: store.name)
def test_timers_that_rocketmq_wrote_lead_to_their_records(store: GoldenStore, tmp_path: Path) -> None:
    root = unpack(store, tmp_path).root

    assert stray_timers(Timers.of(root), Log.of(root), store.release) is None
