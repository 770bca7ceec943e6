# SPDX-License-Identifier: Apache-2.0
"""What is said of producers is what a plain comparison of all their sends says, however the log is divided."""

from __future__ import annotations

import math
import tempfile
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import read_messages
from store_core.answers import message_reads, producers, store_producers
from store_core.answers.report import Verdict
from store_core.answers.store_producers import bucket_begin, buckets_of, percentiles
from tests.builders import LogBuilder, Record, in_batch

if TYPE_CHECKING:
    from pathlib import Path

BORN = 1_700_000_000_000


def send(made: LogBuilder, number: int, **fields: Any) -> None:  # noqa: ANN401 -- those of Record
    properties = {"UNIQ_KEY": f"K{number:04d}"} | fields.pop("properties", {})
    record = Record(
        b"x" * number, properties=properties, born_timestamp=BORN + number, store_timestamp=BORN + number + 7
    )
    made.append(record, **{"store_timestamp": BORN + number + 7, **fields})


@pytest.fixture
def log() -> LogBuilder:
    """Make a log of sound sends."""
    made = LogBuilder(2048)
    for number in range(40):
        send(made, number, properties={"__SHARDINGKEY": f"s{number % 3}"}, queue_id=number % 3)
    return made


def sends_of(store: Path) -> list[dict[str, Any]]:
    columns = ["topic", "queue_id", "queue_offset", "physical_offset", "born_timestamp", "properties"]
    rows = read_messages(store, columns=columns).read_all().to_pylist()
    return [row | {"properties": dict(row["properties"])} for row in rows]


def test_sound_sends_are_no_findings(log: LogBuilder, tmp_path: Path) -> None:
    report = producers(log.write(tmp_path))
    found = report.found

    assert Verdict.CLEAN is report.verdict
    assert (40, 40, 40, 40) == (found.messages, found.sends, found.unique_keys, found.sharding_keys)
    assert [{"host": "10.1.2.3", "sends": 40, "ahead": 0, "least": 7, "p1": 7, "p50": 7, "p99": 7, "most": 7}] == (
        report.tables["hosts"].to_pylist()
    )
    sizes = sorted(record.size for record in log.records)
    (row,) = report.tables["sizes"].to_pylist()
    assert (sizes[0], sizes[19], sizes[-1]) == (row["least"], row["p50"], row["most"])


@pytest.mark.parametrize("processes", [1, 2])
def test_duplicates_and_inversions_are_those_of_a_plain_comparison(
    tmp_path: Path, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_reads, "PART_BYTES", 900)
    monkeypatch.setattr(store_producers, "_GROUP_BYTES", 1500)
    random = np.random.default_rng(7)
    made = LogBuilder(2048)
    for number in range(120):
        key = int(random.integers(0, 90))
        properties = {"UNIQ_KEY": f"K{key}"} | ({"__SHARDINGKEY": f"s{key % 7}"} if key % 2 else {})
        record = Record(b"", ("orders", "mail")[number % 2], properties, queue_id=key % 7 // 3 * (number % 3 > 0))
        made.append(record, born_timestamp=BORN + key, store_timestamp=BORN + number)
    store = made.write(tmp_path / "store")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    report = producers(store, rows=1000, processes=processes)

    keys, places = defaultdict(list), defaultdict(list)
    for row in sends_of(store):
        keys[row["properties"]["UNIQ_KEY"]].append(row)
        if "__SHARDINGKEY" in row["properties"]:
            places[row["topic"], row["properties"]["__SHARDINGKEY"], row["queue_id"]].append(row)
    twice = {key: rows for key, rows in keys.items() if len(rows) > 1}
    assert {
        (key, len(rows), rows[0]["topic"], rows[0]["physical_offset"], rows[-1]["physical_offset"])
        for key, rows in twice.items()
    } == {tuple(row.values()) for row in report.tables["duplicates"].to_pylist()}
    assert (len(twice), 120 - len(keys)) == (report.found.duplicate_keys, report.found.duplicate_sends)
    late = {
        (then["physical_offset"], (first["born_timestamp"] - then["born_timestamp"]).microseconds // 1000)
        for rows in places.values()
        for first, then in pairwise(rows)
        if then["born_timestamp"] < first["born_timestamp"]
    }
    rows = report.tables["inverted"].to_pylist()
    assert late == {(row["physical_offset"], row["milliseconds"]) for row in rows}
    assert len(late) == report.found.inversions > 0
    queues = defaultdict(set)
    for topic, key, queue in places:
        queues[topic, key].add(queue)
    spread = {(*name, len(found)) for name, found in queues.items() if len(found) > 1}
    rows = report.tables["spread"].to_pylist()
    assert spread == {(row["topic"], row["sharding_key"], row["queues"]) for row in rows}
    assert len(spread) == report.found.spread_keys > 0
    assert sum(row["ahead"] for row in report.tables["hosts"].to_pylist()) == report.found.ahead > 0
    assert Verdict.FINDINGS is report.verdict
    assert ["store"] == [path.name for path in tmp_path.iterdir()]


def test_messages_of_a_batch_are_not_the_same_message(tmp_path: Path) -> None:
    """But those of a batch that was sent again are."""
    made = LogBuilder(4096)
    for number in (0, 1, 2, 3, 4, 2):
        made.append(b"", topic="orders", properties=in_batch(f"own-{number}", "batch"))
    report = producers(made.write(tmp_path))

    assert (6, 6) == (report.found.sends, report.found.unique_keys)
    assert (1, 1) == (report.found.duplicate_keys, report.found.duplicate_sends)
    assert ["own-2"] == report.tables["duplicates"]["unique_key"].to_pylist()


def test_a_committed_transaction_without_its_topic_in_a_property_is_no_second_send(tmp_path: Path) -> None:
    """RocketMQ 5.5 leaves REAL_TOPIC out of the message that it makes of a half message."""
    made = LogBuilder(4096)
    half = {"UNIQ_KEY": "K", "REAL_TOPIC": "orders", "TRAN_MSG": "true"}
    first = made.append(b"", topic="RMQ_SYS_TRANS_HALF_TOPIC", properties=half)
    made.append(
        b"", topic="orders", sys_flag=8, prepared_transaction_offset=first.physical_offset, properties={"UNIQ_KEY": "K"}
    )
    found = producers(made.write(tmp_path)).found

    assert (1, 0) == (found.sends, found.duplicate_sends)


@pytest.mark.parametrize(
    ("topic", "fields"),
    [
        ("%RETRY%billing", {"reconsume_times": 1}),
        ("%DLQ%billing", {}),
        ("orders", {"reconsume_times": 1}),
        ("orders", {"properties": {"REAL_TOPIC": "orders"}}),
        ("SCHEDULE_TOPIC_XXXX", {"reconsume_times": 1, "properties": {"REAL_TOPIC": "%RETRY%billing"}}),
        ("RMQ_SYS_TRANS_HALF_TOPIC", {"properties": {"REAL_TOPIC": "orders", "TRANSACTION_CHECK_TIMES": "1"}}),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", {}),
    ],
)
def test_copies_that_a_broker_made_are_no_sends(
    log: LogBuilder, topic: str, fields: dict[str, Any], tmp_path: Path
) -> None:
    send(log, 3, topic=topic, born_timestamp=BORN - 10**9, **fields)
    report = producers(log.write(tmp_path))

    assert (41, 40, 0) == (report.found.messages, report.found.sends, report.found.duplicate_keys)
    assert 7 == report.tables["hosts"]["most"][0].as_py()


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC"])
def test_a_message_that_waits_is_a_send(log: LogBuilder, topic: str, tmp_path: Path) -> None:
    send(log, 3, topic=topic, properties={"REAL_TOPIC": "orders"})
    report = producers(log.write(tmp_path))

    assert (41, 1) == (report.found.sends, report.found.duplicate_keys)
    assert [("K0003", 2, "orders")] == [
        (row["unique_key"], row["sends"], row["topic"]) for row in report.tables["duplicates"].to_pylist()
    ]


numbers = st.one_of(st.integers(-300, 300), st.integers(-(1 << 40), 1 << 40), st.integers(-(1 << 63), (1 << 63) - 1))


@given(st.lists(numbers, min_size=1, max_size=30), st.integers(0, 100))
def test_a_percentile_is_the_number_of_its_rank_nearly(values: list[int], rank: int) -> None:
    buckets, counts = np.unique(buckets_of(np.array(values, np.int64)), return_counts=True)
    (found,) = percentiles(buckets.astype(np.int32), counts, [rank])
    exact = sorted(values)[max(math.ceil(rank / 100 * len(values)), 1) - 1]
    expected = min(max(exact, -(1 << 52)), 1 << 52)

    assert abs(found) <= abs(expected) <= abs(found) * (1 + 1 / 128)
    assert found == expected or abs(expected) > 255
    assert found == 0 or (found < 0) == (expected < 0)


@given(st.lists(numbers, min_size=2, max_size=9))
def test_buckets_have_the_order_of_their_numbers(values: list[int]) -> None:
    buckets = buckets_of(np.array(sorted(values), np.int64)).tolist()

    assert sorted(buckets) == buckets
    assert buckets == [int(buckets_of(np.array([bucket_begin(bucket)]))[0]) for bucket in buckets]
