# SPDX-License-Identifier: Apache-2.0
"""A file of the key index, and the chains in it."""

from __future__ import annotations

import struct
from bisect import bisect_left
from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from store_core.errors import SegmentLayoutError
from store_core.files.file_sync import FileSync
from store_core.files.file_system import FileSystem, OpenFile, write_all
from store_core.format.java import LONG_BITS, hash_code, positive_hash, wrap
from store_core.queue.index_format import (
    INDEX_DTYPE,
    INDEX_HEADER_SIZE,
    INDEX_STRUCT,
    SLOT_SIZE,
    IndexEntries,
    IndexHeader,
    IndexSlots,
    build_entries,
    index_file_size,
    time_diff,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store_core.queue.queue_path import QueueRules


_MS: Final = 1000
_SHORT_CHAIN: Final = 64
"""Entries that are read one by one before reading windows pays off."""
_WINDOW: Final = 32_768
"""Entries read at once in a long chain: 640 KiB."""


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """A search in one index file.

    * `begin`, `end`: Store times, ms, both included.
    """

    key_hash: int  # positive hash of ``topic#key``
    slot_count: int  # number of slots in the file
    max_num: int  # most offsets to return
    begin: int
    end: int
    file_begin: int  # the header's begin timestamp, ms: times of entries are relative to it
    index_count: int  # the header's count: higher numbers are not entries


def walk_chain(query: IndexQuery, first: int, read: Callable[[int, int], bytes]) -> list[int]:
    """Follow a chain from entry `first` and collect the matching offsets, newest first (``IndexFile.selectPhyOffset``).

    The walk ends when enough are found, at an entry with a negative time, at one older than `begin`, at one whose link
    is not an entry (0, negative, above the count, itself), and at the end of the file. A link to a later entry ends it,
    too: a put links to an earlier entry, so this is damage, and RocketMQ may loop on it for ever. Keys are not
    compared: the result includes offsets of other keys with the same hash. `read` returns the bytes of entries from a
    number on, fewer if the file ends.
    """
    found: list[int] = []
    index = first if query.index_count > 1 and 0 < first <= query.index_count else 0
    for _ in range(_SHORT_CHAIN):
        if index == 0 or len(found) >= query.max_num:
            return found
        index = _step(query, index, read(index, 1), found)
    while index and len(found) < query.max_num:
        index = _walk_window(query, index, read, found)
    return found


def _step(query: IndexQuery, index: int, stored: bytes, found: list[int]) -> int:
    """Check one entry, and return the number of the next; 0 at the end."""
    if len(stored) < INDEX_STRUCT.size:
        return 0
    key_hash, physical_offset, time_diff, previous = INDEX_STRUCT.unpack(stored)
    if time_diff < 0:
        return 0
    time = wrap(query.file_begin + time_diff * _MS, LONG_BITS)
    if key_hash == query.key_hash and query.begin <= time <= query.end:
        found.append(physical_offset)
    return previous if 0 < previous < index and time >= query.begin else 0


def _walk_window(query: IndexQuery, index: int, read: Callable[[int, int], bytes], found: list[int]) -> int:
    """Continue the walk through the entries up to `index` that fit into one read."""
    low = max(1, index - _WINDOW + 1)
    stored = read(low, index - low + 1)
    if len(stored) < (index - low + 1) * INDEX_STRUCT.size:
        return 0
    following = _whole_window(query, low, stored, found)
    if following is not None:
        return following
    while index >= low and len(found) < query.max_num:
        position = (index - low) * INDEX_STRUCT.size
        index = _step(query, index, stored[position : position + INDEX_STRUCT.size], found)
    return index


def _whole_window(query: IndexQuery, low: int, stored: bytes, found: list[int]) -> int | None:
    """Walk a window's chain in one step, if it is sound: each of the slot's entries links to the one before it.

    Then only the rules about times can end the walk inside the window. None if the chain is not sound.
    """
    entries = np.frombuffer(stored, INDEX_DTYPE)
    hashes = entries["key_hash"].astype(np.int32)
    members = np.flatnonzero(hashes % np.int32(query.slot_count) == query.key_hash % query.slot_count)[::-1]
    if not members.size or members[0] != entries.size - 1:  # the entry that led here belongs to another slot
        return None
    links = entries["previous_index"][members].astype(np.int64)
    seconds = entries["time_diff"][members].astype(np.int64)
    times = query.file_begin + seconds * _MS
    if (links[:-1] != members[1:] + low).any() or (seconds < 0).any() or (times < query.file_begin).any():
        return None
    is_match = (hashes[members] == query.key_hash) & (times >= query.begin) & (times <= query.end)
    older = np.flatnonzero(times < query.begin)
    stop = int(older[0]) + 1 if older.size else members.size
    matches = members[:stop][is_match[:stop]][: query.max_num - len(found)]
    found.extend(entries["physical_offset"][matches].tolist())
    last = int(links[-1])
    return last if not older.size and 0 < last < members[-1] + low else 0


_SLOT: Final = struct.Struct(">i")
_BLOCK: Final = 32_768
"""Entries built and written at once."""
_AHEAD_BYTES: Final = 32 << 20
"""Unsynced bytes from which on `IndexStorage.sync_ahead` syncs."""


class IndexStorage:
    """A sparse file of `size` bytes, opened for reading until the first write, which extends a shorter one."""

    def __init__(self, path: Path, size: int, file_system: FileSystem) -> None:
        self.path = path
        self.size = size
        self._file_system = file_system
        self._file: OpenFile | None = None
        self._is_writable = False
        self._is_synced = True
        self._sync = FileSync(path, file_system)
        self._unsynced = 0

    @classmethod
    def create(cls, path: Path, size: int, file_system: FileSystem, start: bytes) -> Self:
        """Create the file as a hole after its first bytes; first bytes of zeros are not written either.

        A file created before an error is deleted again.
        """
        created = cls(path, size, file_system)
        file_system.make_directories(path.parent)
        created._file = file_system.make(path, size)
        created._is_writable = True
        created._is_synced = False
        created._sync.note_creation()
        try:
            if any(start):
                created.write(start, 0)
        except OSError:
            created._file.close()
            file_system.remove(path)
            raise
        return created

    def reader(self) -> OpenFile:
        """Return the open file, for reads that must continue while it is closed or deleted."""
        if self._file is None:
            self._file = self._file_system.open(self.path, writable=False)
            self._is_writable = False
        return self._file

    def write(self, data: memoryview | bytes, position: int) -> None:
        """Write all of `data` at `position`; some of it may be in the file after an error."""
        self._is_synced = False
        if self._file is None or not self._is_writable:
            self._file = self._file_system.open(self.path)
            self._is_writable = True
            self._file.grow(self.size)
        write_all(self._file, memoryview(data), position)
        self._unsynced += len(data)

    def sync_ahead(self) -> None:
        """Sync a large part of the file ahead of time, to shorten the wait of `sync`.

        May run while another thread writes. Failures are reported by `sync`.
        """
        file = self._file
        if self._unsynced < _AHEAD_BYTES or file is None:
            return
        self._unsynced = 0
        try:
            file.sync()
        except OSError as error:
            self._sync.error = error

    def sync(self) -> None:
        """Sync what was written, and for a new file, the first time, also its name.

        An error is raised at every later call, too: the system may have dropped what it could not write, and a second
        try would not notice.
        """
        if self._is_synced and self._sync.error is None:
            return
        self._sync.sync(self.reader)
        self._is_synced = True

    def close(self) -> None:
        """Release the file; the next use opens it again."""
        self._file = None  # dropped, not closed: a query may be reading it

    def remove(self) -> None:
        """Delete the file."""
        self._file_system.remove(self.path)


class IndexFile:
    """A file of the key index (RocketMQ: ``IndexFile``).

    Entries are numbered from 1, and linked from the newest of a slot to the oldest. The file is sparse: unused parts
    take no disk space.

    **What is on disk, and when.** Entries are written to the file as they are put; nothing refers to them yet. Slots
    and header are kept in memory until `write_back`, which takes the file through three states:

    1. before: header and slots of the last write-back. The new entries lie above the header's count;
    2. header with the new count and end time, but the *old* end offset. Old slot values are valid, and so are those
       written from here on, page by page: each leads to a whole chain, the slot's old one or its new one;
    3. after: the header with the new end offset.

    So no chain is broken whenever the process is killed. In states 1 and 2 the header's end offset is that of the last
    write-back: dispatching continues from there (`IndexService.build_index` skips what lies before it), and puts again
    what was lost; after state 2 some offsets are then there twice, as after RocketMQ's own recovery. And after a crash,
    a file whose end time is later than the checkpoint's is deleted and rebuilt: in states 2 and 3 as soon as it has one
    new message; in state 1 it is as if the crash had come before the puts. The caller must ensure that `write_back`
    precedes anything that records these messages as dispatched: flushing a checkpoint, or removing ``abort``. (RocketMQ
    puts into a mapping, which survives a kill except for the one put in progress.)

    A failed write leaves state 1 or 2 as well: entries that were not written are withdrawn.

    * `pending`: Entries put since the last `write_back`.
    """

    def __init__(self, storage: IndexStorage, rules: QueueRules, header: IndexHeader) -> None:
        self.path = storage.path
        self.pending = 0
        self._storage = storage
        self._rules = rules
        self._counts_puts = not rules.features.counts_hash_slots_in_use
        self._header = header
        self._stored_header = header.to_bytes()
        self._stored_end_offset = header.end_physical_offset
        self._slots: IndexSlots | None = None
        self._lock = RLock()

    @classmethod
    def create(
        cls,
        path: Path,
        rules: QueueRules,
        file_system: FileSystem,
        end_physical_offset: int = 0,
        end_timestamp: int = 0,
    ) -> Self:
        """Create a file at its full size, all hole, whose begin and end are the end of the file before it.

        A crash in between leaves an empty file, or one of zeros: `load` reads both as a file without entries, and
        `follow` sets where it begins. A file created before an error is deleted again.
        """
        header = IndexHeader.following(end_physical_offset, end_timestamp)
        stored = header.to_bytes(index_count=0)
        created = cls(IndexStorage.create(path, index_file_size(rules), file_system, stored), rules, header)
        created._stored_header = stored
        created._slots = IndexSlots(rules.max_hash_slot_num)
        return created

    @classmethod
    def load(cls, path: Path, rules: QueueRules, file_system: FileSystem) -> Self:
        """Open an existing file, reading its header; nothing is written."""
        storage = IndexStorage(path, index_file_size(rules), file_system)
        size, stored = storage.reader().size(), storage.reader().read(INDEX_HEADER_SIZE, 0)
        storage.close()
        if size not in (0, storage.size):
            raise SegmentLayoutError(
                f"{path} is not an index file of this configuration: expected {storage.size} bytes for "
                f"{rules.max_hash_slot_num} slots and {rules.max_index_num} entries, found {size}. Its keys are not "
                f"found, and it is left as it is: open the store with the maxHashSlotNum and maxIndexNum it was made "
                f"with, or move the file elsewhere"
            )
        loaded = cls(storage, rules, IndexHeader.from_bytes(stored))
        loaded._stored_header = stored.ljust(INDEX_HEADER_SIZE, b"\0")
        return loaded

    def follow(self, end_physical_offset: int, end_timestamp: int) -> None:
        """Set the header of a file that a crash left without one: its begin is the end of the file before it.

        Otherwise everything in the earlier files would be put once more.
        """
        if self._header == IndexHeader():
            self._header = IndexHeader.following(end_physical_offset, end_timestamp)
            self._stored_end_offset = self._header.end_physical_offset

    def __repr__(self) -> str:
        return f"IndexFile({str(self.path)!r}, count={self._header.index_count})"

    @property
    def header(self) -> IndexHeader:
        """A copy of the header as it is in memory; a file without entries has an index count of 1."""
        with self._lock:
            return self._header.copy()

    @property
    def end_timestamp(self) -> int:
        """Store time of the last entry's message, ms."""
        return self._header.end_timestamp

    @property
    def end_physical_offset(self) -> int:
        """Offset of the last entry's message."""
        return self._header.end_physical_offset

    @property
    def is_half_new(self) -> bool:
        """Whether the first write-back of a new file was interrupted: it ends before its first entry's message.

        All its entries are put again when dispatching continues there, so it can be deleted.
        """
        header = self._header
        return header.index_count > 1 and header.end_physical_offset < header.begin_physical_offset

    @property
    def is_full(self) -> bool:
        """Whether the file takes no more entries (``isWriteFull``): one fewer than ``maxIndexNum`` fit."""
        return self._header.index_count >= self._rules.max_index_num

    def put_key(self, key: str, physical_offset: int, store_timestamp: int) -> bool:
        """Put one ``topic#key`` of a message; False if the file is full (``putKey``). An error puts nothing."""
        with self._lock:
            if self.is_full:
                return False
            header, slots = self._header, self._writable_slots()
            hashed = positive_hash(hash_code(key))
            slot, index = hashed % self._rules.max_hash_slot_num, header.index_count
            previous = slots[slot] if 0 < slots[slot] <= index else 0
            seconds = time_diff(store_timestamp, header.begin_timestamp)
            self._storage.write(
                INDEX_STRUCT.pack(hashed, physical_offset, seconds, previous), self._entry_position(index)
            )
            slots[slot] = index
            header.add_slots(int(previous == 0 or self._counts_puts))
            header.add((physical_offset, store_timestamp), (physical_offset, store_timestamp))
            self.pending += 1
            return True

    def put_entries(self, entries: IndexEntries) -> int:
        """Put many keys, as `put_key` one after the other; return how many fitted.

        After an error some of them may have been put.
        """
        with self._lock:
            room = max(0, self._rules.max_index_num - self._header.index_count)
            count = min(room, entries.hashes.size)
            for start in range(0, count, _BLOCK):
                self._put_block(entries.part(start, min(start + _BLOCK, count)))
            return count

    def _put_block(self, block: IndexEntries) -> None:
        slots, header = self._writable_slots(), self._header.copy()
        slot_count = self._rules.max_hash_slot_num
        entries = build_entries(block, header, slots, slot_count, counts_puts=self._counts_puts)
        try:
            self._storage.write(entries.view("u1").data, self._entry_position(self._header.index_count))
        except OSError:
            slots.undo()
            raise
        self._header = header
        self.pending += entries.size

    def select_physical_offsets(self, key: str, max_num: int, begin: int, end: int) -> list[int]:
        """Return the offsets of messages by ``topic#key``, newest first, with those of other keys of the same hash.

        The store times `begin` and `end`, ms, are both included; the file stores them in seconds, rounded down from its
        begin.
        """
        key_hash, slot_count = positive_hash(hash_code(key)), self._rules.max_hash_slot_num
        with self._lock:
            begins, count = self._header.begin_timestamp, self._header.index_count
            first, file = self._slot(key_hash % slot_count), self._storage.reader()

        def read(index: int, entries: int) -> bytes:
            return file.read(entries * INDEX_DTYPE.itemsize, self._entry_position(index))

        return walk_chain(IndexQuery(key_hash, slot_count, max_num, begin, end, begins, count), first, read)

    def has_entry(self, physical_offset: int) -> bool:
        """Return whether there is an entry of the message at an offset, if entries are in the order of the log."""
        with self._lock:
            count, file = self._header.index_count, self._storage.reader()

        def offset_of(number: int) -> int:
            stored = np.frombuffer(file.read(INDEX_DTYPE.itemsize, self._entry_position(number)), INDEX_DTYPE, 1)
            return int(stored["physical_offset"][0])

        found = bisect_left(range(1, count), physical_offset, key=offset_of) + 1
        return found < count and offset_of(found) == physical_offset

    def _slot(self, slot: int) -> int:
        if self._slots is not None:
            return self._slots[slot]
        stored = self._storage.reader().read(SLOT_SIZE, INDEX_HEADER_SIZE + slot * SLOT_SIZE)
        return int(_SLOT.unpack(stored.ljust(SLOT_SIZE, b"\0"))[0])

    def write_back(self) -> None:
        """Write slots and header to the file, in the order that the class describes; the file is not synced.

        After an error another call tries again.
        """
        with self._lock:
            if not self.pending:
                return
            header = self._header.copy()
            header.end_physical_offset = self._stored_end_offset
            self._write_header(header)
            slots = self._writable_slots()
            for first, data in slots.dirty():
                self._storage.write(data, INDEX_HEADER_SIZE + first * SLOT_SIZE)
            slots.mark_clean()
            self._write_header(self._header)
            self._stored_end_offset = self._header.end_physical_offset
            self.pending = 0
            if self.is_full:
                self._slots = None

    def flush(self, *, with_header: bool = False) -> None:
        """Write back, and sync the file; after a failed sync, every later call fails.

        With `with_header` the header is written even if nothing was put: the count of a file without entries becomes 1
        on disk, as RocketMQ 5 leaves it at shutdown (``IndexHeader.updateByteBuffer``).
        """
        with self._lock:
            self.write_back()
            if with_header and self._header.to_bytes() != self._stored_header:
                self._write_header(self._header)
            self._storage.sync()

    def sync_ahead(self) -> None:
        """Sync what was written so far, see `IndexStorage.sync_ahead`."""
        self._storage.sync_ahead()

    def close(self) -> None:
        """Release the file without writing; the next use opens it again."""
        with self._lock:
            self._storage.close()
            if not self.pending:
                self._slots = None

    def remove(self) -> None:
        """Delete the file."""
        self._storage.remove()

    def _entry_position(self, index: int) -> int:
        slots = SLOT_SIZE * self._rules.max_hash_slot_num
        return INDEX_HEADER_SIZE + slots + index * INDEX_DTYPE.itemsize

    def _write_header(self, header: IndexHeader) -> None:
        stored = header.to_bytes()
        self._storage.write(stored, 0)
        self._stored_header = stored

    def _writable_slots(self) -> IndexSlots:
        if self._slots is None:
            size = SLOT_SIZE * self._rules.max_hash_slot_num
            stored = self._storage.reader().read(size, INDEX_HEADER_SIZE)
            self._slots = IndexSlots(self._rules.max_hash_slot_num, stored.ljust(size, b"\0"))
        return self._slots
