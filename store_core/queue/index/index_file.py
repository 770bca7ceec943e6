# SPDX-License-Identifier: Apache-2.0
"""One file of the key index: a hash table from topic and key to physical offsets."""

from __future__ import annotations

import struct
from bisect import bisect_left
from threading import RLock
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from store_core.errors import SegmentLayoutError
from store_core.format.java import hash_code, positive_hash
from store_core.queue.index.index_build import INDEX_DTYPE, INDEX_STRUCT, build_entries, index_file_size, time_diff
from store_core.queue.index.index_chain import IndexQuery, walk_chain
from store_core.queue.index.index_header import INDEX_HEADER_SIZE, IndexHeader
from store_core.queue.index.index_slots import SLOT_SIZE, IndexSlots
from store_core.queue.index.index_storage import IndexStorage

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from store_core.files.file_system import FileSystem
    from store_core.queue.queue_rules import QueueRules

__all__ = ["IndexFile"]

_SLOT: Final = struct.Struct(">i")
_BLOCK: Final = 32_768
"""Entries built and written at once."""


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

    Attributes
    ----------
    path : Path
    pending : int
        Entries put since the last `write_back`.
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
        `follow` sets where it begins.

        Raises
        ------
        OSError
            As raised by the system; a file created before the error is deleted again.
        """
        header = IndexHeader.following(end_physical_offset, end_timestamp)
        stored = header.to_bytes(index_count=0)
        created = cls(IndexStorage.create(path, index_file_size(rules), file_system, stored), rules, header)
        created._stored_header = stored
        created._slots = IndexSlots(rules.max_hash_slot_num)
        return created

    @classmethod
    def load(cls, path: Path, rules: QueueRules, file_system: FileSystem) -> Self:
        """Open an existing file, reading its header; nothing is written.

        Raises
        ------
        SegmentLayoutError
            If its length is not the configured one. RocketMQ maps the file at the configured length, which lengthens
            it, and reads entries from wrong places.
        OSError
            As raised by the system.
        """
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
        """Put one key of a message; False if the file is full (``putKey``).

        Parameters
        ----------
        key : str
            Topic, ``#`` and key.
        physical_offset : int
            Of the message.
        store_timestamp : int
            Of the message, ms.

        Raises
        ------
        OSError
            As raised by the system; nothing was put then.
        """
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

    def put_entries(
        self,
        hash_codes: npt.NDArray[np.int32],
        physical_offsets: npt.NDArray[np.int64],
        store_timestamps: npt.NDArray[np.int64],
    ) -> int:
        """Put many keys, as `put_key` one after the other; return how many fitted.

        Parameters
        ----------
        hash_codes : numpy.ndarray
            int32, shape (n,): Java's hash of each ``topic#key``.
        physical_offsets, store_timestamps : numpy.ndarray
            int64, shape (n,): of each key's message.

        Raises
        ------
        OSError
            As raised by the system; some of them may have been put then.
        """
        with self._lock:
            room = max(0, self._rules.max_index_num - self._header.index_count)
            count = min(room, hash_codes.size)
            for start in range(0, count, _BLOCK):
                block = slice(start, min(start + _BLOCK, count))
                self._put_block(hash_codes[block], physical_offsets[block], store_timestamps[block])
            return count

    def _put_block(
        self,
        hash_codes: npt.NDArray[np.int32],
        physical_offsets: npt.NDArray[np.int64],
        store_timestamps: npt.NDArray[np.int64],
    ) -> None:
        slots, header = self._writable_slots(), self._header.copy()
        columns = hash_codes, physical_offsets, store_timestamps
        slot_count = self._rules.max_hash_slot_num
        entries = build_entries(header, slots, slot_count, *columns, counts_puts=self._counts_puts)
        try:
            self._storage.write(entries.view("u1").data, self._entry_position(self._header.index_count))
        except OSError:
            slots.undo()
            raise
        self._header = header
        self.pending += hash_codes.size

    def select_physical_offsets(self, key: str, max_num: int, begin: int, end: int) -> list[int]:
        """Return the offsets of messages by key, newest first, including those of other keys with the same hash.

        Parameters
        ----------
        key : str
            Topic, ``#`` and key.
        max_num : int
            Most offsets to return.
        begin, end : int
            Store times, ms, both included. The file stores them in seconds, rounded down from its begin.

        Raises
        ------
        OSError
            As raised by the system.
        """
        key_hash, slot_count = positive_hash(hash_code(key)), self._rules.max_hash_slot_num
        with self._lock:
            begins, count = self._header.begin_timestamp, self._header.index_count
            first, file = self._slot(key_hash % slot_count), self._storage.reader()

        def read(index: int, entries: int) -> bytes:
            return file.read(entries * INDEX_DTYPE.itemsize, self._entry_position(index))

        return walk_chain(IndexQuery(key_hash, slot_count, max_num, begin, end, begins, count), first, read)

    def has_entry(self, physical_offset: int) -> bool:
        """Return whether there is an entry of the message at an offset, if entries are in the order of the log.

        Raises
        ------
        OSError
            As raised by the system.
        """
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

        Raises
        ------
        OSError
            As raised by the system; another call tries again.
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
        """Write back, and sync the file.

        Parameters
        ----------
        with_header : bool
            Write the header even if nothing was put: the count of a file without entries becomes 1 on disk, as
            RocketMQ 5 leaves it at shutdown (``IndexHeader.updateByteBuffer``).

        Raises
        ------
        OSError
            As raised by the system; after a failed sync, at every later call.
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
        """Delete the file.

        Raises
        ------
        OSError
            As raised by the system.
        """
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
