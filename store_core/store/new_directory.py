# SPDX-License-Identifier: Apache-2.0
"""New directories, and copies of stores, which appear when they are complete."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from store_core.errors import InvalidOptionError, SegmentVanishedError, StoreAccessError, StoreError
from store_core.files.access import explained_access, kind_of_file
from store_core.files.file_sync import sync_directories, sync_files
from store_core.files.file_system import OsFileSystem, write_all
from store_core.files.names import COMMIT_LOG
from store_core.files.segment_source import file_at, open_file
from store_core.files.store_path import StorePaths, log_directories, stores_near
from store_core.store.store_layout import check_outside

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator
    from pathlib import Path


_PIECE: Final = 8 << 20


def files_below(root: Path) -> Iterator[Path]:
    """Yield the files below a directory, in a fixed order."""
    for directory, names, files in os.walk(root, onerror=_raise):
        names.sort()
        for name in sorted([*files, *names]):
            path = root / directory / name
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                found = kind_of_file(path.lstat().st_mode)
                raise StoreAccessError(f"{path}: expected a file or a directory, found {found}: it can't be copied")
        yield from (root / directory / name for name in sorted(files))


def _raise(error: OSError) -> None:
    raise error


def copy_store(source: Path, target: Path) -> None:
    """Copy a store into a directory that exists: contents, holes, and times, which retention goes by.

    A log that is elsewhere becomes that of the copy, in the place of one that the store may have besides.
    """
    log = log_directories(source)
    is_elsewhere = source / COMMIT_LOG not in log
    files = [path for path in files_below(source) if not (is_elsewhere and source / COMMIT_LOG in path.parents)]
    files += [path for place in log if place.is_dir() and source not in place.parents for path in files_below(place)]
    for path in files:
        copied = path_in_copy(path, source, target)
        copied.parent.mkdir(parents=True, exist_ok=True)
        _copy_file(path, copied)


def path_in_copy(path: Path, source: Path, target: Path) -> Path:
    """Return where a file of a store is in its copy."""
    return target / (path.relative_to(source) if source in path.parents else f"{COMMIT_LOG}/{path.name}")


def path_in_source(name: str, source: Path) -> Path:
    """Return of which file of a store a file of its copy is one; `name` is its path below the copy."""
    directory, _, last = name.rpartition("/")
    places = log_directories(source) if directory == COMMIT_LOG else ()
    return next((place / last for place in places if (place / last).exists()), source / name)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Let errors name a file that is copied, or compared, and vanishes or can't be read meanwhile."""
    try:
        with explained_access(path):
            yield
    except StoreError:
        raise
    except FileNotFoundError as error:
        raise SegmentVanishedError(f"{path} is gone: something deleted it while it was copied. Copy again") from error


def _copy_file(source: Path, target: Path) -> None:
    with _named(source):
        found = open_file(file_at(source))
        with found.file:
            new = OsFileSystem().open(target, create=True)
            new.grow(found.size)
            at = found.next_data(0)
            while at < found.size:
                piece = bytearray(min(found.next_hole(at) - at, _PIECE))
                found.read_into(memoryview(piece), at)
                write_all(new, memoryview(piece), at)
                at = found.next_data(at + len(piece))
            found.check_size()
            new.close()
        shutil.copystat(source, target)
        target.chmod(target.stat().st_mode | 0o600)  # the source may be read-only


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with _named(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def first_match(path: Path, expression: re.Pattern[bytes]) -> int | None:
    """Return where the first match in a file begins; None if there is none, or only some that need more than a piece.

    Pieces overlap, and are searched from their second byte on, so that what looks back or asks for the beginning sees
    what is before. A match that starts where the next piece is searched is left to that one, so that what looks ahead,
    or asks for the end of a line, sees what follows.
    """
    with _named(path), path.open("rb", buffering=0) as file:
        begin, piece = 0, file.read(_PIECE)
        while piece:
            following = file.read(_PIECE)
            left = max(len(piece) - _PIECE, 0) if following else len(piece)
            found = expression.search(piece, min(begin, 1))
            if found is not None and found.start() < left + min(begin + left, 1):
                return begin + found.start()
            begin, piece = begin + left, piece[left:] + following
    return None


def places_beside(into: Path, purpose: str, source: StorePaths) -> tuple[Path, Path]:
    """Return a target, and the directory beside it where it is made.

    * `purpose`: In the name of that directory.
    * `source`: The store that the target is made of.
    """
    target = into.resolve()
    check_outside(target, source)
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

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        """Delete what is left of the work; an error of the system that names it names the target instead."""
        shutil.rmtree(self.work, ignore_errors=True)
        for lock in self._locks:
            os.close(lock)
        if isinstance(error, OSError) and str(error.filename or "").startswith(str(self.work)):
            path = str(error.filename).replace(str(self.work), str(self.target), 1)
            raise type(error)(error.errno, error.strerror, path) from error

    def publish(self) -> None:
        """Sync everything, then rename it to the target."""
        sync_files(self.work)
        sync_directories(self.work)
        if not _is_free(self.target):
            raise InvalidOptionError(
                f"into: expected nothing at {self.target}, found what another program has put there meanwhile: choose "
                f"another path"
            )
        if self.target.is_dir():
            self.work.chmod(self.target.stat().st_mode)
        self.work.rename(self.target)
        OsFileSystem().sync_directory(self.target.parent)


def _locked(directory: Path) -> int:
    """Open a directory and lock it for this process; an error if another one has it."""
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

    * `made`: A copy of the source, which is gone when the error is read.
    * `source`: Where the file that an error is about is as well.
    """
    work = str(made.work)
    try:
        yield
    except StoreError as error:
        if work not in str(error):
            raise
        given = (each.replace(work, str(source)) if isinstance(each, str) else each for each in error.args)
        raise type(error)(*given) from error
