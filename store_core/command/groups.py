# SPDX-License-Identifier: Apache-2.0
"""Counts of messages and bytes by the values of columns, with bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from store_core.answers.scanning.group_table import COUNT, SUM, GroupTable
from store_core.errors import InvalidOptionError
from store_core.format.columns import CORRUPT_RECORD, column_named, resolve_columns
from store_core.format.words import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Groups"]

_TIMES: Final = {"minute": 60_000_000, "hour": 3_600_000_000, "day": 86_400_000_000}
"""Groups by store time that are not columns of their own -> microseconds."""

_STORED: Final = "store_timestamp"
_SIZE: Final = "store_size"
_COUNTS: Final = ("messages", "bytes")
_MOST: Final = 1 << 22
"""The most groups: those of a column that differs in each record would fill the memory."""


class Groups:
    """Counts rows in groups.

    * `names`: What the rows are grouped by: columns, and ``minute``, ``hour`` and ``day``.
    * `columns`: Columns of the batches.
    * `messages`: Rows counted so far.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        needed = dict.fromkeys([*(_STORED if name in _TIMES else name for name in names), _SIZE])
        self.columns = tuple(needed)
        self.messages = 0
        self._bytes = 0
        fields = [pa.field(name, column_named(_STORED if name in _TIMES else name).type) for name in names]
        counts = [pa.field(count, pa.int64()) for count in _COUNTS]
        totals = dict(zip(_COUNTS, (COUNT, SUM), strict=True))
        self._groups = GroupTable(pa.schema([*fields, *counts]), totals, _MOST, cuts_keys=False)

    @classmethod
    def by(cls, names: Sequence[str]) -> Self:
        """Return empty counts.

        Raises `InvalidOptionError`: If a name is neither a column of single values nor a unit of time, or is given
        twice.
        """
        found = [_resolved(name) for name in names]
        for name in found:
            if found.count(name) > 1:
                raise InvalidOptionError(f"{name!r} is named twice in {', '.join(names)}")
            if name not in _TIMES and (pa.types.is_nested(column_named(name).type) or name == CORRUPT_RECORD):
                raise InvalidOptionError(f"messages can't be counted by {name!r}, whose values are not single ones")
        return cls(tuple(found))

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the rows of a batch."""
        self.messages += batch.num_rows
        sizes = batch.column(_SIZE)
        self._bytes += pc.sum(sizes, min_count=0).as_py()
        if not self.names:
            return
        arrays = [_values(batch, name) for name in self.names]
        self._groups.add(pa.table([*arrays, sizes], [*self.names, _COUNTS[1]]))
        self._check()

    def table(self) -> pa.Table:
        """Return the counts, ordered by the groups; a single row if there are none."""
        if not self.names:
            return pa.table({_COUNTS[0]: [self.messages], _COUNTS[1]: [self._bytes]})
        found = self._groups.table()
        self._check()
        return found.sort_by([(name, "ascending") for name in self.names])

    def _check(self) -> None:
        """Refuse to go on if there are too many groups.

        Raises `InvalidOptionError`: If groups were left out.
        """
        if self._groups.left_out:
            raise InvalidOptionError(
                f"there are more than {_MOST} groups by {', '.join(self.names)}: name fewer columns"
            )


def _resolved(name: str) -> str:
    """Return what a name means: a column, or a unit of time."""
    if name.lower() in _TIMES:
        return name.lower()
    try:
        return resolve_columns([name])[0]
    except InvalidOptionError as error:
        hint = did_you_mean(name, _TIMES)
        text = f"messages can't be counted by {name!r}; {hint}" if hint else f"{error}; and {', '.join(_TIMES)}"
        raise InvalidOptionError(text) from error


def _values(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name not in _TIMES:
        return batch.column(name)
    stored = batch.column(_STORED)
    unit = _TIMES[name]
    earliest = pa.scalar(-(2**63 // unit) * unit, pa.int64()).cast(stored.type)  # flooring what is earlier overflows
    return pc.floor_temporal(pc.if_else(pc.less(stored, earliest), earliest, stored), unit=name)
