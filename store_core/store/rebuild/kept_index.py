# SPDX-License-Identifier: Apache-2.0
"""The files of an index that are kept unchanged when it is rebuilt from a physical offset on."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from store_core.queue.index.index_build import INDEX_DTYPE
from store_core.queue.index.index_files import INDEX_DIRECTORY, IndexFiles
from store_core.queue.index.index_header import INDEX_HEADER_SIZE
from store_core.queue.index.index_slots import SLOT_SIZE

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem
    from store_core.queue.index.index_file import IndexFile
    from store_core.queue.queue_rules import QueueRules

__all__ = ["KeptIndex"]


@dataclass(frozen=True, slots=True)
class KeptIndex:
    """Leading index files that are full, and end before the offset from which records are put again.

    An entry can't be removed from a file, so a file is kept whole or not at all.

    Attributes
    ----------
    paths : tuple of Path
    end_physical_offset : int
        Offset of the last entry's record; the index continues with this record, because more keys of it may be missing.
        0 if there are no files.
    end_timestamp : int
        Store time of that record, ms.
    end_entries : int
        Number of entries of that record.
    """

    paths: tuple[Path, ...] = ()
    end_physical_offset: int = 0
    end_timestamp: int = 0
    end_entries: int = 0

    @classmethod
    def find(cls, store_root: Path, rules: QueueRules, last_offset: int, file_system: FileSystem, clock: Clock) -> Self:
        """Find the files of which no record starts after `last_offset`.

        Raises
        ------
        OSError
            If a system call fails.
        """
        if last_offset <= 0:
            return cls()
        index = IndexFiles(store_root / INDEX_DIRECTORY, rules, file_system, clock, is_writable=False)
        index.load(last_exit_ok=True, index_msg_timestamp=0)
        kept: list[IndexFile] = []
        for file in index.files:
            if not file.is_full or file.end_physical_offset > last_offset:
                break
            kept.append(file)
        index.close()
        if not kept:
            return cls()
        last = kept[-1]
        slots = rules.max_hash_slot_num
        of_last = (file for file in kept if file.end_physical_offset == last.end_physical_offset)
        entries = sum(_count(file.path, slots, file.header.index_count, last.end_physical_offset) for file in of_last)
        return cls(tuple(file.path for file in kept), last.end_physical_offset, last.end_timestamp, entries)

    def copy_to(self, directory: Path, file_system: FileSystem) -> None:
        """Copy the files."""
        if self.paths:
            file_system.make_directories(directory)
        for path in self.paths:
            shutil.copy2(path, directory / path.name)


def _count(path: Path, slots: int, count: int, physical_offset: int) -> int:
    """Count the entries of one record in a file."""
    entries = np.memmap(path, INDEX_DTYPE, "r", INDEX_HEADER_SIZE + SLOT_SIZE * slots, (count,))[1:]
    return int(np.count_nonzero(entries["physical_offset"] == physical_offset))
