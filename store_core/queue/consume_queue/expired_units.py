# SPDX-License-Identifier: Apache-2.0
"""Files of a queue that point to nothing but what the log has deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from store_core.files.mapped_file_queue import MappedFileQueue

__all__ = ["delete_expired_files"]

_LONG: Final = 8
_SECONDS_TO_LET_GO: Final = 60.0


def delete_expired_files(queue: MappedFileQueue, min_physical_offset: int, unit_size: int) -> int:
    """Delete the oldest files of a queue of units while their last unit points below the log's start.

    Never the last file. It stops at a file that stays: that readers hold less than a minute after the first try, or
    that was never filled (RocketMQ: ``MappedFileQueue.deleteExpiredFileByOffset``).

    Parameters
    ----------
    queue : MappedFileQueue
    min_physical_offset : int
        Where the commit log starts.
    unit_size : int
        Bytes of a unit; its first eight are a physical offset.

    Returns
    -------
    int
        How many files were deleted.

    Raises
    ------
    OSError
        As the system says; the files before are deleted.
    """
    count = 0
    for file in queue.mapped_files[:-1] if queue.writable else ():
        last_unit = file.select(file.file_size - unit_size)
        if last_unit is None:
            is_expired = not file.is_available  # a deletion of it hangs: go on with it
        else:
            is_expired = int.from_bytes(last_unit[:_LONG], "big", signed=True) < min_physical_offset
        if not is_expired or not file.destroy(_SECONDS_TO_LET_GO):
            break
        queue.forget([file])
        count += 1
    return count
