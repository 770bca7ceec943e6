# SPDX-License-Identifier: Apache-2.0
"""Tables fit the terminal, and show every value on its line."""

from __future__ import annotations

import io
from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from store_core.answers.shown_text import BytesStyle, text_width
from store_core.answers.text_table import TableText, TextWriter, cell_of, rows_of
from store_core.format.columns import MAP_TYPE, STRINGS_TYPE, TIMESTAMP_TYPE


def table_of(batch: pa.RecordBatch, width: int | None = None, *, is_coloured: bool = False) -> list[str]:
    stream = io.StringIO()
    writer = TextWriter(TableText(batch.schema, width=width, is_coloured=is_coloured), stream)
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


_TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Z", "C"]), min_size=1, max_size=40)
_COLUMNS = {
    "messages": (st.integers(-(2**63), 2**63 - 1), pa.int64()),
    "percent": (st.floats(0, 100), pa.float64()),
    "last_timestamp": (st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1)), pa.timestamp("ms")),  # noqa: DTZ001
    "topic": (_TEXTS, pa.string()),
    "consumer_group": (_TEXTS, pa.string()),
    "keys": (st.lists(_TEXTS, max_size=2), pa.list_(pa.string())),
    "body": (st.binary(max_size=200), pa.binary()),
    "why": (st.text(st.characters(codec="utf-8"), max_size=120), pa.string()),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.RecordBatch:
    names = draw(st.lists(st.sampled_from(sorted(_COLUMNS)), min_size=1, unique=True))
    count = draw(st.integers(1, 4))
    columns = {
        name: pa.array(draw(st.lists(values, min_size=count, max_size=count)), kind)
        for name, (values, kind) in ((name, _COLUMNS[name]) for name in names)
    }
    return batch_of(**columns)


@given(tables(), st.integers(1, 120))
def test_numbers_times_and_what_tells_rows_apart_are_whole_at_every_width(batch: pa.RecordBatch, width: int) -> None:
    shown = "\n".join(table_of(batch, width)).split()
    free = [name in {"body", "why"} for name in batch.schema.names]
    whole = [
        word
        for row in rows_of(batch)
        for value, is_free in zip(row, free, strict=True)
        if not is_free
        for word in cell_of(value, BytesStyle.AUTO).split()
    ]

    assert not Counter(whole) - Counter(shown)


@given(tables(), st.integers(30, 120))
def test_a_line_is_wider_than_the_terminal_only_where_a_whole_value_is(batch: pa.RecordBatch, width: int) -> None:
    widest = max(text_width(cell_of(value, BytesStyle.AUTO)) for row in rows_of(batch) for value in row)

    assert all(text_width(line) <= max(width, widest + 2) for line in table_of(batch, width))


@given(tables())
def test_a_table_that_fits_is_the_same_on_a_terminal(batch: pa.RecordBatch) -> None:
    lines = table_of(batch)

    assert lines == table_of(batch, max(map(text_width, lines)) + 1000)


def test_too_long_names_stand_on_several_lines() -> None:
    batch = batch_of(queue_id=pa.array([7]), max_queue_offset=pa.array([12]))

    assert ["          max_", "queue_  queue_", "    id  offset", "     7      12"] == table_of(batch, 15)


def test_words_stand_on_several_lines() -> None:
    batch = batch_of(at=pa.array([7, 8]), why=pa.array(["expected 21,430 bytes, found 21 of them", "sound"]))

    assert ["at  why", " 7  expected 21,430 bytes,", "    found 21 of them", " 8  sound"] == table_of(batch, 30)


def test_a_long_word_is_broken_and_nothing_of_it_is_lost() -> None:
    assert ["why", "a", "n" * 24, "n" * 6] == table_of(batch_of(why=pa.array(["a " + "n" * 30])), 24)


def test_rows_that_do_not_fit_are_lists_of_their_fields() -> None:
    topics = pa.array(["a-topic", "another-topic-with-a-name"])
    batch = batch_of(topic=topics, messages=pa.array([2143, 7]), why=pa.array(["some words that are long", ""]))

    assert [
        "topic     a-topic",
        "messages  2143",
        "why       some words",
        "          that are",
        "          long",
        "",
        "topic",
        "  another-topic-with-a-name",
        "messages  7",
        "why",
    ] == table_of(batch, 21)


def test_later_rows_are_whole_too() -> None:
    numbers = pa.array([7] * 300 + [123_456_789_012])

    assert "123456789012" == table_of(batch_of(messages=numbers), 9)[-1]


def test_only_the_names_are_bold() -> None:
    lines = table_of(batch_of(topic=pa.array(["orders"])), 80, is_coloured=True)

    assert ["\x1b[1mtopic\x1b[0m", "orders"] == lines


def test_a_huge_body_is_cut_where_no_character_is() -> None:
    body = ("é" * 5000).encode()
    line = table_of(batch_of(body=pa.array([b"a" + body])), 80)[1]

    assert ("a" + "é" * 78 + "…") == line
