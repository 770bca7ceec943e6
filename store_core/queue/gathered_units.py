# SPDX-License-Identifier: Apache-2.0
"""Units of several batches, gathered so that each queue gets many at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.queue.batch_plan import SAFE_OFFSET, BatchPlan
from store_core.queue.queue_path import refusal_of
from store_core.queue.unit_rows import UnitRows, sorted_places

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.queue.batch_plan import QueueNames
    from store_core.queue.dispatch_batch import DispatchBatch
    from store_core.queue.queue_rules import QueueRules

__all__ = ["MOST_GATHERED", "GatheredUnits"]

MOST_GATHERED: Final = 1 << 17
"""Units gathered: of 64 queues each gets 40 KB in a write then, and the columns, 6 MiB, stay in a processor's cache."""

_MOST_QUEUES: Final = 2**15 - 1
"""Queues gathered: numbers of 16 bits are sorted without comparing."""

_COLUMNS: Final = ("physical_offset", "message_size", "tags_code", "queue_offset", "store_timestamp")


class GatheredUnits:
    """Units of simple queues, in the order of the log; what they need of their batches is copied.

    Parameters
    ----------
    table : QueueNames
        Which queues there are.
    rules : QueueRules
    most : int
        Units at once.
    """

    def __init__(self, table: QueueNames, rules: QueueRules, most: int = MOST_GATHERED) -> None:
        self._table = table
        self._rules = rules
        self._most = most
        self._count = 0
        self._codes = np.empty(0, np.int16)
        self._columns: dict[str, npt.NDArray[np.int64]] = {}
        self._names: dict[tuple[str, int], int] = {}
        self._new = 0

    def __len__(self) -> int:
        """Count the units."""
        return self._count

    def add(self, batch: DispatchBatch) -> bool:
        """Take the units of a batch, all of them or none; False if none.

        Preconditions, else none: there is room; each queue is a simple one, has a name that can be a path, and is not
        one too many; indexes are not negative, and far from their limits; no record has light queues.
        """
        count = len(batch)
        if count > self._most - self._count or not self._is_plain(batch) or not self._number(batch.queues):
            return False
        if not self._codes.size:
            self._make_room()
        numbers = np.array([self._names[name] for name in batch.queues], np.int16)
        rows = slice(None) if batch.is_queued.all() else batch.is_queued
        codes = numbers.take(batch.queue_codes)[rows]
        place = slice(self._count, self._count + codes.size)
        self._codes[place] = codes
        for name in _COLUMNS:
            self._columns[name][place] = getattr(batch, name)[rows]
        self._count = place.stop
        return True

    def _is_plain(self, batch: DispatchBatch) -> bool:
        if self._rules.is_multi_dispatch_enabled and batch.multi_dispatch_rows.size:
            return False
        offsets = batch.queue_offset
        return not offsets.size or (int(offsets.min()) >= 0 and int(offsets.max()) < SAFE_OFFSET)

    def _number(self, names: tuple[tuple[str, int], ...]) -> bool:
        """Assign numbers to queues that have none yet; False if one of them can't be had."""
        unknown = [name for name in names if name not in self._names]
        if not unknown:
            return True
        new = [name for name in unknown if name not in self._table]
        is_fit = (
            len(self._names) + len(unknown) <= _MOST_QUEUES
            and self._table.has_room(self._new + len(new))
            and not any(topic in self._rules.batch_topics for topic, _ in unknown)
            and all(refusal_of(*name) is None for name in new)
        )
        if is_fit:
            self._new += len(new)
            for name in unknown:
                self._names[name] = len(self._names)
        return is_fit

    def _make_room(self) -> None:
        self._codes = np.empty(self._most, np.int16)
        self._columns = {name: np.empty(self._most, np.int64) for name in _COLUMNS}

    def take(self) -> BatchPlan:
        """Return the units, ordered as those of `UnitRows` are, and begin anew; `row` counts all that were gathered."""
        order = sorted_places(self._codes[: self._count])
        columns = {name: column.take(order) for name, column in self._columns.items()}
        units = UnitRows(
            order,
            self._codes.take(order).astype(np.int64),
            columns["physical_offset"],
            columns["message_size"],
            columns["tags_code"],
            columns["queue_offset"],
            columns["store_timestamp"],
            columns["queue_offset"],
            np.ones(order.size, np.int16),
            np.zeros(order.size, np.bool_),
        )
        plan = BatchPlan(units, list(self._names))
        self._count = self._new = 0
        self._names = {}
        return plan
