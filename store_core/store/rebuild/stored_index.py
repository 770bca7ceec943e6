# SPDX-License-Identifier: Apache-2.0
"""The index files of a store as a comparison sees them: which the release loads, and what is in the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from store_core.files.file_system import names_in
from store_core.files.remote.url_path import UrlPath
from store_core.files.segment_source import PagedBytes, file_at, open_pages
from store_core.queue.index.index_build import INDEX_DTYPE
from store_core.queue.index.index_files import IndexFiles
from store_core.queue.index.index_header import INDEX_HEADER_SIZE, IndexHeader
from store_core.queue.index.index_slots import SLOT_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    import numpy.typing as npt

    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem
    from store_core.queue.index.index_file import IndexFile
    from store_core.queue.queue_rules import QueueRules

__all__ = ["StoredFile", "StoredIndex"]

_LOOKED_AT: Final = 1 << 12
"""Entries that are read together where hardly any follow."""


class StoredFile(NamedTuple):
    """An index file that has entries.

    Attributes
    ----------
    path : Path
    begin, end : int
        Physical offsets between which its records lie, both included: by its header, and by its first and last entry.
    entries : int
        Number of entries, with the unused first one.
    """

    path: Path
    begin: int
    end: int
    entries: int


class StoredEntries:
    """The entries of an index file, with the unused first one; a context manager.

    Parameters
    ----------
    path : Path
    start : int
        Position of the first one in the file, in bytes.
    count : int
    """

    def __init__(self, path: Path, start: int, count: int) -> None:
        self._remote: PagedBytes | None = None
        self._start = start
        if isinstance(path, UrlPath):
            self._remote = open_pages(file_at(path))
            self._entries = self._remote.raw[start : start + count * INDEX_DTYPE.itemsize].view(INDEX_DTYPE)
        else:
            self._entries = np.asarray(np.memmap(path, INDEX_DTYPE, "r", start, (count,)))

    def between(self, first: int, stop: int) -> npt.NDArray[np.void]:
        """Return some of them, by their numbers; what was returned before may be gone from memory."""
        if self._remote is not None:
            begin, end = (self._start + at * INDEX_DTYPE.itemsize for at in (first, stop))
            self._remote.drop(begin)
            self._remote.load(begin, end)
        return self._entries[first:stop]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._remote is not None:
            self._remote.__exit__(kind, error, trace)


class StoredIndex:
    """The index files of a store, oldest first; nothing is written.

    Parameters
    ----------
    directory : Path
    rules : QueueRules
    file_system : FileSystem
    clock : Clock
    is_open : bool
        Whether the store was not closed. Then the last header may be older than its file, as memory is written to the
        disk in any order: entries that follow those that it counts, up to its own end, are entries.

    Attributes
    ----------
    directory : Path
    loaded : tuple of IndexFile
    files : tuple of StoredFile
        The loaded files that have entries.
    unloaded : tuple of Path
        Files that the release does not load; a file without entries, whatever its size, is none.
    """

    def __init__(
        self, directory: Path, rules: QueueRules, file_system: FileSystem, clock: Clock, *, is_open: bool = False
    ) -> None:
        self.directory = directory
        index = IndexFiles(directory, rules, file_system, clock, is_writable=False)
        index.load(last_exit_ok=True, index_msg_timestamp=0)
        self._start = INDEX_HEADER_SIZE + SLOT_SIZE * rules.max_hash_slot_num
        self._most = rules.max_index_num
        loaded = {file.path.name: file for file in index.files}
        names = names_in(directory, file_system)
        self.loaded = index.files
        used = [file for file in index.files if file.header.index_count > 1]
        self.files = tuple(self._seen(file, is_newer=is_open and file is used[-1]) for file in used)
        self.unloaded = tuple(
            directory / name for name in names if name not in loaded and _has_entries(directory / name, file_system)
        )
        index.close()

    def _seen(self, file: IndexFile, *, is_newer: bool) -> StoredFile:
        header, count = file.header, min(file.header.index_count, self._most)
        if is_newer:
            count += self._uncounted(file, count)
        with StoredEntries(file.path, self._start, count) as entries:
            ends = tuple(int(entries.between(at, at + 1)["physical_offset"][0]) for at in (1, count - 1))
        begin, end = min(header.begin_physical_offset, *ends), max(header.end_physical_offset, *ends)
        return StoredFile(file.path, begin, end, count)

    def _uncounted(self, file: IndexFile, count: int) -> int:
        """Return how many entries follow those that a header counts, up to the end that it has."""
        end, at = file.header.end_physical_offset, count
        with StoredEntries(file.path, self._start, self._most) as entries:
            last = int(entries.between(count - 1, count)["physical_offset"][0])
            while at < self._most:
                some = entries.between(at, min(at + _LOOKED_AT, self._most))
                offsets = some["physical_offset"].astype(np.int64)
                before = np.maximum.accumulate(np.append(last, offsets))[:-1]
                is_next = (offsets >= before) & (offsets <= end) & ((offsets > 0) | (some["key_hash"] != 0))
                at += len(offsets) if is_next.all() else int(is_next.argmin())
                if not is_next.all():
                    break
                last = int(offsets[-1])
        return at - count

    def entries_of(self, file: StoredFile) -> StoredEntries:
        """Open the entries of a loaded file."""
        return StoredEntries(file.path, self._start, file.entries)

    def files_between(self, begin: int, end: int) -> Iterator[StoredFile]:
        """Yield the files that may have entries of records in a range of physical offsets."""
        return (file for file in self.files if file.end >= begin and file.begin < end)

    def may_have(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which records' entries may be in a file that is not loaded: those between its neighbours' ends."""
        found = np.zeros(len(offsets), np.bool_)
        for path in self.unloaded:
            before = [file.end for file in self.files if file.path.name < path.name]
            after = [file.begin for file in self.files if file.path.name > path.name]
            found |= (offsets >= max(before, default=0)) & (offsets <= min(after, default=np.iinfo(np.int64).max))
        return found


def _has_entries(path: Path, file_system: FileSystem) -> bool:
    """Return whether a file has contents, and is not an index file to which nothing was put yet."""
    status = file_system.status(path)
    if status is None or status.is_directory or not status.size:
        return False
    if not path.name.isdecimal() or status.size < INDEX_HEADER_SIZE:
        return True
    return IndexHeader.from_bytes(file_system.open(path, writable=False).read(INDEX_HEADER_SIZE, 0)).index_count > 1
