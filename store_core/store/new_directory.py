# SPDX-License-Identifier: Apache-2.0
"""A directory that appears when all of it is on disk, and is made beside its place until then."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from store_core.errors import InvalidOptionError
from store_core.files.deferred_sync import sync_directories, sync_files
from store_core.files.file_system import OsFileSystem
from store_core.store.outside import check_outside

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from store_core.files.store_path import StorePaths

__all__ = ["NewDirectory", "places_beside"]


def places_beside(into: Path, purpose: str, source: StorePaths) -> tuple[Path, Path]:
    """Return a target, and the directory beside it where it is made.

    Parameters
    ----------
    into : Path
    purpose : str
        In the name of that directory.
    source : path or sequence of paths
        The store that the target is made of.

    Raises
    ------
    InvalidOptionError
        If the target exists, is in the store, or has no directory to be in.
    """
    target = into.resolve()
    check_outside("into", target, source)
    if target.exists() or target.is_symlink():
        raise InvalidOptionError(f"into: expected a path where nothing is, found {into}: choose another")
    if not target.parent.is_dir():
        raise InvalidOptionError(f"into: there is no directory {target.parent}: create it")
    return target, target.with_name(f".{target.name}.{purpose}-{uuid.uuid4().hex}")


@dataclass(frozen=True, slots=True)
class NewDirectory:
    """A target that does not exist yet; use it in a ``with`` block.

    Attributes
    ----------
    target, work : Path
    """

    target: Path
    work: Path

    def __enter__(self) -> Self:
        self.work.mkdir()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.work, ignore_errors=True)

    def publish(self) -> None:
        """Sync everything, then rename it to the target.

        Raises
        ------
        OSError
            If a system call fails; the target is not there then, or complete.
        """
        sync_files(self.work)
        sync_directories(self.work)
        if self.target.exists():
            raise InvalidOptionError(f"into: {self.target} appeared meanwhile: choose another")
        self.work.rename(self.target)
        OsFileSystem().sync_directory(self.target.parent)
