# SPDX-License-Identifier: Apache-2.0
"""A read of few columns of some messages, which is reduced where it is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from store_core.answers.scanning.message_scan import PART_BYTES
from store_core.format.columns import arrow_schema
from store_core.store.read.message_reader import read_range
from store_core.store.read.option_values import ReadMode
from store_core.store.read.read_options import ReadOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from store_core.store.read.ranges import ReadRange

__all__ = ["MessageRead", "read_of"]


@dataclass(frozen=True, slots=True)
class MessageRead:
    """One read.

    Attributes
    ----------
    options : ReadOptions
    reduced : callable or None
        Makes of each batch the rows that are kept; a function of a module, since it is pickled.
    flag_bits : int
        If not 0: only records with one of these bits in ``sys_flag`` are kept by `reduced`, and damage.
    """

    options: ReadOptions
    reduced: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    flag_bits: int = 0

    def rows_of(self, part: ReadRange) -> pa.Table:
        """Return what is kept of a range."""
        return self.table_of(read_range(part, self.options))

    def table_of(self, batches: Iterable[pa.RecordBatch]) -> pa.Table:
        """Return what is kept of rows."""
        return pa.Table.from_batches([self.kept(self._empty()), *map(self.kept, batches)])

    def whole(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return the rows of several ranges."""
        nothing = pa.Table.from_batches([self.kept(self._empty())])
        return pa.concat_tables([nothing, *tables]).combine_chunks()

    def kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return what is kept of a batch."""
        return batch if self.reduced is None else self.reduced(batch)

    def _empty(self) -> pa.RecordBatch:
        schema = arrow_schema(self.options.columns, nullable=self.options.is_permissive)
        return pa.RecordBatch.from_pylist([], schema)


def read_of(
    columns: Sequence[str],
    reduced: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
    *,
    is_permissive: bool = False,
    flag_bits: int = 0,
    **options: object,
) -> MessageRead:
    """Return a read that goes on after damage, and makes rows of it if it is permissive.

    Parameters
    ----------
    columns : sequence of str
    reduced : callable, optional
    is_permissive : bool
    flag_bits : int
        As of `MessageRead`.
    **options
        As of `store_core.ReadOptions.parse`.

    Raises
    ------
    InvalidOptionError
        As `store_core.ReadOptions.parse`.
    """
    mode = ReadMode.PERMISSIVE if is_permissive else ReadMode.DROPMALFORMED
    fixed = {"mode": mode, "fail_on_data_loss": False, "max_partition_bytes": PART_BYTES}
    parsed = ReadOptions.parse(columns=tuple(columns), **fixed, **options)
    return MessageRead(replace(parsed, nearest_times=True), reduced, flag_bits)
