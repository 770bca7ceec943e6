# SPDX-License-Identifier: Apache-2.0
"""One entry of a batch consume queue: 46 bytes that locate a record and number its messages in the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from store_core.format.layout import BATCH_CONSUME_QUEUE_UNIT, unit_dtype

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.files.file_system import FileSystem
    from store_core.files.mapped_file import MappedFile

    BatchUnitArray: TypeAlias = npt.NDArray[np.void]

__all__ = [
    "BATCH_UNIT_DTYPE",
    "BATCH_UNIT_SIZE",
    "BatchCqUnit",
    "are_valid",
    "batch_units",
    "count_true",
    "readable_units",
    "whole_file",
]

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
    def of(cls, units: BatchUnitArray, index: int) -> BatchCqUnit:
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


def readable_units(file: MappedFile | None) -> BatchUnitArray:
    """Return the units of a file up to its read position, as a view; empty without a file."""
    view = file.select(0) if file is not None else None
    return _units_of(view) if view is not None else np.empty(0, BATCH_UNIT_DTYPE)


def whole_file(file: MappedFile, file_system: FileSystem) -> BatchUnitArray:
    """Return all units of a file, including those past its wrote position, as a view."""
    return _units_of(file_system.open(file.path, writable=False).map(file.file_size))


def _units_of(view: memoryview) -> BatchUnitArray:
    return np.frombuffer(view[: len(view) - len(view) % BATCH_UNIT_SIZE], BATCH_UNIT_DTYPE)


def are_valid(units: BatchUnitArray) -> npt.NDArray[np.bool_]:
    """Report which units are valid (RocketMQ: ``BatchConsumeQueue.recover``)."""
    valid: npt.NDArray[np.bool_] = (
        (units["physical_offset"] >= 0)
        & (units["store_size"] > 0)
        & (units["msg_base_offset"] >= 0)
        & (units["batch_size"] > 0)
    )
    return valid


def count_true(flags: npt.NDArray[np.bool_]) -> int:
    """Count the leading trues."""
    return len(flags) if flags.all() else int(flags.argmin())
