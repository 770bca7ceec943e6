# SPDX-License-Identifier: Apache-2.0
"""Rows of Arrow batches as Python values that a line of text can show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Value", "rows_of", "slices_of"]

Value: TypeAlias = "int | float | str | bytes | bool | list[object] | dict[object, object] | None"
"""A value of a row: times are ISO 8601 text, maps are dictionaries."""

_ROWS_AT_ONCE: Final = 256
"""Rows that are turned into Python values at once, so that the first of them are printed early."""

_MILLISECOND: Final = 1000


def slices_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch into pieces of few rows. Copies no data."""
    for begin in range(0, batch.num_rows, _ROWS_AT_ONCE):
        yield batch.slice(begin, _ROWS_AT_ONCE)


def rows_of(batch: pa.RecordBatch) -> Iterator[tuple[Value, ...]]:
    """Return the rows of a batch as tuples of values."""
    return zip(*(_values(column) for column in batch.columns), strict=True)


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
