# SPDX-License-Identifier: Apache-2.0
"""Rows for people: a table that fits the terminal, and one row as a list of its fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TextIO

import pyarrow as pa

from store_core.answers.text.row_values import rows_of, slices_of
from store_core.answers.text.shown_text import BytesStyle, escape_text, text_of, text_width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.answers.text.row_values import Value

__all__ = ["FieldsWriter", "TableWriter", "cell_of"]

_GAP: Final = "  "
_CUT: Final = "…"
_NARROWEST: Final = 6
"""Columns of a terminal that a column of text keeps at least, when a table is too wide."""

_MOST_OF_A_CELL: Final = 1000
"""Characters of a value that a table looks at; it shows fewer, whatever the terminal."""

_BOLD: Final = "\x1b[1m"
_PLAIN: Final = "\x1b[0m"


class TableWriter:
    """Writes a table whose columns are as wide as the first rows need.

    Parameters
    ----------
    schema : pyarrow.Schema
    stream : TextIO
    style : BytesStyle
    width : int or None
        Columns of the terminal, which no line exceeds; None if rows are not to be cut, as in a pipe.
    is_coloured : bool
        Whether the line of names is bold.
    """

    def __init__(
        self,
        schema: pa.Schema,
        stream: TextIO,
        style: BytesStyle = BytesStyle.AUTO,
        *,
        width: int | None = None,
        is_coloured: bool = False,
    ) -> None:
        self._names: list[str] = schema.names
        self._is_number = [pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in schema.types]
        self._stream = stream
        self._style = style
        self._width = width
        self._is_coloured = is_coloured
        self._widths: list[int] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch; before the first, the line of names."""
        for piece in slices_of(batch):
            rows = [[cell_of(value, self._style) for value in row] for row in rows_of(piece)]
            self._begin(rows)
            self._stream.write("".join(self._line(row) for row in rows))
            self._stream.flush()

    def close(self) -> None:
        """Write the line of names, if there was no row."""
        self._begin([])

    def _begin(self, rows: list[list[str]]) -> None:
        if self._widths:
            return
        cells = [self._names, *rows]
        widths = [max(map(text_width, column)) for column in zip(*cells, strict=True)]
        self._widths = widths if self._width is None else self._fitted(widths, self._width)
        names = self._line(self._names)
        self._stream.write(f"{_BOLD}{names.rstrip()}{_PLAIN}\n" if self._is_coloured else names)

    def _fitted(self, widths: list[int], width: int) -> list[int]:
        """Narrow the widest columns of text until the table fits; numbers and times stay readable while they can."""
        excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
        fitted = list(widths)
        while excess > 0:
            texts = [at for at, is_number in enumerate(self._is_number) if not is_number and fitted[at] > _NARROWEST]
            if not texts:
                break
            at = max(texts, key=lambda at: fitted[at])
            fitted[at] -= 1
            excess -= 1
        return fitted

    def _line(self, row: Sequence[str]) -> str:
        cells = map(self._cell, row, self._widths, self._is_number)
        line = _GAP.join(cells).rstrip()
        return (line if self._width is None else _cut(line, self._width)) + "\n"

    def _cell(self, text: str, width: int, is_number: bool) -> str:  # noqa: FBT001 -- called by `map`
        if self._width is not None and not is_number:
            text = _cut(text, width)
        blanks = " " * (width - text_width(text))
        return blanks + text if is_number else text + blanks


class FieldsWriter:
    """Writes each row as a list of its fields, a field a line, with an empty line between rows."""

    def __init__(
        self, schema: pa.Schema, stream: TextIO, style: BytesStyle = BytesStyle.AUTO, *, is_coloured: bool = False
    ) -> None:
        self._names: list[str] = schema.names
        self._width = max(map(text_width, schema.names))
        self._stream = stream
        self._style = style
        self._is_coloured = is_coloured
        self._is_first = True

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch."""
        for piece in slices_of(batch):
            for row in rows_of(piece):
                self._stream.write(("" if self._is_first else "\n") + self._fields(row))
                self._is_first = False
            self._stream.flush()

    def close(self) -> None:
        """Do nothing: the last field is an end."""

    def _fields(self, row: tuple[Value, ...]) -> str:
        return "".join(
            line for name, value in zip(self._names, row, strict=True) for line in self._lines_of(name, value)
        )

    def _lines_of(self, name: str, value: Value) -> list[str]:
        """Return the lines of a field; each property has a line of its own."""
        if isinstance(value, dict) and value:
            shown = [f"{escape_text(str(key))}={escape_text(str(each))}" for key, each in value.items()]
        else:
            shown = [cell_of(value, self._style, most=None)]
            if isinstance(value, bytes):
                shown.append(f"({len(value)} bytes)")
        first = name.ljust(self._width)
        heads = [f"{_BOLD}{first}{_PLAIN}" if self._is_coloured else first] + [" " * self._width] * (len(shown) - 1)
        return [f"{head}{_GAP}{text}".rstrip() + "\n" for head, text in zip(heads, shown, strict=True)]


def cell_of(value: Value, style: BytesStyle, most: int | None = _MOST_OF_A_CELL) -> str:
    """Return a value as text on one line, safe for a terminal.

    Parameters
    ----------
    value : Value
    style : BytesStyle
    most : int or None
        Characters after which the text may be cut; None if it must be whole.
    """
    if value is None:
        return ""
    if isinstance(value, bytes):
        value = text_of(value if most is None else _beginning(value, most), style)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        value = " ".join("" if each is None else str(each) for each in value)
    if isinstance(value, dict):
        value = " ".join(f"{key}={each}" for key, each in value.items())
    text = str(value)
    return escape_text(text if most is None else text[:most])


def _beginning(data: bytes, most: int) -> bytes:
    """Return the beginning of bytes, cut where no character of UTF-8 is cut in two."""
    if len(data) <= most:
        return data
    end = most
    while end > most - 4 and data[end] & 0xC0 == 0x80:  # noqa: PLR2004 -- the bits of a byte that continues a character
        end -= 1
    return data[:end]


def _cut(text: str, width: int) -> str:
    """Cut a text to the columns of a terminal."""
    if text_width(text) <= width:
        return text
    kept, used = [], text_width(_CUT)
    for character in text:
        used += text_width(character)
        if used > width:
            break
        kept.append(character)
    return "".join(kept) + _CUT
