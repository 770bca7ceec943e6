# SPDX-License-Identifier: Apache-2.0
"""What a process sees of a store, small enough to travel with every task: workers compare it with what they see.

Without it a worker that lacks a mount, or has another store at the same path, would report segments as deleted, or
mix two stores.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from store_core.errors import StoreAccessError, StoreError
from store_core.files.remote.url_path import UrlPath
from store_core.files.segment_names import start_offset_of
from store_core.files.store_parts import COMMIT_LOG
from store_core.files.store_path import located, store_roots

if TYPE_CHECKING:
    from typing import Self

    from store_core.files.store_path import StorePaths

__all__ = ["StoreSight"]

_SEGMENTS: Final = 3
"""Segments that are compared: the last ones, which retention does not delete meanwhile."""

_HEAD: Final = 64
"""Bytes of a segment's beginning that are compared: offset, times and hosts of its first record."""

_WAY: Final = (
    "Every worker has to see the store under the path that was given: mount it there, or give the URL of a store"
)


class _SeenSegment(NamedTuple):
    path: str
    head: bytes


class StoreSight(NamedTuple):
    """What the driver sees of a store.

    Attributes
    ----------
    roots : tuple of str
        Directories that exist.
    segments : tuple
        The last ones, by their paths and first bytes.
    machine : str
        Name of the driver's machine.
    """

    roots: tuple[str, ...]
    segments: tuple[_SeenSegment, ...]
    machine: str

    @classmethod
    def of(cls, *stores: StorePaths) -> Self:
        """Look at stores on this machine; those that have a URL are the same from everywhere."""
        roots = [root for store in stores for root in _roots(store)]
        segments = [segment for root in roots for segment in _last_segments(root)]
        return cls(tuple(map(str, roots)), tuple(segments), os.uname().nodename)

    def of_roots(self) -> Self:
        """Return the sight of the directories alone, for work that takes longer than segments are kept."""
        return self._replace(segments=())

    def check_here(self) -> None:
        """Compare with what this process sees.

        Raises
        ------
        StoreAccessError
            If a root is missing, or holds another store.
        """
        here = os.uname().nodename
        for root in self.roots:
            if not Path(root).is_dir():
                raise StoreAccessError(
                    f"{root} is a directory on the driver's machine, {self.machine}, and does not exist for a worker "
                    f"on {here}. {_WAY}"
                )
        for segment in self.segments:
            found = _head(Path(segment.path))
            if found is None or not _agree(segment.head, found):
                what = "is missing" if found is None else f"begins with {found.hex()}, expected {segment.head.hex()}"
                raise StoreAccessError(
                    f"driver and workers do not see the same store: {segment.path} {what}, for a worker on {here}; the "
                    f"driver is on {self.machine}. {_WAY}"
                )


def _roots(store: StorePaths) -> tuple[Path, ...]:
    try:
        found = located(store)
        is_elsewhere = not isinstance(found, str | os.PathLike) and any(isinstance(path, UrlPath) for path in found)
        return () if is_elsewhere else store_roots(found)
    except StoreError:
        return ()  # whoever reads it says what is wrong


def _last_segments(root: Path) -> list[_SeenSegment]:
    directory = root / COMMIT_LOG
    if not directory.is_dir():
        return []
    paths = sorted(path for path in directory.iterdir() if start_offset_of(path.name) is not None)[-_SEGMENTS:]
    return [_SeenSegment(str(path), head) for path in paths if (head := _head(path)) is not None]


def _head(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD)
    except OSError:
        return None


def _agree(one: bytes, other: bytes) -> bool:
    """Return whether two beginnings are of one segment, in which a broker may have written its first record since."""
    return one == other or not any(one)
