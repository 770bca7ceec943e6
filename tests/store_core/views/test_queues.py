# SPDX-License-Identifier: Apache-2.0
"""The views of queues: sound, damaged and hostile units, bounds beside the broker's files, and committed offsets."""

from __future__ import annotations

import os
import shutil
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import CorruptRecordError, SegmentVanishedError, StoreNotFoundError
from store_core.snapshot.log_end import FoundEnd, find_end
from store_core.snapshot.store import Store
from store_core.views.view import ViewOptions, plan_view
from tests.builders import BODY_AT, Record
from tests.viewed_store import CONSUMER_OFFSETS, FILE_SIZE, column, refusal, rows_of, write_config

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from store_core.files.segment_source import Segment


UNIT = struct.Struct(">qiq")
FILLER = UNIT.pack(0, 2**31 - 1, 0)
UNITS_OF_A_FILE = FILE_SIZE // UNIT.size


def write_queue(root: Path, *units: bytes, start: int = 0, size: int = FILE_SIZE, topic: str = "t") -> Path:
    """Write one file of queue 0 of a topic: units of 20 bytes, then zeros."""
    path = root / "consumequeue" / topic / "0" / f"{start:020d}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(units).ljust(size, b"\0"))
    return path


def unit(number: int) -> bytes:
    return UNIT.pack(100 * number, 100, number)


def offsets(root: Path, **options: object) -> list[int]:
    return column(root, "consumequeue", "queue_offset", **options)


def test_fields_are_those_of_a_unit(tmp_path: Path) -> None:
    write_queue(tmp_path, FILLER, UNIT.pack(2**40, 123, -7), start=FILE_SIZE)
    common = {"topic": "t", "queue_id": 0, "kind": "simple", "store_timestamp": None, "segment": f"{FILE_SIZE:020d}"}
    filler = {"queue_offset": 20, "physical_offset": 0, "store_size": 2**31 - 1, "tags_code": 0, "batch_num": 0}
    last = {"queue_offset": 21, "physical_offset": 2**40, "store_size": 123, "tags_code": -7, "batch_num": 1}

    assert [
        {**common, **filler, "is_filler": True},
        {**common, **last, "is_filler": False},
    ] == rows_of(tmp_path, "consumequeue")


def test_a_hole_of_a_sparse_file_is_not_read_and_counts_like_zeros(tmp_path: Path) -> None:
    path = write_queue(tmp_path, unit(1))
    with path.open("r+b") as file:
        file.truncate(60_000_000)
        file.seek(30_000_000)
        file.write(unit(2))
    sizes = column(tmp_path, "consumequeue", "store_size", starting_offsets={"t": {0: 1_499_999}})

    assert [0, 100] == sizes
    assert 1_500_001 == len(offsets(tmp_path))


def test_a_unit_whose_last_bytes_are_a_hole_is_read(tmp_path: Path) -> None:
    units = [UNIT.pack(100 * number, 100, 0) for number in range(205)]
    path = write_queue(tmp_path, *units[:-1], units[-1][:16])
    with path.open("r+b") as file:
        file.truncate(6_000_000)

    assert 4096 == sum(map(len, units)) - 4
    assert 205 == len(offsets(tmp_path))
    assert [205] == column(tmp_path, "topics", "max_offset")


@given(st.lists(st.sampled_from([unit(1), bytes(20), FILLER, UNIT.pack(-1, -1, -1), UNIT.pack(9, 0, 9)]), max_size=50))
def test_rows_are_the_units_up_to_the_last_that_has_a_size(
    tmp_path_factory: pytest.TempPathFactory, units: list[bytes]
) -> None:
    root = tmp_path_factory.mktemp("units")
    root.joinpath("checkpoint").touch()
    path = write_queue(root, *units, size=1000)
    expected = [UNIT.unpack(stored) for stored in units]
    while expected and not expected[-1][1]:
        del expected[-1]
    found = [tuple(row.values()) for row in rows_of(root, "consumequeue", "physical_offset,store_size,tags_code")]
    shutil.rmtree(path.parents[2])

    assert expected == found


def test_offsets_and_topics_select_units(pristine: Path) -> None:
    bounds = {"starting_offsets": {"orders": {0: 25}}, "ending_offsets": {"orders": {0: 28}}}

    assert [25, 26, 27] == offsets(pristine, topic="orders", queue_id=0, **bounds)
    assert 30 + 3 == len(offsets(pristine, topics_pattern="ord.*", **bounds))
    places = column(pristine, "consumequeue", "physical_offset")
    assert [at for at in places if 500 <= at < 2000] == column(
        pristine, "consumequeue", "physical_offset", starting_offsets=500, ending_offsets=2000
    )


def test_many_small_queues_are_few_parts_and_one_batch(tmp_path: Path) -> None:
    for number in range(300):
        write_queue(tmp_path, unit(number), topic=f"t{number}")
    options = ViewOptions.parse("consumequeue")
    (part,) = plan_view(Store(tmp_path), options)

    assert [300] == [batch.num_rows for batch in part.batches(options)]


def test_only_the_last_file_of_each_queue_is_opened_to_plan(pristine: Path, opened: list[str]) -> None:
    plan_view(Store(pristine), ViewOptions.parse("consumequeue"))

    assert 3 == len(opened)
    assert all(path.endswith(f"{FILE_SIZE:020d}") for path in opened)


def test_what_a_broker_appends_after_planning_is_not_read(tmp_path: Path) -> None:
    path = write_queue(tmp_path, unit(1))
    options = ViewOptions.parse("consumequeue")
    (part,) = plan_view(Store(tmp_path), options)
    path.write_bytes((unit(1) + unit(2)).ljust(FILE_SIZE, b"\0"))

    assert [1] == [batch.num_rows for batch in part.batches(options)]


def test_a_file_that_vanishes_after_planning_is_an_error_unless_tolerated(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strict = ViewOptions.parse("consumequeue")
    (part,) = plan_view(Store(store), strict)
    gone = store / "consumequeue" / "orders" / "0" / f"{0:020d}"
    gone.unlink()

    with pytest.raises(SegmentVanishedError, match="failOnDataLoss=false"):
        list(part.batches(strict))
    tolerant = ViewOptions.parse("consumequeue", fail_on_data_loss=False)
    assert 90 - UNITS_OF_A_FILE == sum(batch.num_rows for batch in part.batches(tolerant))
    assert str(gone) in caplog.text


def test_names_that_are_no_queue_are_left_out_with_a_warning(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("seven", "007", "99999999999"):
        store.joinpath("consumequeue", "orders", name).mkdir()
    store.joinpath("consumequeue", "stray").write_bytes(b"file")
    store.joinpath("consumequeue", "orders", "0", "notes.txt").write_bytes(b"x")

    assert 90 == len(offsets(store))
    for name in ("seven", "007", "99999999999", "notes.txt"):
        assert name in caplog.text


def test_a_name_that_is_not_utf8_and_a_short_file_are_shown(tmp_path: Path) -> None:
    write_queue(tmp_path, unit(1), unit(2)[:13], topic=os.fsdecode(b"caf\xe9"), size=0)

    assert [("caf\ufffd", 0)] == [
        (row["topic"], row["queue_offset"]) for row in rows_of(tmp_path, "consumequeue", "topic,queue_offset")
    ]


@pytest.mark.parametrize("topic", ["../orders", "orders/../payments", "..", "a\0b", "x" * 300])
def test_a_topic_that_is_no_name_finds_nothing(topic: str, store: Path) -> None:
    assert [] == offsets(store, topic=[topic])


def test_a_topic_without_queues_is_said_to_have_none(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert [] == offsets(store, topic="order")
    assert "did you mean 'orders'?" in caplog.text


def test_a_topic_whose_directory_is_not_utf_8_can_be_selected(tmp_path: Path) -> None:
    write_queue(tmp_path, unit(1), topic=os.fsdecode(b"t\xff"))
    write_queue(tmp_path, unit(2))

    assert [100] == column(tmp_path, "consumequeue", "physical_offset", topic=os.fsdecode(b"t\xff"))


# ---- bounds and committed offsets

BOUNDS = "min_offset,max_offset,messages"


def bounds(root: Path, **options: object) -> list[tuple[int, ...]]:
    return [tuple(row.values()) for row in rows_of(root, "topics", BOUNDS, **options)]


def write_log(root: Path, start: int) -> None:
    """Write a log with the records of `unit`: one each hundred bytes, from a position up to 1000."""
    segment = root / "commitlog" / f"{start:020d}"
    segment.parent.mkdir()
    spare = 100 - Record().size
    records = (Record(body=bytes(spare), physical_offset=at).encode() for at in range(start, 1000, 100))
    segment.write_bytes(b"".join(records).ljust(4096, b"\0"))


def test_queues_and_configuration_are_joined(pristine: Path) -> None:
    found = {(row["topic"], row["queue_id"]): row for row in rows_of(pristine, "topics")}
    order, idle, payment = found["orders", 1], found["idle", None], found["payments", 0]

    assert [("idle", None), ("orders", 0), ("orders", 1), ("payments", 0)] == list(found)
    assert {"messages": 30, "read_queue_nums": 4, "write_queue_nums": 8, "perm": 6}.items() <= order.items()
    assert [("+message.type", "NORMAL")] == order["attributes"]
    assert (True, False, None, None) == (idle["in_config"], idle["in_queues"], idle["messages"], idle["attributes"])
    assert (False, True, None) == (payment["in_config"], payment["in_queues"], payment["perm"])


def test_without_times_only_a_last_record_is_read_and_the_log_is_not_walked(
    pristine: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store_core.snapshot.log_end.find_end", None)
    without_times = [name for name in ViewOptions.parse("topics").columns if "timestamp" not in name]
    rows_of(pristine, "topics", ",".join(without_times))
    last = max((pristine / "commitlog").iterdir(), key=lambda path: path.name)

    assert {str(last)} == {path for path in opened if "consumequeue" not in path}
    assert any("consumequeue" in path for path in opened)


def test_names_and_configuration_open_no_queue(pristine: Path, opened: list[str]) -> None:
    rows_of(pristine, "topics", "topic,queue_id,perm,in_queues")
    rows_of(pristine, "consumer_offsets", "consumer_group,topic,committed_offset")

    assert [] == opened


@pytest.mark.parametrize("is_empty", [False, True])
def test_without_the_file_configuration_is_unknown_and_not_absent(
    store: Path, caplog: pytest.LogCaptureFixture, *, is_empty: bool
) -> None:
    path = store / "config" / "topics.json"
    path.write_text("") if is_empty else path.unlink()

    assert [None] * 3 == column(store, "topics", "in_config")
    assert f"{path} is missing or empty" in caplog.text


@pytest.mark.parametrize(
    ("files", "log_start", "expected"),
    [
        ([[]], 0, (0, 0)),
        ([[FILLER, FILLER, unit(1), unit(2)]], 0, (2, 4)),
        ([[FILLER, FILLER]], 0, (2, 2)),
        ([[unit(1), unit(2), unit(3)]], 200, (1, 3)),
        ([[unit(1), unit(2), unit(3)]], 10_000, (3, 3)),
        ([[unit(1)] * 20, [unit(2), unit(3)]], 200, (20, 22)),
        ([[unit(1)] * 20, [unit(2), UNIT.pack(-1, 5, 0), unit(3)]], 0, (0, 21)),
        ([[unit(1)] * 20, []], 0, (0, 20)),
        ([[unit(1)] * 3 + [bytes(20)] + [unit(2)] * 16, [unit(3)]], 0, (0, 3)),
        ([[unit(1)] * 3 + [bytes(20)] + [unit(2)] * 16, *[[unit(3)] * 20] * 3], 0, (0, 80)),
    ],
)
def test_bounds_are_those_that_a_broker_finds(
    files: list[list[bytes]], log_start: int, expected: tuple[int, int], tmp_path: Path
) -> None:
    for number, units in enumerate(files):
        write_queue(tmp_path, *units, start=number * FILE_SIZE)
    write_log(tmp_path, log_start)

    assert [(*expected, expected[1] - expected[0])] == bounds(tmp_path)


def test_a_record_whose_body_is_damaged_ends_a_queue_as_in_a_recovery(tmp_path: Path) -> None:
    write_log(tmp_path, 0)
    write_queue(tmp_path, unit(8), unit(9))
    segment = next((tmp_path / "commitlog").iterdir())
    damaged = bytearray(segment.read_bytes())
    damaged[900 + BODY_AT] ^= 1
    segment.write_bytes(damaged)

    assert [(0, 1, 1)] == bounds(tmp_path)


@pytest.mark.parametrize("name", [f"{4096:020d}", f"{4096:020d}.zst"])
def test_a_queue_is_whole_if_the_log_goes_on_in_a_file_that_was_not_listed(name: str, tmp_path: Path) -> None:
    write_queue(tmp_path, unit(9), UNIT.pack(4096, 100, 0))
    write_log(tmp_path, 0)
    options = ViewOptions.parse("topics", columns=BOUNDS)
    parts = plan_view(Store(tmp_path), options)
    (tmp_path / "commitlog" / name).write_bytes(bytes(4096))
    found = [tuple(row.values()) for part in parts for batch in part.batches(options) for row in batch.to_pylist()]

    assert [(0, 2, 2)] == found


def test_a_log_that_lacks_a_file_ends_no_queue(tmp_path: Path) -> None:
    write_queue(tmp_path, unit(9), UNIT.pack(20_000, 100, 0))
    write_log(tmp_path, 0)
    (tmp_path / "commitlog" / f"{8192:020d}").write_bytes(bytes(4096))

    assert [(0, 2, 2)] == bounds(tmp_path)


def test_the_end_of_the_log_is_searched_once_for_all_queues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []

    def counted(segments: Sequence[Segment]) -> FoundEnd:
        searched.append(len(segments))
        return find_end(segments)

    monkeypatch.setattr("store_core.snapshot.log_end.find_end", counted)
    write_log(tmp_path, 0)
    for topic in "abc":
        write_queue(tmp_path, unit(9), unit(10), topic=topic)

    assert [(0, 1, 1)] * 3 == bounds(tmp_path)
    assert [1] == searched


def test_what_was_committed_past_the_end_of_the_log_is_beyond_the_end(tmp_path: Path) -> None:
    write_log(tmp_path, 0)
    write_queue(tmp_path, unit(8), unit(9), unit(10))
    write_config(tmp_path, "consumerOffset.json", '{"offsetTable":{"t@a":{0:1},"t@b":{0:2},"t@c":{0:3}}}')
    found = [tuple(row.values()) for row in rows_of(tmp_path, "consumer_offsets", "max_offset,behind,state")]

    assert [(2, 1, "ok"), (2, 0, "ok"), (2, None, "beyond_end")] == found


@pytest.mark.parametrize(("log_start", "state"), [(0, "ok"), (800, "below_min")])
def test_an_offset_below_zero_counts_as_zero(log_start: int, state: str, tmp_path: Path) -> None:
    write_log(tmp_path, log_start)
    write_queue(tmp_path, unit(1), unit(8), unit(9))
    write_config(tmp_path, "consumerOffset.json", '{"offsetTable":{"t@a":{0:-1},"t@b":{0:0}}}')
    found = rows_of(tmp_path, "consumer_offsets", "min_offset,behind,state")

    assert [{"min_offset": bool(log_start), "behind": 3 - bool(log_start), "state": state}] * 2 == found


def test_times_of_records_that_are_not_there_are_unknown(tmp_path: Path) -> None:
    write_queue(tmp_path, unit(1), UNIT.pack(2**62, 100, 0))
    names = "oldest_store_timestamp,newest_store_timestamp"

    assert [dict.fromkeys(names.split(","))] == rows_of(tmp_path, "topics", names)


def test_committed_offsets_are_compared_with_their_queues(pristine: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = [tuple(row.values())[:-1] for row in rows_of(pristine, "consumer_offsets")]

    assert [
        ("billing", "gone", 0, 5, None, None, None, "no_queue"),
        ("audit", "orders", 1, 99, 0, 30, None, "beyond_end"),
        ("audit", "orders", 7, 3, None, None, None, "no_queue"),
        ("billing", "orders", 0, 10, 0, 30, 20, "ok"),
        ("billing", "orders", 1, 30, 0, 30, 0, "ok"),
    ] == found
    assert "ignored the offsets of 'no separator'" in caplog.text


def test_topics_and_queues_select_offsets(pristine: Path) -> None:
    assert ["orders"] * 2 == column(pristine, "consumer_offsets", "topic", topics_pattern="o.*", queue_id=1)
    assert ["gone"] == column(pristine, "consumer_offsets", "topic", topic="gone")


def test_offsets_of_light_queues_are_said_to_be_left_out(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_config(store, "lmqConsumerOffset.json", '{"lmqOffsetTable":{"%LMQ%a@%LMQ%a":3}}')

    assert 5 == len(rows_of(store, "consumer_offsets"))
    assert f"{path} is not read" in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"offsetTable":[]}',
        '{"offsetTable":{"a@b":{x:1}}}',
        '{"offsetTable":{"a@b":{0:"many"}}}',
        '{"offsetTable":{"a@b":{0:99999999999999999999}}}',
        '{"offsetTable":{"a@b":{99999999999:1}}}',
        '{"offsetTable":{"a@b":{0:null}}}',
        '{"offsetTable":' + "{a:" * 5000,
        "\ud800",
    ],
)
def test_a_broken_file_is_named_and_its_backup_read(text: str, store: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = store / "config" / "consumerOffset.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    error = refusal(store, "consumer_offsets")
    write_config(store, "consumerOffset.json.bak", CONSUMER_OFFSETS)

    assert isinstance(error, CorruptRecordError if text else StoreNotFoundError)
    assert str(path) in str(error)
    assert 5 == len(rows_of(store, "consumer_offsets"))
    assert f"{path}.bak" in caplog.text
