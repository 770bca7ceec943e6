# SPDX-License-Identifier: Apache-2.0
"""The moment of a store that is being written: how far its queues, its index and its log reached, in this order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from store_core.snapshot.index import Index
from store_core.snapshot.log import Log
from store_core.snapshot.log_end import find_end
from store_core.snapshot.queues import Queues

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from store_core.queue.queue_path import QueueRules

__all__ = ["LiveMoment"]


@dataclass(frozen=True, slots=True)
class LiveMoment:
    """How far a live store is compared.

    **Why the order of reading is right.** A broker appends a record to the log, then its units to queues, then its keys
    to the index, and goes on with the next record; nothing that is before any of these ends changes later, and nothing
    goes away but at the log's start. So `take` reads three ends, in this order:

    1. where queues and index end. All records before that are dispatched: whoever reads queues and index *later* finds
       their units and entries, so that a missing one is missing (`dispatched`);
    2. where the log ends. It is read later, and so at or after 1; whoever reads the log up to there, whenever that is,
       finds the same records. So a unit or an entry that points before it and at none of these is wrong (`log_end`).

    What is read afterwards, in any order, is compared up to these two. Units of records at or after `log_end` may be
    newer than what was read, unless they point where the log has no file (`judges`).

    What this does not cover, a second look does: records whose dispatch was only begun at 1, such as those with several
    keys; what the broker deletes at the log's start meanwhile; and files that are being created. None of these can be
    seen again at the same place.
    """

    store: Path  # the store's root
    dispatched: int  # physical offset: records before it have their units and entries
    index_end: int  # physical offset one past that of the last record that has an entry; 0 without entries
    log_end: int  # physical offset: the log is read up to it
    indexed: int
    """As `dispatched`, for entries. An index that moves may be behind the queues, by what its writer gathers; one that
    has not moved since an earlier moment lacks what the queues had then."""

    @classmethod
    def take(cls, store: Path, rules: QueueRules, earlier: LiveMoment | None = None) -> Self:
        """Read where queues, index and log of a store end, in this order.

        * `earlier`: That of an earlier look at the same store.
        """
        with Queues(store) as queues:
            reached, are_seen_late = queues.reached(), queues.database is not None
        index = Index(store).loaded(rules)
        indexed = max((file.header.end_physical_offset + 1 for file in index.used), default=0)
        log_end = find_end(Log.of(store).segments).end_offset
        both = max(reached, indexed)  # a record with an entry has its units: they come first
        dispatched = reached if are_seen_late else both
        has_moved = earlier is not None and indexed > earlier.index_end
        ends = dispatched, indexed, log_end, indexed if has_moved else both
        return cls(store, *(min(end, log_end) for end in ends))

    def is_index_behind(self, earlier: LiveMoment) -> bool:
        """Return whether the index ends where it ended at an earlier moment, though the log has grown."""
        return self.index_end == earlier.index_end and self.log_end > earlier.log_end

    def judges(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which physical offsets of units, read until now, can be judged: those that are not newer."""
        is_judged: npt.NDArray[np.bool_] = offsets < self.log_end
        if is_judged.all():
            return is_judged
        # Listed after the units were read, so that the files of their records are among these.
        last = Log.of(self.store).segments[-1]
        return is_judged | (offsets >= last.end_offset)
