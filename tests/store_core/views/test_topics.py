# SPDX-License-Identifier: Apache-2.0
"""The views `topics` and `consumer_offsets`: bounds of queues beside the broker's files; the log is seldom walked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core import CorruptRecordError, StoreNotFoundError
from store_core.snapshot.log_end import FoundEnd, find_end
from store_core.snapshot.store import Store
from store_core.views.view import ViewOptions, plan_view
from tests.builders import BODY_AT, Record
from tests.store_core.views.asking import column, refusal, rows
from tests.store_core.views.test_consumequeue import FILLER, UNIT, unit, write_queue
from tests.viewed_store import CONSUMER_OFFSETS, FILE_SIZE, write_config

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from store_core.files.segment_source import Segment

BOUNDS = "min_offset,max_offset,messages"


def bounds(root: Path, **options: object) -> list[tuple[int, ...]]:
    return [tuple(row.values()) for row in rows(root, "topics", BOUNDS, **options)]


def write_log(root: Path, start: int) -> None:
    """Write a log with the records of `unit`: one each hundred bytes, from a position up to 1000."""
    segment = root / "commitlog" / f"{start:020d}"
    segment.parent.mkdir()
    spare = 100 - Record().size
    records = (Record(body=bytes(spare), physical_offset=at).encode() for at in range(start, 1000, 100))
    segment.write_bytes(b"".join(records).ljust(4096, b"\0"))


def test_queues_and_configuration_are_joined(pristine: Path) -> None:
    found = {(row["topic"], row["queue_id"]): row for row in rows(pristine, "topics")}
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
    rows(pristine, "topics", ",".join(without_times))
    last = max((pristine / "commitlog").iterdir(), key=lambda path: path.name)

    assert {str(last)} == {path for path in opened if "consumequeue" not in path}
    assert any("consumequeue" in path for path in opened)


def test_names_and_configuration_open_no_queue(pristine: Path, opened: list[str]) -> None:
    rows(pristine, "topics", "topic,queue_id,perm,in_queues")
    rows(pristine, "consumer_offsets", "consumer_group,topic,committed_offset")

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
    found = [tuple(row.values()) for row in rows(tmp_path, "consumer_offsets", "max_offset,behind,state")]

    assert [(2, 1, "ok"), (2, 0, "ok"), (2, None, "beyond_end")] == found


@pytest.mark.parametrize(("log_start", "state"), [(0, "ok"), (800, "below_min")])
def test_an_offset_below_zero_counts_as_zero(log_start: int, state: str, tmp_path: Path) -> None:
    write_log(tmp_path, log_start)
    write_queue(tmp_path, unit(1), unit(8), unit(9))
    write_config(tmp_path, "consumerOffset.json", '{"offsetTable":{"t@a":{0:-1},"t@b":{0:0}}}')
    found = rows(tmp_path, "consumer_offsets", "min_offset,behind,state")

    assert [{"min_offset": bool(log_start), "behind": 3 - bool(log_start), "state": state}] * 2 == found


def test_times_of_records_that_are_not_there_are_unknown(tmp_path: Path) -> None:
    write_queue(tmp_path, unit(1), UNIT.pack(2**62, 100, 0))
    names = "oldest_store_timestamp,newest_store_timestamp"

    assert [dict.fromkeys(names.split(","))] == rows(tmp_path, "topics", names)


def test_committed_offsets_are_compared_with_their_queues(pristine: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = [tuple(row.values())[:-1] for row in rows(pristine, "consumer_offsets")]

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

    assert 5 == len(rows(store, "consumer_offsets"))
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
    assert 5 == len(rows(store, "consumer_offsets"))
    assert f"{path}.bak" in caplog.text
