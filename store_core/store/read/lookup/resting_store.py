# SPDX-License-Identifier: Apache-2.0
"""A look at all files of a store: what was found out about the store holds as long as a later look shows the same.

It covers the segments, the files of queues and index, the lock file, and all directories on the way to them, whose
times change when a file is made, renamed or deleted. So one look, which opens nothing, replaces listing the store.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from store_core.files.store_kind import QUEUE_DIRECTORIES
from store_core.files.store_lock import LOCK_FILE
from store_core.files.store_parts import INDEX_DIRECTORY
from store_core.store.read.lookup.file_state import FileState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from store_core.files.segment_source import Segment

__all__ = ["RestingStore"]

_MOST: Final = 1 << 15
"""Files and directories of a store that are looked at; with more, their queues are listed for each question."""

_ENTRY_SIZE: Final = 512
"""Bytes that the state of a file takes in memory, with its path, about."""

_QUEUE_DEPTH: Final = 3
"""Levels below a directory of queues: ``TOPIC/NUMBER/FILE``."""


@dataclass(frozen=True, slots=True, eq=False)
class RestingStore:
    """The files of a store, as one look showed them; another look that shows the same returns the same object.

    Attributes
    ----------
    states : tuple of (str, FileState or None)
        Paths, and what was there.
    changed_ns : int
        The latest of all times, ns since 1970.
    """

    states: tuple[tuple[str, FileState | None], ...]
    changed_ns: int

    @classmethod
    def of(cls, root: Path, segments: Sequence[Segment]) -> Self | None:
        """Look at a store; None if it has too many files, or a segment that is not below its root.

        Raises
        ------
        OSError
            If a directory can't be listed, or changes meanwhile.
        """
        places = [(str(root), 0), (str(root / LOCK_FILE), 0), (str(root / INDEX_DIRECTORY), 1)]
        places += [(str(root / name), _QUEUE_DEPTH) for name in QUEUE_DIRECTORIES]
        above = dict.fromkeys(os.path.dirname(segment.path) for segment in segments)  # noqa: PTH120 -- text
        if any(not directory.startswith(f"{root}{os.sep}") for directory in above):
            return None
        places += [(place, 0) for directory in above for place in (os.path.dirname(directory), directory)]  # noqa: PTH120 -- text
        places += [(segment.path, 0) for segment in segments]
        states: list[tuple[str, FileState | None]] = []
        for path, depth in places:
            for found in _walked(path, depth):
                states.append(found)
                if len(states) > _MOST:
                    return None
        return cls.of_states(tuple(states))

    @classmethod
    def of_states(cls, states: tuple[tuple[str, FileState | None], ...]) -> Self:
        """Return the look that showed these states."""
        times = (max(state.modified_ns, state.changed_ns) for _, state in states if state is not None)
        return cls(states, max(times, default=0))

    def is_same(self) -> bool:
        """Look again, and return whether all is as it was."""
        return all(FileState.at(path) == state for path, state in self.states)

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        return _ENTRY_SIZE * len(self.states)


def _walked(path: str, depth: int) -> Iterator[tuple[str, FileState | None]]:
    """Yield what is at a path, and what is below it: a directory is looked at before it is listed."""
    try:
        status = os.stat(path)  # noqa: PTH116 -- one of many
    except OSError:
        yield path, None
        return
    yield path, FileState.of(status)
    if depth and stat.S_ISDIR(status.st_mode):
        with os.scandir(path) as entries:
            below = [entry.path for entry in entries]
        for each in below:
            yield from _walked(each, depth - 1)
