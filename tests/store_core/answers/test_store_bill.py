# SPDX-License-Identifier: Apache-2.0
"""A bill has the totals of a plain count, names what is dead, and counts in segments what each topic costs."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from store_core import read_messages
from store_core.answers import Bill, bill, group_table, message_reads
from store_core.answers.report import Verdict
from store_core.errors import InvalidOptionError
from tests.builders import LogBuilder, Record

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from store_core.store.parts import Engine

DAY = 86_400_000


def log() -> LogBuilder:
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


def configure(store: Path, *topics: str) -> None:
    store.joinpath("config").mkdir()
    table = {name: {"topicName": name} for name in topics}
    store.joinpath("config", "topics.json").write_text(json.dumps({"topicConfigTable": table}))


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
    store = log().write(tmp_path)
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


def test_topics_are_dead_by_their_name_or_because_the_broker_does_not_have_them(tmp_path: Path) -> None:
    store = log().write(tmp_path)
    unknown = bill(store)
    configure(store, "orders", "empty")
    report = bill(store)

    kinds = {row["topic"]: (row["kind"], row["is_overhead"]) for row in report.tables["topics"].to_pylist()}
    assert {
        "orders": ("application", False),
        "old": ("unconfigured", True),
        "%RETRY%billing": ("retry", True),
        "%DLQ%billing": ("dead_letter", True),
        "RMQ_SYS_TRACE_TOPIC": ("trace", True),
    } == kinds
    assert report.found.bytes - counted(store, ["topic"])["orders",] == report.found.overhead_bytes
    assert {"application": 1, "unconfigured": 1, "retry": 1, "dead_letter": 1, "trace": 1} == {
        row["kind"]: row["topics"] for row in report.tables["kinds"].to_pylist()
    }
    assert "old" not in [row["topic"] for row in unknown.tables["topics"].to_pylist() if row["is_overhead"]]
    assert "has no config/topics.json" in unknown.to_text(200)


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
    report = bill(log().write(tmp_path), rows=2)
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
    assert all(len(row["tags"]) <= 200 for row in rows[:-1])
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
