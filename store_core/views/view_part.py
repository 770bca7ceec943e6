# SPDX-License-Identifier: Apache-2.0
"""What the parts of all views are, and how their rows become Arrow batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa

from store_core.format.columnar.arrow_slices import fixed_array
from store_core.format.columns import TIMESTAMP_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from store_core.views.view_options import ViewOptions

__all__ = ["ViewPart", "make_batch", "name_text", "row_batches", "timestamps"]

_MICROSECONDS: Final = 1000
_LAST_MILLISECOND: Final = (2**63 - 1) // _MICROSECONDS


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


def timestamps(milliseconds: npt.NDArray[np.int64]) -> pa.TimestampArray:
    """Return times in ms as a column; those beyond Arrow's range are clamped to it."""
    times = np.clip(milliseconds, -_LAST_MILLISECOND, _LAST_MILLISECOND) * _MICROSECONDS
    return fixed_array(times, TIMESTAMP_TYPE)


def name_text(name: str) -> str:
    """Return a file's or directory's name as text; bytes that are not UTF-8 become U+FFFD."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
