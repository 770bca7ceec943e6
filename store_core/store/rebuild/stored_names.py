# SPDX-License-Identifier: Apache-2.0
"""The queues for which a store has directories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.files.file_system import names_in
from store_core.queue.queue_path import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, parse_queue_id, refusal_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store_core.files.file_system import FileSystem

__all__ = ["stored_queue_names"]


def stored_queue_names(root: Path, file_system: FileSystem) -> set[tuple[str, int]]:
    """Return topic and id of the queues that have a directory; other directories are skipped."""
    return {
        (topic, queue_id)
        for kind in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE)
        for topic in _directories(root / kind, file_system)
        for name in _directories(root / kind / topic, file_system)
        if (queue_id := parse_queue_id(name)) is not None and refusal_of(topic, queue_id) is None
    }


def _directories(directory: Path, file_system: FileSystem) -> Iterator[str]:
    for name in names_in(directory, file_system):
        status = file_system.status(directory / name)
        if status is not None and status.is_directory:
            yield name
