# SPDX-License-Identifier: Apache-2.0
"""JSON lines and CSV."""

from __future__ import annotations

import csv
import io
import json

import pyarrow as pa

from store_core.answers.shown_text import BytesStyle
from store_core.answers.text_table import TextWriter, rows_of
from store_core.command.output import CsvText, JsonLinesText
from store_core.format.columns import MAP_TYPE, STRINGS_TYPE

BATCH = pa.RecordBatch.from_arrays(
    [
        pa.array(["orders", "a,b"]),
        pa.array([1, 2], pa.int32()),
        pa.array([b'{"a": "x"}', b"\xff\x00"]),
        pa.array([["a", "b"], None], STRINGS_TYPE),
        pa.array([[("p", 'q"')], []], MAP_TYPE),
    ],
    ["topic", "queue_id", "body", "keys", "properties"],
)


def text_of(form: type[CsvText | JsonLinesText], style: BytesStyle = BytesStyle.AUTO) -> str:
    stream = io.StringIO()
    writer = TextWriter(form(BATCH.schema, style), stream)
    writer.write(BATCH)
    writer.close()
    return stream.getvalue()


def test_json_has_an_object_per_row_and_says_which_bytes_are_no_text() -> None:
    rows = [json.loads(line) for line in text_of(JsonLinesText).splitlines()]

    assert [
        {"topic": "orders", "queue_id": 1, "body": '{"a": "x"}', "keys": ["a", "b"], "properties": {"p": 'q"'}},
        {
            "topic": "a,b",
            "queue_id": 2,
            "body": {"base64": "/wA=", "length": 2},
            "keys": None,
            "properties": {},
        },
    ] == rows


def test_in_one_encoding_bytes_are_always_strings() -> None:
    rows = [json.loads(line) for line in text_of(JsonLinesText, BytesStyle.HEX).splitlines()]

    assert [b'{"a": "x"}'.hex(), "ff00"] == [row["body"] for row in rows]


def test_csv_reads_back_as_its_cells() -> None:
    rows = list(csv.reader(io.StringIO(text_of(CsvText))))

    assert [
        ["topic", "queue_id", "body", "keys", "properties"],
        ["orders", "1", '{"a": "x"}', "a b", '{"p": "q\\""}'],
        ["a,b", "2", "0xff00", "", "{}"],
    ] == rows


def test_csv_escapes_what_changes_a_terminal_and_keeps_lines() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([b"a\nb\t"]), pa.array(["\x1b[2J"])], ["body", "tags"])
    text = CsvText(batch.schema).text([*rows_of(batch)])

    assert [["body", "tags"], ["a\nb\\t", "\\x1b[2J"]] == list(csv.reader(io.StringIO(text)))
