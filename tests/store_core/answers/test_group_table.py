# SPDX-License-Identifier: Apache-2.0
"""Tables of groups have the totals of a plain count, however their rows come, and say what they leave out."""

from __future__ import annotations

import pickle
from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from store_core.answers import group_table
from store_core.answers.group_table import COUNT, MAX, MIN, SUM, GroupTable

if TYPE_CHECKING:
    import pytest

ROWS = pa.schema([("topic", pa.string()), ("queue", pa.int32()), ("bytes", pa.int64()), ("time", pa.int64())])
TOTALS = {"bytes": SUM, "messages": COUNT, "first": MIN, "last": MAX}
rows = st.lists(
    st.tuples(st.sampled_from(["a", "b", "", None, "x" * 300]), st.integers(0, 2), st.integers(0, 9), st.integers(0, 9))
)


def table_of(most: int = 100) -> GroupTable:
    schema = pa.schema([("topic", pa.string()), ("queue", pa.int32()), *((name, pa.int64()) for name in TOTALS)])
    return GroupTable(schema, TOTALS, most)


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


def test_the_smallest_groups_are_left_out_and_their_totals_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_table, "_UNTIL_MERGED", 4)
    table = table_of(2)
    for begin in range(0, 30, 3):
        table.add(batch_of([("large", 0, 50, begin), *((f"small{at}", 0, 1, at) for at in range(begin, begin + 3))]))

    found = table.table()
    assert "large" == found["topic"][0].as_py()
    assert 500 >= found["bytes"][0].as_py() >= 500 - table.uncertain
    assert 2 == found.num_rows
    assert 530 == table.left_out["bytes"] + sum(found["bytes"].to_pylist())
    assert 40 == table.left_out["messages"] + sum(found["messages"].to_pylist())
    assert 0 == min(table.left_out["first"], *found["first"].to_pylist())


def test_long_names_that_differ_at_their_end_stay_apart() -> None:
    table = table_of()
    table.add(batch_of([("x" * 300 + end, 0, 1, 1) for end in "abb"]))
    names = table.table()["topic"].to_pylist()

    assert 2 == len(names)
    assert all(len(name) <= 200 and name.startswith("x" * 150 + "... (301 characters, CRC-32 ") for name in names)
