# SPDX-License-Identifier: Apache-2.0
"""The files of queues and index that point into a log, and which of them follow it when its beginning is deleted."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from store_core.errors import SegmentVanishedError
from store_core.files.segment_source import open_segment
from store_core.files.store_parts import INDEX_DIRECTORY
from store_core.queue.index.index_header import INDEX_HEADER_SIZE, IndexHeader
from store_core.store.config.index_listing import index_paths
from store_core.views.queue_listing import QueueKind, TopicFilter, list_queues
from store_core.views.queue_units import units_of_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from store_core.files.segment_source import Segment

__all__ = ["PointingFile", "pointing_files"]


class PointingFile(NamedTuple):
    """A file that is deleted when all that it points to is.

    Attributes
    ----------
    path : str
        Below the store's root.
    size : int
        Bytes of disk.
    goes_above : int
        Physical offset: it goes when the log begins after it.
    """

    path: str
    size: int
    goes_above: int


def pointing_files(root: Path) -> Iterator[PointingFile]:
    """Yield the files of queues and index that can go, in the order in which they go in their directory.

    The last file of each never goes. A file goes only after those before it (RocketMQ: ``CleanConsumeQueueService``).
    Queues in a RocksDB have none.

    Raises
    ------
    OSError
        As raised by the system.
    """
    for queue in list_queues(root, TopicFilter()):
        if queue.kind is not QueueKind.ROCKSDB:
            yield from _in_order(root, ((file.path, _last_position(file, queue.kind)) for file in queue.files[:-1]))
    directory = root / INDEX_DIRECTORY
    if directory.is_dir():
        paths: Sequence[Path] = index_paths(directory)
        yield from _in_order(root, ((str(path), _index_end(path)) for path in paths[:-1]))


def _in_order(root: Path, files: Iterator[tuple[str, int | None]]) -> Iterator[PointingFile]:
    above = -1
    for path, position in files:
        if position is None:
            return
        above = max(above, position)
        size = os.stat(path).st_blocks * 512  # noqa: PTH116 -- a path from a listing, as text
        yield PointingFile(os.path.relpath(path, root), size, above)


def _last_position(file: Segment, kind: QueueKind) -> int | None:
    """Return the position that the last unit of a file points to; None if the file is gone, or has none."""
    try:
        with open_segment(file) as opened:
            units = units_of_file(opened, kind)
            return int(units["physical_offset"][-1]) if len(units) else None
    except SegmentVanishedError:
        return None


def _index_end(path: Path) -> int | None:
    try:
        with path.open("rb") as file:
            data = file.read(INDEX_HEADER_SIZE)
    except FileNotFoundError:
        return None
    return IndexHeader.from_bytes(data).end_physical_offset if len(data) == INDEX_HEADER_SIZE else None
