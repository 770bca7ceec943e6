# SPDX-License-Identifier: Apache-2.0
"""Inferring from records which kinds of queues their store had, if no directory is left that shows it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.format.property_string import INNER_BASE, INNER_NUM
from store_core.format.sys_flag import MessageSysFlag
from store_core.queue.dispatch.lmq_units import UnfitListsError, lmq_units

if TYPE_CHECKING:
    from store_core.queue.dispatch.dispatch_batch import DispatchBatch
    from store_core.queue.dispatch.dispatch_request import DispatchRequest
    from store_core.store.rebuild.rules import RebuildRules

__all__ = ["ToldKinds"]

_INNER_BATCH: Final = int(MessageSysFlag.INNER_BATCH_FLAG)


class ToldKinds:
    """Finds records that only a store with light queues, or with batch topics, can have written.

    Parameters
    ----------
    rules : RebuildRules

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
        self.batch_topics: set[str] = set()
        self._rules = rules
        self._with_light = replace(rules.queue_rules, is_multi_dispatch_enabled=True, is_lmq_enabled=True)

    def look_at(self, batch: DispatchBatch) -> None:
        """Examine the next records."""
        features = self._rules.queue_rules.features
        if features.has_light_queues and self.light_record < 0:
            requests = map(batch.request, batch.multi_dispatch_rows.tolist())
            self.light_record = next((found.physical_offset for found in requests if self._is_light(found)), -1)
        if features.has_inner_batches:
            self._look_for_inner_batches(batch)

    def _is_light(self, request: DispatchRequest) -> bool:
        try:
            return any(self._rules.wants(unit.topic, unit.queue_id) for unit in lmq_units(request, self._with_light))
        except UnfitListsError:
            return False

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
