# SPDX-License-Identifier: Apache-2.0
"""A simple queue whose units follow one another as the log has them, in memory: what a comparison mostly meets.

`QueueWriter` and `judge_queue` are the definition, for any queue: they write it as a broker does, and read both sides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.files.file_system import write_all
from store_core.files.segment_file import file_name_of
from store_core.queue.units.consume_queue_unit import CQ_STORE_UNIT_SIZE, UNIT_DTYPE, pre_blank, units_per_file
from store_core.queue.units.queue_assignment import index_limit
from store_core.queue.units.unit_rows import consecutive_units
from store_core.store.rebuild.compare import QueueJudgement, digest_of
from store_core.store.rebuild.files import QueueReport
from store_core.store.rebuild.stored_queues import live, plain_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from store_core.files.file_system import FileSystem
    from store_core.queue.queue_path import QueueRules
    from store_core.queue.units.consume_queue_unit import UnitArray
    from store_core.store.rebuild.options import RebuildRules
    from store_core.store.rebuild.stored_queues import Compared, StoredQueues

__all__ = ["PlainQueue"]

_DIGESTED_AT_ONCE: Final = 1 << 14
"""Units; as columns they stay in the processor's cache."""


class PlainQueue(NamedTuple):
    """The units that a broker would have in a queue."""

    first: int  # index of the first unit
    units: UnitArray  # as they are stored

    @classmethod
    def of(cls, payloads: Sequence[bytes], rules: RebuildRules) -> PlainQueue | None:
        """Return the queue of some packed units, in log order.

        Returns: None if there are none, if an index is not the next, if a record is not after the one before it, or if
        more than these units decides what is in the queue.
        """
        pieces = [consecutive_units(payload) for payload in payloads]
        if rules.since_offset or rules.is_salvaged or not pieces or None in pieces:
            return None
        found = [piece for piece in pieces if piece is not None]
        first = reached = found[0][0]
        for index, units in found:
            if index != reached:
                return None
            reached += len(units)
        # As bytes, because joining structured arrays would change the order of the bytes in their fields.
        joined = cls(first, np.concatenate([units.view(np.uint8) for _, units in found]).view(UNIT_DTYPE))
        fits = 0 <= first < reached <= index_limit(rules.queue_rules)
        return joined if fits and joined._is_ascending() else None

    def _is_ascending(self) -> bool:
        """Return whether each record begins at or after the end of the one before it."""
        starts = self.units["physical_offset"].astype(np.int64)
        sizes = self.units["store_size"].astype(np.int64)
        return bool(starts[0] >= 0 and (sizes > 0).all() and (starts[1:] >= starts[:-1] + sizes[:-1]).all())

    def write(self, directory: Path, rules: QueueRules, file_system: FileSystem) -> None:
        """Write the files of the queue into a new directory; nothing is synced.

        A queue that begins amid a file has filler units before its first, as in a broker.
        """
        file_system.add_directories(directory)
        per_file = units_per_file(rules.consume_queue_file_size)
        size, blanks = per_file * CQ_STORE_UNIT_SIZE, self.first % per_file
        data = np.concatenate([part.view(np.uint8) for part in (pre_blank(blanks), self.units)]).data
        for begin in range(0, len(data), size):
            offset = (self.first - blanks) * CQ_STORE_UNIT_SIZE + begin
            file = file_system.open(directory / file_name_of(offset), create=True)
            try:
                file.grow(size)
                write_all(file, data[begin : begin + size], 0)
            finally:
                file.close()

    @property
    def stop(self) -> int:
        """The index after the last unit."""
        return self.first + len(self.units)

    def is_all_of(self, stored: StoredQueues, topic: str, queue_id: int, min_offset: int) -> bool:
        """Return whether a stored queue has these units, and no more that point at or after an offset of the log.

        False also if it is not known without comparing unit by unit: in a database, or with an extension.
        """
        if not stored.are_plain(topic):
            return False
        reached = self.first
        for units in stored.units(topic, queue_id):
            first = int(units.offsets[0])
            begin, end = (min(max(place - first, 0), len(units)) for place in (self.first, self.stop))
            outside = (units.chosen(slice(0, begin)), units.chosen(slice(end, None)))
            if any(len(live(each, min_offset).indexes) for each in outside):
                return False
            if begin < end:
                if first + begin != reached or not self._has(reached, units.stored[begin:end]):
                    return False
                reached = first + end
        return reached == self.stop

    def _has(self, index: int, units: UnitArray) -> bool:
        """Return whether these are the units from an index on."""
        own = self.units[index - self.first :][: len(units)]
        return np.array_equal(own.view(np.uint8), np.ascontiguousarray(units).view(np.uint8))

    def report(self, topic: str, queue_id: int) -> QueueReport:
        """Return the report of a writer of this queue."""
        return QueueReport(topic, queue_id, len(self.units), self.first, self.stop)

    def judgement(self, topic: str, queue_id: int) -> QueueJudgement:
        """Return the judgement on a stored queue that has just these units."""
        indexes = np.arange(self.first, self.stop)
        reaches = int(self.units["physical_offset"][-1])
        return QueueJudgement(topic, queue_id, (), (), -1, reaches, digest_of(indexes, self._columns()))

    def _columns(self) -> Iterator[Compared]:
        for begin in range(0, len(self.units), _DIGESTED_AT_ONCE):
            yield plain_columns(self.units[begin : begin + _DIGESTED_AT_ONCE])
