# SPDX-License-Identifier: Apache-2.0
"""The rows that a command prints or writes, in several formats."""

from __future__ import annotations

import base64
import csv
import io
import json
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol

import click
import pyarrow as pa

from store_core.answers.shown_text import BytesStyle, escape_json, escape_text, json_of, plain_text, text_of
from store_core.answers.text_table import FieldsText, TableText, TextFormat, TextWriter, Value, plain_cell
from store_core.command.new_file import check_new, new_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import tzinfo
    from pathlib import Path


class RowWriter(Protocol):
    """Writes rows in one format to a stream that it does not close."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch; text of them is handed on before this returns."""

    def close(self) -> None:
        """Write what ends the format."""


class JsonLinesText:
    """Each row as an object on a line of its own.

    Bytes are a string if they are text, else an object with ``base64`` and ``length``; in hexadecimal digits and Base64
    they are always a string.
    """

    def __init__(self, schema: pa.Schema, style: BytesStyle = BytesStyle.AUTO) -> None:
        self._names = schema.names
        self._style = style

    def text(self, rows: Sequence[tuple[Value, ...]]) -> str:
        """Return the lines of rows."""
        named = (dict(zip(self._names, row, strict=True)) for row in rows)
        return "".join(f"{escape_json(_json(each, self._style))}\n" for each in named)


def _json(value: object, style: BytesStyle) -> str:
    """Return a value as JSON; a number that is none, or infinite, is null."""
    line = json.dumps(value, ensure_ascii=False, default=lambda each: _in_json(each, style))
    if "NaN" in line or "Infinity" in line:
        line = json.dumps(json.loads(line, parse_constant=lambda _: None), ensure_ascii=False)
    return line


def _in_json(value: object, style: BytesStyle) -> object:
    """Return what stands for a value that JSON does not have, such as bytes or a decimal number."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if not isinstance(value, bytes):
        return str(value)
    if style in {BytesStyle.HEX, BytesStyle.BASE64}:
        return text_of(value, style)
    found = json_of(value) if style is BytesStyle.JSON else None
    if found is not None:
        return found
    text = plain_text(value)
    return {"base64": base64.b64encode(value).decode("ascii"), "length": len(value)} if text is None else text


class CsvText:
    """A line of names, then a line per row (RFC 4180, with newlines as on this system).

    Keys are separated by blanks, and properties are JSON. Characters that are not safe on a terminal are escaped.
    """

    def __init__(self, schema: pa.Schema, style: BytesStyle = BytesStyle.AUTO) -> None:
        self._style = style
        self._head: list[list[str]] = [schema.names]

    def text(self, rows: Sequence[tuple[Value, ...]]) -> str:
        """Return the lines of rows; before the first, the line of names."""
        lines = io.StringIO(newline="")
        csv.writer(lines, lineterminator="\n").writerows([*self._head, *([*map(self._cell, row)] for row in rows)])
        self._head = []
        return lines.getvalue()

    def _cell(self, value: Value) -> str:
        text = _json(value, self._style) if isinstance(value, dict) else plain_cell(value, self._style)
        return "\n".join(escape_text(line) for line in text.split("\n"))


_BINARY: Final = frozenset({"arrow", "parquet"})
_FOR_PROGRAMS: Final = frozenset({"jsonl", "csv"})
_UTF_8: Final = "utf-8"


@dataclass(frozen=True, slots=True)
class Output:
    """Where a command's rows go, and in which format."""

    format: str  # one of `store_core.command.arguments.FORMATS`
    target: Path | None = None  # A file that does not exist yet; None for standard output
    style: BytesStyle = BytesStyle.AUTO
    width: int | None = None  # columns of a table on standard output; None if it is not to be cut
    is_terminal: bool = False  # whether standard output is one
    is_coloured: bool = False
    zone: tzinfo | None = None  # of the times in text; None is UTC

    @property
    def is_for_people(self) -> bool:
        """Whether rows should fit a line that a person reads."""
        return self.format == "table"

    def check(self) -> None:
        """Refuse what can't be written, before anything is read."""
        if self.target is None and self.format in _BINARY and self.is_terminal:
            raise click.UsageError(f"{self.format} is not for terminals: give --output FILE, or redirect the output")
        check_new("--output", self.target)

    def put(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
        """Write rows, and return how many there are."""
        rows = 0
        with self.writer(schema) as writer:
            for batch in batches:
                writer.write(batch)
                rows += batch.num_rows
        return rows

    @contextmanager
    def writer(self, schema: pa.Schema) -> Iterator[RowWriter]:
        """Provide a writer of rows. A file appears under its name when it is complete, and not at all otherwise."""
        if self.target is None:
            yield from self._rows_to(sys.stdout.buffer, schema)
            sys.stdout.buffer.flush()
            return
        with new_file(self.target) as stream:
            yield from self._rows_to(stream, schema)

    def _rows_to(self, stream: BinaryIO, schema: pa.Schema) -> Iterator[RowWriter]:
        if self.format in _BINARY:
            binary = pa.ipc.new_stream(stream, schema) if self.format == "arrow" else ParquetWriter(schema, stream)
            try:
                yield binary
            finally:
                binary.close()  # releases the stream, after an error as well
            return
        with _text(stream, _UTF_8 if self.target or self.format in _FOR_PROGRAMS else None) as text:
            writer = TextWriter(self._form(schema), text, self.zone)
            yield writer
            writer.close()

    def _form(self, schema: pa.Schema) -> TextFormat:
        if self.format == "jsonl":
            return JsonLinesText(schema, self.style)
        if self.format == "csv":
            return CsvText(schema, self.style)
        is_coloured = self.is_coloured and self.target is None
        if self.format == "fields":
            return FieldsText(schema, self.style, is_coloured=is_coloured)
        width = self.width if self.target is None else None
        return TableText(schema, self.style, width=width, is_coloured=is_coloured)


@contextmanager
def _text(stream: BinaryIO, encoding: str | None) -> Iterator[io.TextIOWrapper]:
    """Provide a stream of bytes as one of text; what the encoding does not have is escaped."""
    text = io.TextIOWrapper(stream, encoding or sys.stdout.encoding, "backslashreplace", newline="\n")
    try:
        yield text
        text.flush()
    finally:
        text.detach()


_GROUP_BYTES: Final = 64 << 20
"""Bytes of rows that are collected for a row group of Parquet, so that memory is bounded and groups are not tiny."""


class ParquetWriter:
    """Writes a Parquet file, compressed by Zstandard."""

    def __init__(self, schema: pa.Schema, stream: BinaryIO) -> None:
        self._schema = schema
        from pyarrow import parquet  # which few commands need

        self._writer = parquet.ParquetWriter(stream, schema, compression="zstd")
        self._collected: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch; many together become a row group."""
        self._collected.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= _GROUP_BYTES:
            self._put_group()

    def close(self) -> None:
        """Write the last row group and the footer."""
        self._put_group()
        self._writer.close()

    def _put_group(self) -> None:
        if self._collected:
            table = pa.Table.from_batches(self._collected, self._schema)
            self._writer.write_table(table, row_group_size=table.num_rows)
            self._collected, self._bytes = [], 0
