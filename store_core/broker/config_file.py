# SPDX-License-Identifier: Apache-2.0
"""A broker's configuration file and its backup on disk: loading and persisting."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Final, NamedTuple

from store_core.broker.config_json import parse_config, write_config
from store_core.errors import CorruptRecordError, UnsafeSizeError
from store_core.files.clock import SystemClock
from store_core.files.config_paths import CONFIG_DIRECTORY
from store_core.files.file_system import OsFileSystem, write_all
from store_core.format.releases.release import DEFAULT_RELEASE, named_rules, rules_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from store_core.broker.config_json import JsonObject
    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem
    from store_core.format.releases.release import Release

__all__ = ["ConfigManager", "ReadConfig", "backup_of", "read_config"]

_MAX_SIZE: Final = 1 << 30
_LOG: Final = logging.getLogger("store_core")


class ReadConfig(NamedTuple):
    """How a configuration file was read.

    Attributes
    ----------
    source : Path or None
        The file or its backup; None if both are missing or empty.
    notes : tuple of str
        That the backup was read, and why.
    """

    source: Path | None
    notes: tuple[str, ...] = ()


def backup_of(path: Path) -> Path:
    """Return the path of a configuration file's backup."""
    return path.with_name(path.name + ".bak")


def read_config(
    path: Path,
    decode: Callable[[JsonObject, str], object],
    file_system: FileSystem,
    *,
    largest: int = _MAX_SIZE,
    release: Release | None = None,
) -> ReadConfig:
    """Read a configuration file; if it is missing, empty or broken, its backup (``ConfigManager.load``).

    Parameters
    ----------
    path : Path
    decode : callable
        Takes the contents and the name of the file; raises `CorruptRecordError` if they are not as required.
    file_system : FileSystem
    largest : int
        Maximum bytes of a file.
    release : str, optional
        The release that reads it. The default release stands for any: only a release that is named refuses what
        another one takes.

    Raises
    ------
    CorruptRecordError
        If the file is broken, and the backup is missing, empty or broken, too; if both are broken it names both.
    OSError
        As raised by the system.
    """
    broken: CorruptRecordError | None = None
    features = named_rules(release)

    def read(file: Path) -> bool:
        data = _bytes_of(file, file_system, largest)
        if data:
            decode(parse_config(data, str(file), features), str(file))
        return bool(data)

    try:
        if read(path):
            return ReadConfig(path)
    except CorruptRecordError as error:
        broken = error
    backup = backup_of(path)
    try:
        has_backup = read(backup)
    except CorruptRecordError as error:
        if broken is None:
            raise
        reason = _advised(error, "")
        raise _advised(broken, f"Its backup is broken, too: {reason}. Correct one of them by hand") from error
    if broken is not None and not has_backup:
        raise _advised(broken, f"Correct the file by hand: {backup} is missing or empty")
    return ReadConfig(backup, (_note(path, broken),)) if has_backup else ReadConfig(None)


def _advised(error: CorruptRecordError, advice: str) -> CorruptRecordError:
    """Return an error with other advice."""
    facts = error.problem, error.file, error.offset, error.expected, error.found, error.next_bytes
    return type(error)(*facts, advice)


def _note(path: Path, broken: CorruptRecordError | None) -> str:
    """Return what is said, and logged, of a file whose backup was loaded: what it says is older."""
    reason = f"{path} is missing or empty"
    if broken is not None:
        reason = str(_advised(broken, "Correct the file by hand, or replace it with its .bak"))
    note = f"{backup_of(path)} was loaded instead: {reason}"
    _LOG.error("%s", note)
    return note


def _bytes_of(path: Path, file_system: FileSystem, largest: int) -> bytes | None:
    status = file_system.status(path)
    if status is None or status.is_directory:
        return None
    if status.size > largest:
        raise UnsafeSizeError(
            "configuration file is too large", str(path), 0, f"at most {largest} bytes", f"{status.size} bytes"
        )
    file = file_system.open(path, writable=False)
    try:
        return file.read(status.size, 0)
    finally:
        file.close()


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
    release : str
        Decides which members the file has, and how it is laid out.

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
        release: Release = DEFAULT_RELEASE,
    ) -> None:
        self._release: Release = release
        self.path = Path(root) / CONFIG_DIRECTORY / name
        self.notes: tuple[str, ...] = ()
        self.is_loaded = False
        self._file_system = file_system or OsFileSystem()
        self._clock = clock or SystemClock()
        self._lock = RLock()

    @property
    def backup_path(self) -> Path:
        """Path of the backup."""
        return backup_of(self.path)

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
            notes = read_config(self.path, self.decode, self._file_system, release=self._release).notes
            self.notes = (*notes, *self.notes)  # `decode` may have added some
            self.is_loaded = True

    def text(self) -> str:
        """Return the text of the file, as the release lays it out."""
        return write_config(self.encode(), features=rules_of(self._release))

    def persist(self) -> None:
        """Write the file, and its previous text to the backup.

        Raises
        ------
        OSError
            As raised by the system; the file then still has its previous text, unless step 2 was reached.
        """
        with self._lock:
            self._file_system.make_directories(self.path.parent)
            before = _bytes_of(self.path, self._file_system, _MAX_SIZE)
            self._replace(self.path, self.text().encode())
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
