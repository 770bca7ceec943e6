# SPDX-License-Identifier: Apache-2.0
"""Plants named kinds of faults into copies of golden stores, each with what a check has to find: that, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.store_core.answers.planting.log_faults import LOG_FAULTS
from tests.store_core.answers.planting.other_faults import INDEX_FAULTS, OTHER_FAULTS
from tests.store_core.answers.planting.queue_faults import QUEUE_FAULTS
from tests.store_core.answers.planting.store_copy import Expected, Fault, QueueCopy, StoreCopy, counts_of

if TYPE_CHECKING:
    from pathlib import Path


__all__ = ["FAULTS", "Expected", "Fault", "StoreCopy", "counts_of", "fault_named", "largest_queue", "plant"]

FAULTS: Final = (*LOG_FAULTS, *QUEUE_FAULTS, *INDEX_FAULTS, *OTHER_FAULTS)


def fault_named(name: str) -> Fault:
    """Return a fault by its name."""
    return next(fault for fault in FAULTS if str(fault) == name)


def plant(name: str, root: Path) -> list[Expected]:
    """Plant a fault into a copy of a store, always in the same place."""
    return fault_named(name).plant(StoreCopy(root))


def largest_queue(root: Path) -> QueueCopy:
    """Return the largest queue of a store that has a single file."""
    queues = StoreCopy(root).queues()
    return max((queue for queue in queues if len(queue.files) == 1), key=lambda queue: queue.count)
