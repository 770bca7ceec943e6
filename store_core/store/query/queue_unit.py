# SPDX-License-Identifier: Apache-2.0
"""Reading the units of any kind of queue for a get, a few at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from store_core.queue.consume_queue.batch_consume_queue import BatchConsumeQueue
from store_core.queue.consume_queue.consume_queue_ext import ConsumeQueueExt
from store_core.queue.consume_queue.queue_extension import is_ext_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.queue.consume_queue.consume_queue import ConsumeQueue
    from store_core.queue.consume_queue.consume_queue_ext import CqExtUnit
    from store_core.queue.units.batch_consume_queue_unit import BatchUnitArray
    from store_core.queue.units.consume_queue_unit import UnitArray

    AnyQueue: TypeAlias = ConsumeQueue | BatchConsumeQueue

__all__ = ["QueueUnit", "queue_units"]

_BLOCK: Final = 32
"""Units converted to Python numbers at a time; most gets need no more."""


class QueueUnit(NamedTuple):
    """One unit of a queue, with its extension resolved.

    Attributes
    ----------
    tags_code : int or None
        None if the unit points to a lost extension; then no filter can decide.
    batch_size : int
        Messages in the record.
    """

    queue_offset: int
    physical_offset: int
    store_size: int
    tags_code: int | None
    batch_size: int = 1
    ext: CqExtUnit | None = None


def queue_units(queue: AnyQueue, queue_offset: int) -> Iterator[QueueUnit] | None:
    """Yield the units from an offset to the end of its file; None if there is no unit at the offset.

    In a batch queue the first unit is the one that contains the offset, so it may begin before it.
    """
    units = queue.get_index_buffer(queue_offset)
    if units is None:
        return None
    if isinstance(queue, BatchConsumeQueue):
        return _batch_units(units)
    return _plain_units(queue, units, queue_offset)


def _plain_units(queue: ConsumeQueue, units: UnitArray, first: int) -> Iterator[QueueUnit]:
    for begin in range(0, len(units), _BLOCK):
        for index, (physical_offset, size, tags_code) in enumerate(
            units[begin : begin + _BLOCK].tolist(), first + begin
        ):
            if is_ext_address(tags_code):
                ext = queue.ext.get(tags_code) if isinstance(queue.ext, ConsumeQueueExt) else None
                yield QueueUnit(index, physical_offset, size, ext.tags_code if ext else None, 1, ext)
            else:
                yield QueueUnit(index, physical_offset, size, tags_code)


def _batch_units(units: BatchUnitArray) -> Iterator[QueueUnit]:
    for begin in range(0, len(units), _BLOCK):
        for physical_offset, size, tags_code, _, base, batch_size, _, _ in units[begin : begin + _BLOCK].tolist():
            yield QueueUnit(base, physical_offset, size, tags_code, batch_size)
