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
    """Where segments are stored: one directory, or several in a multi-path commit log (RocketMQ 4.9.2 and later)."""

    paths: tuple[Path, ...]  # directories that take new files
    read_only_paths: tuple[Path, ...] = ()
    """Directories whose files are loaded, but that get no new ones (``readOnlyCommitLogStorePaths``)."""
    full_paths: Callable[[], Collection[Path]] = _none_full
    """Returns the directories that are currently too full for a new file (``diskSpaceCleanForciblyRatio``)."""

    @classmethod
    def parse(
        cls,
        paths: str,
        read_only_paths: str = "",
        full_paths: Callable[[], Collection[Path]] = _none_full,
        splitter: str = ",",
    ) -> Self:
        """Parse ``storePathCommitLog`` and ``readOnlyCommitLogStorePaths``.

        >>> SegmentPaths.parse("/a/commitlog,/b/commitlog").paths
        (PosixPath('/a/commitlog'), PosixPath('/b/commitlog'))
        """
        return cls(_split(paths, splitter), _split(read_only_paths, splitter), full_paths)

    @property
    def all_paths(self) -> tuple[Path, ...]:
        """All directories without duplicates, in the order given."""
        return tuple(dict.fromkeys(self.paths + self.read_only_paths))

    def candidates(self) -> list[Path]:
        """Return the directories for new files, sorted: those not full, or if all are, those not read-only."""
        writable = set(self.paths) - set(self.read_only_paths)
        return sorted(writable - set(self.full_paths()) or writable, key=str)

    def next_files(self, offset: int, file_size: int) -> tuple[Path, Path]:
        """Return the paths of the file that starts at `offset` and of the one after it, which is created ahead of time.

        Files go to the candidates round-robin by index, ``offset / file_size`` (RocketMQ:
        ``MultiPathMappedFileQueue``).
        """
        candidates = self.candidates()
        if not candidates:
            raise OSError(errno.EROFS, "no directory takes new segments: all commit log paths are read-only")
        index = offset // file_size
        first = candidates[index % len(candidates)] / file_name_of(offset)
        return first, candidates[(index + 1) % len(candidates)] / file_name_of(offset + file_size)


def _split(text: str, splitter: str) -> tuple[Path, ...]:
    return tuple(Path(part.strip()) for part in text.split(splitter) if part.strip())
