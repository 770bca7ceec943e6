# SPDX-License-Identifier: Apache-2.0
"""Files that have no name until they are complete, where the file system knows such (Linux: ``O_TMPFILE``)."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["name_file", "open_unnamed"]

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
    """Give an open file without a name one, in the directory in which it was opened; False if the system can't.

    Raises
    ------
    FileExistsError
        If there is something of that name.
    """
    try:
        os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)
    except OSError as error:
        if error.errno in _NOT_KNOWN:
            return False
        raise
    return True
