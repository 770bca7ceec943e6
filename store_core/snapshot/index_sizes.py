# SPDX-License-Identifier: Apache-2.0
"""The configured slot and entry counts of index files, inferred from their contents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.files.remote.url_path import UrlPath
from store_core.queue.index.index_format import INDEX_DTYPE, INDEX_HEADER_SIZE, IndexHeader

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from store_core.files.file_system import FileSystem, OpenFile

__all__ = ["IndexSizes"]

_LARGEST: Final = 2**31 - 1
_WORD: Final = np.dtype(">i4")
"""A slot; headers and entries consist of units of the same size."""

_HEADER_WORDS: Final = INDEX_HEADER_SIZE // _WORD.itemsize
_ENTRY_WORDS: Final = INDEX_DTYPE.itemsize // _WORD.itemsize
_USUAL: Final = (5_000_000, 20_000_000)
"""What RocketMQ makes unless it is told otherwise (``maxHashSlotNum``, ``maxIndexNum``)."""

_USUAL_SIZE: Final = INDEX_HEADER_SIZE + _WORD.itemsize * _USUAL[0] + INDEX_DTYPE.itemsize * _USUAL[1]
_PIECE: Final = 1 << 20
"""Bytes of a file that are read at once."""

_SAMPLE: Final = 64
"""How many entries suffice to confirm assumed counts."""


class IndexSizes(NamedTuple):
    """Slot and entry counts of index files.

    * `slots`, `entries`: ``maxHashSlotNum`` and ``maxIndexNum``.
    """

    slots: int
    entries: int
    example: Path  # the file from which they were inferred

    @classmethod
    def of_file(
        cls, path: Path, file_system: FileSystem, expected: tuple[int, int] | None = None, *, is_full: bool
    ) -> IndexSizes | None:
        """Examine an index file: with its counts the chains of the slots reach all entries.

        * `expected`: Likely slots and entries: they are tried first, by a few entries, which avoids reading a file of
          400 MB.
        * `is_full`: Whether there is a newer file.
        """
        status = file_system.status(path)
        size = status.size if status is not None and not status.is_directory else 0
        if not INDEX_HEADER_SIZE < size <= _LARGEST or size % _WORD.itemsize:
            return None
        is_far = isinstance(path, UrlPath)
        try:
            file = file_system.open(path, writable=False)
            for slots, entries in dict.fromkeys(filter(None, (expected, _USUAL if is_far else None))):
                if _is_likely(file, size, slots, entries, is_far=is_far):
                    return cls(slots, entries, path)
            if is_far and size == _USUAL_SIZE:
                return None  # rather than read all of it
            words = _words_of(file, size)
        except FileNotFoundError:
            return None
        table, count = words[_HEADER_WORDS:], IndexHeader.from_bytes(words[:_HEADER_WORDS].tobytes()).index_count
        number = _entries_of(table, count, is_full=is_full)
        return None if number is None else cls(len(table) - _ENTRY_WORDS * number, number, path)


def _words_of(file: OpenFile, size: int) -> npt.NDArray[np.int32]:
    """Return all of a file, of which holes take no memory; what it has lost meanwhile is zeros."""
    whole, at = np.zeros(size, np.uint8), 0
    while at < size and (data := file.next_data(at)) is not None:
        for begin in range(data[0], min(data[1], size), _PIECE):
            read = np.frombuffer(file.read(min(_PIECE, data[1] - begin, size - begin), begin), np.uint8)
            whole[begin : begin + len(read)] = read
        at = data[1]
    return whole.view(_WORD)


def _is_likely(file: OpenFile, size: int, slots: int, number: int, *, is_far: bool) -> bool:
    """Return whether a file has these counts, by its length and its last entries, if it has any.

    Of one on another machine all slots are read, which is one request and a twentieth of it.
    """
    slots_end = INDEX_HEADER_SIZE + _WORD.itemsize * slots
    count = IndexHeader.from_bytes(file.read(INDEX_HEADER_SIZE, 0)).index_count
    if size != slots_end + INDEX_DTYPE.itemsize * number or count > number:
        return False
    last = np.arange(max(count - _SAMPLE, 1), count)
    begin = slots_end + INDEX_DTYPE.itemsize * max(count - _SAMPLE, 1)
    stored = file.read(INDEX_DTYPE.itemsize * len(last), begin)
    if len(stored) < INDEX_DTYPE.itemsize * len(last):
        return False
    hashes = np.frombuffer(stored, INDEX_DTYPE)["key_hash"].astype(np.int64)
    own = np.abs(hashes) % slots
    leads = _leads(file, own, slots, is_far=is_far)
    return leads is not None and bool(((hashes >= 0) & (leads >= last) & (leads < number)).all())


def _leads(file: OpenFile, own: npt.NDArray[np.int64], slots: int, *, is_far: bool) -> npt.NDArray[np.int64] | None:
    """Return to which entries some slots lead; None if the file is too short for them."""
    if is_far:
        stored = file.read(_WORD.itemsize * slots, INDEX_HEADER_SIZE)
        return np.frombuffer(stored, _WORD)[own].astype(np.int64) if len(stored) == _WORD.itemsize * slots else None
    stored = b"".join(file.read(_WORD.itemsize, INDEX_HEADER_SIZE + _WORD.itemsize * slot) for slot in own.tolist())
    return np.frombuffer(stored, _WORD).astype(np.int64) if len(stored) == _WORD.itemsize * len(own) else None


def _entries_of(table: npt.NDArray[np.int32], count: int, *, is_full: bool) -> int | None:
    """Find the number of entries with which a file is consistent; None unless there is exactly one.

    If there is none, the header may be older than the slots, which then also lead to entries that it does not count: in
    a file that is being written, or in a copy of one, as memory is written to the disk in any order.
    """
    if is_full and _fits(table, count, count):
        return count
    most = (len(table) - 1) // _ENTRY_WORDS
    if not 1 < count <= most:
        return None
    for is_behind in (False, True):
        candidates = _candidates(table, count, most, is_behind=is_behind)
        fitting = [number for number in candidates if _fits(table, number, number if is_behind else count)]
        if len(fitting) > 1:  # as with few entries
            reached = {number: _reached(table, number) for number in fitting}
            fitting = [number for number in fitting if reached[number] == max(reached.values())]
        if fitting:
            return fitting[0] if len(fitting) == 1 else None
    return None


def _candidates(table: npt.NDArray[np.int32], count: int, most: int, *, is_behind: bool) -> list[int]:
    """Return the entry counts with which the last entry's slot leads to it, or to a later one if the header is old."""
    numbers = np.arange(count, most + 1)
    slots = len(table) - _ENTRY_WORDS * numbers
    hashes = table[slots + _ENTRY_WORDS * (count - 1)].astype(np.int64)
    led_to = table[np.abs(hashes) % slots]
    leads = (led_to >= count - 1) & (led_to < numbers) if is_behind else led_to == count - 1
    found: list[int] = numbers[leads & (hashes >= 0)].tolist()
    return found


def _fits(table: npt.NDArray[np.int32], number: int, count: int) -> bool:
    """Return whether every slot in use leads to an entry whose hash maps to that slot."""
    slots = len(table) - _ENTRY_WORDS * number
    if slots <= 0 or count <= 1:
        return False
    used, entries = _used(table, slots)
    if not len(used) or entries.min() < 1 or entries.max() >= count:
        return False
    hashes = table[slots + _ENTRY_WORDS * entries].astype(np.int64)
    return bool(((hashes >= 0) & (hashes % slots == used)).all())


def _used(table: npt.NDArray[np.int32], slots: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the slots in use, and the entries that they lead to.

    They are copied first: numpy fails if a broker uses another one while it looks.
    """
    leads = table[:slots].astype(np.int64)
    used = np.flatnonzero(leads)
    return used, leads[used]


def _reached(table: npt.NDArray[np.int32], number: int) -> int:
    """Return how many entries the chains reach: from a slot, or from a later entry with that slot.

    Entries of zeros do not count: they are there before anything was put.
    """
    slots = len(table) - _ENTRY_WORDS * number
    entries = table[slots:].view(INDEX_DTYPE)
    hashes, links = entries["key_hash"].astype(np.int64), entries["previous_index"].astype(np.int64)
    own = np.abs(hashes) % slots
    later = np.flatnonzero((links > 0) & (links < np.arange(number)))
    later = later[own[links[later]] == own[later]]
    reached = np.unique(np.concatenate((_used(table, slots)[1], links[later])))
    return int(np.count_nonzero(hashes[reached]))
