# SPDX-License-Identifier: Apache-2.0
"""Entries of consume queues: 20 bytes with a record's position, size and tags code, or 46 in a queue of batches.

Those of a queue of batches locate a record and number its messages in the queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, overload

import numpy as np

from store_core.format.java import LONG_BITS, wrap
from store_core.format.layout import BATCH_CONSUME_QUEUE_UNIT, CONSUME_QUEUE_UNIT, field_position, unit_dtype

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from store_core.files.mapped_file import MappedFile
    from store_core.format.release_rules import ReleaseRules


UNIT_DTYPE: Final = unit_dtype(CONSUME_QUEUE_UNIT)
CQ_STORE_UNIT_SIZE: Final = UNIT_DTYPE.itemsize
"""Bytes of a unit (RocketMQ: ``ConsumeQueue.CQ_STORE_UNIT_SIZE``)."""

UNIT_SEAL: Final = field_position(UNIT_DTYPE, "store_size") + UNIT_DTYPE["store_size"].itemsize
"""Bytes of a unit that are written last (`store_core.files.mapped_file.SegmentFile`): without a size it is no unit.

A page may end before or within a unit's tags code: a process killed there would leave a unit with wrong tags.
"""

_BLANK_SIZE: Final = 2**31 - 1
_FIRST_CHUNK: Final = 1024
_LAST_CHUNK: Final = 1 << 17

if TYPE_CHECKING:
    UnitArray: TypeAlias = npt.NDArray[np.void]
    BatchUnitArray: TypeAlias = npt.NDArray[np.void]
else:
    UnitArray = np.ndarray


class CqUnit(NamedTuple):
    """One unit as Python numbers (RocketMQ 5.x: ``CqUnit``)."""

    queue_offset: int  # its index in the queue
    physical_offset: int  # position of the record in the log; bytes
    store_size: int  # bytes of the record
    tags_code: int
    """As stored: the hash of the tags, a delayed message's due time (ms), or an address in the queue's extension."""

    @classmethod
    def of(cls, units: UnitArray | FileUnits, index: int, queue_offset: int) -> CqUnit:
        """Return one unit of an array."""
        return cls(queue_offset, *units[index].item())


class FileUnits:
    """The units of a file from a byte of it up to its read position; none without a file. They outlive the file.

    Only those that are asked for are read, without copying if the file is mapped: one as a scalar, several as an array.
    """

    def __init__(self, file: MappedFile | None, kind: np.dtype[np.void] = UNIT_DTYPE, begin: int = 0) -> None:
        self._kind, self._begin = kind, begin
        end = file.read_position if file is not None and file.is_available else 0
        self._places = range(max(end - begin, 0) // kind.itemsize)
        if file is not None and self._places:
            self._bytes = file.segment.viewer()

    def __len__(self) -> int:
        """Return the number of units."""
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> np.void: ...
    @overload
    def __getitem__(self, index: slice) -> UnitArray: ...
    def __getitem__(self, index: int | slice) -> UnitArray | np.void:
        """Return a unit, or several that follow one another."""
        size = self._kind.itemsize
        if not isinstance(index, slice):
            at = self._begin + self._places[index] * size
            found: np.void = np.frombuffer(self._bytes(at, at + size), self._kind)[0]
            return found
        asked = self._places[index]
        begin, end = (self._begin + place * size for place in (asked.start, asked.stop))
        return np.frombuffer(self._bytes(begin, end) if asked else b"", self._kind)


def coverage(physical_offset: int, size: int, features: ReleaseRules) -> int:
    """Return the physical offset up to which the log is indexed if a queue's last unit is that of this record.

    This is the record's end or start, see `ReleaseRules.covers_log_to_record_end`. Sums of damaged units overflow as
    Java's ``long`` does.
    """
    if not features.covers_log_to_record_end:
        return physical_offset
    return wrap(physical_offset + size, LONG_BITS)


def coverages(units: UnitArray, features: ReleaseRules) -> npt.NDArray[np.int64]:
    """Compute `coverage` of many units; those of batches cover the log to their record's start."""
    starts: npt.NDArray[np.int64] = units["physical_offset"].astype(np.int64)
    if units.dtype == BATCH_UNIT_DTYPE or not features.covers_log_to_record_end:
        return starts
    return starts + units["store_size"].astype(np.int64)


def are_valid(units: UnitArray) -> npt.NDArray[np.bool_]:
    """Report which units a queue can hold: not those with a negative position, or a size of 0 or less.

    Nor, in a queue of batches, with a negative index or without messages (RocketMQ: ``BatchConsumeQueue.recover``).
    """
    valid: npt.NDArray[np.bool_] = (units["physical_offset"] >= 0) & (units["store_size"] > 0)
    if units.dtype == BATCH_UNIT_DTYPE:
        valid &= (units["msg_base_offset"] >= 0) & (units["batch_size"] > 0)
    return valid


def count_leading(units: UnitArray | FileUnits, are_so: Callable[[UnitArray], npt.NDArray[np.bool_]]) -> int:
    """Count the units before the first of which something is not true.

    The search starts with small pieces, because most queues end early and the rest of their file is a hole.
    """
    start, chunk = 0, _FIRST_CHUNK
    while start < len(units):
        part = are_so(units[start : start + chunk])
        if not part.all():
            return start + int(part.argmin())
        start += len(part)
        chunk = min(2 * chunk, _LAST_CHUNK)
    return len(units)


def units_per_file(file_size: int) -> int:
    """Return how many units a file has for which so many bytes are configured: they are rounded up.

    >>> units_per_file(41)
    3
    """
    return -(-file_size // CQ_STORE_UNIT_SIZE)


def pre_blank(count: int) -> UnitArray:
    """Return the filler units before the first unit of a queue that does not begin at the start of a file.

    They point nowhere: position 0, the largest size (RocketMQ: ``ConsumeQueue.fillPreBlank``).
    """
    units = np.zeros(count, UNIT_DTYPE)
    units["store_size"] = _BLANK_SIZE
    return units


def stored_units(
    physical_offset: npt.NDArray[np.int64], size: npt.NDArray[np.int64], tags_code: npt.NDArray[np.int64]
) -> UnitArray:
    """Return units as they are stored."""
    units = np.empty(len(physical_offset), UNIT_DTYPE)
    units["physical_offset"] = physical_offset
    units["store_size"] = size
    units["tags_code"] = tags_code
    return units


BATCH_UNIT_DTYPE: Final = unit_dtype(BATCH_CONSUME_QUEUE_UNIT)
BATCH_UNIT_SIZE: Final = BATCH_UNIT_DTYPE.itemsize
"""Bytes of a unit (RocketMQ: ``BatchConsumeQueue.CQ_STORE_UNIT_SIZE``)."""

_NOT_COMPACTED: Final = -1


class BatchCqUnit(NamedTuple):
    """One unit as Python numbers (RocketMQ 5.x: ``CqUnit``)."""

    queue_offset: int  # the queue index of the record's first message
    physical_offset: int  # position of the record in the log; bytes
    store_size: int  # bytes of the record
    tags_code: int
    store_timestamp: int  # ms since 1970
    batch_size: int  # messages in the record
    compacted_offset: int  # -1 unless the record was compacted

    @classmethod
    def of(cls, units: BatchUnitArray | FileUnits, index: int) -> BatchCqUnit:
        """Return one unit of an array."""
        physical_offset, size, tags_code, store_timestamp, base, batch_size, compacted, _ = units[index].item()
        return cls(base, physical_offset, size, tags_code, store_timestamp, batch_size, compacted)


def batch_units(columns: dict[str, npt.NDArray[np.signedinteger[Any]]]) -> BatchUnitArray:
    """Return units made of columns of equal length, named as the fields are."""
    units = np.zeros(len(columns["physical_offset"]), BATCH_UNIT_DTYPE)
    for name, column in columns.items():
        units[name] = column
    units["compacted_offset"] = _NOT_COMPACTED
    return units


def uncovered_batches(units: BatchUnitArray, covered: int) -> BatchUnitArray:
    """Leave out the units that a queue has: of records that start where one before them does, or earlier.

    * `covered`: Where the record of the queue's last unit starts; -1 if there is none.
    """
    starts = units["physical_offset"].astype(np.int64)
    is_new = starts > np.maximum.accumulate(np.concatenate(([covered], starts)))[:-1]
    return units if is_new.all() else units[is_new]
