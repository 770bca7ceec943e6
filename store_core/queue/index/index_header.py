# SPDX-License-Identifier: Apache-2.0
"""The header of an index file, and how puts change it."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Self

from store_core.format.layout import INDEX_HEADER

if TYPE_CHECKING:
    from store_core.format.layout import Unit

__all__ = ["INDEX_HEADER_SIZE", "IndexHeader", "java_int", "java_long", "unit_struct"]

_CODES: Final = {">i8": "q", ">i4": "i"}


def unit_struct(unit: Unit) -> struct.Struct:
    """Return a unit of integers as a `struct.Struct`, for one at a time."""
    return struct.Struct(">" + "".join(_CODES[field.type] for field in unit.fields))


_STRUCT: Final = unit_struct(INDEX_HEADER)

_VALUES: Final = attrgetter(*(field.name for field in INDEX_HEADER.fields))

INDEX_HEADER_SIZE: Final = _STRUCT.size
"""Bytes (RocketMQ: ``IndexHeader.INDEX_HEADER_SIZE``)."""


def java_int(value: int) -> int:
    """Keep 32 bits of an integer, signed, as Java's arithmetic does.

    >>> java_int(2**31)
    -2147483648
    """
    return (value + 2**31) % 2**32 - 2**31


def java_long(value: int) -> int:
    """Keep 64 bits of an integer, signed, as Java's arithmetic does."""
    return (value + 2**63) % 2**64 - 2**63


@dataclass(slots=True)
class IndexHeader:
    """The first bytes of an index file (RocketMQ: ``IndexHeader``).

    Attributes
    ----------
    begin_timestamp, end_timestamp : int
        Store times of the first and the last entry's message, ms. A new file starts with the end of its predecessor.
    begin_physical_offset, end_physical_offset : int
        Their offsets in the log.
    hash_slot_count : int
        Slots in use; release 4.3 counts the entries put.
    index_count : int
        Number of the next entry, from 1. A file without entries has 0 on disk.
    """

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_physical_offset: int = 0
    end_physical_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = 1

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Decode it; missing bytes count as zero, and a count of zero or less as 1 (``IndexHeader.load``)."""
        header = cls(*_STRUCT.unpack(data[:INDEX_HEADER_SIZE].ljust(INDEX_HEADER_SIZE, b"\0")))
        header.index_count = max(1, header.index_count)
        return header

    @classmethod
    def following(cls, end_physical_offset: int, end_timestamp: int) -> Self:
        """Return the header of a file that follows one with these ends; 0 and 0 if there is none.

        It begins and ends where its predecessor ended, until something is put (constructor of ``IndexFile``).
        """
        offset, timestamp = max(0, end_physical_offset), max(0, end_timestamp)
        return cls(timestamp, timestamp, offset, offset)

    def to_bytes(self, index_count: int | None = None) -> bytes:
        """Encode it, with another count if one is given."""
        *others, count = _VALUES(self)
        return _STRUCT.pack(*others, count if index_count is None else index_count)

    def copy(self) -> Self:
        """Return a copy."""
        return type(self)(*_VALUES(self))

    def add(self, first: tuple[int, int], last: tuple[int, int], count: int = 1) -> None:
        """Record that `count` entries were put; the first one of a file sets where it begins.

        Parameters
        ----------
        first, last : tuple of int
            Physical offset and store timestamp of the first and the last message.
        count : int
            Number of entries, at least one.
        """
        if self.index_count <= 1:
            self.begin_physical_offset, self.begin_timestamp = first
        self.index_count += count
        self.end_physical_offset, self.end_timestamp = last

    def add_slots(self, count: int) -> None:
        """Increase the number of slots in use, in 32-bit arithmetic."""
        self.hash_slot_count = java_int(self.hash_slot_count + count)

    def is_time_matched(self, begin: int, end: int) -> bool:
        """Return whether the file may hold messages of the times [begin, end] (``IndexFile.isTimeMatched``)."""
        first, last = self.begin_timestamp, self.end_timestamp
        return (begin < first and end > last) or first <= begin <= last or first <= end <= last
