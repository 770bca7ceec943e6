# SPDX-License-Identifier: Apache-2.0
"""Totals by groups in bounded memory, their largest rows, and counts of messages by columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from store_core.errors import InvalidOptionError
from store_core.format.columns import CORRUPT_RECORD, column_named, resolve_columns
from store_core.format.crc32 import crc32
from store_core.format.words import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


COUNT: Final = "count"
"""How many rows a group has; no column of the rows has it."""

SUM: Final = "sum"
MIN: Final = "min"
MAX: Final = "max"

MOST_GROUPS: Final = 1 << 16
"""Groups that a table has at most, unless it is told otherwise."""

_UNTIL_MERGED: Final = 1 << 16
"""Rows of partial totals that are collected before they are merged."""

_JOINED: Final[Mapping[str, Callable[[list[Any]], Any]]] = {COUNT: sum, SUM: sum, MIN: min, MAX: max}
"""How totals of parts become one."""

_LONGEST_KEY: Final = 200
"""Characters of a key; a longer one is cut, with its checksum, so that hostile ones can't fill the memory."""

_CUT_KEY: Final = 150
"""Characters that are left of a longer one; with what says so it is no longer than `_LONGEST_KEY`."""


class GroupTable:
    """Totals by groups; picklable, and of bounded size.

    If there are more groups than it may have, the smallest are left out, and only their totals are kept: `left_out`
    and `uncertain` then say how much that can be. With fewer groups, everything is exact.

    * `rows`: Keys, and columns that are totalled.
    * `totals`: Column -> `COUNT`, `SUM`, `MIN` or `MAX`; the first decides which groups are large. The others are the
      keys.
    * `most`: Groups that are kept.
    * `cuts_keys`: Whether strings of more than 200 characters are cut.

    * `left_out`: Totals of the rows whose groups were left out; empty if there are none.
    * `uncertain`: By how much the first total of a kept group may be too small, at most.
    """

    def __init__(
        self, rows: pa.Schema, totals: Mapping[str, str], most: int = MOST_GROUPS, *, cuts_keys: bool = True
    ) -> None:
        self._schema = rows
        self._keys = [name for name in rows.names if name not in totals]
        self._totals = dict(totals)
        self._most = most
        self._cuts_keys = cuts_keys
        self._partial: list[pa.Table] = []
        self._rows = 0
        self.left_out: dict[str, Any] = {}
        self.uncertain = 0

    def add(self, rows: pa.Table) -> None:
        """Count rows, which have the keys and the columns that are totalled."""
        self.add_totals(self.totals_of(rows))

    def totals_of(self, rows: pa.Table) -> pa.Table:
        """Return the totals of rows alone, without adding them."""
        ways: list[Any] = [([], "count_all") if how == COUNT else (name, how) for name, how in self._totals.items()]
        return rows.group_by(self._keys, use_threads=False).aggregate(ways).rename_columns(self._names)

    def add_totals(self, totals: pa.Table) -> None:
        """Add totals of groups; it may have several rows of a group, and its columns in any order."""
        totals = totals.select(self._names)
        self._partial.append(_with_short_keys(totals, self._keys) if self._cuts_keys else totals)
        self._rows += totals.num_rows
        if self._rows > max(_UNTIL_MERGED, 2 * self._partial[0].num_rows):
            self._merge()

    def absorb(self, other: Self) -> None:
        """Add the totals of another table of the same keys and totals."""
        self.add_totals(other.table())
        self._leave_out(other.left_out)
        self.uncertain += other.uncertain

    def table(self) -> pa.Table:
        """Return the totals, the largest group first, and groups of one size by their keys."""
        self._merge()
        return self._partial[0].sort_by(self._order)

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: the totals, merged."""
        self._merge()
        return self.__dict__

    @property
    def _names(self) -> list[str]:
        return [*self._keys, *self._totals]

    @property
    def _weight(self) -> str:
        return next(iter(self._totals))

    @property
    def _order(self) -> list[tuple[str, str]]:
        return [(self._weight, "descending"), *((name, "ascending") for name in self._keys)]

    def _merge(self) -> None:
        """Merge the partial totals into one table, which has no more groups than it may."""
        again = [(name, SUM if how == COUNT else how) for name, how in self._totals.items()]
        merged = (
            pa.concat_tables([self._empty(), *self._partial]).group_by(self._keys, use_threads=False).aggregate(again)
        )
        self._partial = [merged.rename_columns(self._names).combine_chunks()]
        if merged.num_rows > self._most:
            self._partial = [self._largest()]
        self._rows = self._partial[0].num_rows

    def _largest(self) -> pa.Table:
        """Return the largest groups, and leave the others out."""
        ordered = self._partial[0].sort_by(self._order)
        small = ordered.slice(self._most)
        self.uncertain += pc.max(small[self._weight]).as_py()
        calls = {MIN: pc.min, MAX: pc.max}
        self._leave_out({name: calls.get(how, pc.sum)(small[name]).as_py() for name, how in self._totals.items()})
        return ordered.slice(0, self._most).combine_chunks()

    def _leave_out(self, totals: Mapping[str, Any]) -> None:
        for name, value in totals.items():
            values = [each for each in (self.left_out.get(name), value) if each is not None]
            self.left_out[name] = _JOINED[self._totals[name]](values)

    def _empty(self) -> pa.Table:
        counts = {name: pa.int64() for name, how in self._totals.items() if how in (COUNT, SUM)}
        types = [(name, counts.get(name) or self._schema.field(name).type) for name in self._names]
        return pa.schema(types).empty_table()


def _with_short_keys(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Cut the long strings among keys; such that are equal up to there differ by their checksums."""
    for at, name in enumerate(keys):
        if pa.types.is_string(table.schema.field(name).type):
            longest = pc.max(pc.utf8_length(table[name])).as_py() or 0
            if longest > _LONGEST_KEY:
                table = table.set_column(at, name, pa.array(map(_cut, table[name].to_pylist()), pa.string()))
    return table


def _cut(text: str | None) -> str | None:
    if text is None or len(text) <= _LONGEST_KEY:
        return text
    return f"{text[:_CUT_KEY]}... ({len(text)} characters, CRC-32 {crc32(text.encode()):08x})"


TOP: Final = 50
"""Rows of a table by default."""

OTHERS_DOC: Final = "null; in the last row, with the totals of all other groups: how many they are, or at least are"
"""Meaning of the column `others` in a report."""


def top_rows(groups: GroupTable, most: int, totals: Sequence[str]) -> list[dict[str, Any]]:
    """Return the largest groups, and a row with the totals of all others, if there are any.

    * `most`: Groups that have a row of their own.
    * `totals`: Columns that are summed for the others.
    """
    table = groups.table()
    rows: list[dict[str, Any]] = table.slice(0, most).to_pylist()
    rest = table.slice(most)
    if not rest.num_rows and not groups.left_out:
        return rows
    summed = {name: (pc.sum(rest[name]).as_py() or 0) + groups.left_out.get(name, 0) for name in totals}
    return [*rows, {**summed, "others": rest.num_rows}]


def uncertain_note(groups: GroupTable, what: str) -> tuple[str, ...]:
    """Return what an operator should know of groups that were left out, in words; nothing if there are none.

    * `groups`: Its first total is in bytes.
    * `what`: What the groups are, in the plural.
    """
    if not groups.left_out:
        return ()
    said = f"each that is listed may have up to {groups.uncertain:,} bytes more than it says"
    return (f"there are more {what} than are counted one by one: the smallest are among the others, and {said}",)


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
                raise InvalidOptionError(
                    f"messages can't be counted by {name!r}: expected a column with one value a message, such as tags"
                )
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
