# SPDX-License-Identifier: Apache-2.0
"""The files of a disk, which tests and dry runs replace.

Tests pass one that is full, or fails, at a call of their choice.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
import stat
from contextlib import closing, suppress
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol, Self

import numpy as np

from store_core.errors import StoreAccessError
from store_core.files.access import kind_of_file, naming
from store_core.files.url_path import UrlFile, UrlPath
from store_core.format.segment_view import ArrayBytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store_core.files.segment_source import WalkedBytes


_UNNAMED: Final[int] = getattr(os, "O_TMPFILE", 0)
_NOT_KNOWN: Final = (
    errno.EOPNOTSUPP,
    errno.EISDIR,  # from kernels that see only the directory in the flags
    errno.EINVAL,
    errno.ENOENT,  # no such directory, or no /proc
    errno.EPERM,
    errno.EXDEV,
)
"""Errors by which a system says that it has no such files, or can't name them."""


def open_unnamed(directory: Path) -> int | None:
    """Open a new file in a directory that has no name there; None if the system has no such files."""
    if not _UNNAMED:
        return None
    try:
        return os.open(directory, _UNNAMED | os.O_RDWR | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno in _NOT_KNOWN:
            return None
        raise


def name_file(descriptor: int, path: Path) -> bool:
    """Give an open file without a name one, in the directory in which it was opened; False if the system can't."""
    try:
        os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)
    except OSError as error:
        if error.errno in _NOT_KNOWN:
            return False
        raise
    return True


class UnsyncedNames:
    """Directories in which subdirectories were created since they were last synced.

    A sync waits a few milliseconds for the file system's journal. A store that creates thousands of queues would wait
    twice for each before its first unit is written; when queues are flushed together, one wait covers most of them.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._made: dict[Path, object] = {}

    def __contains__(self, directory: Path) -> bool:
        """Return whether directories were created in it since it was last synced."""
        with self._lock:
            return directory in self._made

    def make(self, directory: Path) -> None:
        """Create a directory in an existing one, unless it exists; `sync` of it makes its name durable."""
        with self._lock:
            # Under one lock, so that no thread finds the directory before it is recorded.
            directory.mkdir(exist_ok=True)
            self._made[directory.parent] = object()

    def sync(self, directory: Path, sync_one: Callable[[Path], None]) -> None:
        """Sync a directory, and those above it in which directories were created.

        * `sync_one`: Makes the names in one directory durable. If it raises, the error is passed on and the directory
          stays recorded.
        """
        with self._lock:
            above = [(each, self._made[each]) for each in directory.parents if each in self._made]
            made = self._made.get(directory)
        for each, note in ((directory, made), *above):
            sync_one(each)
            with self._lock:
                # Another object means that a directory was created in it meanwhile.
                if self._made.get(each) is note:
                    self._made.pop(each, None)


_PIECE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class FileStatus:
    """Size, time and kind of a file or directory."""

    size: int  # bytes
    modified_ms: int  # time of the last change, ms since 1970; retention depends on it
    is_directory: bool
    identity: tuple[int, int]  # device and inode: equal for two names of one file


class OpenFile(Protocol):
    """One open file. The descriptor is closed by `close`, or with the last reference."""

    def fileno(self) -> int:
        """Return the descriptor, for locks."""

    def size(self) -> int:
        """Return the current size, in bytes."""

    def read(self, size: int, offset: int) -> bytes:
        """Read at most `size` bytes at `offset`."""

    def write(self, data: memoryview, offset: int) -> int:
        """Write at `offset` and return how many bytes were written."""

    def sync(self) -> None:
        """Sync data and size to disk (Java: ``FileChannel.force(false)``)."""

    def grow(self, size: int) -> None:
        """Extend the file with a hole; never shortens it."""

    def truncate(self, size: int) -> None:
        """Cut or extend the file to `size` bytes; for small files only, never for segments."""

    def reserve(self, size: int) -> None:
        """Allocate disk blocks for the first `size` bytes, so that no write to them can find the disk full."""

    def viewer(self, size: int) -> Callable[[int, int], memoryview]:
        """Return what gives bytes of the first `size`, from one position up to another, even once this is closed.

        They stay valid; later writes may show in them.
        """

    def source(self, size: int) -> WalkedBytes:
        """Return the first `size` bytes, to walk through them."""

    def next_data(self, offset: int) -> tuple[int, int] | None:
        """Return start and stop of the first data at or after `offset`, holes skipped; None if there is none."""

    def close(self) -> None:
        """Close the descriptor; views stay."""


class FileSystem(Protocol):
    """The calls that do not concern one open file."""

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> OpenFile:
        """Open a file, or with `create` make it if it does not exist. Its content is kept."""

    def make(self, path: Path, size: int) -> OpenFile:
        """Create a file of zeros, which should have its size from the moment on in which its name is there."""

    def status(self, path: Path) -> FileStatus | None:
        """Return the status of a path; None if nothing is there."""

    def names(self, directory: Path) -> list[str]:
        """Return the names in a directory, sorted; empty if it does not exist."""

    def make_directories(self, path: Path) -> None:
        """Create a directory and its parents, durably."""

    def add_directories(self, path: Path) -> None:
        """Create a directory and its parents; `sync_directory` of it makes their names durable."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file, atomically replacing the target."""

    def remove(self, path: Path) -> None:
        """Delete a file; it is fine if it does not exist."""

    def remove_directory(self, path: Path) -> None:
        """Delete a directory if it is empty; otherwise it stays."""

    def sync_directory(self, path: Path) -> None:
        """Sync a directory's entries to disk: a new file's data is safe only after this.

        Also syncs the names of its parents that `add_directories` created.
        """

    def used_percent(self, path: Path) -> int:
        """Return the percentage of the disk in use, rounded up; -1 if the path does not exist."""


def disk_bytes(path: Path) -> tuple[int, int]:
    """Return how many bytes the disk at a path has for ordinary users, and how many are in use."""
    found = os.statvfs(path)
    used = found.f_blocks - found.f_bfree
    return (used + found.f_bavail) * found.f_frsize, used * found.f_frsize


def not_a_file(path: Path, found: str) -> StoreAccessError:
    """Return the error for a path with something else than the expected file."""
    return StoreAccessError(f"{path}: expected a file, found {found}. Move it elsewhere")


def write_all(file: OpenFile, data: memoryview, offset: int) -> None:
    """Write all of `data`, in pieces, however little the system takes at a time.

    Writing more than 1 MiB at a time only makes Linux use larger page cache pages, which can be expensive: in a virtual
    machine that returns free memory to its host, one write of 12 MiB took ten times as long as twelve of 1 MiB.
    """
    done = 0
    while done < len(data):
        taken = file.write(data[done : done + _PIECE], offset + done)
        if taken <= 0:
            raise OSError(errno.EIO, f"write of {len(data) - done} bytes at {offset + done} took {taken}")
        done += taken


def write_file(path: Path, data: bytes, file_system: FileSystem) -> None:
    """Make a small file have these bytes, and sync it, but not its name."""
    with closing(file_system.open(path, create=True)) as file:
        file.truncate(len(data))
        write_all(file, memoryview(data), 0)
        file.sync()


def read_file(path: Path, most: int, file_system: FileSystem) -> bytes | None:
    """Return the bytes of a small file, at most some of them; None if nothing is there."""
    if file_system.status(path) is None:
        return None
    with closing(file_system.open(path, writable=False)) as file:
        return file.read(min(file.size(), most), 0)


class FileStream(io.RawIOBase):
    """A file as Arrow writes to it: one write after the other.

    * `position`: Bytes written so far.
    * `is_given_up`: Whether what is written from now on is dropped.
    """

    def __init__(self, file: OpenFile) -> None:
        super().__init__()
        self._file = file
        self.position = 0
        self.is_given_up = False

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return how many bytes were written so far."""
        return self.position

    def write(self, data: object) -> int:
        """Write all of the data at the end."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]  # whatever Arrow passes is a buffer
        if not self.is_given_up:
            write_all(self._file, view, self.position)
        self.position += len(view)
        return len(view)


def is_directory(path: Path, file_system: FileSystem) -> bool:
    """Return whether a path is a directory, and is there."""
    status = file_system.status(path)
    return status is not None and status.is_directory


def names_in(directory: Path, file_system: FileSystem) -> list[str]:
    """Return the names in a directory, sorted; empty if it is not one, as in Java (``File.listFiles``)."""
    try:
        return file_system.names(directory)
    except NotADirectoryError:
        return []


class OsOpenFile:
    """An open file of the operating system.

    Data is written by ``pwrite`` and read through a mapping. Writing through a mapping, as RocketMQ does, is not an
    option here: segments are sparse, and a store into a page for which the disk has no block kills the process by
    SIGBUS, where ``pwrite`` returns ENOSPC. On Linux both use the same page cache, so a reader's mapping shows a write
    at once.

    * `path`: Named by errors of writing.
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path
        self._mapping: memoryview | None = None

    def fileno(self) -> int:
        """Return the descriptor, for locks."""
        return self._descriptor

    def size(self) -> int:
        """Return the current size, in bytes."""
        return os.fstat(self._descriptor).st_size

    def read(self, size: int, offset: int) -> bytes:
        """Read at most `size` bytes at `offset`."""
        return os.pread(self._descriptor, size, offset)

    def write(self, data: memoryview, offset: int) -> int:
        """Write at `offset` and return how many bytes were written."""
        try:  # not `naming`, which costs as much as a small write
            return os.pwrite(self._descriptor, data, offset)
        except OSError as error:
            with naming(self._path):
                raise error from None

    def sync(self) -> None:
        """Sync data and size to disk."""
        with naming(self._path):
            os.fdatasync(self._descriptor)

    def grow(self, size: int) -> None:
        """Extend the file with a hole; never shortens it."""
        if self.size() < size:
            with naming(self._path):
                os.ftruncate(self._descriptor, size)

    def truncate(self, size: int) -> None:
        """Cut or extend the file to `size` bytes."""
        with naming(self._path):
            os.ftruncate(self._descriptor, size)

    def reserve(self, size: int) -> None:
        """Allocate disk blocks for the first `size` bytes."""
        with naming(self._path):
            os.posix_fallocate(self._descriptor, 0, size)

    def viewer(self, size: int) -> Callable[[int, int], memoryview]:
        """Return what gives bytes of a mapping, in which writes show at once, and which lives as long as its views."""
        mapping = self.mapping(size)
        return lambda begin, end: mapping[begin:end]

    def mapping(self, size: int) -> memoryview:
        """Return the first `size` bytes, mapped for reading."""
        mapping = self._mapping
        if mapping is None or len(mapping) != size:
            mapping = self._mapping = memoryview(mmap.mmap(self._descriptor, size, access=mmap.ACCESS_READ))
        return mapping

    def source(self, size: int) -> WalkedBytes:
        """Return the first `size` bytes of the mapping."""
        return _MappedBytes(self, size)

    def next_data(self, offset: int) -> tuple[int, int] | None:
        """Return start and stop of the first data at or after `offset`, holes skipped."""
        try:
            start = os.lseek(self._descriptor, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            raise
        return start, os.lseek(self._descriptor, start, os.SEEK_HOLE)

    def close(self) -> None:
        """Close the descriptor; views stay."""
        descriptor, self._descriptor, self._mapping = self._descriptor, -1, None
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


class _MappedBytes(ArrayBytes):
    """A file that is mapped."""

    def __init__(self, file: OsOpenFile, size: int) -> None:
        super().__init__(np.frombuffer(file.mapping(size), np.uint8))
        self._file = file

    def next_data(self, position: int) -> int:
        found = self._file.next_data(position)
        return self.raw.size if found is None else min(found[0], self.raw.size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class OsFileSystem:
    """The operating system's files, and those of other storages by a `UrlPath`, of which none can be written."""

    _file_class: type[OsOpenFile] = OsOpenFile

    def __init__(self) -> None:
        self._unsynced = UnsyncedNames()

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> OpenFile:
        """Open a file, or with `create` make it if it does not exist.

        Files that this package makes are not links: whoever put one in the place of such a file could have another one
        overwritten, so it is refused.
        """
        if isinstance(path, UrlPath):
            return path.refuse_writing() if create or writable else UrlFile(path.file)
        flags = os.O_RDWR if writable else os.O_RDONLY
        flags |= os.O_CLOEXEC | os.O_NONBLOCK  # opening a named pipe would wait for its other end, forever
        try:
            file = self._file_class(os.open(path, flags | (os.O_CREAT | os.O_NOFOLLOW if create else 0), 0o644), path)
        except OSError as error:
            is_link = error.errno == errno.ELOOP and path.is_symlink()
            if error.errno not in (errno.EISDIR, errno.ENXIO) and not is_link:
                raise
            raise not_a_file(path, "a link" if is_link else kind_of_file(path.stat().st_mode)) from error
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise not_a_file(path, kind_of_file(mode))
        return file

    def make(self, path: Path, size: int) -> OsOpenFile:
        """Create a file of zeros, which has its size from the moment on in which its name is there.

        A process that is killed leaves the whole file or none. On file systems that know no files without a name
        (``O_TMPFILE``), such as NFS, it may leave one that is too short.
        """
        unnamed = open_unnamed(path.parent)
        if unnamed is not None:
            file = self._file_class(unnamed, path)
            file.grow(size)
            if name_file(file.fileno(), path):
                return file
            file.close()
        file = self._file_class(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, 0o644), path)
        try:
            file.grow(size)
        except OSError:
            file.close()
            path.unlink()
            raise
        return file

    def status(self, path: Path) -> FileStatus | None:
        """Return the status of a path; None if nothing is there."""
        try:
            found = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        identity = (found.st_dev, found.st_ino)
        return FileStatus(found.st_size, found.st_mtime_ns // 1_000_000, stat.S_ISDIR(found.st_mode), identity)

    def names(self, directory: Path) -> list[str]:
        """Return the names in a directory, sorted; empty if it does not exist."""
        try:
            return sorted(path.name for path in directory.iterdir())
        except FileNotFoundError:
            return []

    def make_directories(self, path: Path) -> None:
        """Create a directory and its parents, durably."""
        is_new = not path.is_dir()
        if is_new:
            self.make_directories(path.parent)
            path.mkdir(exist_ok=True)
        if is_new or path.parent in self._unsynced:
            self.sync_directory(path.parent)

    def add_directories(self, path: Path) -> None:
        """Create a directory and its parents; `sync_directory` of it makes their names durable."""
        if not path.is_dir():
            self.add_directories(path.parent)
            self._unsynced.make(path)

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file, atomically replacing the target."""
        source.replace(target)

    def remove(self, path: Path) -> None:
        """Delete a file; it is fine if it does not exist."""
        path.unlink(missing_ok=True)

    def remove_directory(self, path: Path) -> None:
        """Delete a directory if it is empty; otherwise it stays."""
        with suppress(FileNotFoundError):
            try:
                path.rmdir()
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise

    def sync_directory(self, path: Path) -> None:
        """Sync a directory's entries to disk, and the names of its parents that `add_directories` created."""
        self._unsynced.sync(path, self.sync_names)

    def sync_names(self, path: Path) -> None:
        """Sync a directory's entries to disk, and nothing else."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def used_percent(self, path: Path) -> int:
        """Return the percentage of the disk in use, rounded up (``UtilAll.getDiskPartitionSpaceUsedPercent``)."""
        try:
            total, used = disk_bytes(path)
        except (FileNotFoundError, NotADirectoryError):
            return -1
        return -(-used * 100 // total) if total else -1
