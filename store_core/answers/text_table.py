# SPDX-License-Identifier: Apache-2.0
"""Rows and reports as text."""

from __future__ import annotations

import json
import re
import textwrap
from datetime import datetime, tzinfo
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.answers.shown_text import BytesStyle, escape_text, json_of, text_of, text_width

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


Value: TypeAlias = "int | float | str | bytes | bool | list[object] | dict[object, object] | None"
"""A value of a row: dates and times are ISO 8601 text, maps and structures are dictionaries."""

_ROWS_AT_ONCE: Final = 256
"""Rows that are turned into Python values at once, so that the first of them are printed early."""

_MILLISECOND: Final = 1000
_TIME: Final = re.compile(r"(?<![0-9])[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")


def rows_of(batch: pa.RecordBatch, zone: tzinfo | None = None) -> Iterator[tuple[Value, ...]]:
    """Return the rows of a batch as tuples of values, with times in a zone; None is UTC."""
    return zip(*(_values(column, zone) for column in batch.columns), strict=True)


def in_zone(text: str, zone: tzinfo | None) -> str:
    """Return a text with its times, which are in UTC, as those of a zone; None leaves them.

    >>> from datetime import timedelta, timezone
    >>> in_zone("from 2023-11-14T22:13:20.500Z on", timezone(timedelta(hours=8)))
    'from 2023-11-15T06:13:20.500+08:00 on'
    """
    return text if zone is None else _TIME.sub(lambda found: _moved(found[0], zone), text)


def _moved(text: str, zone: tzinfo) -> str:
    try:
        moved = datetime.fromisoformat(text).astimezone(zone).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError):  # no such time in Python, or in this zone
        return text
    return moved.replace("+00:00", "Z")


def _values(column: pa.Array, zone: tzinfo | None) -> list[Value]:
    """Return values; in lists, maps and structures they are what they are alone."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return _times(column, zone)
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        rows = zip(column.is_valid().to_pylist(), *(_values(each, zone) for each in column.flatten()), strict=True)
        return [dict(zip(names, row, strict=True)) if is_there else None for is_there, *row in rows]
    if pa.types.is_map(kind):
        pairs = column.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        names, values = (_values(each, zone) for each in pairs.flatten().flatten())
        return _gathered(dict, pairs, zip(map(plain_cell, names), values, strict=True))
    if pa.types.is_nested(kind):
        return _gathered(list, column, _values(column.flatten(), zone))
    if pa.types.is_date(kind) or pa.types.is_time(kind):  # Python has fewer
        column = column.cast(pa.string())
    return list(column.to_pylist())


def _gathered(kind: Callable[[Iterator[Any]], Value], lists: pa.Array, values: Iterable[object]) -> list[Value]:
    """Return what lists have of the values of all of them."""
    each, lengths = iter(values), pc.list_value_length(lists).to_pylist()
    return [None if length is None else kind(islice(each, length)) for length in lengths]


def _times(column: pa.Array, zone: tzinfo | None) -> list[Value]:
    """Return times as text; a store can hold times that Python's own ``datetime`` can't."""
    micros = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    times = (micros // _MILLISECOND).astype("datetime64[ms]")
    texts = np.datetime_as_string(times, timezone="UTC").tolist()
    is_null = column.is_null().to_pylist()
    return [None if absent else in_zone(text, zone) for text, absent in zip(texts, is_null, strict=True)]


_PARTS: Final = ("topic", "queue_id", "queue_offset")


def message_name(topic: str | None, queue_id: int | None, queue_offset: int | None) -> str | None:
    """Return the name of a message, or as much of it as is known; None without a topic.

    >>> message_name("orders", 1, 42), message_name("orders", 1, None)
    ('orders/1/42', 'orders/1')
    """
    known = [str(part) for part in (queue_id, queue_offset) if part is not None]
    return None if topic is None else "/".join([topic, *known])


def with_message_column(table: pa.Table) -> pa.Table:
    """Return a table with one column ``message`` in place of topic, queue and queue offset."""
    parts = (table[name].to_pylist() for name in _PARTS)
    names = pa.array([message_name(*each) for each in zip(*parts, strict=True)], pa.string())
    return table.set_column(table.column_names.index(_PARTS[0]), "message", names).drop_columns(list(_PARTS[1:]))


_GAP: Final = "  "
_CUT: Final = "…"
_NARROWEST: Final = 6
_NARROWEST_WORDS: Final = 24
"""Columns of a terminal that contents, and words, keep at least when a table is too wide."""

_CONTENTS: Final = frozenset({"body", "properties", "properties_string", "_corrupt_record"})
"""Columns that are cut where a terminal is too narrow: contents of messages are of any length."""

_WORDS: Final = frozenset({"expected", "found", "meaning", "note", "reason", "refusal", "what", "why"})
"""Columns that take several lines. All others are numbers, times, or tell rows apart: they stay whole on one line."""

_MOST_OF_A_CELL: Final = 1000
"""Characters of a value that a table takes; no terminal shows as many."""

_BOLD: Final = "\x1b[1m"
_PLAIN: Final = "\x1b[0m"


class TextFormat(Protocol):
    """How rows become text."""

    def text(self, rows: Sequence[tuple[Value, ...]]) -> str:
        """Return the text of the next rows; before the first of them, or for none at all, what the text begins with."""


class TextWriter:
    """Writes rows as text, with times in a zone."""

    def __init__(self, form: TextFormat, stream: TextIO, zone: tzinfo | None = None) -> None:
        self._form, self._stream, self._zone = form, stream, zone

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch; the first are handed on early."""
        for begin in range(0, batch.num_rows, _ROWS_AT_ONCE):
            self._stream.write(self._form.text([*rows_of(batch.slice(begin, _ROWS_AT_ONCE), self._zone)]))
            self._stream.flush()

    def close(self) -> None:
        """Write what the text begins with, if there was no row."""
        self._stream.write(self._form.text([]))


class TableText:
    """A table with columns as wide as the first rows need.

    If it is too wide for the terminal, names and words stand on several lines and contents are cut; numbers, times and
    what tells rows apart are always whole. If that is not enough, each row is a list of its fields.

    * `width`: Columns of the terminal; None if rows are not to be cut, as in a pipe.
    * `is_coloured`: Whether the names are bold.
    """

    def __init__(
        self,
        schema: pa.Schema,
        style: BytesStyle = BytesStyle.AUTO,
        *,
        width: int | None = None,
        is_coloured: bool = False,
    ) -> None:
        self._names: list[str] = schema.names
        self._is_number = list(map(is_number, schema.types))
        self._fits = [_cut if name in _CONTENTS else _in_lines if name in _WORDS else None for name in schema.names]
        self._style = style
        self._width = width
        self._is_coloured = is_coloured
        self._widths: list[int] = []
        self._is_stacked = False
        self._has_rows = False

    def text(self, rows: Sequence[tuple[Value, ...]]) -> str:
        """Return the lines of rows; before the first, the line of names."""
        cells = [[cell_of(value, self._style) for value in row] for row in rows]
        names = self._begin(cells)
        return names + "".join(map(self._fields if self._is_stacked else self._row, cells))

    def _begin(self, rows: list[list[str]]) -> str:
        """Choose the layout by the first rows, and return the names above them."""
        if self._widths:
            return ""
        heads = [[name] for name in self._names]
        self._widths = _needed(heads, rows)
        if self._excess() > 0:
            heads = [name.replace("_", "_\n").split("\n") for name in self._names]
            self._widths = _needed(heads, rows)
            self._narrow([max(map(text_width, head)) for head in heads])
            self._is_stacked = self._excess() > 0
        if self._is_stacked:
            return ""
        tallest = max(map(len, heads))
        lines = self._lines([[""] * (tallest - len(head)) + head for head in heads])
        return "".join(f"{_bold(line, self._is_coloured)}\n" for line in lines)

    def _excess(self) -> int:
        """Return by how many columns of the terminal the table is too wide."""
        return 0 if self._width is None else sum(self._widths) + len(_GAP) * (len(self._widths) - 1) - self._width

    def _narrow(self, heads: list[int]) -> None:
        """Narrow the widest columns until the table fits, each to its least width at most."""
        least = {
            at: max(heads[at], _NARROWEST if fit is _cut else _NARROWEST_WORDS)
            for at, fit in enumerate(self._fits)
            if fit is not None
        }
        while self._excess() > 0:
            wide = [at for at in least if self._widths[at] > least[at]]
            if not wide:
                break
            self._widths[max(wide, key=self._widths.__getitem__)] -= 1

    def _row(self, row: Sequence[str]) -> str:
        cells = [
            [text] if fit is None or self._width is None else fit(text, width)
            for text, fit, width in zip(row, self._fits, self._widths, strict=True)
        ]
        return "".join(f"{line}\n" for line in self._lines(cells))

    def _lines(self, cells: Sequence[list[str]]) -> Iterator[str]:
        """Yield the lines of a row of which each cell is some lines."""
        for line in zip_longest(*cells, fillvalue=""):
            yield _GAP.join(map(_aligned, line, self._widths, self._is_number)).rstrip()

    def _fields(self, row: Sequence[str]) -> str:
        """Return a row as a list of its fields; a value that does not fit beside its name stands below it."""
        width = self._width or 0
        before = max(map(text_width, self._names)) + len(_GAP)
        lines = [""] if self._has_rows else []
        self._has_rows = True
        for name, text, fit in zip(self._names, row, self._fits, strict=True):
            shown = [text] if fit is None else fit(text, max(width - before, _NARROWEST))
            if fit is None and text and before + text_width(text) > width:
                lines += [_bold(name, self._is_coloured), _GAP + text]
            else:
                lines += _field(name, shown, before, is_coloured=self._is_coloured)
        return "".join(f"{line}\n" for line in lines)


class FieldsText:
    """Each row as a list of its fields, a field a line, with an empty line between rows."""

    def __init__(self, schema: pa.Schema, style: BytesStyle = BytesStyle.AUTO, *, is_coloured: bool = False) -> None:
        self._names: list[str] = schema.names
        self._before = max(map(text_width, schema.names)) + len(_GAP)
        self._style = style
        self._is_coloured = is_coloured
        self._has_rows = False

    def text(self, rows: Sequence[tuple[Value, ...]]) -> str:
        """Return the lines of rows."""
        return "".join(f"{line}\n" for row in rows for line in self._lines(row))

    def _lines(self, row: tuple[Value, ...]) -> Iterator[str]:
        if self._has_rows:
            yield ""
        self._has_rows = True
        for name, value in zip(self._names, row, strict=True):
            yield from _field(name, self._shown(value), self._before, is_coloured=self._is_coloured)

    def _shown(self, value: Value) -> list[str]:
        """Return the lines of a value; each property has a line of its own."""
        if isinstance(value, dict) and value:
            return [f"{escape_text(str(key))}={cell_of(each, self._style, most=None)}" for key, each in value.items()]
        fields = json_of(value) if isinstance(value, bytes) and self._style is BytesStyle.JSON else None
        if isinstance(fields, dict) and fields:
            texts: dict[object, object] = {
                key: each if isinstance(each, str) else json.dumps(each) for key, each in fields.items()
            }
            return self._shown(texts)
        shown = [cell_of(value, self._style, most=None)]
        return [*shown, f"({len(value)} bytes)"] if isinstance(value, bytes) else shown


def is_number(kind: pa.DataType) -> bool:
    """Return whether values of a type stand right."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _needed(heads: list[list[str]], rows: list[list[str]]) -> list[int]:
    """Return the columns of a terminal that names and values need."""
    columns = zip(*rows, strict=True) if rows else [()] * len(heads)
    return [max(map(text_width, [*head, *column])) for head, column in zip(heads, columns, strict=True)]


def _aligned(text: str, width: int, is_number: bool) -> str:  # noqa: FBT001 -- called by `map`
    blanks = " " * (width - text_width(text))
    return blanks + text if is_number else text + blanks


def _field(name: str, shown: Sequence[str], before: int, *, is_coloured: bool) -> Iterator[str]:
    """Yield the lines of a field: its name, then its value, which begins at a column."""
    blanks = " " * (before - text_width(name))
    for at, text in enumerate(shown):
        yield ((_bold(name, is_coloured) + blanks if at == 0 else " " * before) + text).rstrip()


def _bold(text: str, is_coloured: bool) -> str:  # noqa: FBT001 -- what the terminal is
    return f"{_BOLD}{text}{_PLAIN}" if is_coloured else text


def cell_of(value: object, style: BytesStyle, most: int | None = _MOST_OF_A_CELL) -> str:
    """Return a value as text on one line, safe for a terminal.

    * `most`: Characters after which the text may be cut; None if it must be whole.
    """
    if isinstance(value, bytes):
        value = value if most is None else _beginning(value, most)
    text = plain_cell(value, style)
    return escape_text(text if most is None else text[:most])


def plain_cell(value: object, style: BytesStyle = BytesStyle.AUTO) -> str:
    """Return a value as text; elements of a list, and pairs of a dictionary, are separated by blanks."""
    if isinstance(value, bytes):
        return text_of(value, style)
    if isinstance(value, dict):
        return " ".join(f"{key}={plain_cell(each, style)}" for key, each in value.items())
    if isinstance(value, list):
        return " ".join(plain_cell(each, style) for each in value)
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _beginning(data: bytes, most: int) -> bytes:
    """Return the beginning of bytes, cut where no character of UTF-8 is cut in two."""
    if len(data) <= most:
        return data
    end = most
    while end > most - 4 and data[end] & 0xC0 == 0x80:  # noqa: PLR2004 -- the bits of a byte that continues a character
        end -= 1
    return data[:end]


def _fitting(text: str, width: int) -> int:
    """Return how many characters of a text fit into columns of a terminal."""
    used = 0
    for end, character in enumerate(text):
        used += text_width(character)
        if used > width:
            return end
    return len(text)


def _cut(text: str, width: int) -> list[str]:
    """Cut a text to the columns of a terminal."""
    return [text if text_width(text) <= width else text[: _fitting(text, width - text_width(_CUT))] + _CUT]


def _in_lines(text: str, width: int) -> list[str]:
    """Break a text between its words; a word that is longer than a line is broken, too."""
    lines: list[str] = []
    for word in text.split(" "):
        if lines and text_width(lines[-1]) + 1 + text_width(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
        while text_width(lines[-1]) > width and len(lines[-1]) > 1:
            end = max(_fitting(lines[-1], width), 1)
            lines[-1:] = [lines[-1][:end], lines[-1][end:]]
    return lines


MOST_ROWS: Final = 20
"""Rows of a table that a report shows by default."""

_INDENT: Final = "  "
_USUAL_WIDTH: Final = 80
"""Columns at which sentences are wrapped that go to no terminal."""


def report_text(
    lines: Iterable[str],
    tables: Iterable[tuple[str, pa.Table, int]],
    commands: Iterable[tuple[str, str]],
    width: int | None,
    zone: tzinfo | None = None,
) -> str:
    """Return lines, then tables, then what to do next, with times in a zone; None is UTC.

    * `tables`: heading, rows to show, and how many there are in all. One without rows is left out.
    * `commands`: command lines, which stay on a line, and what each is for.
    * `width`: Columns of the terminal, see `TableText`; None if tables are not to be cut, as in a pipe.
    """
    parts = [_wrapped(escape_text(in_zone(line, zone)), width or _USUAL_WIDTH) for line in lines]
    for heading, table, count in tables:
        if table.num_rows and table.num_columns:
            parts += ["", _wrapped(f"{heading}:", width or _USUAL_WIDTH), *_table_lines(table, count, width, zone)]
    for at, (command, tells) in enumerate(commands):
        line = _INDENT + escape_text(command)
        gap = "  " if width is None or len(line) + len(tells) + 4 <= width else f"\n{2 * _INDENT}"
        parts += [*(["", "Next:"] if at == 0 else []), f"{line}{gap}# {tells}" if tells else line]
    return "\n".join(parts)


def filled_columns(table: pa.Table) -> pa.Table:
    """Return a table without the columns that have nothing."""
    return table.select([name for name in table.column_names if table[name].null_count < table.num_rows])


def _wrapped(line: str, width: int) -> str:
    return textwrap.fill(line, width, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False)


def _table_lines(table: pa.Table, count: int, width: int | None, zone: tzinfo | None) -> Iterator[str]:
    """Yield the rows of a table, and how many more there are."""
    shown = filled_columns(table)
    rows = [*rows_of(shown.combine_chunks().to_batches()[0], zone)]
    yield from TableText(shown.schema, width=width).text(rows).splitlines()
    if count > shown.num_rows:
        yield f"... and {count - shown.num_rows:,} more, which the JSON has"
