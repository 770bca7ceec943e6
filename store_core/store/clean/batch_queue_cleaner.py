# SPDX-License-Identifier: Apache-2.0
"""Deciding whether the min offset of a batch consume queue has to be corrected."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from store_core.queue.consume_queue.batch_consume_queue import BatchConsumeQueue

__all__ = ["needs_correction"]


def needs_correction(queue: BatchConsumeQueue, min_physical_offset: int, *, is_deep: bool) -> bool:
    """Return whether a queue begins before the log does (RocketMQ 5.x: ``CorrectLogicOffsetService.needCorrect``).

    That is so if the deletion of its first file is stuck, or if all its units point below the log's start although it
    is not marked empty. A deep check also examines its first unit.

    Parameters
    ----------
    queue : BatchConsumeQueue
    min_physical_offset : int
        Where the commit log starts; -1 if there is no file.
    is_deep : bool
    """
    first = queue.mapped_file_queue.first_mapped_file
    if first is not None and not first.is_available:
        return True
    if queue.max_physical_offset == -1 or min_physical_offset == -1:
        return False
    low, high = queue.min_offset_in_queue, queue.max_offset_in_queue
    if queue.max_physical_offset < min_physical_offset:
        return low < high
    if not is_deep:
        return False
    units = queue.get_index_buffer(low)
    if units is None or not len(units):
        return low != high
    return int(units["physical_offset"][0]) < min_physical_offset
