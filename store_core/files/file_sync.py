# SPDX-License-Identifier: Apache-2.0
"""Syncs of files: of one, never again after a failure; and of many together, or of their file system (ADR 0043)."""

from __future__ import annotations

import ctypes
import os
import re
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from store_core.files.file_system import FileSystem, OpenFile, OsFileSystem, OsOpenFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_KINDS: Final = frozenset({"ext4", "xfs"})
"""File systems on disks of this machine that are known to report errors. Of others one can't tell: to some servers
``syncfs`` sends what was written, and does not ask for it to be kept."""

_FIRST_KERNEL: Final = (5, 8)
"""Linux reports errors of writing from this version on; earlier ones return success."""

_MOUNTS: Final = Path("/proc/self/mountinfo")


class WholeSync:
    """A moment from which on all that is written to a directory's file system can be synced at once.

    The file system reports an error to whoever had it open when the error came up. So use it in a ``with`` block, in
    which everything is written.

    * `directory`: Exists.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor = -1

    def __enter__(self) -> Self:
        if _is_reporting(os.stat(self._directory).st_dev):  # noqa: PTH116 -- beside os.open
            self._descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def sync(self) -> bool:
        """Write all that was changed in the file system to disk, names of files included.

        Returns: False if that would not be sure, so that nothing was done: each file has to be synced by itself.
        """
        call = _syncfs()
        if self._descriptor < 0 or call is None:
            return False
        if call(self._descriptor):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(self._directory))
        return True


@cache
def _syncfs() -> Callable[[int], int] | None:
    """Return the call, if this system has it, and it reports errors."""
    system = os.uname()
    kernel = re.match(r"(\d+)\.(\d+)", system.release)
    if system.sysname != "Linux" or kernel is None or (int(kernel[1]), int(kernel[2])) < _FIRST_KERNEL:
        return None
    call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if call is None:
        return None
    call.restype = ctypes.c_int
    call.argtypes = (ctypes.c_int,)
    return call  # type: ignore[no-any-return]  # a function of the C library


def _is_reporting(device: int) -> bool:
    """Return whether a device has a file system of a kind that reports errors."""
    named = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    kinds = {line.partition(" - ")[2].partition(" ")[0] for line in lines if line.split(" ", 3)[2:3] == [named]}
    return bool(kinds) and kinds <= _KINDS


_MOST_SINGLE: Final = 1000
"""Files, or directories, up to which each is synced by itself: a sync of everything waits for what others write."""


class _UnsyncedFile(OsOpenFile):
    """An open file that is not synced by itself."""

    def sync(self) -> None:
        """Do nothing: `sync_files` syncs it."""


class DeferredSyncFileSystem(OsFileSystem):
    """The operating system's files, with every sync left to `sync_files` and `sync_directories`.

    Each sync of a new file or directory waits a few milliseconds for the file system's journal. When all are synced
    after all are written, the first wait covers all of them.
    """

    _file_class = _UnsyncedFile

    def make_directories(self, path: Path) -> None:
        """Create a directory and its parents."""
        path.mkdir(parents=True, exist_ok=True)

    def add_directories(self, path: Path) -> None:
        """Create a directory and its parents."""
        self.make_directories(path)

    def sync_directory(self, path: Path) -> None:
        """Do nothing: `sync_directories` syncs it."""


def sync_files(directory: Path, whole: WholeSync | None = None) -> None:
    """Sync the data of all files below a directory, if it exists: start writing all of them, then wait for each.

    * `whole`: Entered before they were written: syncs all at once if they are many.
    """
    found = (path for path, is_directory in _below(directory) if not is_directory)
    files = list(islice(found, _MOST_SINGLE + 1))
    if len(files) > _MOST_SINGLE and whole is not None and whole.sync():
        return
    files += found
    for path in files:
        with _opened(path) as descriptor:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)  # Linux starts writing dirty pages
    for path in files:
        with _opened(path) as descriptor:
            os.fdatasync(descriptor)


def sync_directories(directory: Path) -> None:
    """Sync the names in a directory, and in all below it, to disk."""
    found = (path for path, is_directory in _below(directory) if is_directory)
    paths = [os.fspath(directory), *islice(found, _MOST_SINGLE)]
    if len(paths) > _MOST_SINGLE:
        with WholeSync(directory) as whole:  # a journal that can't be written is an error at any time
            if whole.sync():
                return
    for path in chain(paths, found):
        with _opened(path) as descriptor:
            os.fsync(descriptor)


def _below(directory: Path) -> Iterator[tuple[str, bool]]:
    """Yield what is below a directory, and whether it is one, too; `os.walk` takes three times as long."""
    waiting = [os.fspath(directory)] if directory.exists() else []
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                is_directory = entry.is_dir(follow_symlinks=False)
                yield entry.path, is_directory
                if is_directory:
                    waiting.append(entry.path)


class _opened:  # noqa: N801 -- used as a function; `contextmanager` is slower
    """Open a file or directory for reading, by its descriptor."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


class FileSync:
    """Sync of a file and, if it was created here, of the directory that has its name.

    After an error Linux may drop the pages it could not write, and a second ``fsync`` succeeds without them. So after
    an error every later sync raises.

    * `error`: What failed, if a sync did; a caller that syncs the file in another way sets it, too.
    """

    def __init__(self, path: Path, file_system: FileSystem) -> None:
        self.error: OSError | None = None
        self._path = path
        self._file_system = file_system
        self._is_in_directory = True

    def note_creation(self) -> None:
        """Record that the file was created, so that the next `sync` includes its directory."""
        self._is_in_directory = False

    def sync(self, open_file: Callable[[], OpenFile]) -> None:
        """Sync the file's data and size, and the first time after its creation also its directory.

        * `open_file`: Returns the open file; if it raises, that counts as a failed sync.
        """
        if self.error is not None:
            raise OSError(
                self.error.errno,
                f"an earlier flush failed ({self.error.strerror}), and the system may have dropped what it could "
                f"not write: check the disk, then open the store again",
                str(self._path),
            )
        try:
            open_file().sync()
            if not self._is_in_directory:
                self._file_system.sync_directory(self._path.parent)
                self._is_in_directory = True
        except OSError as error:
            self.error = error
            raise
