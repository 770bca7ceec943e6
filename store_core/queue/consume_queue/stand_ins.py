# SPDX-License-Identifier: Apache-2.0
"""Units that replace lost records in a queue, so that the records after them keep their own queue offsets."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.queue.units.consume_queue_unit import CQ_STORE_UNIT_SIZE, UNIT_DTYPE, UNIT_SEAL

if TYPE_CHECKING:
    from store_core.queue.consume_queue.consume_queue import ConsumeQueue
    from store_core.queue.units.consume_queue_unit import CqUnit

__all__ = ["StandIn", "put_stand_ins"]

_UNREADABLE_SIZE: Final = 2
_CHUNK: Final = 1 << 16


class StandIn(NamedTuple):
    """The unit to store at the queue offsets of lost records.

    Attributes
    ----------
    physical_offset, store_size, tags_code : int
        Fields of the unit.
    is_copy : bool
        Whether it repeats the unit before the gap, so that consumers get that record again.

    Notes
    -----
    RocketMQ has no unit for "nothing here" (ADR 0015). How 4.3.0, 4.9.7 and 5.3.3 treat the candidates:

    * The units before a queue's first one, position 0 and size 2**31 - 1, are below its minimum offset, so nobody
      gets them. Inside a queue, with position 0 the cleaning of queues deletes a file that ends with one, searches by
      time and the correction of the minimum offset go wrong, and a get skips what comes next in the first log file.
    * For a record that can't be read, a get skips **all** units that point into the same log file, up to the first one
      that points into a later file (``DefaultMessageStore.getMessage``, ``rollNextFile``). So a unit that can't be read
      is harmless only if the next record is in a later file than it.
    * All of them expect positions that do not decrease.

    So if the next record is in a later segment than the one before, a stand-in points to two bytes across the start of
    the next record's segment: never readable, and the get continues with that record. In the same segment it repeats
    the unit before the gap: a consumer gets that record again, once for each offset, which at-least-once delivery
    allows, and no existing record is skipped.
    """

    physical_offset: int
    store_size: int
    tags_code: int
    is_copy: bool

    @classmethod
    def between(cls, last: CqUnit, next_segment: int) -> StandIn:
        """Choose the unit for a gap.

        Parameters
        ----------
        last : CqUnit
            The unit before the gap.
        next_segment : int
            Physical offset of the first byte of the segment that has the record after it.
        """
        if next_segment > last.physical_offset:
            return cls(next_segment - 1, _UNREADABLE_SIZE, 0, is_copy=False)
        return cls(last.physical_offset, last.store_size, last.tags_code, is_copy=True)


def put_stand_ins(queue: ConsumeQueue, stand_in: StandIn, count: int) -> None:
    """Append a unit a number of times at a queue's end, however much it covers of the log."""
    unit = np.array([stand_in[:3]], UNIT_DTYPE)
    files = queue.mapped_file_queue
    while count:
        file = files.get_last_mapped_file()
        if file is None:
            raise files.create_error or OSError(errno.EIO, "the next file could not be made", str(queue))
        taken = min((file.file_size - file.wrote_position) // CQ_STORE_UNIT_SIZE, count, _CHUNK)
        file.append(np.repeat(unit, taken).tobytes(), seal=UNIT_SEAL)
        count -= taken
