# SPDX-License-Identifier: Apache-2.0
"""The private directory of one writing task, and moving what it wrote into place."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from typing import TYPE_CHECKING, Final, Self

from store_core.files.file_sync import WholeSync, sync_files
from store_core.files.store_parts import INDEX_DIRECTORY
from store_core.store.rebuild.queue_files import QUEUE_KINDS

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ATTEMPTS", "RebuildAttempt"]

ATTEMPTS: Final = ".attempts"
"""Directory below the target with one directory per writing task."""

_ALREADY_THERE: Final = (errno.ENOTEMPTY, errno.EEXIST)


class RebuildAttempt:
    """The private directory of one attempt of a task; `settle` moves each queue into place when all are on disk.

    So a task that fails, or runs twice, leaves each queue either complete or absent. Which attempt comes first makes no
    difference: all write the same bytes.
    """

    def __init__(self, target_root: Path) -> None:
        self.root = target_root / ATTEMPTS / uuid.uuid4().hex
        self._target_root = target_root
        self._whole = WholeSync(target_root)

    def __enter__(self) -> Self:
        self._whole.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._whole.__exit__(None, None, None)
        shutil.rmtree(self.root, ignore_errors=True)

    def settle(self) -> None:
        """Sync all files, then move queues and index into place.

        Directory entries are not durable afterwards: whoever started the tasks syncs the directories, once.
        """
        sync_files(self.root, self._whole)
        for kind in QUEUE_KINDS:
            for topic in _names(self.root / kind):
                self._move_queues(f"{kind}/{topic}")
        if (self.root / INDEX_DIRECTORY).is_dir():
            self._move(INDEX_DIRECTORY)

    def settle_index_files(self) -> None:
        """Sync all files, then move those of the index into place, each in the place of the same file if it is there.

        Several tasks write files of one index; who names the files sees to it that attempts of a task use one name.
        """
        sync_files(self.root, self._whole)
        source, target = self.root / INDEX_DIRECTORY, self._target_root / INDEX_DIRECTORY
        target.mkdir(parents=True, exist_ok=True)
        for name in _names(source):
            (source / name).replace(target / name)

    def _move_queues(self, topic: str) -> None:
        """Move all queues of a topic at once, unless others of it are in place."""
        if not self._move(topic):
            for queue_id in _names(self.root / topic):
                self._move(f"{topic}/{queue_id}")

    def _move(self, place: str) -> bool:
        """Move a directory, and return whether there was nothing in its place."""
        source, target = f"{self.root}/{place}", f"{self._target_root}/{place}"
        try:
            return _is_renamed(source, target)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120 -- text
            return _is_renamed(source, target)


def _is_renamed(source: str, target: str) -> bool:
    """Rename a directory unless there is something in its place; return whether it was."""
    try:
        os.rename(source, target)  # noqa: PTH104 -- Path.rename would silently replace a file
    except OSError as error:
        if error.errno not in _ALREADY_THERE:
            raise
        return False
    return True


def _names(directory: Path) -> list[str]:
    return os.listdir(directory) if directory.is_dir() else []  # noqa: PTH208 -- names are wanted, not paths
