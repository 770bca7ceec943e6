# SPDX-License-Identifier: Apache-2.0
"""The files of an index that are kept unchanged when it is rebuilt from a physical offset on."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from store_core.snapshot.index import Index

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.file_system import FileSystem
    from store_core.queue.queue_rules import QueueRules
    from store_core.snapshot.index import KeyFile

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
    def find(cls, store_root: Path, rules: QueueRules, last_offset: int, file_system: FileSystem) -> Self:
        """Find the files of which no record starts after `last_offset`.

        Raises
        ------
        OSError
            If a system call fails.
        """
        if last_offset <= 0:
            return cls()
        kept: list[KeyFile] = []
        for file in Index(store_root, file_system).loaded(rules).files:
            if not file.is_full or file.header.end_physical_offset > last_offset:
                break
            kept.append(file)
        if not kept:
            return cls()
        last = kept[-1].header
        of_last = (file for file in kept if file.header.end_physical_offset == last.end_physical_offset)
        windows = (entries for file in of_last for _, entries in file.windows())
        entries = sum(int(np.count_nonzero(some["physical_offset"] == last.end_physical_offset)) for some in windows)
        return cls(tuple(file.path for file in kept), last.end_physical_offset, last.end_timestamp, entries)

    def copy_to(self, directory: Path, file_system: FileSystem) -> None:
        """Copy the files."""
        if self.paths:
            file_system.make_directories(directory)
        for path in self.paths:
            shutil.copy2(path, directory / path.name)
