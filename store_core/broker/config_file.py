# SPDX-License-Identifier: Apache-2.0
"""A broker's configuration file and its backup on disk: loading and persisting."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Final

from store_core.broker.config_json import parse_config, write_config
from store_core.errors import CorruptRecordError, UnsafeSizeError
from store_core.files.clock import SystemClock
from store_core.files.file_system import OsFileSystem, write_all

if TYPE_CHECKING:
    import os

    from store_core.broker.config_json import JsonObject
    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem

__all__ = ["CONFIG_DIRECTORY", "ConfigManager"]

CONFIG_DIRECTORY: Final = "config"
_MAX_SIZE: Final = 1 << 30
_LOG: Final = logging.getLogger("store_core")


class ConfigManager(ABC):
    """Data kept in one JSON file of a broker (RocketMQ: ``ConfigManager``).

    **Loading.** The file is read; if it is missing, empty or broken, its backup ``.bak`` is read; with neither, the
    data is empty. RocketMQ also starts empty if the file is broken and there is no backup, and so forgets all offsets,
    or topics; here that is an error.

    **Persisting.** At every moment, whatever crashes, the file or its backup is whole. Steps: 1. write the new text to
    ``.tmp``, sync; 2. rename it over the file; 3. write the previous text of the file to ``.bak`` in the same way;
    4. sync the directory. (RocketMQ up to 5.0 deletes the file before it renames, 5.1 to 5.3 overwrite it.)

    Parameters
    ----------
    root : path-like
        The store's root; the file is below it in ``config``.
    name : str
        The file's name.
    file_system : FileSystem, optional
    clock : Clock, optional

    Attributes
    ----------
    path : Path
    notes : tuple of str
        Remarks on loading: that the backup was loaded, and why.
    is_loaded : bool
        Whether the file was read, or found to be missing.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        name: str,
        file_system: FileSystem | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.path = Path(root) / CONFIG_DIRECTORY / name
        self.notes: tuple[str, ...] = ()
        self.is_loaded = False
        self._file_system = file_system or OsFileSystem()
        self._clock = clock or SystemClock()
        self._lock = RLock()

    @property
    def backup_path(self) -> Path:
        """Path of the backup."""
        return self.path.with_name(self.path.name + ".bak")

    @abstractmethod
    def encode(self) -> JsonObject:
        """Return the contents of the file, with members in the order of the file."""

    @abstractmethod
    def decode(self, value: JsonObject, file: str) -> None:
        """Load the contents of a file into this object; on an error, nothing changes.

        Raises
        ------
        CorruptRecordError
            If the contents are not as required.
        """

    def load(self) -> None:
        """Read the file, or its backup.

        Raises
        ------
        CorruptRecordError
            If the file is broken, and the backup is missing, empty or broken, too.
        OSError
            As raised by the system.
        """
        with self._lock:
            self.notes = ()
            broken: CorruptRecordError | None = None
            is_read = False
            try:
                is_read = self._read(self.path)
            except CorruptRecordError as error:
                broken = error
                self.notes = (f"{self.backup_path} was loaded instead: {error}",)
                _LOG.error("%s", self.notes[0])
            if not is_read and not self._read(self.backup_path) and broken is not None:
                raise broken
            self.is_loaded = True

    def _read(self, path: Path) -> bool:
        """Decode a file; False if it is missing or empty."""
        data = self._bytes_of(path)
        if data:
            self.decode(parse_config(data, str(path)), str(path))
        return bool(data)

    def _bytes_of(self, path: Path) -> bytes | None:
        status = self._file_system.status(path)
        if status is None or status.is_directory:
            return None
        if status.size > _MAX_SIZE:
            raise UnsafeSizeError(
                "configuration file is too large", str(path), 0, f"at most {_MAX_SIZE} bytes", f"{status.size} bytes"
            )
        file = self._file_system.open(path, writable=False)
        try:
            return file.read(status.size, 0)
        finally:
            file.close()

    def persist(self) -> None:
        """Write the file, and its previous text to the backup.

        Raises
        ------
        OSError
            As raised by the system; the file then still has its previous text, unless step 2 was reached.
        """
        with self._lock:
            self._file_system.make_directories(self.path.parent)
            before = self._bytes_of(self.path)
            self._replace(self.path, write_config(self.encode()).encode())
            if before is not None:
                self._replace(self.backup_path, before)
            self._file_system.sync_directory(self.path.parent)

    def _replace(self, path: Path, data: bytes) -> None:
        """Replace a file atomically."""
        temporary = path.with_name(path.name + ".tmp")
        file = self._file_system.open(temporary, create=True)
        try:
            file.truncate(0)
            write_all(file, memoryview(data), 0)
            file.sync()
        finally:
            file.close()
        self._file_system.rename(temporary, path)
