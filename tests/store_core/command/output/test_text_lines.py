# SPDX-License-Identifier: Apache-2.0
"""JSON lines and CSV."""

from __future__ import annotations

import csv
import io
import json

import pyarrow as pa

from store_core.answers.shown_text import BytesStyle
from store_core.command.output import CsvWriter, JsonLinesWriter, RowWriter
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


def text_of(writer_type: type[CsvWriter | JsonLinesWriter], style: BytesStyle = BytesStyle.AUTO) -> str:
    stream = io.StringIO()
    writer: RowWriter = writer_type(BATCH.schema, stream, style)
    writer.write(BATCH)
    writer.close()
    return stream.getvalue()


def test_json_has_an_object_per_row_and_says_which_bytes_are_no_text() -> None:
    rows = [json.loads(line) for line in text_of(JsonLinesWriter).splitlines()]

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
    rows = [json.loads(line) for line in text_of(JsonLinesWriter, BytesStyle.HEX).splitlines()]

    assert [b'{"a": "x"}'.hex(), "ff00"] == [row["body"] for row in rows]


def test_csv_reads_back_as_its_cells() -> None:
    rows = list(csv.reader(io.StringIO(text_of(CsvWriter))))

    assert [
        ["topic", "queue_id", "body", "keys", "properties"],
        ["orders", "1", '{"a": "x"}', "a b", '{"p": "q\\""}'],
        ["a,b", "2", "0xff00", "", "{}"],
    ] == rows


def test_csv_escapes_what_changes_a_terminal_and_keeps_lines() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([b"a\nb\t"]), pa.array(["\x1b[2J"])], ["body", "tags"])
    stream = io.StringIO()
    CsvWriter(batch.schema, stream).write(batch)

    assert [["body", "tags"], ["a\nb\\t", "\\x1b[2J"]] == list(csv.reader(io.StringIO(stream.getvalue())))
