# SPDX-License-Identifier: Apache-2.0
"""A directory that appears when all of it is on disk, and is made beside its place until then."""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from store_core.errors import InvalidOptionError, StoreError
from store_core.files.deferred_sync import sync_directories, sync_files
from store_core.files.file_system import OsFileSystem
from store_core.files.store_path import stores_near
from store_core.store.outside import check_outside

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from store_core.files.store_path import StorePaths

__all__ = ["NewDirectory", "named_places", "places_beside"]


def places_beside(into: Path, purpose: str, source: StorePaths) -> tuple[Path, Path]:
    """Return a target, and the directory beside it where it is made.

    Parameters
    ----------
    purpose : str
        In the name of that directory.
    source : path or sequence of paths
        The store that the target is made of.

    Raises
    ------
    InvalidOptionError
        If the target exists and is not an empty directory, is in the store, or has no directory to be in.
    """
    target = into.resolve()
    check_outside("into", target, source)
    if not _is_free(target):
        raise InvalidOptionError(
            f"into: expected a path where nothing is, or an empty directory, found {into}. Choose another."
            f"{stores_near([target])}"
        )
    if not target.parent.is_dir():
        raise InvalidOptionError(f"into: there is no directory {target.parent}: create it")
    return target, target.with_name(f".{target.name}.{purpose}-{uuid.uuid4().hex}")


def _is_free(target: Path) -> bool:
    """Return whether a directory can be renamed to a target: it is not there, or empty and no disk of its own."""
    if not target.is_dir():
        return not os.path.lexists(target)
    return not any(target.iterdir()) and not target.is_mount()


@dataclass(frozen=True, slots=True)
class NewDirectory:
    """A target that does not exist yet, or is empty; use it in a ``with`` block.

    The directory in which it is made is locked meanwhile. A process that is killed leaves it, without the lock, and the
    next one that makes the same target deletes it.
    """

    target: Path
    work: Path
    _locks: list[int] = field(default_factory=list, init=False, repr=False, compare=False)

    def __enter__(self) -> Self:
        for left in self._left_behind():
            shutil.rmtree(left, ignore_errors=True)
        try:
            self.work.mkdir()
        except OSError as error:  # the directory beside is no concern of the user's
            raise type(error)(error.errno, error.strerror, str(self.target)) from error
        self._locks.append(_locked(self.work))
        return self

    def _left_behind(self) -> Iterator[Path]:
        """Yield directories of processes that are gone, which were about to make the same target."""
        purpose = self.work.name.removesuffix(self.work.name.rpartition("-")[2])
        for path in sorted(self.work.parent.iterdir()):
            if path.name.startswith(purpose) and path.is_dir() and not path.is_symlink():
                with suppress(OSError):  # it is in use, or gone
                    os.close(_locked(path))
                    yield path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete what is left of the work; an error of the system that names it names the target instead."""
        shutil.rmtree(self.work, ignore_errors=True)
        for lock in self._locks:
            os.close(lock)
        if isinstance(error, OSError) and str(error.filename or "").startswith(str(self.work)):
            path = str(error.filename).replace(str(self.work), str(self.target), 1)
            raise type(error)(error.errno, error.strerror, path) from error

    def publish(self) -> None:
        """Sync everything, then rename it to the target.

        Raises
        ------
        OSError
            If a system call fails; the target is not there then, or complete.
        """
        sync_files(self.work)
        sync_directories(self.work)
        if not _is_free(self.target):
            raise InvalidOptionError(f"into: {self.target} appeared meanwhile: choose another")
        if self.target.is_dir():
            self.work.chmod(self.target.stat().st_mode)
        self.work.rename(self.target)
        OsFileSystem().sync_directory(self.target.parent)


def _locked(directory: Path) -> int:
    """Open a directory and lock it for this process; an error if another one has it.

    Raises
    ------
    OSError
        As the system reports.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def named_places(made: NewDirectory, source: Path) -> Iterator[None]:
    """Let errors of the core name the place that a user knows: the source instead of its copy.

    Parameters
    ----------
    made : NewDirectory
        A copy of the source, which is gone when the error is read.
    source : Path
        Where the file that an error is about is as well.

    Raises
    ------
    StoreError
        Those of the block, with other paths.
    """
    work = str(made.work)
    try:
        yield
    except StoreError as error:
        if work not in str(error):
            raise
        given = (each.replace(work, str(source)) if isinstance(each, str) else each for each in error.args)
        raise type(error)(*given) from error
