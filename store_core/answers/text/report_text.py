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

__all__ = ["report_text"]

_MOST_ROWS: Final = 20
_INDENT: Final = "  "


def report_text(lines: Iterable[str], tables: Iterable[tuple[str, pa.Table]], width: int) -> str:
    """Return lines, then each table that has rows with its heading; no line of a table is wider than `width`."""
    parts = [_wrapped(escape_text(line), width) for line in lines]
    for heading, table in tables:
        if table.num_rows:
            parts += ["", f"{heading}:", *_table_lines(table, width)]
    return "\n".join(parts)


def _wrapped(line: str, width: int) -> str:
    return textwrap.fill(line, width, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False)


def _table_lines(table: pa.Table, width: int) -> Iterator[str]:
    """Yield the first rows of a table, without the columns in which these have nothing."""
    shown = table.slice(0, _MOST_ROWS)
    shown = shown.select([name for name in shown.column_names if shown[name].null_count < shown.num_rows])
    stream = io.StringIO()
    writer = TableWriter(shown.schema, stream, width=width)
    writer.write(shown.combine_chunks().to_batches()[0])
    yield from stream.getvalue().splitlines()
    if table.num_rows > _MOST_ROWS:
        yield f"... and {table.num_rows - _MOST_ROWS:,} more, which the JSON has"
