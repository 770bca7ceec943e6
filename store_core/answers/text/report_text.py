# SPDX-License-Identifier: Apache-2.0
"""Reports as text: sentences and tables that fit a terminal."""

from __future__ import annotations

import io
import textwrap
from typing import TYPE_CHECKING, Final

from store_core.answers.text.shown_text import escape_text
from store_core.answers.text.text_table import TableWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

__all__ = ["MOST_ROWS", "filled_columns", "report_text"]

MOST_ROWS: Final = 20
"""Rows of a table that a report shows by default."""

_INDENT: Final = "  "
_USUAL_WIDTH: Final = 80
"""Columns at which sentences are wrapped that go to no terminal."""


def report_text(lines: Iterable[str], tables: Iterable[tuple[str, pa.Table, int]], width: int | None) -> str:
    """Return lines, then tables.

    Parameters
    ----------
    tables : iterable of (str, pyarrow.Table, int)
        Heading, rows to show, and how many there are in all. One without rows is left out.
    width : int or None
        Columns of the terminal, see `TableWriter`; None if tables are not to be cut, as in a pipe.
    """
    parts = [_wrapped(escape_text(line), width or _USUAL_WIDTH) for line in lines]
    for heading, table, count in tables:
        if table.num_rows:
            parts += ["", f"{heading}:", *_table_lines(table, count, width)]
    return "\n".join(parts)


def filled_columns(table: pa.Table) -> pa.Table:
    """Return a table without the columns that have nothing."""
    return table.select([name for name in table.column_names if table[name].null_count < table.num_rows])


def _wrapped(line: str, width: int) -> str:
    return textwrap.fill(line, width, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False)


def _table_lines(table: pa.Table, count: int, width: int | None) -> Iterator[str]:
    """Yield the rows of a table, and how many more there are."""
    shown = filled_columns(table)
    stream = io.StringIO()
    writer = TableWriter(shown.schema, stream, width=width)
    writer.write(shown.combine_chunks().to_batches()[0])
    yield from stream.getvalue().splitlines()
    if count > shown.num_rows:
        yield f"... and {count - shown.num_rows:,} more, which the JSON has"
