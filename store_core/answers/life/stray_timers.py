# SPDX-License-Identifier: Apache-2.0
"""Pending timers whose place in the log holds no timer: the log was cut, and may have grown again since."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.answers.life.message_reads import RecordLookUp
from store_core.format.record.delayed import TIMER_TOPIC
from store_core.snapshot.timers import TIMER_LOG, Timers, due_times

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from store_core.files.segment_source import Segment

__all__ = ["StrayTimers", "stray_timers"]

_MOST: Final = 100_000
"""Timers whose records are looked at: a record takes some microseconds."""


class StrayTimers(NamedTuple):
    """Units of the log of timers that lead to no timer.

    * `position`, `physical_offset`: Where the first one is in the log of timers, and where it leads to.
    """

    timers: int
    path: str  # the file of the first of them
    position: int
    physical_offset: int
    found: str  # what is there

    @property
    def note(self) -> str:
        """What is said of them."""
        leads = "pending timer of timerlog leads" if self.timers == 1 else "pending timers of timerlog lead"
        return (
            f"{self.timers} {leads} past the log's end or to other records, as after a log that was cut and has grown "
            f"again: a broker does not deliver them. The first, at {self.position} in {self.path}, leads to offset "
            f"{self.physical_offset}: {self.found}"
        )


def stray_timers(root: Path, segments: Sequence[Segment], release: str) -> StrayTimers | None:
    """Return the pending timers that lead to no timer in the log; None if all do, or there are none.

    Those before the log's first record are left out: what they led to was deleted.
    """
    if not segments or segments[0].entries is not None or not (root / TIMER_LOG).is_dir():
        return None
    timers = Timers.of(root)
    wanted: dict[int, list[tuple[int, str, int]]] = {}
    looked_at = 0
    for file in timers.files:
        units = Timers.units(file).units
        is_pending = due_times(units) >= (timers.read_until or 0)
        is_pending &= units["physical_offset"] >= segments[0].start_offset
        for number in np.flatnonzero(is_pending)[: _MOST - looked_at].tolist():
            unit = units[number]
            place = file.start_offset + number * units.dtype.itemsize
            wanted.setdefault(int(unit["physical_offset"]), []).append((place, file.path, int(unit["store_size"])))
            looked_at += 1
    look_up = RecordLookUp(segments, wanted, release)
    records = look_up.merge(map(look_up.run, look_up.plan()))
    end = segments[-1].end_offset
    stray: list[StrayTimers] = []
    for offset, units_there in wanted.items():
        record = records.get(offset)
        for place, path, size in units_there:
            if record is None:
                found = f"the log's last file ends at {end}" if offset >= end else "no record begins there"
            elif record["topic"] != TIMER_TOPIC:
                found = f"a message of topic {record['topic'][:100]!r}"
            elif record["store_size"] != size:
                found = f"a timer of {record['store_size']} bytes, not of {size}"
            else:
                continue
            stray.append(StrayTimers(0, path, place, offset, found))
    return min(stray, key=lambda each: each.position)._replace(timers=len(stray)) if stray else None
