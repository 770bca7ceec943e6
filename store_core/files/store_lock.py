# SPDX-License-Identifier: Apache-2.0
"""Who holds a store: its lock, and the file that says that it was not closed."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from store_core.errors import StoreLockedError
from store_core.files.file_system import FileSystem, OpenFile, write_file
from store_core.files.store_path import roots_to_lock
from store_core.format.release import DEFAULT_RELEASE, rules_of

if TYPE_CHECKING:
    from collections.abc import Collection


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
        with closing(self._file_system.open(self.path, create=True)) as file:
            self._file_system.sync_directory(self.path.parent)
            before = file.read(_SHOWN_BYTES, 0)
        if rules_of(release).notes_process_in_abort_file:
            write_file(self.backup_path, before, self._file_system)
            write_file(self.path, str(process_id).encode(), self._file_system)

    def remove(self) -> None:
        """Delete the file, durably; the last step of a clean shutdown, after everything is flushed and dispatched."""
        self._file_system.remove(self.path)
        self._file_system.sync_directory(self.path.parent)


LOCK_FILE: Final = "lock"
"""Name below the store root (RocketMQ: ``StorePathConfigHelper.getLockFile``)."""

_CONTENT: Final = b"lock"
_FLOCK: Final = struct.Struct("hhqqi0q")
"""``struct flock`` of Linux: type, whence, start, length, pid."""
_LOCKED: Final = (errno.EAGAIN, errno.EACCES)
_READ_ONLY: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


class StoreLock:
    """An exclusive lock on byte 0 of the file ``lock``, as the broker takes it (``DefaultMessageStore.start``).

    Java's ``FileChannel.tryLock(0, 1, false)`` is a POSIX record lock. Such a lock belongs to the process: a second
    open of the store in the same process would get it too, and closing *any* descriptor of the file, as copying a live
    store does, silently drops it. So this locks the open file description instead (Linux, ``F_OFD_SETLK``), which has
    neither flaw, and conflicts with POSIX locks in both directions.

    A process forked while the lock is held shares it: the child can't release it, and it stays until both have closed
    the file.

    * `log_roots`: Other roots above the directories of its log, see `store_core.files.store_path`: their locks are
      taken, too.
    """

    def __init__(self, root: Path, file_system: FileSystem, log_roots: Collection[Path] = ()) -> None:
        self.path = root / LOCK_FILE
        self._file_system = file_system
        self._file: OpenFile | None = None
        self._owner = 0
        self._others = tuple(StoreLock(other, file_system) for other in log_roots)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that are locked."""
        return (self.path, *(other.path for other in self._others))

    def acquire(self) -> Self:
        """Take the lock, or fail at once.

        Steps: 1. create the store's directory; 2. open or create the file; 3. lock byte 0; 4. write ``lock``, and sync;
        5. the same for the roots of its log, if they are others.
        """
        if self._file is not None:
            raise StoreLockedError(f"{self.path} is locked by this object already")
        self._file_system.make_directories(self.path.parent)
        file = self._file_system.open(self.path, create=True)
        try:
            self._lock(file)
        except BaseException:
            file.close()  # which releases the lock, too
            raise
        self._file, self._owner = file, os.getpid()
        try:
            for other in self._others:
                other.acquire_above_log()
        except BaseException:
            self.release()
            raise
        return self

    def acquire_above_log(self) -> None:
        """Take the lock above a log; who may not write there finds no lock, and so no broker of that root, either."""
        try:
            self.acquire()
        except OSError as error:
            if error.errno not in _READ_ONLY or self._file_system.status(self.path) is not None:
                raise

    def _lock(self, file: OpenFile) -> None:
        try:
            fcntl.fcntl(file.fileno(), fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        except OSError as error:
            if error.errno not in _LOCKED:
                raise
            raise StoreLockedError(
                f"{self.path} is locked by {_holder(file)}: a store has one writer. Stop it, or run this again when it "
                f"has ended; reading needs no lock"
            ) from error
        held, found = os.fstat(file.fileno()), self._file_system.status(self.path)
        if found is None or found.identity != (held.st_dev, held.st_ino):
            raise StoreLockedError(
                f"{self.path}: another store was put in the place of the one that was to be locked. Run this again"
            )
        file.write(memoryview(_CONTENT), 0)
        file.sync()

    def release(self) -> None:
        """Release the lock; the file stays, as RocketMQ leaves it. In a forked child this only closes the file."""
        for other in self._others:
            other.release()
        file, self._file = self._file, None
        if file is None:
            return
        if self._owner == os.getpid():
            fcntl.fcntl(file.fileno(), fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 1, 0))
        file.close()

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def is_lock_held(root: Path) -> bool:
    """Return whether a process has a store, or its log, open for writing; this takes no lock and writes nothing.

    Without a file ``lock`` none has: a broker creates it when it starts. A lock that can't be queried counts as held;
    the files of another storage are copies, which nobody has open.
    """
    return any(map(_is_held_at, roots_to_lock(root)))


def _is_held_at(root: Path) -> bool:
    try:
        descriptor = os.open(root / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        kind: int = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked))[0]
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return kind != fcntl.F_UNLCK


def _holder(file: OpenFile) -> str:
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    kind, _, _, _, process = _FLOCK.unpack(fcntl.fcntl(file.fileno(), fcntl.F_OFD_GETLK, asked))
    if kind == fcntl.F_UNLCK:
        return "a process that has just released it"
    return f"process {process}" if process > 0 else "another writer of this package, in this process or another"


_PROCESSES: Final = Path("/proc")
_START_TIME: Final = 19
"""Index of the start time among the fields after the program's name."""
_ENDED: Final = ("Z", "X")


class ProcessStat(NamedTuple):
    """A process at one moment."""

    name: str  # of its program, cut after 15 bytes
    parent: int  # number of its parent
    started: str  # when it began, in ticks of the system's clock
    has_ended: bool  # whether it has ended, and nobody has asked for its exit code yet

    @classmethod
    def of(cls, process: int) -> Self | None:
        """Return what is known of a process by its number; None if there is none."""
        try:
            text = (_PROCESSES / str(process) / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        head, _, rest = text.rpartition(")")  # the program's name may contain anything
        fields = rest.split()
        if len(fields) <= _START_TIME:
            return None
        return cls(head.partition("(")[2], int(fields[1]), fields[_START_TIME], fields[0] in _ENDED)
