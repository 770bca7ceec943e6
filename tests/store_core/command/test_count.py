# SPDX-License-Identifier: Apache-2.0
"""The command count."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from store_core import read_messages
from store_core.answers import group_table
from store_core.command.exit_code import ExitCode
from tests.store_core.command.calls import call

if TYPE_CHECKING:
    from pathlib import Path

    from tests.builders import LogBuilder


def counted(store: Path, *columns: str) -> dict[tuple[object, ...], tuple[int, int]]:
    """Count row by row."""
    messages: Counter[tuple[object, ...]] = Counter()
    sizes: Counter[tuple[object, ...]] = Counter()
    for row in read_messages(store, columns=[*columns, "store_size"]).read_all().to_pylist():
        group = tuple(row[name] for name in columns)
        messages[group] += 1
        sizes[group] += row["store_size"]
    return {group: (messages[group], sizes[group]) for group in messages}


def test_without_groups_it_counts_messages_and_bytes(store: Path) -> None:
    expected = counted(store)[()]

    assert [{"messages": expected[0], "bytes": expected[1]}] == call("count", store, "--format=jsonl").rows


@pytest.mark.parametrize(
    "columns", [("topic",), ("topic", "queue_id"), ("tags",), ("topic", "tags", "queue_id"), ("property.KEYS",)]
)
def test_groups_are_counted_and_in_their_order(store: Path, columns: tuple[str, ...]) -> None:
    rows = call("count", store, "--by", ",".join(columns), "--format=jsonl").rows

    found = {tuple(row[name] for name in columns): (row["messages"], row["bytes"]) for row in rows}
    assert counted(store, *columns) == found
    assert sorted(found) == list(found)


def test_messages_without_tags_are_a_group(log: LogBuilder, tmp_path: Path) -> None:
    log.append(b"without")
    rows = call("count", log.write(tmp_path), "--by=tags", "--format=jsonl").rows

    assert [None] == [row["tags"] for row in rows if row["messages"] == 1]


@pytest.mark.parametrize(("unit", "count"), [("minute", 40), ("hour", 7), ("day", 2)])
def test_messages_are_counted_by_their_store_time(store: Path, unit: str, count: int) -> None:
    rows = call("count", store, f"--by={unit}", "--format=jsonl").rows

    assert (count, 40) == (len(rows), sum(row["messages"] for row in rows))
    assert sorted(row[unit] for row in rows) == [row[unit] for row in rows]


@pytest.mark.parametrize("unit", ["minute", "hour", "day"])
def test_times_that_a_column_can_t_hold_are_in_a_group_of_their_own(log: LogBuilder, tmp_path: Path, unit: str) -> None:
    log.append(b"early", store_timestamp=-(2**62))
    rows = call("count", log.write(tmp_path), f"--by={unit}", "--format=jsonl").rows

    assert [1] == [row["messages"] for row in rows if row[unit] is None]
    assert 41 == sum(row["messages"] for row in rows)


def test_more_groups_than_memory_should_hold_are_refused(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_table, "_MOST", 10)

    called = call("count", store, "--by=physical_offset")

    assert (ExitCode.USAGE, b"") == (called.code, called.data)
    assert "more than 10 groups by physical_offset" in called.errors


@pytest.mark.parametrize(
    ("by", "problem"),
    [("keys", "one value a message"), ("properties", "one value a message"), ("topik", "did you mean 'topic'?"),
     ("hours", "did you mean 'hour'?"), ("week", "; and minute, hour, day"),
     ("topic,TOPIC", "named twice"), ("hour,hour", "named twice"), ("_corrupt_record", "one value a message")],
)  # fmt: skip
def test_what_messages_cannot_be_counted_by_is_refused(store: Path, by: str, problem: str) -> None:
    called = call("count", store, "--by", by)

    assert ExitCode.USAGE == called.code
    assert problem in called.errors


@pytest.mark.parametrize("has_queues", [False, True])
@pytest.mark.parametrize("command", ["count", "cat", "head", "explain"])
def test_an_unknown_queue_is_wrong_usage_too(store: Path, command: str, has_queues: bool) -> None:
    if has_queues:
        (store / "consumequeue" / "orders" / "0").mkdir(parents=True, exist_ok=True)
    called = call(command, store, "--queue-id=99")

    assert ExitCode.USAGE == called.code
    assert "queue 99: " in called.errors
    assert "the ids are 0" in called.errors
    assert ExitCode.DONE == call(command, store, "--queue-id=0").code
