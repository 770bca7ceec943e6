# SPDX-License-Identifier: Apache-2.0
"""The key index of a store as it lies on disk: its files, their slots and entries, and the chains that link these."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from store_core.errors import WITHOUT_SEGMENT, SegmentLayoutError, SegmentVanishedError
from store_core.files.access import explained_access
from store_core.files.file_system import OsFileSystem, names_in
from store_core.files.remote.url_path import UrlFile, remote_file_of
from store_core.files.segment_file import offset_of
from store_core.files.store_parts import INDEX_DIRECTORY
from store_core.queue.index.index_format import INDEX_DTYPE, INDEX_HEADER_SIZE, SLOT_SIZE, IndexHeader, index_file_size
from store_core.queue.queue_path import QueueRules
from store_core.snapshot.index_sizes import IndexSizes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    from store_core.files.file_system import FileSystem, OpenFile

__all__ = ["BrokenChainError", "Index", "KeyFile", "LoadedIndex"]

_FILES: Final = OsFileSystem()
_USUAL: Final = QueueRules().max_hash_slot_num, QueueRules().max_index_num
_USUAL_SIZE: Final = index_file_size(QueueRules())
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
    """

    def __init__(self, path: Path, file_system: FileSystem = _FILES, end: int | None = None) -> None:
        self.path, self.end = path, end
        self._remote = remote_file_of(path)
        self._file_system = file_system
        self.size = self._file.size()
        self.header = IndexHeader.from_bytes(self._file.read(INDEX_HEADER_SIZE, 0))
        if self._remote is None:
            del self._file  # a listing of many files holds none of them open
        self.slots = self.most_entries = self.stop = 0

    @cached_property
    def _file(self) -> OpenFile:
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

    def sized_by_contents(self, expected: tuple[int, int], *, is_full: bool) -> KeyFile:
        """Set the counts that the chains show, of which some are likely; they stay 0 if the file shows none.

        `is_full` says whether there is a newer file.
        """
        found = IndexSizes.of_file(self.path, self._file_system, expected, is_full=is_full)
        if found is None or self.header.index_count > found.entries:
            return self
        return self.sized(found.slots, found.entries)

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

    def between(self, begin: int, end: int) -> Iterator[KeyFile]:
        """Yield the files that may have entries of records in a range of physical offsets."""
        return (file for file in self.used if file.reach[1] >= begin and file.reach[0] < end)

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

    * `root`: The store's root, or the URL of one (`UrlPath`).
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

        * `trusts_size`: A file of the usual size has the usual counts, whatever its chains show.
        """
        paths, expected = self.paths, _USUAL
        for path in paths:
            if not path.is_file():
                continue
            try:
                file = self._file(path)
            except FileNotFoundError:
                continue
            if trusts_size and file.size == _USUAL_SIZE and file.header.index_count <= _USUAL[1]:
                file.sized(*_USUAL)
            elif not file.is_empty:
                file.sized_by_contents(expected, is_full=path != paths[-1])
            if file.slots:
                expected = file.slots, file.most_entries
            yield file

    def sizes(self, expected: tuple[int, int] | None = None) -> IndexSizes | None:
        """Return the counts of the first file whose chains show them; likely ones are tried first."""
        paths = self.paths
        told = (IndexSizes.of_file(path, self._file_system, expected, is_full=path != paths[-1]) for path in paths)
        return next(filter(None, told), None)

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
