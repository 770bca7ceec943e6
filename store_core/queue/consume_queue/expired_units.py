# SPDX-License-Identifier: Apache-2.0
"""Deletion of a queue's files that point only to deleted parts of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from store_core.files.mapped_file_queue import MappedFileQueue

__all__ = ["delete_expired_files"]

_LONG: Final = 8
_SECONDS_TO_LET_GO: Final = 60.0


def delete_expired_files(queue: MappedFileQueue, min_physical_offset: int, unit_size: int) -> int:
    """Delete the oldest files of a queue of units while their last unit points below the log's start.

    The last file is never deleted. Deletion stops at a file that has to stay: one that readers use, less than a minute
    after the first try, or one that was never filled (RocketMQ: ``MappedFileQueue.deleteExpiredFileByOffset``).

    Parameters
    ----------
    min_physical_offset : int
        Where the commit log starts.
    unit_size : int
        Bytes per unit; its first eight are a physical offset.

    Returns
    -------
    int
        How many files were deleted.

    Raises
    ------
    OSError
        As raised by the system; the files before it are deleted.
    """
    count = 0
    for file in queue.mapped_files[:-1] if queue.writable else ():
        last_unit = file.select(file.file_size - unit_size)
        if last_unit is None:
            is_expired = not file.is_available  # its deletion was begun and is pending: try again
        else:
            is_expired = int.from_bytes(last_unit[:_LONG], "big", signed=True) < min_physical_offset
        if not is_expired or not file.destroy(_SECONDS_TO_LET_GO):
            break
        queue.forget([file])
        count += 1
    return count
