# SPDX-License-Identifier: Apache-2.0
"""Units of many queues that continue without a gap, as those of a sound log do: found and appended quickly."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.queue.units.consume_queue_unit import CQ_STORE_UNIT_SIZE, UNIT_SEAL, coverages, stored_units

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.format.releases.release_rules import ReleaseRules
    from store_core.queue.consume_queue.consume_queue import ConsumeQueue
    from store_core.queue.units.unit_rows import UnitRows

__all__ = ["UnitSequences"]

_LOG: Final = logging.getLogger("store_core")


class UnitSequences:
    """The bytes of units of many queues, and which of them continue the one before.

    The conditions between neighbours are checked for all queues at once, which leaves little to do for each: a store
    of many queues has few units of each per batch.

    Parameters
    ----------
    features : ReleaseRules
        Decide how much of the log a unit covers.
    """

    def __init__(self, units: UnitRows, features: ReleaseRules) -> None:
        stored = stored_units(units.physical_offset, units.size, units.tags_code)
        self._bytes = stored.view(np.uint8).data
        self._covers: npt.NDArray[np.int64] = coverages(stored, features)
        self._queue_offset = units.queue_offset
        breaks = (np.diff(units.queue_offset) != 1) | (self._covers[1:] <= self._covers[:-1])
        # How many units before each don't continue the one before them.
        self._breaks = np.concatenate(([0], np.cumsum(breaks))) if len(stored) else np.zeros(0, np.int64)

    def append(self, queue: ConsumeQueue, start: int, stop: int) -> int:
        """Append units to their queue, as `ConsumeQueue.put_units`, if all that takes is writing them.

        Otherwise return 0. Conditions: their indexes are consecutive, and each covers more of the log than the one
        before; the first one continues the queue's index and coverage; the queue's last file has units, and room for
        one more.

        Returns
        -------
        int
            How many units were appended: as many as fit into the file. Also 0 if the system refuses to write.
        """
        file = queue.mapped_file_queue.last_mapped_file
        if file is None or not file.wrote_position or self._breaks[start] != self._breaks[stop - 1]:
            return 0
        end = file.file_from_offset + file.wrote_position
        if self._queue_offset[start] * CQ_STORE_UNIT_SIZE != end or self._covers[start] <= queue.max_physical_offset:
            return 0
        stop = min(stop, start + (file.file_size - file.wrote_position) // CQ_STORE_UNIT_SIZE)
        if stop == start:
            return 0
        try:
            file.append(self._bytes[start * CQ_STORE_UNIT_SIZE : stop * CQ_STORE_UNIT_SIZE], seal=UNIT_SEAL)
        except OSError as error:
            _LOG.warning(
                "queue %s-%d: %d records not indexed yet: %s", queue.topic, queue.queue_id, stop - start, error
            )
            return 0
        queue.max_physical_offset = int(self._covers[stop - 1])
        return stop - start
