# SPDX-License-Identifier: Apache-2.0
"""Replacing a store by a new one."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.file_system import FileSystem

__all__ = ["heal", "new_store_path", "remove_store", "stores_beside", "swap"]

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_OLD: Final = ".old"


def new_store_path(root: Path, job: str) -> Path:
    """Return the path, beside a store, where a job builds its replacement."""
    return root.with_name(f"{root.name}.{job}")


def swap(root: Path, new: Path, file_system: FileSystem) -> None:
    """Swap two stores: in one step if the file system can; otherwise no store is in place for a moment.

    Both are complete and closed. If the process ends in between, `heal` completes the swap.
    """
    file_system.sync_directory(new)
    if not _exchange(root, new):
        old = new.with_name(new.name + _OLD)
        file_system.rename(root, old)
        file_system.rename(new, root)
        file_system.rename(old, new)
    file_system.sync_directory(root.parent)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two directories by Linux's ``renameat2``; return False if that is not supported."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    return bool(rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0)


def heal(root: Path, file_system: FileSystem) -> None:
    """Complete an interrupted swap that took more than one step, so that there is no store at `root`."""
    if file_system.status(root) is not None:
        return
    for old in (each for each in stores_beside(root, file_system) if each.name.endswith(_OLD)):
        new = old.with_name(old.name.removesuffix(_OLD))
        file_system.rename(new if file_system.status(new) is not None else old, root)
        file_system.sync_directory(root.parent)
        return


def stores_beside(root: Path, file_system: FileSystem) -> list[Path]:
    """Find replacements and replaced stores that jobs left beside a store; to the holder of its lock all are waste."""
    name = re.compile(re.escape(root.name) + r"\.job-[0-9a-f]{32}(\.old)?")
    return [root.with_name(each) for each in file_system.names(root.parent) if name.fullmatch(each)]


def remove_store(path: Path) -> bool:
    """Delete a store, if it exists; return whether it is gone."""
    shutil.rmtree(path, ignore_errors=True)
    return not path.exists()
