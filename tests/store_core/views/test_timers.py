# SPDX-License-Identifier: Apache-2.0
"""The views of timers: as RocketMQ's own classes read its files, and on files that are wrong."""

from __future__ import annotations

import json
import shutil
import struct
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import read_messages, read_view
from store_core.errors import CorruptRecordError, StoreError, UnsafeSizeError
from tests.budgets import budget
from tests.builders import TIMER_SLOTS, TIMER_UNIT_SIZE, LogBuilder, Timer, patch, write_timers
from tests.golden_stores import GoldenStore, UnpackedStore, stores_of_kind, unpack
from tests.stores_in_memory import in_memory

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path


SOME = [
    Timer(1000, 900),
    Timer(1060, 900),
    Timer(1000, 901),
    Timer(1060, 902, magic=5),
    Timer(1000 + TIMER_SLOTS, 903, magic=3),
]


def rows(root: Path | str, view: str, *columns: str, **options: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401
    found = read_view(root, view, columns=list(columns) or None, **options).read_all().to_pylist()
    return [tuple(row.values()) for row in found]


def in_ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


# ---- RocketMQ's


@pytest.fixture(params=stores_of_kind("timer"), ids=attrgetter("name"))
def store(request: pytest.FixtureRequest, golden_directory: Path) -> UnpackedStore:
    golden: GoldenStore = request.param
    return unpack(golden, golden_directory)


@pytest.mark.golden
def test_slots_are_those_that_rocketmq_reads_and_all_agree_with_the_log(store: UnpackedStore) -> None:
    lines = [json.loads(line) for line in store.path.joinpath("timers.jsonl").read_text().splitlines()]
    until = lines[0]["lastReadTimeMs"]
    columns = ("slot", "due_timestamp", "is_pending", "first_position", "last_position", "timers", "units", "state")
    found = rows(store.root, "timerwheel", *columns)

    assert [
        (each["index"], each["timeMs"], each["timeMs"] > until, each["firstPos"], each["lastPos"], each["num"],
         len(each["chain"]), "ok")
        for each in sorted(lines[1:], key=lambda line: int(line["index"]))
    ] == [(row[0], in_ms(row[1]), *row[2:]) for row in found]  # fmt: skip


@pytest.mark.golden
def test_units_are_those_that_rocketmq_reads(store: UnpackedStore) -> None:
    lines = [json.loads(line) for line in store.path.joinpath("timers.jsonl").read_text().splitlines()]
    units = {unit["pos"]: unit for line in lines[1:] for unit in line["chain"]}
    columns = (
        "position",
        "previous_position",
        "write_timestamp",
        "delay",
        "physical_offset",
        "store_size",
        "topic_hash",
    )
    found = rows(store.root, "timerlog", *columns, "is_rolled", "is_cancelling")

    assert sorted(units) == [row[0] for row in found]
    for row in found:
        unit = units[row[0]]
        assert (unit["prevPos"], unit["currWriteTime"]) == (row[1], in_ms(row[2]))
        assert tuple(unit[name] for name in ("delayedTime", "offsetPy", "sizePy", "hashCode")) == row[3:7]
        assert (bool(unit["magic"] & 2), bool(unit["magic"] & 4)) == row[7:]


@pytest.mark.golden
def test_a_unit_has_the_time_that_its_message_is_due(store: UnpackedStore) -> None:
    table = read_messages(store.root, topic="rmq_sys_wheel_timer", columns=["physical_offset", "properties"]).read_all()
    due = {row["physical_offset"]: int(dict(row["properties"])["TIMER_OUT_MS"]) for row in table.to_pylist()}
    found = rows(store.root, "timerlog", "physical_offset", "due_timestamp", "is_rolled")

    assert due == {offset: in_ms(time) for offset, time, _ in found} | {
        offset: due[offset] for offset, _, is_rolled in found if is_rolled
    }


@pytest.mark.golden
@pytest.mark.parametrize("golden_store", stores_of_kind("cancelled-timers"), ids=attrgetter("name"))
def test_what_is_pending_is_what_rocketmq_delivers(golden_store: GoldenStore, golden_directory: Path) -> None:
    store = unpack(golden_store, golden_directory)
    messages = read_messages(store.root, topic="rmq_sys_wheel_timer", columns=["physical_offset", "unique_key"])
    keys = {row["physical_offset"]: row["unique_key"] for row in messages.read_all().to_pylist()}
    columns = ("physical_offset", "is_pending", "is_cancelled", "is_cancelling")
    found = rows(store.root, "timerlog", *columns, release=golden_store.release, max_records_per_batch=50)
    delivered = json.loads((store.path / "delivered.json").read_text())

    assert delivered == sorted(keys[at] for at, pending, _, cancels in found if pending and not cancels)
    assert {7: "5.3", 8: "5.5"}[sum(cancelled for _, _, cancelled, _ in found)] == golden_store.release
    assert {("ok",)} == set(rows(store.root, "timerwheel", "state"))


# ---- ours


def test_the_slot_of_the_time_in_the_file_is_read_next(tmp_path: Path) -> None:
    log = LogBuilder()
    for properties in ({"UNIQ_KEY": "a", "REAL_TOPIC": "t"}, {"TIMER_DEL_UNIQKEY": "a"}):
        log.append(b"x", topic="rmq_sys_wheel_timer", properties=properties)
    log.write(tmp_path)
    named, cancelling = ((record.physical_offset, record.size) for record in log.records)
    timers = [Timer(1029, 900), Timer(1030, 900, *named), Timer(1030, 901, *cancelling, 5)]
    write_timers(tmp_path, timers, 1030)

    found = rows(tmp_path, "timerlog", "is_cancelled", "is_pending")
    assert [(False, False), (True, False), (False, True)] == found
    assert {1029_000: False, 1030_000: True} == {
        in_ms(due): pending for due, pending in rows(tmp_path, "timerwheel", "due_timestamp", "is_pending")
    }


def test_a_timer_is_cancelled_from_another_file_by_one_of_its_time_that_will_not_be_put_again(tmp_path: Path) -> None:
    log = LogBuilder()
    for key, cancels in (("a", None), ("b", None), ("c", None), ("d", None), (None, "a"), (None, "b"), (None, "c")):
        properties = {"UNIQ_KEY": key, "REAL_TOPIC": "t"} if cancels is None else {"TIMER_DEL_UNIQKEY": cancels}
        log.append(b"x", topic="rmq_sys_wheel_timer", properties=properties)
    log.write(tmp_path)
    at = [(record.physical_offset, record.size) for record in log.records]
    others = [Timer(1500, 900)] * 100
    timers = [Timer(1060, 900, *place) for place in at[:4]]
    cancelling = [Timer(1060, 901, *at[4], 5), Timer(1061, 901, *at[5], 5), Timer(1060, 901, *at[6], 7)]
    write_timers(tmp_path, [*timers, *others, *cancelling], 1030)
    found = rows(tmp_path, "timerlog", "is_cancelled", "is_pending", max_records_per_batch=3)

    assert [(True, False), *[(False, True)] * 3] == found[:4]
    assert {(False, True)} == set(found[4:])
    assert {(False,)} == set(rows(tmp_path, "timerlog", "is_cancelled", release="5.3"))  # keys begin with a topic there
    shutil.rmtree(tmp_path / "commitlog")
    assert {(False,)} == set(rows(tmp_path, "timerlog", "is_cancelled"))


def test_a_long_log_of_several_files_is_one(tmp_path: Path) -> None:
    write_timers(tmp_path, [Timer(1000 + number % 3, 900) for number in range(300)], 900)

    assert [100] * 3 == [units for (units,) in rows(tmp_path, "timerwheel", "units")]
    assert {("ok",)} == set(rows(tmp_path, "timerwheel", "state", max_records_per_batch=2))
    assert 300 == len(rows(tmp_path, "timerlog", "position", max_records_per_batch=7))


def test_the_wheel_is_that_of_the_last_snapshot(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_timers(tmp_path, SOME, 1030)
    wheel = tmp_path / "timerwheel"
    expected = rows(tmp_path, wheel.name)
    wheel.rename(f"{wheel}.1040")
    for name in (wheel.name, "timerwheel.52", "timerwheel.1040.tmp", "timerwheel.bak"):
        (tmp_path / name).write_bytes(bytes(3200))

    assert [] != expected == rows(tmp_path, wheel.name)
    assert f"{wheel}.1040 is read" in caplog.text
    assert expected == rows(in_memory(tmp_path, "timers"), wheel.name)


@pytest.mark.parametrize(
    ("at", "value", "state"),
    [
        (0, struct.pack(">q", 999), "wrong_time"),
        (8, struct.pack(">q", 104), "broken"),
        (16, struct.pack(">q", 1), "not_in_log"),
        (16, struct.pack(">q", -1), "not_in_log"),
        (16, struct.pack(">q", 1 << 60), "not_in_log"),
        (24, struct.pack(">i", 1), "wrong_count"),
    ],
)
def test_a_slot_that_disagrees_with_the_log_is_named(tmp_path: Path, at: int, value: bytes, state: str) -> None:
    write_timers(tmp_path, SOME + [Timer(2000 + number, 900) for number in range(4)], 0)
    patch(tmp_path / "timerwheel", 1060 * 32 + at, value)

    assert {1060: state} == {slot: each for slot, each in rows(tmp_path, "timerwheel", "slot", "state") if each != "ok"}


def test_a_chain_that_leads_to_itself_or_forward_is_broken(tmp_path: Path) -> None:
    for number, previous in enumerate((3 * TIMER_UNIT_SIZE, 4 * TIMER_UNIT_SIZE, 7, 1 << 62)):
        root = tmp_path / str(number)
        write_timers(root, SOME, 0)
        patch(root / "timerlog" / f"{0:020d}", 3 * TIMER_UNIT_SIZE + 4, struct.pack(">q", previous))

        assert (1060, "broken") in rows(root, "timerwheel", "slot", "state")


def test_units_that_are_none_are_an_error_or_end_their_file(tmp_path: Path) -> None:
    write_timers(tmp_path, SOME, 0)
    patch(tmp_path / "timerlog" / f"{0:020d}", 3 * TIMER_UNIT_SIZE, struct.pack(">i", 51))

    with pytest.raises(CorruptRecordError, match=f"offset {3 * TIMER_UNIT_SIZE} of .*timerlog"):
        rows(tmp_path, "timerlog", "position")
    assert 3 == len(rows(tmp_path, "timerlog", "position", fail_on_data_loss=False))


def test_without_the_time_in_the_file_nothing_is_known_to_be_pending(tmp_path: Path) -> None:
    write_timers(tmp_path, SOME, 0)
    (tmp_path / "config" / "timercheck").unlink()

    assert {(None,)} == set(rows(tmp_path, "timerlog", "is_pending"))


def test_a_wheel_of_an_impossible_size_is_not_read(tmp_path: Path) -> None:
    write_timers(tmp_path, SOME, 0)
    with (tmp_path / "timerwheel").open("r+b") as wheel:
        wheel.truncate(1 << 40)

    with pytest.raises(UnsafeSizeError, match="timerwheel"):
        rows(tmp_path, "timerwheel")


@given(st.data())
@budget(0.3)
def test_broken_files_end_in_rows_or_an_error_that_names_the_file(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("store")
    write_timers(root, SOME, 1030)
    for path, most in ((root / "timerlog" / f"{0:020d}", 300), (root / "timerwheel", 70_000)):
        with path.open("r+b") as file:
            for _ in range(data.draw(st.integers(0, 3))):
                file.seek(data.draw(st.integers(0, most)))
                file.write(data.draw(st.binary(max_size=8)))

    for view in ("timerlog", "timerwheel"):
        lenient = read_view(root, view, fail_on_data_loss=False).read_all()
        lenient.validate(full=True)
        try:
            strict = read_view(root, view).read_all()
        except StoreError as error:
            if "timerlog" not in str(error):
                raise
        else:
            assert strict == lenient
