# SPDX-License-Identifier: Apache-2.0
"""The files of queues and index that point into a log, and which of them follow it when its beginning is deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from store_core.errors import SegmentVanishedError
from store_core.files.segment_source import blocks_on_disk, file_at
from store_core.queue.index.index_format import INDEX_HEADER_SIZE
from store_core.snapshot.file_queues import FileQueue, OpenUnits
from store_core.snapshot.index import Index, KeyFile
from store_core.snapshot.queues import Queues

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store_core.snapshot.file_queues import UnitFile

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
    for queue in Queues(root).each():
        if isinstance(queue, FileQueue):
            yield from _in_order(root, ((file.path, _last_position(file)) for file in queue.listed[:-1]))
    yield from _in_order(root, ((path, _index_end(path)) for path in Index(root).paths[:-1]))


def _in_order(root: Path, files: Iterator[tuple[Path, int | None]]) -> Iterator[PointingFile]:
    above = -1
    for path, position in files:
        if position is None:
            return
        above = max(above, position)
        yield PointingFile(str(path).removeprefix(f"{root}/"), blocks_on_disk(file_at(path)), above)


def _last_position(file: UnitFile) -> int | None:
    """Return the position that the last unit of a file points to; None if the file is gone, or has none."""
    opened = OpenUnits(file)
    try:
        return opened.place(file.count - 1)[0] if file.count else None
    except SegmentVanishedError:
        return None
    finally:
        opened.close()


def _index_end(path: Path) -> int | None:
    try:
        file = KeyFile(path)
    except FileNotFoundError:
        return None
    return file.header.end_physical_offset if file.size >= INDEX_HEADER_SIZE else None
