# SPDX-License-Identifier: Apache-2.0
"""Tables fit the terminal, and show every value on its line."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from store_core.answers.text.shown_text import text_width
from store_core.answers.text.text_table import TableWriter
from store_core.format.columns import MAP_TYPE, STRINGS_TYPE, TIMESTAMP_TYPE


def table_of(batch: pa.RecordBatch, width: int | None = None, *, is_coloured: bool = False) -> list[str]:
    stream = io.StringIO()
    writer = TableWriter(batch.schema, stream, width=width, is_coloured=is_coloured)
    writer.write(batch)
    writer.close()
    return stream.getvalue().splitlines()


def batch_of(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def test_numbers_stand_right_and_text_left() -> None:
    batch = batch_of(topic=pa.array(["orders", "b"]), queue_id=pa.array([7, 12]), body=pa.array([b"x", b"\x00"]))

    assert ["topic   queue_id  body", "orders         7  x", "b             12  0x00"] == table_of(batch)


def test_lists_maps_times_and_nulls_are_shown() -> None:
    batch = batch_of(
        time=pa.array([datetime(2023, 11, 14, 22, 13, 20, 500_000, UTC), None], TIMESTAMP_TYPE),
        keys=pa.array([["a", "b"], None], STRINGS_TYPE),
        properties=pa.array([[("x", "1"), ("y", "2\n")], []], MAP_TYPE),
        on=pa.array([True, False]),
    )

    assert [
        "time                      keys  properties  on",
        "2023-11-14T22:13:20.500Z  a b   x=1 y=2\\n   true",
        "                                            false",
    ] == table_of(batch)


def test_times_that_python_has_no_name_for_are_shown() -> None:
    batch = batch_of(time=pa.array([2**62, -(2**62)], pa.int64()).cast(TIMESTAMP_TYPE))

    assert 3 == len(table_of(batch))


def test_without_rows_the_names_are_shown() -> None:
    assert ["topic  queue_id"] == table_of(batch_of(topic=pa.array([], pa.string()), queue_id=pa.array([], pa.int32())))


def test_a_column_keeps_the_width_that_the_first_rows_gave_it_and_is_cut_only_on_a_terminal() -> None:
    wide = pa.array(["a"] * 256 + ["a longer one"])

    assert "a longer one" == table_of(batch_of(body=wide))[-1]
    assert "a l…" == table_of(batch_of(body=wide), 80)[-1]


@given(
    st.lists(st.tuples(st.text(max_size=120), st.text(max_size=120), st.integers(0, 2**31 - 1)), max_size=5),
    st.integers(30, 120),
)
def test_no_line_is_wider_than_the_terminal(rows: list[tuple[str, str, int]], width: int) -> None:
    first, second = (
        [text.encode("utf-8", "replace").decode() for text in texts]
        for texts in ([row[0] for row in rows], [row[1] for row in rows])
    )
    numbers = pa.array([number for _, _, number in rows], pa.int64())
    batch = batch_of(a=pa.array(first, pa.string()), b=pa.array(second, pa.string()), n=numbers)

    assert all(text_width(line) <= width for line in table_of(batch, width))


def test_only_the_names_are_bold() -> None:
    lines = table_of(batch_of(topic=pa.array(["orders"])), 80, is_coloured=True)

    assert ["\x1b[1mtopic\x1b[0m", "orders"] == lines


def test_a_huge_body_is_cut_where_no_character_is() -> None:
    body = ("é" * 5000).encode()
    line = table_of(batch_of(body=pa.array([b"a" + body])), 80)[1]

    assert ("a" + "é" * 78 + "…") == line
