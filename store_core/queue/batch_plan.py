# SPDX-License-Identifier: Apache-2.0
"""Which queues the records of a batch go to, if nothing of it is to be refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from store_core.queue.light_units import UnfitListsError, light_units
from store_core.queue.queue_path import refusal_of
from store_core.queue.unit_rows import LightRow, UnitRows

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.queue.dispatch_batch import DispatchBatch
    from store_core.queue.queue_rules import QueueRules

__all__ = ["SAFE_OFFSET", "BatchPlan", "QueueNames", "plan_batch"]

SAFE_OFFSET: Final = 2**57
"""Below it, an index is far from every limit."""


class QueueNames(Protocol):
    """Which queues there are, as `store_core.queue.consume_queue_table.ConsumeQueueTable` says."""

    def __contains__(self, name: tuple[str, int]) -> bool:
        """Whether there is a queue of this topic and id."""
        ...

    def has_room(self, queues: int) -> bool:
        """Whether so many may be added."""
        ...


class BatchPlan(NamedTuple):
    """Units of a batch, and the queues by the numbers that they have there."""

    units: UnitRows
    queues: list[tuple[str, int]]


def plan_batch(batch: DispatchBatch, table: QueueNames, rules: QueueRules) -> BatchPlan | None:
    """Assign the records of a batch to queues.

    Preconditions, else None: every queue has a name that can be a path, and is not one too many; indexes and batch
    sizes are not negative, and far from their limits; lists of light queues fit, and name no batch topic.
    """
    rows = np.flatnonzero(batch.is_queued)
    names = list(batch.queues)
    is_batch = np.array([topic in rules.batch_topics for topic, _ in names], bool)[batch.queue_codes[rows]]
    if not _are_sound(batch, rows[is_batch], rows[~is_batch]):
        return None
    light = _light_rows(batch, rows[~is_batch], names, rules)
    if light is None:
        return None
    units = UnitRows.of(batch, rows, light)
    new = [names[code] for code in np.flatnonzero(np.bincount(units.code)).tolist() if names[code] not in table]
    if not table.has_room(len(new)) or any(refusal_of(*name) is not None for name in new):
        return None
    return BatchPlan(units, names)


def _are_sound(batch: DispatchBatch, in_batch: npt.NDArray[np.int64], in_simple: npt.NDArray[np.int64]) -> bool:
    offsets = batch.queue_offset[in_simple]
    bases, sizes = batch.message_base_offset[in_batch], batch.batch_size[in_batch]
    return all(bool(((column >= 0) & (column < SAFE_OFFSET)).all()) for column in (offsets, bases, sizes))


def _light_rows(
    batch: DispatchBatch, rows: npt.NDArray[np.int64], names: list[tuple[str, int]], rules: QueueRules
) -> list[LightRow] | None:
    """Return the further units of some rows, and add their queues to `names`; None if some are unfit."""
    if not rules.is_multi_dispatch_enabled:
        return []
    codes = {name: code for code, name in enumerate(names)}
    light: list[LightRow] = []
    for row in np.intersect1d(rows, batch.multi_dispatch_rows).tolist():
        try:
            units = light_units(batch.request(row), rules)
        except UnfitListsError:
            return None
        for unit in units:
            if unit.topic in rules.batch_topics or not 0 <= unit.queue_offset < SAFE_OFFSET:
                return None
            name = (unit.topic, unit.queue_id)
            if name not in codes:
                codes[name] = len(names)
                names.append(name)
            light.append(LightRow(row, codes[name], unit.queue_offset))
    return light
