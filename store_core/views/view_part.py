# SPDX-License-Identifier: Apache-2.0
"""What the parts of all views are, and how their rows become Arrow batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from store_core.format.table_time import table_times
from store_core.store.read.chunk_rows import tell_null_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from store_core.views.view_options import ViewOptions

__all__ = ["ViewPart", "make_batch", "name_text", "row_batches", "timestamps"]


class ViewPart(Protocol):
    """A part of a planned view: small, picklable, and read on its own. Memory is bounded by its batches."""

    def batches(self, options: ViewOptions) -> Iterator[pa.RecordBatch]:
        """Yield the part's rows, in order, as batches of the options' schema with at least one row.

        Raises
        ------
        StoreError
            If what was planned can't be read; for a file that is gone, only with `fail_on_data_loss`.
        """
        ...


def make_batch(options: ViewOptions, makers: Mapping[str, Callable[[], pa.Array]]) -> pa.RecordBatch:
    """Return a batch with the requested columns; the others are not made."""
    return pa.RecordBatch.from_arrays([makers[name]() for name in options.columns], schema=options.schema)


def row_batches(options: ViewOptions, rows: Sequence[Mapping[str, object]]) -> Iterator[pa.RecordBatch]:
    """Yield rows, given as mappings that have at least the requested columns."""
    most = options.read.max_records_per_batch
    schema = options.schema
    for first in range(0, len(rows), most):
        some = rows[first : first + most]
        yield pa.RecordBatch.from_arrays(
            [pa.array([row[field.name] for row in some], field.type) for field in schema], schema=schema
        )


def timestamps(
    milliseconds: npt.NDArray[np.int64], options: ViewOptions, name: str, place: Callable[[int], str]
) -> pa.TimestampArray:
    """Return times as a column, null outside the range of tables, and say so once in a read.

    Parameters
    ----------
    milliseconds : numpy.ndarray
        int64, shape (n,).
    options : ViewOptions
    name : str
        Of the column.
    place : callable
        Says what the time of a row belongs to.
    """
    column = table_times(milliseconds)
    if column.null_count:
        row = column.is_null().index(True).as_py()
        tell_null_time(options.read, place(row), name, int(milliseconds[row]))
    return column


def name_text(name: str) -> str:
    """Return a file's or directory's name as text; bytes that are not UTF-8 become U+FFFD."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
