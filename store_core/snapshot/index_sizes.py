# SPDX-License-Identifier: Apache-2.0
"""The configured slot and entry counts of index files, inferred from their contents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.files.remote.url_path import UrlPath
from store_core.files.segment_source import file_at, open_pages
from store_core.queue.index.index_format import INDEX_DTYPE, INDEX_HEADER_SIZE, IndexHeader

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from store_core.files.file_system import FileSystem

__all__ = ["IndexSizes"]

_LARGEST: Final = 2**31 - 1
_WORD: Final = np.dtype(">i4")
"""A slot; headers and entries consist of units of the same size."""

_HEADER_WORDS: Final = INDEX_HEADER_SIZE // _WORD.itemsize
_ENTRY_WORDS: Final = INDEX_DTYPE.itemsize // _WORD.itemsize
_USUAL_SLOTS: Final = 5_000_000
_USUAL_ENTRIES: Final = 20_000_000
"""What RocketMQ makes unless it is told otherwise (``maxHashSlotNum``, ``maxIndexNum``)."""

_USUAL_SIZE: Final = INDEX_HEADER_SIZE + _WORD.itemsize * _USUAL_SLOTS + INDEX_DTYPE.itemsize * _USUAL_ENTRIES
_SAMPLE: Final = 64
"""How many entries suffice to confirm assumed counts."""


class IndexSizes(NamedTuple):
    """Slot and entry counts of index files.

    Attributes
    ----------
    slots, entries : int
        ``maxHashSlotNum`` and ``maxIndexNum``.
    example : Path
        The file from which they were inferred.
    """

    slots: int
    entries: int
    example: Path

    @classmethod
    def of_file(
        cls, path: Path, file_system: FileSystem, expected: tuple[int, int] | None = None, *, is_full: bool
    ) -> IndexSizes | None:
        """Examine an index file: with its counts the chains of the slots reach all entries.

        Parameters
        ----------
        path : Path
        file_system : FileSystem
        expected : tuple of int, optional
            Likely slots and entries: they are tried first, by a few entries, which avoids reading a file of 400 MB.
        is_full : bool
            Whether there is a newer file.
        """
        if isinstance(path, UrlPath) and path.is_file() and path.file.size == _USUAL_SIZE:
            return cls._of_usual(path)
        words = _words_of(path, file_system)
        if words is None:
            return None
        table, count = words[_HEADER_WORDS:], _index_count(words)
        if expected is not None and _is_likely(table, *expected, count):
            return cls(*expected, path)
        entries = _entries_of(table, count, is_full=is_full)
        return None if entries is None else cls(len(table) - _ENTRY_WORDS * entries, entries, path)

    @classmethod
    def _of_usual(cls, path: UrlPath) -> IndexSizes | None:
        """Examine a file of the usual size that is not on this machine, as if its counts were expected.

        A twentieth of it is read: its slots, and the last entries.
        """
        with open_pages(file_at(path)) as opened:
            slots_end = INDEX_HEADER_SIZE + _WORD.itemsize * _USUAL_SLOTS
            opened.load(0, slots_end)
            words = opened.raw.view(_WORD)
            count = _index_count(words)
            last = slots_end + INDEX_DTYPE.itemsize * min(max(count, 0), _USUAL_ENTRIES)
            opened.load(max(last - INDEX_DTYPE.itemsize * (_SAMPLE + 1), 0), last)
            is_likely = count > 1 and _is_likely(words[_HEADER_WORDS:], _USUAL_SLOTS, _USUAL_ENTRIES, count)
            return cls(_USUAL_SLOTS, _USUAL_ENTRIES, path) if is_likely else None


def _words_of(path: Path, file_system: FileSystem) -> npt.NDArray[np.int32] | None:
    """Map a file; None if it can't be an index file by its length, or is gone."""
    status = file_system.status(path)
    size = status.size if status is not None and not status.is_directory else 0
    if not INDEX_HEADER_SIZE < size <= _LARGEST or size % _WORD.itemsize:
        return None
    try:
        return np.frombuffer(file_system.open(path, writable=False).map(size), _WORD)
    except FileNotFoundError:
        return None


def _index_count(words: npt.NDArray[np.int32]) -> int:
    return IndexHeader.from_bytes(words[:_HEADER_WORDS].tobytes()).index_count


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


def _is_likely(table: npt.NDArray[np.int32], slots: int, number: int, count: int) -> bool:
    """Return whether a file has these counts, by its length and its last entries, if it has any."""
    if len(table) != slots + _ENTRY_WORDS * number or count > number:
        return False
    last = np.arange(max(count - _SAMPLE, 1), count)
    hashes = table[slots + _ENTRY_WORDS * last].astype(np.int64)
    leads = table[np.abs(hashes) % slots]
    return bool(((hashes >= 0) & (leads >= last) & (leads < number)).all())


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
