# SPDX-License-Identifier: Apache-2.0
"""The files of a key index as they lie on disk, found without opening the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from store_core.files.file_system import OsFileSystem, names_in
from store_core.queue.index.index_build import INDEX_DTYPE
from store_core.queue.index.index_header import INDEX_HEADER_SIZE, IndexHeader
from store_core.queue.index.index_slots import SLOT_SIZE
from store_core.store.config.index_sizes import IndexSizes

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ListedIndexFile", "index_paths"]

_FILES: Final = OsFileSystem()


def index_paths(directory: Path) -> list[Path]:
    """Return what is named like an index file, oldest first: a time, in digits."""
    return [directory / name for name in names_in(directory, _FILES) if name.isdecimal() and name.isascii()]


@dataclass(frozen=True, slots=True)
class ListedIndexFile:
    """One index file.

    Attributes
    ----------
    path : Path
    size : int
        Bytes.
    header : IndexHeader
    slots, most_entries : int
        ``maxHashSlotNum`` and ``maxIndexNum``, inferred; 0 if the file has no entries, or does not show them.
    """

    path: Path
    size: int
    header: IndexHeader
    slots: int = 0
    most_entries: int = 0

    @classmethod
    def read(cls, path: Path, expected: tuple[int, int] | None, *, is_full: bool) -> Self:
        """Read a file's header, and infer its counts.

        Parameters
        ----------
        path : Path
        expected : tuple of int or None
            Likely slots and entries, as of `IndexSizes.find`.
        is_full : bool
            Whether there is a newer file.

        Raises
        ------
        OSError
            As raised by the system.
        """
        file = _FILES.open(path, writable=False)
        size = file.size()
        found = cls(path, size, IndexHeader.from_bytes(file.read(INDEX_HEADER_SIZE, 0)))
        sizes = None if found.is_empty else IndexSizes.of_file(path, _FILES, expected, is_full=is_full)
        if sizes is None or found.header.index_count > sizes.entries:
            return found
        return cls(path, size, found.header, sizes.slots, sizes.entries)

    @property
    def is_empty(self) -> bool:
        """Whether it was made, and nothing was put yet."""
        return not self.size or (self.size > INDEX_HEADER_SIZE and self.header.index_count <= 1)

    @property
    def is_sound(self) -> bool:
        """Whether its slots lead to the entries that its header counts."""
        return self.slots > 0

    def position(self, number: int) -> int:
        """Return where an entry lies, in bytes; the first has number 1."""
        return INDEX_HEADER_SIZE + SLOT_SIZE * self.slots + INDEX_DTYPE.itemsize * number
