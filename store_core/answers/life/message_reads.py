# SPDX-License-Identifier: Apache-2.0
"""Reading few columns of some messages in parts: several reads of one log at once, each reduced where it is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from store_core.answers.scanning.message_scan import PART_BYTES
from store_core.format.columns import arrow_schema
from store_core.store.read.message_reader import read_range
from store_core.store.read.option_values import ReadMode
from store_core.store.read.read_options import ReadOptions
from store_core.store.read.read_plan import plan_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from store_core.files.store_path import StorePaths
    from store_core.store.read.ranges import ReadRange

__all__ = ["FoundRows", "MessageRead", "ReadJob", "ReadPart", "read_of"]


@dataclass(frozen=True, slots=True)
class MessageRead:
    """One read.

    Attributes
    ----------
    options : ReadOptions
    reduced : callable or None
        Makes of each batch the rows that are kept; a function of a module, since it is pickled.
    """

    options: ReadOptions
    reduced: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None

    def rows_of(self, part: ReadRange) -> pa.Table:
        """Return what is kept of a range."""
        batches = read_range(part, self.options)
        return pa.Table.from_batches([self._kept(self._empty()), *map(self._kept, batches)])

    def whole(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return the rows of several ranges."""
        nothing = pa.Table.from_batches([self._kept(self._empty())])
        return pa.concat_tables([nothing, *tables]).combine_chunks()

    def _kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if self.reduced is None else self.reduced(batch)

    def _empty(self) -> pa.RecordBatch:
        schema = arrow_schema(self.options.columns, nullable=self.options.is_permissive)
        return pa.RecordBatch.from_pylist([], schema)


def read_of(
    columns: Sequence[str],
    reduced: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
    *,
    is_permissive: bool = False,
    **options: object,
) -> MessageRead:
    """Return a read that goes on after damage, and makes rows of it if it is permissive.

    Raises
    ------
    InvalidOptionError
        As `store_core.ReadOptions.parse`.
    """
    mode = ReadMode.PERMISSIVE if is_permissive else ReadMode.DROPMALFORMED
    fixed = {"mode": mode, "fail_on_data_loss": False, "max_partition_bytes": PART_BYTES}
    return MessageRead(ReadOptions.parse(columns=tuple(columns), **fixed, **options), reduced)


@dataclass(frozen=True, slots=True)
class ReadPart:
    """A range of the log that one of the reads needs."""

    name: str
    range: ReadRange


@dataclass(frozen=True, slots=True)
class FoundRows:
    """What the reads found.

    Attributes
    ----------
    tables : dict of str to pyarrow.Table
        By the name of the read, in log order.
    notes : tuple of str
        What an operator should know of the log.
    """

    tables: dict[str, pa.Table]
    notes: tuple[str, ...]


class ReadJob:
    """Reads a log several times at once, in parts; see `store_core.store.parts.Job`.

    Parameters
    ----------
    paths : path or sequence of paths
    reads : mapping of str to MessageRead
        Planned in this order: a later one sees all that an earlier one does.
    """

    def __init__(self, paths: StorePaths, reads: Mapping[str, MessageRead]) -> None:
        self.paths = paths
        self.reads = dict(reads)
        self.notes: tuple[str, ...] = ()

    def plan(self) -> Sequence[ReadPart]:
        """Return the parts: what each read needs of each segment."""
        plans = {name: plan_ranges(self.paths, read.options) for name, read in self.reads.items()}
        self.notes = tuple(dict.fromkeys(note for plan in plans.values() for note in plan.notes))
        return [ReadPart(name, _without_tail(part)) for name, plan in plans.items() for part in plan.ranges]

    def run(self, part: ReadPart) -> tuple[str, pa.Table]:
        """Read one part."""
        return part.name, self.reads[part.name].rows_of(part.range)

    def merge(self, partials: Iterable[tuple[str, pa.Table]]) -> FoundRows:
        """Put the rows of each read together."""
        found: dict[str, list[pa.Table]] = {name: [] for name in self.reads}
        for name, table in partials:
            found[name].append(table)
        return FoundRows({name: self.reads[name].whole(tables) for name, tables in found.items()}, self.notes)


def _without_tail(part: ReadRange) -> ReadRange:
    """Return a range without what a dead writer left after the log's end: that is no damage in it."""
    return replace(part, end=min(part.end, part.data_end), torn_end=0)
