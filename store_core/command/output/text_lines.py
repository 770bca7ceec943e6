# SPDX-License-Identifier: Apache-2.0
"""Rows as lines of text for programs: JSON lines and CSV."""

from __future__ import annotations

import base64
import csv
import io
import json
from typing import TYPE_CHECKING, TextIO

from store_core.answers.text.row_values import rows_of, slices_of
from store_core.answers.text.shown_text import BytesStyle, escape_json, escape_text, plain_text, text_of

if TYPE_CHECKING:
    import pyarrow as pa

    from store_core.answers.text.row_values import Value

__all__ = ["CsvWriter", "JsonLinesWriter"]


class JsonLinesWriter:
    """Writes each row as an object on a line of its own.

    Bytes are a string if they are text, else an object with ``base64`` and ``length``; in the other styles they are
    always a string in that encoding.
    """

    def __init__(self, schema: pa.Schema, stream: TextIO, style: BytesStyle = BytesStyle.AUTO) -> None:
        self._names = schema.names
        self._stream = stream
        self._style = style

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch."""
        for piece in slices_of(batch):
            lines = (self._line(row) for row in rows_of(piece))
            self._stream.write("".join(lines))
            self._stream.flush()

    def close(self) -> None:
        """Do nothing: the last line is an end."""

    def _line(self, row: tuple[Value, ...]) -> str:
        named = dict(zip(self._names, row, strict=True))
        return escape_json(json.dumps(named, ensure_ascii=False, default=self._bytes)) + "\n"

    def _bytes(self, value: object) -> object:
        """Return what stands for bytes, the only values that JSON does not have."""
        if not isinstance(value, bytes):
            raise TypeError(f"JSON has no {type(value).__name__}")
        if self._style is not BytesStyle.AUTO:
            return text_of(value, self._style)
        text = plain_text(value)
        return {"base64": base64.b64encode(value).decode("ascii"), "length": len(value)} if text is None else text


class CsvWriter:
    """Writes a line of names, then a line per row (RFC 4180, with newlines as on this system).

    Keys are separated by blanks, and properties are JSON. Characters that are not safe on a terminal are escaped.
    """

    def __init__(self, schema: pa.Schema, stream: TextIO, style: BytesStyle = BytesStyle.AUTO) -> None:
        self._stream = stream
        self._style = style
        self._put([schema.names])

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch."""
        for piece in slices_of(batch):
            self._put([[self._cell(value) for value in row] for row in rows_of(piece)])
            self._stream.flush()

    def close(self) -> None:
        """Do nothing: the last line is an end."""

    def _put(self, rows: list[list[str]]) -> None:
        lines = io.StringIO(newline="")
        csv.writer(lines, lineterminator="\n").writerows(rows)
        self._stream.write(lines.getvalue())

    def _cell(self, value: Value) -> str:
        if isinstance(value, bytes):
            value = text_of(value, self._style)
        if isinstance(value, str):
            return "\n".join(escape_text(line) for line in value.split("\n"))
        return escape_text(cell_text(value))


def cell_text(value: Value) -> str:
    """Return the text of a value that is neither text nor bytes."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return " ".join("" if each is None else str(each) for each in value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)
