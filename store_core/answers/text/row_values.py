# SPDX-License-Identifier: Apache-2.0
"""Rows of Arrow batches as Python values that a line of text can show."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import tzinfo

__all__ = ["Value", "in_zone", "rows_of", "slices_of", "zoned"]

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)
Value: TypeAlias = "int | float | str | bytes | bool | list[object] | dict[object, object] | None"
"""A value of a row: times are ISO 8601 text, maps are dictionaries."""

_ROWS_AT_ONCE: Final = 256
"""Rows that are turned into Python values at once, so that the first of them are printed early."""

_MILLISECOND: Final = 1000
_TIME: Final = re.compile(r"(?<![0-9])[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")


def slices_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch into pieces of few rows. Copies no data."""
    for begin in range(0, batch.num_rows, _ROWS_AT_ONCE):
        yield batch.slice(begin, _ROWS_AT_ONCE)


def rows_of(batch: pa.RecordBatch) -> Iterator[tuple[Value, ...]]:
    """Return the rows of a batch as tuples of values."""
    return zip(*(_values(column) for column in batch.columns), strict=True)


def in_zone(text: str, zone: tzinfo | None) -> str:
    """Return a text with its times, which are in UTC, as those of a zone; None leaves them.

    Examples
    --------
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


def zoned(rows: Rows, zone: tzinfo | None) -> Rows:
    """Return a table or batch whose times are text in a zone; None leaves them."""
    if zone is None:
        return rows
    for at, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            column = rows.column(at)
            times = _times(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
            texts = [None if each is None else in_zone(str(each), zone) for each in times]
            rows = rows.set_column(at, field.name, pa.array(texts, pa.string()))
    return rows


def _values(column: pa.Array) -> list[Value]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return _times(column)
    if pa.types.is_map(kind):
        return [None if value is None else dict(value) for value in column.to_pylist()]
    return list(column.to_pylist())


def _times(column: pa.Array) -> list[Value]:
    """Return times as text; a store can hold times that Python's own ``datetime`` can't."""
    micros = column.cast(pa.timestamp("us")).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    times = (micros // _MILLISECOND).astype("datetime64[ms]")
    texts = np.datetime_as_string(times, timezone="UTC").tolist()
    is_null = column.is_null().to_pylist()
    return [None if absent else text for text, absent in zip(texts, is_null, strict=True)]
