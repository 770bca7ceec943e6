# SPDX-License-Identifier: Apache-2.0
"""Bills and producers have the totals of a plain count, however the log is divided, and say what they leave out."""

from __future__ import annotations

import json
import math
import pickle
import tempfile
from collections import Counter, defaultdict
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import read_messages
from store_core.answers import Bill, Producers, bill, group_table, message_reads, producers, store_producers
from store_core.answers.group_table import COUNT, MAX, MIN, SUM, GroupTable
from store_core.answers.report import Verdict
from store_core.answers.store_producers import buckets_of, percentiles
from store_core.errors import InvalidOptionError
from tests.builders import LogBuilder, Record, in_batch

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from store_core.store.parts import Engine


DAY = 86_400_000


def billed_log() -> LogBuilder:
    """Make a log of three days: topics of all kinds, tags, hosts of both families, and many ports."""
    made = LogBuilder(2048)
    topics = ("orders", "old", "%RETRY%billing", "%DLQ%billing", "RMQ_SYS_TRACE_TOPIC", "orders")
    for number in range(90):
        made.append(
            Record(b"x" * (number % 50), topics[number % len(topics)], queue_id=number % 2),
            properties={"TAGS": f"tag{number % 3}"} if number % 4 else {},
            born_host=("2001:db8::1" if number % 5 else "10.0.0.1", 1000 + number),
            store_timestamp=1_700_000_000_000 + number // 30 * DAY,
        )
    return made


def counted(store: Path, keys: Iterable[str]) -> Counter[tuple[Any, ...]]:
    """Sum bytes message by message."""
    columns = ["topic", "queue_id", "tags", "born_host", "store_timestamp", "segment", "store_size"]
    found: Counter[tuple[Any, ...]] = Counter()
    for row in read_messages(store, columns=columns).read_all().to_pylist():
        row["host"] = row["born_host"].rpartition(":")[0]
        row["day"] = f"{row['store_timestamp'].astimezone(UTC):%Y-%m-%d}"
        found[tuple(row[key] for key in keys)] += row["store_size"]
    return found


def test_totals_are_those_of_a_plain_count(tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_reads, "PART_BYTES", 700)
    store = billed_log().write(tmp_path)
    report = Bill().ask(store, engine=engine)

    keys = {
        "topics": ["topic"],
        "queues": ["topic", "queue_id"],
        "tags": ["topic", "tags"],
        "producers": ["host"],
        "days": ["day"],
    }
    for table, names in keys.items():
        rows = report.tables[table].to_pylist()
        assert counted(store, names) == {tuple(row[name] for name in names): row["bytes"] for row in rows}
        assert 90 == sum(row["messages"] for row in rows)
        assert 100 == pytest.approx(sum(row["percent"] for row in rows), abs=0.1)
    assert (90, sum(counted(store, ["topic"]).values())) == (report.found.messages, report.found.bytes)
    assert Verdict.CLEAN is report.verdict
    assert datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC) == report.tables["topics"]["oldest"][0].as_py()


def test_a_topic_costs_the_segments_that_have_nothing_else_and_those_that_its_bytes_fill(tmp_path: Path) -> None:
    made = LogBuilder(1024)
    for topic, count in (("a", 8), ("b", 12), ("a", 1)):
        for number in range(count):
            made.append(Record(b"%03d" % number * 30, topic))
        made.roll()
    store = made.write(tmp_path)
    report = bill(store)
    rows = {row["topic"]: row for row in report.tables["topics"].to_pylist()}

    places = counted(store, ["topic", "segment"])
    for topic, row in rows.items():
        mine = {segment for name, segment in places if name == topic}
        assert len(mine) == row["segments"]
        assert len(mine - {segment for name, segment in places if name != topic}) == row["own_segments"]
        total = report.found.bytes
        assert -(-total // 1024) - -(-(total - row["bytes"]) // 1024) == row["segments_saved"]
    assert rows["b"]["own_segments"] > 1


def test_rows_beyond_the_top_become_one(tmp_path: Path) -> None:
    report = bill(billed_log().write(tmp_path), rows=2)
    rows = report.tables["tags"].to_pylist()

    assert [None, None] == [row["others"] for row in rows[:2]]
    assert len(rows) == 3
    assert report.found.bytes == sum(row["bytes"] for row in rows)
    assert counted(tmp_path, ["topic", "tags"]).most_common(2)[1][1] == rows[1]["bytes"]
    assert "others" in report.to_html()
    with pytest.raises(InvalidOptionError, match="expected 1 or more, found 0"):
        bill(tmp_path, rows=0)


def test_hostile_tags_and_hosts_fill_no_memory_and_what_is_left_out_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_table, "_UNTIL_MERGED", 8)
    monkeypatch.setattr(group_table.GroupTable.__init__, "__defaults__", (6,))
    made = LogBuilder(8192)
    for number in range(40):
        made.append(Record(b"x" * number), properties={"TAGS": "\x1b[31m" + "t" * 300 + str(number)})
    report = bill(made.write(tmp_path))
    rows = report.tables["tags"].to_pylist()

    assert 7 == len(rows)
    assert (40, report.found.bytes) == (sum(row["messages"] for row in rows), sum(row["bytes"] for row in rows))
    assert all(" characters, CRC-32 " in row["tags"] and len(row["tags"]) <= 200 for row in rows[:-1])
    assert "there are more pairs of topic and tags than are counted one by one" in report.to_text(400)
    assert "\x1b" not in report.to_text()


def test_store_times_that_python_has_no_datetime_for_are_counted(tmp_path: Path) -> None:
    made = LogBuilder()
    made.append(b"{}")
    made.append(b"{}", store_timestamp=1 << 49)
    made.append(b"{}", topic="past", store_timestamp=-(1 << 49))
    report = bill(made.write(tmp_path))

    newest = report.tables["topics"]["newest"].cast(pa.int64()).to_pylist()
    assert sorted(newest) == [-(1 << 49) * 1000, (1 << 49) * 1000]
    assert "past" in report.to_text(80)
    assert '"orders"' in json.dumps(report.to_json())
    assert "orders" in report.to_html()


TOTALS = {"bytes": SUM, "messages": COUNT, "first": MIN, "last": MAX}
rows = st.lists(
    st.tuples(st.sampled_from(["a", "b", "", None, "x" * 300]), st.integers(0, 2), st.integers(0, 9), st.integers(0, 9))
)


def table_of() -> GroupTable:
    schema = pa.schema([("topic", pa.string()), ("queue", pa.int32()), *((name, pa.int64()) for name in TOTALS)])
    return GroupTable(schema, TOTALS)


def batch_of(found: list[tuple[str | None, int, int, int]]) -> pa.Table:
    columns = list(zip(*found, strict=True)) or [()] * 4
    named = dict(zip(("topic", "queue", "bytes", "first"), columns, strict=True))
    types = {"topic": pa.string(), "queue": pa.int32(), "bytes": pa.int64(), "first": pa.int64()}
    made = pa.table({name: pa.array(values, types[name]) for name, values in named.items()})
    return made.append_column("last", made["first"])


@given(st.lists(rows, max_size=4), st.integers(0, 4))
def test_totals_are_those_of_a_plain_count_however_rows_are_divided(
    batches: list[list[tuple[str | None, int, int, int]]], cut: int
) -> None:
    expected: dict[tuple[object, int], list[int]] = defaultdict(lambda: [0, 0, 99, -1])
    for topic, queue, size, time in (row for batch in batches for row in batch):
        shown = topic if topic is None or len(topic) <= 200 else topic[:150] + "..."
        total = expected[shown, queue]
        total[:] = [total[0] + size, total[1] + 1, min(total[2], time), max(total[3], time)]
    tables = [table_of(), table_of()]
    for number, batch in enumerate(batches):
        tables[number >= cut].add(batch_of(batch))
    tables[0].absorb(pickle.loads(pickle.dumps(tables[1])))  # noqa: S301 -- our own
    found = tables[0].table().to_pylist()

    def shown_name(name: str | None) -> str | None:
        return name if name is None else name[:153]

    assert {key: tuple(value) for key, value in expected.items()} == {
        (shown_name(row["topic"]), row["queue"]): tuple(row[name] for name in TOTALS) for row in found
    }
    assert sorted(-row["bytes"] for row in found) == [-row["bytes"] for row in found]
    assert (tables[0].left_out, tables[0].uncertain) == ({}, 0)


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


def test_duplicates_and_inversions_are_those_of_a_plain_comparison(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
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
    report = Producers(rows=1000).ask(store, engine=engine)

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
