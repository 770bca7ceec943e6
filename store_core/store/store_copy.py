# SPDX-License-Identifier: Apache-2.0
"""A copy of a whole store, file by file, with its holes and times, and a search of every byte of it."""

from __future__ import annotations

import hashlib
import mmap
import os
import shutil
from typing import TYPE_CHECKING, Final

from store_core.errors import StoreAccessError
from store_core.files.access import kind_of_file
from store_core.files.configured_root import log_directories
from store_core.files.file_system import OsFileSystem, write_all
from store_core.files.store_parts import COMMIT_LOG

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["copy_store", "digest_of_file", "files_below", "matches_in_file", "path_in_copy", "path_in_source"]

_PIECE: Final = 8 << 20


def files_below(root: Path) -> Iterator[Path]:
    """Yield the files below a directory, in a fixed order.

    Raises
    ------
    StoreAccessError
        If there is anything else but files and directories: what a link leads to is not in the copy.
    """
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
        shutil.copystat(path, copied)


def path_in_copy(path: Path, source: Path, target: Path) -> Path:
    """Return where a file of a store is in its copy."""
    return target / (path.relative_to(source) if source in path.parents else f"{COMMIT_LOG}/{path.name}")


def path_in_source(name: str, source: Path) -> Path:
    """Return of which file of a store a file of its copy is one; `name` is its path below the copy."""
    directory, _, last = name.rpartition("/")
    places = log_directories(source) if directory == COMMIT_LOG else ()
    return next((place / last for place in places if (place / last).exists()), source / name)


def _copy_file(source: Path, target: Path) -> None:
    files = OsFileSystem()
    old, new = files.open(source, writable=False), files.open(target, create=True)
    try:
        size, at = old.size(), 0
        new.grow(size)
        while (found := old.next_data(at)) is not None:
            begin, at = found
            for start in range(begin, min(at, size), _PIECE):
                write_all(new, memoryview(old.read(min(_PIECE, at - start), start)), start)
    finally:
        old.close()
        new.close()


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def matches_in_file(path: Path, expression: re.Pattern[bytes]) -> int | None:
    """Return where the first match in a file begins; None if there is none."""
    if not path.stat().st_size:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
        found = expression.search(data)
        return None if found is None else found.start()
