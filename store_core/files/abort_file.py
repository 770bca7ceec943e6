# SPDX-License-Identifier: Apache-2.0
"""The file ``abort``, which distinguishes a crash from a clean shutdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store_core.files.file_system import write_all
from store_core.format.releases.release import DEFAULT_RELEASE, rules_of

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.file_system import FileSystem

__all__ = ["ABORT_FILE", "AbortFile"]

ABORT_FILE: Final = "abort"
"""Name below the store root (RocketMQ: ``StorePathConfigHelper.getAbortFile``)."""

_SHOWN_BYTES: Final = 4096


class AbortFile:
    """``abort`` exists while a store is open for writing, and after a crash (``DefaultMessageStore.createTempFile``).

    ========  ===================================  =========================================================
    release   ``abort``                            ``abort.bak``
    ========  ===================================  =========================================================
    4.3, 4.9  empty                                none
    5.3       the process id, in decimal digits    what ``abort`` held before: nothing, or a dead process's id
    ========  ===================================  =========================================================

    ``abort.bak`` is never deleted, and does not indicate a crash.
    """

    def __init__(self, root: Path, file_system: FileSystem) -> None:
        self.path = root / ABORT_FILE
        self.backup_path = root / f"{ABORT_FILE}.bak"
        self._file_system = file_system

    @property
    def exists(self) -> bool:
        """Whether the last exit was abnormal, if read before `create`."""
        return self._file_system.status(self.path) is not None

    def create(self, process_id: int, release: str = DEFAULT_RELEASE) -> None:
        """Create the file, durably; the last step of opening a store.

        Steps: 1. create it empty if it does not exist; 2. sync the directory, so that a crash is detected from here on;
        3. release 5.3: copy what it held to ``abort.bak``; 4. release 5.3: write the process id.
        """
        self._file_system.make_directories(self.path.parent)
        file = self._file_system.open(self.path, create=True)
        self._file_system.sync_directory(self.path.parent)
        if rules_of(release).notes_process_in_abort_file:
            before = file.read(_SHOWN_BYTES, 0)
            file.close()
            self._write(self.backup_path, before)
            self._write(self.path, str(process_id).encode())
        else:
            file.close()

    def _write(self, path: Path, content: bytes) -> None:
        file = self._file_system.open(path, create=True)
        file.truncate(len(content))
        write_all(file, memoryview(content), 0)
        file.sync()
        file.close()

    def remove(self) -> None:
        """Delete the file, durably; the last step of a clean shutdown, after everything is flushed and dispatched."""
        self._file_system.remove(self.path)
        self._file_system.sync_directory(self.path.parent)
