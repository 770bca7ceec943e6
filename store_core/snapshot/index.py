# SPDX-License-Identifier: Apache-2.0
"""The key index of a store as it lies on disk: its files, their slots and entries, and the chains that link these."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from store_core.errors import WITHOUT_SEGMENT, SegmentLayoutError, SegmentVanishedError
from store_core.files.access import explained_access
from store_core.files.file_system import FileSystem, OpenFile, OsFileSystem, names_in
from store_core.files.mapped_file import offset_of
from store_core.files.names import INDEX_DIRECTORY
from store_core.files.url_path import UrlFile, UrlPath
from store_core.queue.index_format import INDEX_DTYPE, INDEX_HEADER_SIZE, SLOT_SIZE, IndexHeader, index_file_size
from store_core.queue.queue_path import QueueRules

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt


_LARGEST: Final = 2**31 - 1
_WORD: Final = np.dtype(">i4")
"""A slot; headers and entries consist of units of the same size."""

_HEADER_WORDS: Final = INDEX_HEADER_SIZE // _WORD.itemsize
_ENTRY_WORDS: Final = INDEX_DTYPE.itemsize // _WORD.itemsize
_USUAL: Final = QueueRules().max_hash_slot_num, QueueRules().max_index_num
"""What RocketMQ makes unless it is told otherwise (``maxHashSlotNum``, ``maxIndexNum``)."""

_USUAL_SIZE: Final = index_file_size(QueueRules())
_PIECE: Final = 1 << 20
"""Bytes of a file that are read at once."""

_SAMPLE: Final = 64
"""How many entries suffice to confirm assumed counts."""


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


_FILES: Final = OsFileSystem()
_MOST_LINKS: Final = 1 << 16
"""Entries of one slot that are followed; a slot of a full file has four on average."""

_WINDOW: Final = 1 << 15
"""Entries that are read together: 640 KiB, which stay in the processor's cache."""

_FAR_WINDOW: Final = 1 << 18
"""The same for a file on another machine, where each window is a request."""

_FEW: Final = 1 << 12
"""Entries that are read together where hardly any follow."""


class BrokenChainError(Exception):
    """A chain of entries leads in circles, or to no entry of its slot."""


class KeyFile:
    """A file of the key index, opened when it is read. It can be pickled.

    Entries are numbered from 1.

    * `size`: Bytes, when it was listed.
    * `header`: As it was then.
    * `slots`, `most_entries`: ``maxHashSlotNum`` and ``maxIndexNum``; 0 if they are not known.
    * `stop`: Number after the last entry: by the header, within the file, and before `end`.
    * `end`: Physical offset at which the log ends for whoever asks: entries of records after it are none.
    * `reaches`: Least and greatest physical offset of the entries in each of the first windows, if who read them told.
    """

    reaches: Sequence[tuple[int, int]] = ()

    def __init__(self, path: Path, file_system: FileSystem = _FILES, end: int | None = None) -> None:
        self.path, self.end = path, end
        self._remote = path.file if isinstance(path, UrlPath) else None
        self._file_system = file_system
        self.size = self._file.size()
        self.header = IndexHeader.from_bytes(self._file.read(INDEX_HEADER_SIZE, 0))
        if self._remote is None:
            del self._file  # a listing of many files holds none of them open
        self.slots = self.most_entries = self.stop = 0

    @cached_property
    def _file(self) -> OpenFile:
        return self._open()

    def _open(self) -> OpenFile:
        if self._remote is not None:
            return UrlFile(self._remote)  # as it was listed
        return self._file_system.open(self.path, writable=False)

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: all but the open file."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_file", "_file_system")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _file_system=_FILES)

    def __repr__(self) -> str:
        return f"KeyFile({str(self.path)!r}, stop={self.stop})"

    def sized(self, slots: int, most_entries: int) -> KeyFile:
        """Set the counts of slots and entries, and return the file."""
        self.slots, self.most_entries = slots, most_entries
        self.stop = min(self.header.index_count, most_entries)
        while self.end is not None and self.stop > 1 and self.header.end_physical_offset >= self.end:
            first = max(self.stop - _FEW, 1)
            is_before = self.entries(first, self.stop)["physical_offset"] < self.end  # entries follow the log's order
            self.stop = first + int(np.count_nonzero(is_before))
            if is_before.any():
                break
        return self

    def sized_by_contents(
        self, expected: tuple[int, int] | None = _USUAL, *, is_full: bool, trusts_size: bool = False
    ) -> KeyFile:
        """Set the counts with which the chains of the slots reach all entries; they stay 0 if the file shows none.

        * `expected`: Likely slots and entries: they are tried first, by a few entries, which avoids reading a file of
          400 MB.
        * `is_full`: Whether there is a newer file.
        * `trusts_size`: A file of the usual size has the usual counts, whatever its chains show.
        """
        if trusts_size and self.size == _USUAL_SIZE and self.header.index_count <= _USUAL[1]:
            return self.sized(*_USUAL)
        found = self._counts(expected, is_full=is_full)
        return self if found is None or self.header.index_count > found[1] else self.sized(*found)

    def _counts(self, expected: tuple[int, int] | None, *, is_full: bool) -> tuple[int, int] | None:
        """Return slots and entries as the chains show them; None if they show none."""
        if not INDEX_HEADER_SIZE < self.size <= _LARGEST or self.size % _WORD.itemsize:
            return None
        is_far = self._remote is not None
        try:
            file = self._open()
            for counts in dict.fromkeys(filter(None, (expected, _USUAL if is_far else None))):
                if _is_likely(file, self.size, *counts, is_far=is_far):
                    return counts
            if is_far and self.size == _USUAL_SIZE:
                return None  # rather than read all of it
            words = _words_of(file, self.size)
        except FileNotFoundError:
            return None
        table, count = words[_HEADER_WORDS:], IndexHeader.from_bytes(words[:_HEADER_WORDS].tobytes()).index_count
        number = _entries_of(table, count, is_full=is_full)
        return None if number is None else (len(table) - _ENTRY_WORDS * number, number)

    @property
    def is_empty(self) -> bool:
        """Whether it was made, and nothing was put yet."""
        return not self.size or (self.size > INDEX_HEADER_SIZE and self.header.index_count <= 1)

    @property
    def is_full(self) -> bool:
        """Whether it takes no more entries; one fewer than ``maxIndexNum`` fit."""
        return self.header.index_count >= self.most_entries

    @cached_property
    def reach(self) -> tuple[int, int]:
        """Least and greatest physical offset of its records: by its header, and by its first and last entry."""
        ends = [int(self.entries(number, number + 1)["physical_offset"][0]) for number in (1, self.stop - 1)]
        return min(self.header.begin_physical_offset, *ends), max(self.header.end_physical_offset, *ends)

    # ---- bytes

    def _bytes(self, begin: int, size: int) -> bytes:
        """Return all of some bytes."""
        try:
            with explained_access(self.path):
                found = self._file.read(size, begin)
        except SegmentVanishedError:
            raise
        except FileNotFoundError as error:
            raise self._vanished("it is gone") from error
        if len(found) < size:
            raise self._vanished(f"it has {begin + len(found)} bytes now")
        return found

    def _vanished(self, found: str) -> SegmentVanishedError:
        text = f"index file {self.path} ({self.size} bytes) was there when it was listed, and {found}"
        return SegmentVanishedError(f"{text}: a broker's retention deletes old ones").advised(WITHOUT_SEGMENT)

    def position(self, number: int) -> int:
        """Return where an entry lies, in bytes."""
        return INDEX_HEADER_SIZE + SLOT_SIZE * self.slots + INDEX_DTYPE.itemsize * number

    def table(self) -> npt.NDArray[np.int32]:
        """Return all slots, in stored byte order."""
        return np.frombuffer(self._bytes(INDEX_HEADER_SIZE, SLOT_SIZE * self.slots), ">i4")

    def entries(self, first: int, stop: int) -> npt.NDArray[np.void]:
        """Return entries by their numbers; errors as of all reading."""
        count = max(stop - first, 0)
        return np.frombuffer(self._bytes(self.position(first), INDEX_DTYPE.itemsize * count), INDEX_DTYPE)

    def windows(self, first: int = 1, stop: int | None = None) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
        """Yield entries in pieces, each with the number of its first one; by default all."""
        end, step = self.stop if stop is None else stop, _WINDOW if self._remote is None else _FAR_WINDOW
        for at in range(first, end, step):
            yield at, self.entries(at, min(at + step, end))

    def between(self, begin: int, end: int) -> Iterator[npt.NDArray[np.void]]:
        """Yield entries in pieces that may have some of records in a range of physical offsets."""
        for number, first in enumerate(range(1, self.stop, _WINDOW)):
            least, most = self.reaches[number] if number < len(self.reaches) else self.reach
            if least < end and most >= begin:
                yield self.entries(first, min(first + _WINDOW, self.stop))

    def entries_at(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.void]:
        """Return entries by any numbers; those that are near one another are read together."""
        found, windows = np.empty(len(numbers), INDEX_DTYPE), numbers // _WINDOW
        for window in np.unique(windows).tolist():
            first, own = window * _WINDOW, windows == window
            some = self.entries(first, min(first + _WINDOW, self.most_entries))
            found[own] = some[numbers[own] - first]
        return found

    # ---- chains

    def chain(self, key_hash: int) -> Iterator[int]:
        """Yield the physical offsets of the entries of a hash, newest first.

        An entry that the header does not count yet is followed, too: a broker writes the header after the slot.
        """
        slot = key_hash % self.slots
        stored = self._bytes(INDEX_HEADER_SIZE + SLOT_SIZE * slot, SLOT_SIZE)
        number, before = int.from_bytes(stored, "big", signed=True), self.most_entries
        for _ in range(_MOST_LINKS):
            if number <= 0:
                return
            if number >= before:
                raise BrokenChainError(f"entry {before} leads to entry {number}, which is not before it")
            (entry,) = self.entries(number, number + 1)
            found = int(entry["key_hash"])
            if found < 0 or found % self.slots != slot:
                raise BrokenChainError(f"entry {number} is of another slot than the one that leads to it")
            if found == key_hash and (self.end is None or entry["physical_offset"] < self.end):
                yield int(entry["physical_offset"])
            before, number = number, int(entry["previous_index"])
        raise BrokenChainError(f"a slot leads to more than {_MOST_LINKS} entries")

    def uncounted(self) -> int:
        """Return how many entries follow those that the header counts, up to the end that it has.

        In a store that was not closed the header may be older than its file, as memory is written to the disk in any
        order.
        """
        at, last = self.stop, int(self.entries(self.stop - 1, self.stop)["physical_offset"][0])
        while at < self.most_entries:
            some = self.entries(at, min(at + _FEW, self.most_entries))
            offsets = some["physical_offset"].astype(np.int64)
            before = np.maximum.accumulate(np.append(last, offsets))[:-1]
            is_next = (offsets >= before) & (offsets <= self.header.end_physical_offset)
            is_next &= (offsets > 0) | (some["key_hash"] != 0)
            at += len(offsets) if is_next.all() else int(is_next.argmin())
            if not is_next.all():
                break
            last = int(offsets[-1])
        return at - self.stop


class LoadedIndex(NamedTuple):
    """The files that a release loads with a configuration, oldest first."""

    directory: Path
    files: tuple[KeyFile, ...]
    unloaded: tuple[Path, ...]  # files that are not loaded; a file without entries, whatever its size, is none

    @property
    def used(self) -> tuple[KeyFile, ...]:
        """The files that have entries."""
        return tuple(file for file in self.files if file.stop > 1)

    def may_have(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which records' entries may be in a file that is not loaded: those between its neighbours' ends."""
        found = np.zeros(len(offsets), np.bool_)
        for path in self.unloaded:
            before = [file.reach[1] for file in self.used if file.path.name < path.name]
            after = [file.reach[0] for file in self.used if file.path.name > path.name]
            found |= (offsets >= max(before, default=0)) & (offsets <= min(after, default=np.iinfo(np.int64).max))
        return found


class Index:
    """The key index of a store, of which nothing is written.

    * `end`: Physical offset at which the log ends for whoever asks.
    """

    def __init__(self, root: Path, file_system: FileSystem = _FILES, end: int | None = None) -> None:
        self.directory = root / INDEX_DIRECTORY
        self._file_system = file_system
        self._end = end

    def _file(self, path: Path) -> KeyFile:
        return KeyFile(path, self._file_system, self._end)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All names in its directory, sorted; none if there is no directory."""
        return tuple(names_in(self.directory, self._file_system))

    @property
    def paths(self) -> list[Path]:
        """What is named like a file of it, oldest first: a time, in digits."""
        return [self.directory / name for name in self.names if name.isdecimal() and name.isascii()]

    def last(self) -> KeyFile | None:
        """Return the newest file, of unknown counts; None if there is none."""
        paths = self.paths
        return self._file(paths[-1]) if paths else None

    def newest_used(self) -> KeyFile | None:
        """Return the newest file that has entries; None if there is none, or its chains do not show its counts."""
        paths = self.paths
        for path in reversed(paths):
            file = self._file(path)
            if not file.is_empty:
                file.sized_by_contents(_USUAL, is_full=path != paths[-1])
                return file if file.slots else None
        return None

    def files(self, *, trusts_size: bool = False) -> Iterator[KeyFile]:
        """Yield the files, with their counts of slots and entries as their chains show them.

        Left out is what is no file, or was deleted since the directory was listed. A file that is not empty and shows
        no counts is yielded with 0 slots.

        * `trusts_size`: As of `KeyFile.sized_by_contents`.
        """
        paths, expected = self.paths, _USUAL
        for path in paths:
            if not path.is_file():
                continue
            try:
                file = self._file(path)
            except FileNotFoundError:
                continue
            if not file.is_empty or (trusts_size and file.size == _USUAL_SIZE):
                file.sized_by_contents(expected, is_full=path != paths[-1], trusts_size=trusts_size)
            if file.slots:
                expected = file.slots, file.most_entries
            yield file

    def first_sized(self, expected: tuple[int, int] | None = None) -> KeyFile | None:
        """Return the first file whose chains show its counts; likely ones are tried first."""
        paths = self.paths
        for path in paths:
            status = self._file_system.status(path)
            if status is not None and not status.is_directory:
                with suppress(FileNotFoundError):
                    file = self._file(path).sized_by_contents(expected, is_full=path != paths[-1])
                    if file.slots:
                        return file
        return None

    def loaded(self, rules: QueueRules, *, is_open: bool = False) -> LoadedIndex:
        """Return the files that a release loads: of one length, named by a number, and before any directory.

        * `rules`: With the numbers of slots and entries of a file.
        * `is_open`: Whether the store was not closed. Then entries that the last header does not count, up to its own
          end, are entries, too.
        """
        size, found = index_file_size(rules), list[KeyFile]()
        for path in self._loaded_paths():
            file = self._file(path)
            if file.size in (0, size):
                found.append(file.sized(rules.max_hash_slot_num, rules.max_index_num))
        used = [file for file in found if file.stop > 1]
        if is_open and used:
            used[-1].stop += used[-1].uncounted()
        known = {file.path.name for file in found}
        rest = (self.directory / name for name in self.names if name not in known)
        return LoadedIndex(self.directory, tuple(found), tuple(path for path in rest if self._has_entries(path)))

    def _loaded_paths(self) -> Iterator[Path]:
        for name in self.names:
            path = self.directory / name
            try:
                offset_of(path)
            except SegmentLayoutError:
                continue
            status = self._file_system.status(path)
            if status is not None and status.is_directory:
                return
            yield path

    def _has_entries(self, path: Path) -> bool:
        """Return whether a file has contents, and is not an index file to which nothing was put yet."""
        status = self._file_system.status(path)
        if status is None or status.is_directory or not status.size:
            return False
        if not path.name.isdecimal() or status.size < INDEX_HEADER_SIZE:
            return True
        return self._file(path).header.index_count > 1
