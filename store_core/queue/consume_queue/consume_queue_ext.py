# SPDX-License-Identifier: Apache-2.0
"""Extension units of a queue."""

from __future__ import annotations

import logging
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.files.mapped_file_queue import MappedFileQueue
from store_core.files.segment_listing import SegmentPaths
from store_core.format.layout import CONSUME_QUEUE_EXT_UNIT, unit_dtype

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from store_core.files.file_system import FileSystem
    from store_core.files.mapped_file import MappedFile
    from store_core.queue.queue_assignment import UnitRows
    from store_core.queue.queue_path import QueueRules


LAST_EXT_ADDRESS: Final = -(2**31) - 1
"""The largest tags code that is an address: every hash is larger, and so is every time after 1969."""


def is_ext_address(tags_code: int) -> bool:
    """Return whether a unit's tags code is an address in the extension (RocketMQ: ``ConsumeQueueExt.isExtAddr``).

    >>> is_ext_address(-(2**63)), is_ext_address(-(2**31))
    (True, False)
    """
    return tags_code <= LAST_EXT_ADDRESS


_LOG: Final = logging.getLogger("store_core")

EXT_UNIT_DTYPE: Final = unit_dtype(CONSUME_QUEUE_EXT_UNIT)
"""The fixed part of a unit; the bit map follows."""

MAX_EXT_UNIT_SIZE: Final = 2**15 - 1
"""Bytes of the largest unit (RocketMQ: ``CqExtUnit.MAX_EXT_UNIT_SIZE``)."""

_FIRST_ADDRESS: Final = -(2**63)
_LAST_OFFSET: Final = LAST_EXT_ADDRESS - _FIRST_ADDRESS
"""``ConsumeQueueExt.MAX_REAL_OFFSET``."""
_HEAD: Final = struct.Struct(">hqqh")
_SIZE: Final = struct.Struct(">h")
_END_OF_FILE: Final = _SIZE.pack(-1)
_BLANK: Final = 4
"""Bytes that stay free at the end of a file (``ConsumeQueueExt.END_BLANK_DATA_LENGTH``)."""


def address_of(offset: int) -> int:
    """Return the address of the unit at a byte offset (``ConsumeQueueExt.decorate``).

    >>> address_of(0)
    -9223372036854775808
    """
    return offset + _FIRST_ADDRESS


def offset_of_address(address: int) -> int:
    """Return the byte offset that an address stands for (``ConsumeQueueExt.unDecorate``)."""
    return address - _FIRST_ADDRESS


@dataclass(frozen=True, slots=True)
class CqExtUnit:
    """One unit (RocketMQ: ``ConsumeQueueExt.CqExtUnit``)."""

    tags_code: int  # hash of the tags, as the queue would hold it without an extension
    msg_store_time: int  # ms since 1970
    bit_map: bytes = b""  # which SQL92 consumers match; empty if not computed

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return EXT_UNIT_DTYPE.itemsize + len(self.bit_map)

    def to_bytes(self) -> bytes:
        """Encode it; its size must be at most `MAX_EXT_UNIT_SIZE`."""
        return _HEAD.pack(self.size, self.tags_code, self.msg_store_time, len(self.bit_map)) + self.bit_map


class ConsumeQueueExt:
    """The extension of one queue (RocketMQ: ``ConsumeQueueExt``; 4.1.0 and later, the same in all releases).

    Units follow one another, and each file ends with a size of -1. The queue's unit holds the address in place of its
    tags code. One thread puts; readers read at the same time.

    An extension is loaded only with a queue that is found on disk. For a queue created by dispatching, it begins at
    offset 0 again, overwriting any existing files, as in RocketMQ.

    * `directory`: ``consumequeue_ext/<topic>/<queue id>``.
    * `rules`: `ext_file_size` and `release`.
    """

    def __init__(self, directory: Path, rules: QueueRules, file_system: FileSystem, *, writable: bool = True) -> None:
        self.mapped_file_queue = MappedFileQueue(
            SegmentPaths((directory,)), rules.ext_file_size, file_system, writable=writable
        )
        self._release = rules.release
        self._file_size = rules.ext_file_size

    def load(self) -> tuple[str, ...]:
        """Load the existing files; notes and errors are those of `MappedFileQueue.load`."""
        return self.mapped_file_queue.load(self._release)

    # ---- writing

    def put(self, tags_code: int, store_timestamp: int, bit_map: bytes = b"") -> int | None:
        """Append a unit and return its address; None if that fails: the queue then keeps the plain tags code.

        A unit that does not fit into the rest of the file, with four bytes kept free, goes to the next file. RocketMQ
        begins three files for a unit that is larger than a file, and gives up; here it is refused at once.
        """
        unit = CqExtUnit(tags_code, store_timestamp, bit_map)
        room = min(MAX_EXT_UNIT_SIZE, self._file_size - _BLANK)
        if unit.size > room or self.mapped_file_queue.max_offset + unit.size > _LAST_OFFSET:
            _LOG.error("a unit of %d bytes can't be put into %s", unit.size, self.mapped_file_queue.paths.paths[0])
            return None
        try:
            file = self._file_for(unit.size)
            if file is None:
                return None
            position = file.file_from_offset + file.wrote_position
            return address_of(position) if file.append(unit.to_bytes()) else None
        except OSError as error:
            _LOG.error("a unit of an extension was not put: %s", error)
            return None

    def _file_for(self, size: int) -> MappedFile | None:
        """Return the last file if `size` bytes fit; otherwise end it, and return the next."""
        file = self.mapped_file_queue.get_last_mapped_file()
        if file is None or size <= self._file_size - file.wrote_position - _BLANK:
            return file
        # Where damage left too little room for the mark, the end of the file is the mark.
        file.append(_END_OF_FILE)
        file.wrote_position = file.file_size
        return self.mapped_file_queue.get_last_mapped_file()

    def put_units(
        self, tags_codes: npt.NDArray[np.int64], store_timestamps: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Append units without bit maps, as `put` one by one; return what replaces the tags codes in the queue.

        Returns: Addresses; the tags code for a unit that could not be put.
        """
        answer = tags_codes.astype(np.int64)
        units = np.zeros(len(answer), EXT_UNIT_DTYPE)
        units["size"] = EXT_UNIT_DTYPE.itemsize
        units["tags_code"] = tags_codes
        units["msg_store_time"] = store_timestamps
        done = 0
        while done < len(units):
            taken = self._put_run(units[done:], answer[done:])
            if not taken:
                break
            done += taken
        return answer

    def put_rows(self, units: UnitRows) -> npt.NDArray[np.int64]:
        """Put the tags codes of a queue's units; return what replaces them there. Light units keep theirs."""
        own = ~units.is_light
        answer = units.tags_code.copy()
        answer[own] = self.put_units(answer[own], units.store_timestamp[own])
        return answer

    def _put_run(self, units: npt.NDArray[np.void], answer: npt.NDArray[np.int64]) -> int:
        """Append as many as fit into one file; return how many."""
        size = EXT_UNIT_DTYPE.itemsize
        if self._file_size < size + _BLANK or self.mapped_file_queue.max_offset + self._file_size > _LAST_OFFSET:
            return 0
        try:
            file = self._file_for(size)
            if file is None:
                return 0
            count = min(len(units), (self._file_size - file.wrote_position - _BLANK) // size)
            start = file.file_from_offset + file.wrote_position
            file.append(units[:count].view(np.uint8).data)
        except OSError as error:
            _LOG.error("units of an extension were not put: %s", error)
            return 0
        answer[:count] = address_of(start) + size * np.arange(count)
        return count

    # ---- reading

    def get(self, address: int) -> CqExtUnit | None:
        """Return the unit at an address; None if it is not an address, or there is no unit."""
        found = self._find(address)
        return found[1] if found is not None else None

    def _find(self, address: int) -> tuple[int, CqExtUnit] | None:
        """Return the unit at an address, and the size that it claims."""
        if not is_ext_address(address):
            return None
        offset = offset_of_address(address)
        file = self.mapped_file_queue.find_mapped_file_by_offset(offset, return_first=offset == 0)
        position = offset % self._file_size
        head = file.select(position, _HEAD.size) if file is not None else None
        if file is None or head is None:
            return None
        size, tags_code, store_time, map_size = _HEAD.unpack_from(head)
        bit_map = file.select(position + _HEAD.size, max(0, map_size))
        return None if size < 1 or bit_map is None else (size, CqExtUnit(tags_code, store_time, bytes(bit_map)))

    # ---- recovery and deletion

    def recover(self) -> None:
        """Find the end, after the last unit of the last file (RocketMQ: ``ConsumeQueueExt.recover``).

        RocketMQ walks through all files, and uses only what it finds in the last. A unit that runs past the end of its
        file ends the walk here; in RocketMQ the store does not load.
        """
        last = self.mapped_file_queue.last_mapped_file
        if last is None:
            return
        end = last.file_from_offset + _end_of_units(last)
        self.mapped_file_queue.flushed_where = self.mapped_file_queue.committed_where = end
        self.mapped_file_queue.truncate_dirty_files(end)

    def truncate_by_min_address(self, address: int) -> None:
        """Delete the files that end before an address; do nothing if it is not an address."""
        if not is_ext_address(address):
            return
        offset = offset_of_address(address)
        for file in self.mapped_file_queue.mapped_files:
            if file.end_offset < offset:
                file.destroy()
                self.mapped_file_queue.forget([file])

    def truncate_by_max_address(self, address: int) -> None:
        """End after the unit at an address; do nothing if it is not an address, or there is no unit."""
        found = self._find(address)
        if found is None:
            if is_ext_address(address):
                _LOG.error("no unit at %d of %s", address, self.mapped_file_queue.paths.paths[0])
            return
        self.mapped_file_queue.truncate_dirty_files(offset_of_address(address) + found[0])

    def flush(self, least_pages: int) -> bool:
        """Flush by the page rule; True if **nothing changed**, see `MappedFileQueue.flush`."""
        return self.mapped_file_queue.flush(least_pages)

    def destroy(self) -> None:
        """Delete all files, and their directory if it is then empty."""
        self.mapped_file_queue.destroy()

    def close(self) -> None:
        """Release all files; they stay on disk."""
        self.mapped_file_queue.close()


def _end_of_units(file: MappedFile) -> int:
    """Walk over a file's units by their sizes, and return the position after the last."""
    view = file.select(0)
    position = 0
    while view is not None and position + _SIZE.size <= len(view):
        (size,) = _SIZE.unpack_from(view, position)
        if size <= 0 or position + size > len(view):
            break
        position += size
    return position
