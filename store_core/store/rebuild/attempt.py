# SPDX-License-Identifier: Apache-2.0
"""The private directory of one writing task, and moving what it wrote into place."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from typing import TYPE_CHECKING, Final, Self

from store_core.files.deferred_sync import sync_files
from store_core.files.whole_sync import WholeSync
from store_core.queue.index.index_files import INDEX_DIRECTORY
from store_core.store.rebuild.files import QUEUE_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["ATTEMPTS", "RebuildAttempt"]

ATTEMPTS: Final = ".attempts"
"""Directory below the target with one directory per writing task."""

_ALREADY_THERE: Final = (errno.ENOTEMPTY, errno.EEXIST)


class RebuildAttempt:
    """The private directory of one attempt of a task; `settle` moves each queue into place when all are on disk.

    So a task that fails, or runs twice, leaves each queue either complete or absent. Which attempt comes first makes no
    difference: all write the same bytes.

    Attributes
    ----------
    root : Path
    """

    def __init__(self, target_root: Path) -> None:
        self.root = target_root / ATTEMPTS / uuid.uuid4().hex
        self._target_root = target_root
        self._roots = [self.root]
        self._whole = WholeSync(target_root)

    def __enter__(self) -> Self:
        self._whole.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._whole.__exit__(None, None, None)
        shutil.rmtree(self.root, ignore_errors=True)

    def new_root(self) -> Path:
        """Create and return a directory for a single queue."""
        self._roots.append(self.root / str(len(self._roots)))
        return self._roots[-1]

    def settle(self) -> None:
        """Sync all files, then move queues and index into place.

        Directory entries are not durable afterwards: whoever started the tasks syncs the directories, once.

        Raises
        ------
        OSError
            If a system call fails.
        """
        sync_files(self.root, self._whole)
        for root in self._roots:
            for place in _places(root):
                self._move(root, place)

    def _move(self, root: Path, place: str) -> None:
        source, target = f"{root}/{place}", f"{self._target_root}/{place}"
        try:
            _rename(source, target)
        except FileNotFoundError:  # the first queue of its topic
            os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120 -- text
            _rename(source, target)


def _rename(source: str, target: str) -> None:
    """Rename a directory, unless its target is there."""
    try:
        os.rename(source, target)  # noqa: PTH104 -- Path.rename would silently replace a file
    except OSError as error:
        if error.errno not in _ALREADY_THERE:
            raise


def _places(root: Path) -> Iterator[str]:
    """Yield the directories that are moved as a unit: those of queues, and the index."""
    for kind in QUEUE_KINDS:
        for topic in _names(root / kind):
            for queue_id in _names(root / kind / topic):
                yield f"{kind}/{topic}/{queue_id}"
    if (root / INDEX_DIRECTORY).is_dir():
        yield INDEX_DIRECTORY


def _names(directory: Path) -> list[str]:
    return os.listdir(directory) if directory.is_dir() else []  # noqa: PTH208 -- names are wanted, not paths
