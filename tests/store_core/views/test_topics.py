# SPDX-License-Identifier: Apache-2.0
"""The views `topics` and `consumer_offsets`: bounds of queues beside the broker's files; the log is not walked."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from store_core import CorruptRecordError, StoreNotFoundError
from store_core.views.view_options import ViewOptions
from store_core.views.view_plan import plan_view
from tests.store_core.views.asking import column, refusal, rows
from tests.store_core.views.test_consumequeue import FILLER, UNIT, unit, write_queue
from tests.viewed_store import CONSUMER_OFFSETS, FILE_SIZE, write_config

if TYPE_CHECKING:
    from pathlib import Path

BOUNDS = "min_offset,max_offset,messages"


def bounds(root: Path, **options: object) -> list[tuple[int, ...]]:
    return [tuple(row.values()) for row in rows(root, "topics", BOUNDS, **options)]


def test_queues_and_configuration_are_joined(pristine: Path) -> None:
    found = {(row["topic"], row["queue_id"]): row for row in rows(pristine, "topics")}
    order, idle, payment = found["orders", 1], found["idle", None], found["payments", 0]

    assert [("idle", None), ("orders", 0), ("orders", 1), ("payments", 0)] == list(found)
    assert {"messages": 30, "read_queue_nums": 4, "write_queue_nums": 8, "perm": 6}.items() <= order.items()
    assert [("+message.type", "NORMAL")] == order["attributes"]
    assert (True, False, None, None) == (idle["in_config"], idle["in_queues"], idle["messages"], idle["attributes"])
    assert (False, True, None) == (payment["in_config"], payment["in_queues"], payment["perm"])


def test_the_log_is_not_opened_unless_times_are_asked_for(pristine: Path, opened: list[str]) -> None:
    without_times = [name for name in ViewOptions.parse("topics").columns if "timestamp" not in name]
    rows(pristine, "topics", ",".join(without_times))

    assert opened
    assert all("consumequeue" in path for path in opened)


def test_names_and_configuration_open_no_queue(pristine: Path, opened: list[str]) -> None:
    rows(pristine, "topics", "topic,queue_id,perm,in_queues")
    rows(pristine, "consumer_offsets", "consumer_group,topic,committed_offset")

    assert [] == opened


def test_planning_opens_no_queue(pristine: Path, opened: list[str]) -> None:
    plan_view(pristine, ViewOptions.parse("topics"))
    plan_view(pristine, ViewOptions.parse("consumer_offsets"))

    assert [] == opened


def test_without_the_file_configuration_is_unknown_and_not_absent(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store.joinpath("config", "topics.json").unlink()

    assert [None] * 3 == column(store, "topics", "in_config")
    assert "has no config/topics.json" in caplog.text


def test_without_queues_configured_topics_are_rows(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")

    assert [("idle", False), ("orders", False)] == [
        (row["topic"], row["in_queues"]) for row in rows(store, "topics", "topic,in_queues")
    ]


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
    segment = tmp_path / "commitlog" / f"{log_start:020d}"
    segment.parent.mkdir()
    segment.write_bytes(bytes(4096))

    assert [(*expected, expected[1] - expected[0])] == bounds(tmp_path)


def test_times_of_records_that_are_not_there_are_unknown(tmp_path: Path) -> None:
    write_queue(tmp_path, unit(1), UNIT.pack(2**62, 100, 0))
    names = "oldest_store_timestamp,newest_store_timestamp"

    assert [dict.fromkeys(names.split(","))] == rows(tmp_path, "topics", names)


def test_committed_offsets_are_compared_with_their_queues(pristine: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = [tuple(row.values()) for row in rows(pristine, "consumer_offsets")]

    assert [
        ("billing", "gone", 0, 5, None, None, None, "no_queue"),
        ("audit", "orders", 1, 99, 0, 30, None, "beyond_end"),
        ("audit", "orders", 7, 3, None, None, None, "no_queue"),
        ("billing", "orders", 0, 10, 0, 30, 20, "ok"),
        ("billing", "orders", 1, 30, 0, 30, 0, "ok"),
    ] == found
    assert "ignored the offsets of 'no separator'" in caplog.text


def test_messages_that_are_gone_are_not_ones_to_consume(store: Path) -> None:
    for segment in sorted((store / "commitlog").iterdir())[:2]:
        segment.unlink()
    first = column(store, "topics", "min_offset", topic="orders", queue_id=0)[0]
    row = rows(store, "consumer_offsets", topic="orders", queue_id=0)[0]

    assert first > 10
    assert ("below_min", first, 30 - first) == (row["state"], row["min_offset"], row["behind"])


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


def test_a_missing_file_is_an_error_unless_tolerated(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = store / "config" / "consumerOffset.json"
    path.unlink()
    error = refusal(store, "consumer_offsets")

    assert isinstance(error, StoreNotFoundError)
    assert str(path) in str(error)
    assert f"{path}.bak" in str(error)
    assert [] == rows(store, "consumer_offsets", fail_on_data_loss=False)
    assert f"{path}.bak" in caplog.text
