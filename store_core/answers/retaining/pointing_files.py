# SPDX-License-Identifier: Apache-2.0
"""The files of queues and index that point into a log, and which of them follow it when its beginning is deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from store_core.errors import SegmentVanishedError
from store_core.files.segment_source import blocks_on_disk, file_at, open_pages
from store_core.queue.index.index_format import INDEX_HEADER_SIZE
from store_core.snapshot.index import Index, KeyFile
from store_core.views.queue_listing import QueueKind, TopicFilter, list_queues
from store_core.views.queue_units import units_of_file

if TYPE_CHECKING:
    from collections.abc import Iterator
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
            files = queue.files[:-1]
            yield from _in_order(root, ((file, _last_position(file, queue.kind)) for file in files))
    yield from _in_order(root, ((file_at(path), _index_end(path)) for path in Index(root).paths[:-1]))


def _in_order(root: Path, files: Iterator[tuple[Segment, int | None]]) -> Iterator[PointingFile]:
    above = -1
    for file, position in files:
        if position is None:
            return
        above = max(above, position)
        yield PointingFile(file.path.removeprefix(f"{root}/"), blocks_on_disk(file), above)


def _last_position(file: Segment, kind: QueueKind) -> int | None:
    """Return the position that the last unit of a file points to; None if the file is gone, or has none."""
    try:
        with open_pages(file) as opened:
            units = units_of_file(opened, kind)
            opened.load(units.nbytes - kind.dtype.itemsize, units.nbytes)
            return int(units["physical_offset"][-1]) if len(units) else None
    except SegmentVanishedError:
        return None


def _index_end(path: Path) -> int | None:
    try:
        file = KeyFile(path)
    except FileNotFoundError:
        return None
    return file.header.end_physical_offset if file.size >= INDEX_HEADER_SIZE else None
