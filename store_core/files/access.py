# SPDX-License-Identifier: Apache-2.0
"""Errors of the operating system about a store's files, explained so that an operator can act on them."""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from store_core.errors import InvalidOptionError, StoreAccessError, StoreError
from store_core.files.names import SCHEME, archive_codec, archive_error

if TYPE_CHECKING:
    from collections.abc import Iterator


_KINDS: Final = (
    (stat.S_ISREG, "a file"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a symbolic link"),
)
_DENIED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_EXPECTED: Final = {
    errno.ENOTDIR: "a directory",
    errno.EEXIST: "a directory",
    errno.EISDIR: "a file",
    errno.ESPIPE: "a file",
    errno.ELOOP: "a path without a loop of links",
    errno.ENXIO: "a file",
}

_OF_SESSION: Final = re.compile(r"/spark-[0-9a-f-]{36}/userFiles-[0-9a-f-]{36}/")
"""In the path of the directory in which Python processes of a session of Spark Connect work, and which goes with it."""

WAY_ON: Final = "Run this as a user with permission, change the permissions, or give another path"


def check_writable(path: Path) -> None:
    """Refuse a directory that can't be written or created, or that Spark Connect deletes with its session.

    * `path`: Absolute; it need not exist.
    """
    if _OF_SESSION.search(str(path)):
        raise InvalidOptionError(
            f"{path} is in the directory of this Spark Connect session, which is deleted with the session: expected an "
            f"absolute path, found a relative one, which begins in that directory"
        )
    there = next(each for each in (path, *path.parents) if os.path.lexists(each))
    made = "" if there == path else f"{path} can't be created: "
    if archive_codec(there.name) is not None and there.is_file():
        raise archive_error(there)
    if not there.is_dir():
        raise InvalidOptionError(f"{made}{there} is not a directory. Give another path")
    if not os.access(there, os.W_OK | os.X_OK):
        raise StoreError(f"{made}{there} can't be written to: permission denied, or a read-only disk. {WAY_ON}")


def kind_of_file(mode: int) -> str:
    """Return the name of the kind of file that a mode stands for.

    >>> kind_of_file(0o100644), kind_of_file(0o010644)
    ('a file', 'a named pipe')
    """
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "something else")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let errors of the system that name no path name this one, as those of writing do."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise type(error)(error.errno, os.strerror(error.errno), str(path)) from error


@contextmanager
def explained_access(root: Path) -> Iterator[None]:
    """Turn system errors about a path of the wrong kind, or one that may not be used, into a `StoreAccessError`.

    Other errors, such as those of a full or failing disk, pass unchanged.

    * `root`: The store's root; the error names it if the system names no path.
    """
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        if not is_access_error(error):
            raise
        raise access_error(root, error) from error


def in_words(error: Exception, path: Path) -> str:
    """Return the text of an error about a path, worded as by `explained_access` if that explains it.

    * `path`: Named if the system names no path.
    """
    if isinstance(error, OSError) and not isinstance(error, StoreError) and is_access_error(error):
        return str(access_error(path, error))
    return str(error)


def is_access_error(error: OSError) -> bool:
    """Return whether an error is about a path of the wrong kind, or one that may not be used; no waiting helps."""
    return error.errno in _DENIED or error.errno in _EXPECTED


def access_error(root: Path, error: OSError) -> StoreAccessError:
    """Return the error that explains one of the system about a path of the wrong kind, or that may not be used."""
    name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else str(root)
    if error.errno in _DENIED:
        return StoreAccessError(
            f"{name}: user {os.geteuid()} has no permission to use it: {error.strerror}. "
            f"Nothing was lost. Change owner or mode of the path, or of a directory above it, or run as its owner"
        )
    expected = _EXPECTED[error.errno or 0]
    wrong, found = _first_wrong(name, is_directory=expected == "a directory")
    return StoreAccessError(f"{wrong}: expected {expected}, found {found}. Move what is there elsewhere")


def _first_wrong(name: str, *, is_directory: bool) -> tuple[Path | str, str]:
    """Return the first part of a path that is not a directory, or else the path itself, and what it is."""
    if re.match(f"{SCHEME}://", name):  # where all that is there are files and directories
        return name, "a file" if is_directory else "a directory"
    path = Path(name)
    for part in (*reversed(path.parents), *([path] if is_directory else [])):
        try:
            mode = part.stat().st_mode
        except OSError:
            break
        if not stat.S_ISDIR(mode):
            return part, kind_of_file(mode)
    try:
        return path, kind_of_file(path.stat().st_mode)
    except OSError as error:
        return path, "a loop" if error.errno == errno.ELOOP else error.strerror or "nothing"
