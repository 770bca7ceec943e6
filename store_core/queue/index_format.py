# SPDX-License-Identifier: Apache-2.0
"""What an index file is made of: its header, its slots and its entries, and how puts change them."""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from store_core.format.columnar.arrow_slices import fixed_array, numbers
from store_core.format.columnar.java_hashes import positive_hashes
from store_core.format.java import INT_BITS, LONG_BITS, wrap
from store_core.format.layout import INDEX_HEADER, INDEX_UNIT, Unit, unit_dtype

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.queue.queue_path import QueueRules


# ---- the header

_CODES: Final = {">i8": "q", ">i4": "i"}


def unit_struct(unit: Unit) -> struct.Struct:
    """Return a unit of integers as a `struct.Struct`, for one at a time."""
    return struct.Struct(">" + "".join(_CODES[field.type] for field in unit.fields))


_STRUCT: Final = unit_struct(INDEX_HEADER)

INDEX_HEADER_SIZE: Final = _STRUCT.size
"""Bytes (RocketMQ: ``IndexHeader.INDEX_HEADER_SIZE``)."""


@dataclass(slots=True)
class IndexHeader:
    """The first bytes of an index file (RocketMQ: ``IndexHeader``).

    * `begin_timestamp`, `end_timestamp`: Store times of the first and the last entry's message, ms. A new file starts
      with the end of its predecessor.
    * `begin_physical_offset`, `end_physical_offset`: Their offsets in the log.
    """

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_physical_offset: int = 0
    end_physical_offset: int = 0
    hash_slot_count: int = 0  # slots in use; release 4.3 counts the entries put
    index_count: int = 1  # Number of the next entry, from 1. A file without entries has 0 on disk.

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
        *others, count = astuple(self)
        return _STRUCT.pack(*others, count if index_count is None else index_count)

    def copy(self) -> Self:
        """Return a copy."""
        return replace(self)

    def add(self, first: tuple[int, int], last: tuple[int, int], count: int = 1) -> None:
        """Record that `count` entries were put, with offset and time of their first and last message.

        The first one of a file sets where it begins.
        """
        if self.index_count <= 1:
            self.begin_physical_offset, self.begin_timestamp = first
        self.index_count += count
        self.end_physical_offset, self.end_timestamp = last

    def add_slots(self, count: int) -> None:
        """Increase the number of slots in use, in 32-bit arithmetic."""
        self.hash_slot_count = wrap(self.hash_slot_count + count, INT_BITS)

    def is_time_matched(self, begin: int, end: int) -> bool:
        """Return whether the file may hold messages of the times [begin, end] (``IndexFile.isTimeMatched``)."""
        first, last = self.begin_timestamp, self.end_timestamp
        return (begin < first and end > last) or first <= begin <= last or first <= end <= last


# ---- the slots

_STORED: Final = np.dtype(">i4")

SLOT_SIZE: Final = _STORED.itemsize
"""Bytes of a slot (RocketMQ: ``IndexFile.hashSlotSize``)."""

_PAGE_SLOTS: Final = 1024
"""Slots written together: 4 KiB."""

Indexes = npt.NDArray[np.int32]


class IndexSlots:
    """For each of `count` slots the number of the last entry put into it; 0 if there is none.

    Values are kept in stored byte order, so that they can be written unchanged; `stored` are those of the file.
    """

    def __init__(self, count: int, stored: bytes | None = None) -> None:
        self._raw = np.zeros(count, np.int32) if stored is None else np.frombuffer(bytearray(stored), np.int32, count)
        self._is_dirty = np.zeros(-(-count // _PAGE_SLOTS), np.bool_)
        self._undo: tuple[npt.NDArray[np.intp], npt.NDArray[np.int32]] | None = None

    def __getitem__(self, slot: int) -> int:
        return int(self._raw[slot : slot + 1].view(_STORED)[0])

    def __setitem__(self, slot: int, index: int) -> None:
        self._raw[slot : slot + 1].view(_STORED)[0] = index
        self._is_dirty[slot // _PAGE_SLOTS] = True

    def link(self, slots: npt.NDArray[np.intp], first: int) -> Indexes:
        """Put entries `first`, `first` + 1, ... into these slots; return the entry that was in each before.

        Equivalent to reading and setting one slot after the other. A value that is not an existing entry (stale or
        damaged) counts as 0, as in ``IndexFile.putKey``.
        """
        indexes = np.arange(first, first + slots.size, dtype=np.int32)
        stored = indexes.astype(_STORED).view(np.int32)
        before = self._raw.take(slots)
        previous = before.view(_STORED).astype(np.int32)
        previous[(previous < 0) | (previous > indexes)] = 0
        self._undo = slots, before
        self._raw[slots] = stored
        beaten = np.flatnonzero(self._raw.take(slots) != stored)
        if beaten.size:
            self._link_shared(slots, beaten, indexes, previous)
        self._is_dirty[slots // _PAGE_SLOTS] = True
        return previous

    def _link_shared(
        self, slots: npt.NDArray[np.intp], beaten: npt.NDArray[np.intp], indexes: Indexes, previous: Indexes
    ) -> None:
        """Link the entries of slots that got several; `beaten` are those that are not left in their slot."""
        self._raw[slots[beaten]] = 0  # no entry has this number, so it marks the slots
        members = np.flatnonzero(self._raw[slots] == 0)
        members = members[np.argsort(slots[members], kind="stable")]
        own = slots[members]
        later = np.flatnonzero(own[1:] == own[:-1]) + 1
        previous[members[later]] = indexes[members[later - 1]]
        is_last = np.ones(members.size, np.bool_)
        is_last[later - 1] = False
        self._raw[own[is_last]] = indexes[members[is_last]].astype(_STORED).view(np.int32)

    def equals(self, stored: npt.NDArray[np.int32]) -> bool:
        """Return whether these are the slots of a file, given in stored byte order."""
        return np.array_equal(self._raw, stored.view(np.int32))

    def undo(self) -> None:
        """Revert the last `link`."""
        if self._undo is not None:
            slots, before = self._undo
            self._raw[slots] = before
            self._undo = None

    def dirty(self) -> Iterator[tuple[int, memoryview]]:
        """Yield what the file does not have yet, as runs of whole pages: the first slot's number and the bytes."""
        pages = np.flatnonzero(self._is_dirty)
        if not pages.size:
            return
        data = self._raw.view(np.uint8).data
        ends = np.flatnonzero(pages[1:] - pages[:-1] > 1).tolist()
        for begin, end in zip([0, *(end + 1 for end in ends)], [*ends, pages.size - 1], strict=True):
            start, stop = int(pages[begin]) * _PAGE_SLOTS, (int(pages[end]) + 1) * _PAGE_SLOTS
            yield start, data[start * SLOT_SIZE : stop * SLOT_SIZE]

    def mark_clean(self) -> None:
        """Mark everything as written to the file."""
        self._is_dirty[:] = False
        self._undo = None


# ---- the entries

INDEX_DTYPE: Final = unit_dtype(INDEX_UNIT)
"""A stored entry, as array element type."""

INDEX_STRUCT: Final = unit_struct(INDEX_UNIT)
"""The same, for one at a time."""

_SCHEMA: Final = pa.schema(
    [("physical_offset", pa.int64()), ("store_timestamp", pa.int64()), ("hashes", pa.list_(pa.int32()))]
)
_MAX_INT: Final = 2**31 - 1
_MS: Final = 1000

Longs = npt.NDArray[np.int64]


def index_file_size(rules: QueueRules) -> int:
    """Return the size of an index file: header, slots and entries; bytes."""
    return INDEX_HEADER_SIZE + SLOT_SIZE * rules.max_hash_slot_num + INDEX_DTYPE.itemsize * rules.max_index_num


def time_diff(store_timestamp: int, begin_timestamp: int) -> int:
    """Return the seconds from a file's begin to a message, as stored in an entry (``IndexFile.putKey``).

    Both arguments are in ms. 0 if the file has no begin yet, or the message is older.
    """
    if begin_timestamp <= 0:
        return 0
    return min(max(wrap(store_timestamp - begin_timestamp, LONG_BITS), 0) // _MS, _MAX_INT)


def _time_diffs(store_timestamps: Longs, begin_timestamp: int) -> Longs:
    if begin_timestamp <= 0:
        return np.zeros(store_timestamps.size, np.int64)
    seconds = (store_timestamps - begin_timestamp) // _MS  # wraps, as in Java
    np.maximum(seconds, 0, out=seconds)
    return np.minimum(seconds, _MAX_INT, out=seconds)


class IndexEntries(NamedTuple):
    """What is put into index files, in the order of the log: arrays of one length."""

    hashes: npt.NDArray[np.int32]  # Java's, of ``topic#key``
    physical_offsets: Longs
    store_timestamps: Longs

    def part(self, begin: int, stop: int) -> Self:
        """Return the entries of a range of places."""
        own = slice(begin, stop)
        return type(self)(self.hashes[own], self.physical_offsets[own], self.store_timestamps[own])


class MessageKeys(NamedTuple):
    """Keys of consecutive messages.

    * `physical_offsets`, `store_timestamps`: Shape (n,): of each message.
    """

    physical_offsets: Longs
    store_timestamps: Longs
    rows: Longs  # shape (k,), ascending: the message of each key
    hashes: npt.NDArray[np.int32]  # shape (k,)

    @property
    def entries(self) -> IndexEntries:
        """The entries of the keys."""
        return IndexEntries(self.hashes, self.physical_offsets.take(self.rows), self.store_timestamps.take(self.rows))

    @property
    def ends_without_key(self) -> bool:
        """Whether messages without keys come after the last key."""
        return bool(self.rows.size and self.rows[-1] < self.physical_offsets.size - 1)

    @property
    def reach(self) -> tuple[int, int] | None:
        """The first and the last message's offset; None if offsets descend anywhere."""
        offsets = self.physical_offsets
        return (int(offsets[0]), int(offsets[-1])) if offsets.size and (offsets[1:] >= offsets[:-1]).all() else None

    def accepted(self, end_physical_offset: int) -> Self:
        """Leave out the keys of messages before the end of what is indexed (``IndexService.buildIndex``).

        Each accepted one moves the end; an equal offset is accepted. An end below 0, where no message can be, counts
        as 0.
        """
        end = max(0, end_physical_offset)
        if self.reach is not None and self.reach[0] >= end:
            return self
        offsets = self.physical_offsets.take(self.rows)
        reached = np.maximum.accumulate(np.concatenate(([end], offsets)))[:-1]
        places = np.flatnonzero(offsets >= reached)
        return self._replace(rows=self.rows[places], hashes=self.hashes[places])

    def to_table(self) -> pa.RecordBatch:
        """Return a row for each message: where it is, its time, and the hashes of its keys.

        Messages without keys are left out, except the last, which can still make the index begin a new file.
        """
        counts = np.bincount(self.rows, minlength=self.physical_offsets.size)
        kept = np.flatnonzero(counts)
        if not counts[-1:].all():
            kept = np.append(kept, counts.size - 1)
        bounds = np.concatenate(([0], np.cumsum(counts[kept]))).astype(np.int32)
        hashes = pa.ListArray.from_arrays(fixed_array(bounds), fixed_array(self.hashes.astype(np.int32, copy=False)))
        columns = [fixed_array(self.physical_offsets[kept]), fixed_array(self.store_timestamps[kept]), hashes]
        return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)

    @classmethod
    def of_table(cls, table: pa.RecordBatch) -> Self:
        """Return the keys of a table of `to_table`."""
        offsets, times, hashes = table.columns
        rows = np.repeat(np.arange(len(offsets)), np.diff(numbers(hashes.offsets)))
        return cls(numbers(offsets), numbers(times), rows, numbers(hashes.values))


def build_entries(
    put: IndexEntries, header: IndexHeader, slots: IndexSlots, slot_count: int, *, counts_puts: bool
) -> npt.NDArray[np.void]:
    """Build the next entries of an index file; equivalent to `IndexFile.put_key` for one after the other.

    Only memory is changed: `header` and `slots` are updated, and a file made of these two and the entries is what
    RocketMQ would have written. There must be room for all, at least one; about 32,768 are fastest, because the slots
    that they change stay in the processor's cache. With `counts_puts`, as in release 4.3, ``hashSlotCount`` counts
    entries, not used slots.
    """
    hash_codes, physical_offsets, store_timestamps = put
    entries = np.empty(hash_codes.size, INDEX_DTYPE)
    entries["key_hash"] = hashes = positive_hashes(hash_codes)
    entries["physical_offset"] = physical_offsets
    entries["time_diff"] = seconds = _time_diffs(store_timestamps, header.begin_timestamp)
    if (
        header.index_count <= 1
    ):  # the first entry is measured from the begin of before, and sets the begin of the others
        first = int(store_timestamps[0])
        entries["time_diff"][1:] = _time_diffs(store_timestamps[1:], first)
        del seconds
    entries["previous_index"] = previous = slots.link((hashes % slot_count).astype(np.intp), header.index_count)
    header.add_slots(hash_codes.size if counts_puts else int(np.count_nonzero(previous == 0)))
    first_put, last_put = ((int(physical_offsets[i]), int(store_timestamps[i])) for i in (0, -1))
    header.add(first_put, last_put, hash_codes.size)
    return entries
