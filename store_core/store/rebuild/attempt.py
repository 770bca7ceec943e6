# SPDX-License-Identifier: Apache-2.0
"""The directory of one task that writes, and how what it wrote comes to its place."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from typing import TYPE_CHECKING, Final, Self

from store_core.files.deferred_sync import sync_files
from store_core.queue.index.index_files import INDEX_DIRECTORY
from store_core.store.rebuild.files import QUEUE_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["ATTEMPTS", "RebuildAttempt"]

ATTEMPTS: Final = ".attempts"
"""Below the target: a directory for each task that writes."""

_ALREADY_THERE: Final = (errno.ENOTEMPTY, errno.EEXIST)


class RebuildAttempt:
    """Where one attempt of a task writes, alone; `settle` moves each queue to its place when all are on disk.

    So a task that fails, or runs twice, leaves each queue as it should be or not at all. Which attempt comes first
    makes no difference: all write the same bytes.

    Attributes
    ----------
    root : Path
    """

    def __init__(self, target_root: Path) -> None:
        self.root = target_root / ATTEMPTS / uuid.uuid4().hex
        self._target_root = target_root
        self._roots = [self.root]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def new_root(self) -> Path:
        """Return a directory for one queue alone."""
        self._roots.append(self.root / str(len(self._roots)))
        return self._roots[-1]

    def settle(self) -> None:
        """Bring all files to disk, then move queues and index to their places.

        Names are not yet on disk afterwards: whoever started the tasks syncs the directories, once.

        Raises
        ------
        OSError
            As the system says.
        """
        sync_files(self.root)
        for root in self._roots:
            for place in _places(root):
                self._move(root, place)

    def _move(self, root: Path, place: str) -> None:
        target = self._target_root / place
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(root / place, target)  # noqa: PTH104 -- Path.rename would replace a file without a word
        except OSError as error:
            if error.errno not in _ALREADY_THERE:
                raise


def _places(root: Path) -> Iterator[str]:
    """List the directories that move as one: those of queues, and the index."""
    for kind in QUEUE_KINDS:
        for topic in _names(root / kind):
            for queue_id in _names(root / kind / topic):
                yield f"{kind}/{topic}/{queue_id}"
    if (root / INDEX_DIRECTORY).is_dir():
        yield INDEX_DIRECTORY


def _names(directory: Path) -> list[str]:
    return os.listdir(directory) if directory.is_dir() else []  # noqa: PTH208 -- names are wanted, not paths
