# SPDX-License-Identifier: Apache-2.0
"""The directories of one queue of segments, and which of them gets the next file."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from store_core.files.segment_file import file_name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

__all__ = ["SegmentPaths"]


def _none_full() -> Collection[Path]:
    return ()


@dataclass(frozen=True, slots=True)
class SegmentPaths:
    """Where segments lie: one directory as a rule, several in a multi-path commit log (RocketMQ 4.9.2 and later).

    Attributes
    ----------
    paths : tuple of Path
        Directories that take new files.
    read_only_paths : tuple of Path
        Directories whose files are loaded, and that get no new ones (``readOnlyCommitLogStorePaths``).
    full_paths : callable
        Gives the directories that are too full for a new file (``diskSpaceCleanForciblyRatio``) at the moment.
    """

    paths: tuple[Path, ...]
    read_only_paths: tuple[Path, ...] = ()
    full_paths: Callable[[], Collection[Path]] = _none_full

    @classmethod
    def parse(
        cls,
        paths: str,
        read_only_paths: str = "",
        full_paths: Callable[[], Collection[Path]] = _none_full,
        splitter: str = ",",
    ) -> Self:
        """Take ``storePathCommitLog`` and ``readOnlyCommitLogStorePaths`` apart.

        >>> SegmentPaths.parse("/a/commitlog,/b/commitlog").paths
        (PosixPath('/a/commitlog'), PosixPath('/b/commitlog'))
        """
        return cls(_split(paths, splitter), _split(read_only_paths, splitter), full_paths)

    @property
    def all_paths(self) -> tuple[Path, ...]:
        """Every directory once, in the order given."""
        return tuple(dict.fromkeys(self.paths + self.read_only_paths))

    def candidates(self) -> list[Path]:
        """Directories for new files, sorted: those that are not full; if all are, all that are not read-only."""
        writable = set(self.paths) - set(self.read_only_paths)
        return sorted(writable - set(self.full_paths()) or writable, key=str)

    def next_files(self, offset: int, file_size: int) -> tuple[Path, Path]:
        """Name the file that starts at `offset`, and the one after it, which is made ahead of its time.

        Files go round the candidates by their index, ``offset / file_size`` (RocketMQ: ``MultiPathMappedFileQueue``).

        Raises
        ------
        OSError
            EROFS if every directory is read-only.
        """
        candidates = self.candidates()
        if not candidates:
            raise OSError(errno.EROFS, "no directory takes new segments: all commit log paths are read-only")
        index = offset // file_size
        first = candidates[index % len(candidates)] / file_name_of(offset)
        return first, candidates[(index + 1) % len(candidates)] / file_name_of(offset + file_size)


def _split(text: str, splitter: str) -> tuple[Path, ...]:
    return tuple(Path(part.strip()) for part in text.split(splitter) if part.strip())
