# SPDX-License-Identifier: Apache-2.0
"""Inferring from records which kinds of queues their store had, if no directory is left that shows it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.format.properties import (
    INNER_BASE,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    INNER_NUM,
)
from store_core.format.sys_flag import MessageSysFlag
from store_core.queue.dispatch.lmq_units import UnfitListsError, has_lists, lmq_units

if TYPE_CHECKING:
    from store_core.queue.dispatch.dispatch_batch import DispatchBatch, DispatchRequest
    from store_core.store.rebuild.options import RebuildRules

__all__ = ["NO_LIGHT_RECORDS", "LightRecords", "ToldKinds"]

_INNER_BATCH: Final = int(MessageSysFlag.INNER_BATCH_FLAG)


class LightRecords(NamedTuple):
    """How many records name light queues, and how many of them can be in none.

    Attributes
    ----------
    named : int
        Records with property INNER_MULTI_DISPATCH.
    unindexed : int
        Those without INNER_MULTI_QUEUE_OFFSET: nothing says which index they would have.
    unfit : int
        Those whose indexes do not match the names, or are not numbers.
    kept_out : int
        Those of a topic of which the release reads no such properties, such as a retry topic.
    """

    named: int = 0
    unindexed: int = 0
    unfit: int = 0
    kept_out: int = 0

    def plus(self, other: LightRecords) -> LightRecords:
        """Return the sums."""
        return LightRecords(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


NO_LIGHT_RECORDS: Final = LightRecords()


class ToldKinds:
    """Finds records that only a store with light queues, or with batch topics, can have written.

    Attributes
    ----------
    light_record : int
        Physical offset of the first record that is in light queues; -1 if there is none.
    batch_topics : set of str
        Topics with an inner batch that are not batch topics by the rules.

    Notes
    -----
    RocketMQ 4.9.7 and 5.3.3 write indexes into INNER_MULTI_QUEUE_OFFSET with ``enableLmq`` only. 5.3.3 refuses a
    message with the flag of an inner batch unless its topic has ``queue.type=BatchCQ`` (``HookUtils.checkInnerBatch``).
    A batch topic of which the log has only single messages can't be recognised. Records do not show whether there was a
    queue extension.
    """

    def __init__(self, rules: RebuildRules) -> None:
        self.light_record = -1
        self.light = NO_LIGHT_RECORDS
        self.batch_topics: set[str] = set()
        self._rules = rules
        self._with_light = replace(rules.queue_rules, is_multi_dispatch_enabled=True, is_lmq_enabled=True)

    def look_at(self, batch: DispatchBatch) -> None:
        """Examine the next records."""
        for row in batch.multi_dispatch_rows.tolist():
            self._look_at_light(batch.request(row))
        if self._rules.queue_rules.features.has_inner_batches:
            self._look_for_inner_batches(batch)

    def _look_at_light(self, request: DispatchRequest) -> None:
        names, indexes = map(request.properties.get, (INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET))
        if not (names or "").strip():
            return
        is_kept_out = not has_lists(request.topic, self._rules.queue_rules.features)
        is_unindexed = not is_kept_out and not (indexes or "").strip()
        is_unfit = False
        try:
            units = lmq_units(request, self._with_light)
        except UnfitListsError:
            units, is_unfit = [], True
        self.light = self.light.plus(LightRecords(1, is_unindexed, is_unfit, is_kept_out))
        if self.light_record < 0 and any(self._rules.wants(unit.topic, unit.queue_id) for unit in units):
            self.light_record = request.physical_offset

    def _look_for_inner_batches(self, batch: DispatchBatch) -> None:
        rows = np.flatnonzero(batch.sys_flag & _INNER_BATCH)
        codes, first = np.unique(batch.queue_codes[rows], return_index=True)
        for code, row in zip(codes.tolist(), rows[first].tolist(), strict=True):
            queue = batch.queues[code]
            is_known = queue[0] in self.batch_topics or queue[0] in self._rules.queue_rules.batch_topics
            if is_known or not self._rules.wants(*queue):
                continue
            if {INNER_NUM, INNER_BASE} <= batch.request(row).properties.keys():
                self.batch_topics.add(queue[0])
