# SPDX-License-Identifier: Apache-2.0
"""Units of a queue as arrays, as far as one can follow the other, and what a look-up asks of any queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import numpy as np

from store_core.format.layout import MIN_RECORD_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.store.read.lookup.file_state import FileState

__all__ = ["START", "UNITS_AT_ONCE", "Place", "QueuePart", "QueueUnits", "UnitBlock", "UnitReading", "trusted_block"]

Place: TypeAlias = tuple[int, int]
"""Where the record of a unit ends in the log, and the queue offset after it."""

START: Final[Place] = (0, 0)

UNITS_AT_ONCE: Final = 1 << 14
"""Units converted at once: few enough to stay in the processor's cache."""

_LAST_START: Final = 2**63 - 2**32
"""Positions above it, which no log reaches, could overflow when a size is added."""


class UnitReading(Protocol):
    """The units of a part of a queue, if what precedes them is known.

    Attributes
    ----------
    place : Place
        After the units that were yielded.
    is_ended : bool
        Whether no unit of a later part is trusted.
    is_past : bool
        Whether it has more units, which were not read: they are of records behind the range that was asked for.
    state : FileState or None
        Of the file that is read; None if it is not one file.
    """

    place: Place
    is_ended: bool
    is_past: bool
    state: FileState | None

    def blocks(self, begin: int, end: int) -> Iterator[UnitBlock]:
        """Yield them as `QueueUnits.blocks` does."""


class QueuePart(Protocol):
    """A part of a queue, such as a file, that is read at once."""

    @property
    def path(self) -> str:
        """Name of the file."""

    @property
    def state(self) -> FileState | None:
        """The file's state when it was listed; None if it is not one file, so that nothing of it is kept."""

    @property
    def is_last(self) -> bool:
        """Whether a broker may append to it."""

    def open(self, place: Place) -> UnitReading:
        """Open it, given where the part before ends.

        Raises
        ------
        OSError
            As raised by the system.
        """


class QueueUnits(Protocol):
    """A queue whose units can be read, in files or in a RocksDB; the store is not opened, and nothing is trusted."""

    @property
    def topic(self) -> str:
        """Name of its topic."""

    @property
    def queue_id(self) -> int:
        """Its number."""

    def parts(self, begin: int) -> Iterator[QueuePart]:
        """Yield its parts without those all of whose records start before a place of the log."""

    def blocks(self, begin: int, end: int) -> Iterator[UnitBlock]:
        """Yield the units of records that start in a range of the log.

        They end at the first that is not a unit, as for RocketMQ: one with a negative position or too small a size.
        They also end where positions do not ascend, or records overlap: what follows is not trusted.

        Raises
        ------
        OSError
            As raised by the system.
        CorruptDatabaseError
            If a file of a RocksDB is damaged.
        """


@dataclass(frozen=True, slots=True, eq=False)
class UnitBlock:
    """Units that follow one another in a queue and in the log: ascending, without overlaps.

    Attributes
    ----------
    starts, ends : numpy.ndarray
        int64, shape (n,), n >= 1: physical offsets at which the records start, and one past their ends.
    first_index, last_index : int
        The lowest and the highest queue offset that the units stand for.
    own_indexes : numpy.ndarray or None
        Int64, shape (n,): the queue offset of each record, or of the first message in it, where units hold it
        themselves: in batch queues, and in a RocksDB. In the others queue offsets ascend by one.
    """

    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    first_index: int
    last_index: int
    own_indexes: npt.NDArray[np.int64] | None = None

    @property
    def indexes(self) -> npt.NDArray[np.int64]:
        """The queue offset of each record, or of the first message in it; int64, shape (n,)."""
        if self.own_indexes is not None:
            return self.own_indexes
        return np.arange(self.first_index, self.first_index + self.starts.size)

    def index_at(self, row: int) -> int:
        """Return one of `indexes`."""
        return self.first_index + row if self.own_indexes is None else int(self.own_indexes[row])

    def between(self, begin: int, end: int) -> UnitBlock | None:
        """Return the units of records that start in a range of the log; None if there are none."""
        if begin <= self.starts[0] and self.starts[-1] < end:
            return self
        first, stop = np.searchsorted(self.starts, (begin, end)).tolist()
        return self._rows(first, stop)

    def within(self, first: int, end: int) -> UnitBlock | None:
        """Return the units that begin in a range of queue offsets; None if there are none."""
        begin, stop = np.searchsorted(self.indexes, (first, end)).tolist()
        return self._rows(begin, stop)

    def _rows(self, first: int, stop: int) -> UnitBlock | None:
        if first >= stop:
            return None
        last = self.last_index if stop == self.starts.size else self.index_at(stop) - 1
        indexes = None if self.own_indexes is None else self.own_indexes[first:stop]
        return UnitBlock(self.starts[first:stop], self.ends[first:stop], self.index_at(first), last, indexes)


def trusted_block(
    units: npt.NDArray[np.void],
    first_index: int,
    place: Place,
    own: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None = None,
) -> UnitBlock | None:
    """Return the units up to the first that can't follow the one before it; None if that is the first.

    Parameters
    ----------
    units : numpy.ndarray
        With the fields `physical_offset` and `store_size`.
    first_index : int
        Queue offset of the first one, if units do not hold their own.
    place : Place
        Of the unit before.
    own : tuple of numpy.ndarray or None
        The queue offset of each unit, and for how many it stands, if units hold them.
    """
    starts, sizes = units["physical_offset"].astype(np.int64), units["store_size"].astype(np.int64)
    ends = starts + sizes
    if own is None and _follow_one_another(starts, sizes, ends, place[0]):
        return UnitBlock(starts, ends, first_index, first_index + len(units) - 1)
    is_sound = (sizes >= MIN_RECORD_SIZE) & (starts <= _LAST_START)
    is_sound[1:] &= starts[1:] >= ends[:-1]
    is_sound[0] &= starts[0] >= place[0]
    if own is not None:
        indexes, counts = own
        is_sound &= (counts > 0) & (indexes <= _LAST_START)
        is_sound[1:] &= indexes[1:] >= indexes[:-1] + counts[:-1]
        is_sound[0] &= indexes[0] >= place[1]
    count = len(units) if is_sound.all() else int(is_sound.argmin())
    if not count:
        return None
    if own is None:
        return UnitBlock(starts[:count], ends[:count], first_index, first_index + count - 1)
    last = int(own[0][count - 1] + own[1][count - 1]) - 1
    return UnitBlock(starts[:count], ends[:count], int(own[0][0]), last, own[0][:count])


def _follow_one_another(
    starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], begin: int
) -> bool:
    """Return whether all units can follow one another, in fewer passes than it takes to find the first that can't."""
    return bool(
        starts[0] >= begin
        and sizes.min() >= MIN_RECORD_SIZE
        and starts.max() <= _LAST_START
        and (starts[1:] >= ends[:-1]).all()
    )
