# SPDX-License-Identifier: Apache-2.0
"""The position in a log at which the next record is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from store_core.files.file_system import write_all
from store_core.files.segment_file import file_name_of
from store_core.format.segment_room import blank_head, has_room

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.file_system import FileSystem
    from store_core.files.mapped_file_queue import MappedFileQueue

__all__ = ["LogPlace", "make_place"]


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where a log ends."""

    directory: Path  # directory of the segments
    file_size: int  # bytes of a segment
    last_path: Path | None = None  # file of the last segment; None if there is none
    last_start: int = 0  # its physical offset
    position: int = 0  # where the log ends in the last segment, in bytes from its start

    @property
    def room(self) -> int:
        """Bytes left in the last segment."""
        return self.file_size - self.position if self.last_path is not None else 0

    @property
    def end_offset(self) -> int:
        """Physical offset of the log's end."""
        return self.last_start + self.position

    @property
    def next_start(self) -> int:
        """Physical offset of the next new segment."""
        return self.last_start + self.file_size if self.last_path is not None else 0


def make_place(queue: MappedFileQueue, file_system: FileSystem) -> LogPlace:
    """Return where the next record of a log goes, in a segment that can still be closed with a blank record.

    If the last segment has less room than a blank record needs, it is closed and an empty next one is created. Both are
    on disk on return, and neither changes which records the log holds.
    """
    directory, size = queue.paths.paths[0], queue.file_size
    last = queue.last_mapped_file
    if last is None:
        return LogPlace(directory, size)
    position = last.wrote_position
    if has_room(0, size - position):
        return LogPlace(directory, size, last.path, last.file_from_offset, position)
    file = file_system.open(last.path)
    write_all(file, memoryview(blank_head(size - position)), position)
    file.sync()
    path = directory / file_name_of(last.end_offset)
    file_system.make(path, size).close()
    file_system.sync_directory(directory)
    return LogPlace(directory, size, path, last.end_offset)
