# SPDX-License-Identifier: Apache-2.0
"""The note that records are not in the index, because an append left them out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from store_core.files.file_system import write_all

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.file_system import FileSystem

__all__ = ["Unindexed"]

_NAME: Final = "unindexed.json"
_LARGEST: Final = 4096


@dataclass(frozen=True, slots=True)
class Unindexed:
    """A file below a store's directory of append jobs: from where on records may not be in the index.

    It is written before such an append is published, and removed when an append with an index has added their keys.

    Parameters
    ----------
    directory : Path
    file_system : FileSystem
    """

    directory: Path
    file_system: FileSystem

    def begin(self) -> int | None:
        """Return the physical offset of the first such record; None if all may be in the index.

        A note that can't be read stands for the whole log.
        """
        path = self.directory / _NAME
        if self.file_system.status(path) is None:
            return None
        file = self.file_system.open(path, writable=False)
        try:
            fields: Any = json.loads(file.read(min(file.size(), _LARGEST), 0))
            found = fields["begin"]
        except (ValueError, RecursionError, KeyError, TypeError):
            return 0
        finally:
            file.close()
        return found if isinstance(found, int) and found >= 0 else 0

    def note(self, begin: int) -> None:
        """Note durably that records from an offset on may not be in the index, unless earlier ones are noted.

        Raises
        ------
        OSError
            If a system call fails.
        """
        if self.begin() is not None:
            return
        self.file_system.make_directories(self.directory)
        partial = self.directory / f"{_NAME}.partial"
        file = self.file_system.open(partial, create=True)
        try:
            file.truncate(0)
            write_all(file, memoryview(json.dumps({"begin": begin}).encode()), 0)
            file.sync()
        finally:
            file.close()
        self.file_system.rename(partial, self.directory / _NAME)
        self.file_system.sync_directory(self.directory)

    def remove(self) -> None:
        """Remove the note.

        Raises
        ------
        OSError
            If a system call fails.
        """
        self.file_system.remove(self.directory / _NAME)
