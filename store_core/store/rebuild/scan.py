# SPDX-License-Identifier: Apache-2.0
"""One segment of the log, read for what is derived from it: units of queues and index entries, ready to be carried.

Segments are read by themselves, in any order and by any process; `store_core.store.rebuild.files` puts what comes of
them together in log order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from store_core.files.segment_source import open_segment
from store_core.queue.dispatch_reader import DispatchReader
from store_core.queue.index_pieces import IndexEntries, pack_entries
from store_core.store.rebuild.segment_part import SegmentOutcome
from store_core.store.rebuild.segment_units import PlainUnits, WholeUnits
from store_core.store.rebuild.told_kinds import ToldKinds

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from store_core.queue.dispatch_batch import DispatchBatch
    from store_core.store.rebuild.index_compare import IndexComparison
    from store_core.store.rebuild.rules import RebuildRules
    from store_core.store.rebuild.segment_part import SegmentPart
    from store_core.store.rebuild.segment_units import QueuePiece

__all__ = ["IndexPiece", "SegmentScan"]

_NOTHING: Final = bytes(8)


@dataclass(frozen=True, slots=True)
class IndexPiece:
    """Index entries that follow one another, `packed` as `store_core.queue.index_pieces` says."""

    packed: bytes


@dataclass(slots=True)
class SegmentScan:
    """Iterates over what comes of a part of a segment: `QueuePiece` and `IndexPiece`, each kind in log order by queue.

    Attributes
    ----------
    comparison : IndexComparison, optional
        Gets the index entries, which are not given then.
    outcome : SegmentOutcome or None
        None until the iteration is over.
    """

    part: SegmentPart
    rules: RebuildRules
    comparison: IndexComparison | None = None
    outcome: SegmentOutcome | None = None
    _units: PlainUnits | WholeUnits = field(init=False)
    _kinds: ToldKinds = field(init=False)

    def __post_init__(self) -> None:
        self._units = (PlainUnits if self.rules.is_plain else WholeUnits)(self.rules)
        self._kinds = ToldKinds(self.rules)

    def __iter__(self) -> Iterator[QueuePiece | IndexPiece]:
        segment, rules = self.part.segment, self.rules
        with open_segment(segment) as opened:
            raw = opened.raw
            reader = DispatchReader(
                raw, segment.start_offset, self.part.begin, rules.queue_rules,
                check_crc=rules.check_crc, read_body=rules.check_crc, limit=self.part.end,
            )  # fmt: skip
            records = last_time = 0
            for batch in reader:
                records += len(batch)
                last_time = int(batch.store_timestamp[-1])
                yield from self._pieces(batch)
            yield from self._units.rest()
            self.outcome = self._outcome(raw, reader, records, last_time)

    def _pieces(self, batch: DispatchBatch) -> Iterator[QueuePiece | IndexPiece]:
        if self.comparison is not None:
            self.comparison.add(batch)
        elif self.rules.has_index and batch.physical_offset[-1] >= self.rules.index_since_offset:
            keys = batch.index_hashes()
            entries = IndexEntries(batch.physical_offset, batch.store_timestamp, keys.rows, keys.hashes)
            yield IndexPiece(pack_entries(entries))
        if self.rules.has_queues:
            self._kinds.look_at(batch)
            yield from self._units.add(batch)

    def _outcome(
        self, raw: npt.NDArray[np.uint8], reader: DispatchReader, records: int, last_time: int
    ) -> SegmentOutcome:
        head = raw[reader.position : reader.position + len(_NOTHING)].tobytes()
        end_offset = self.part.segment.start_offset + reader.position
        missing, extra = self.comparison.finish(end_offset) if self.comparison is not None else (0, 0)
        return SegmentOutcome(
            self.part.segment.path,
            self.part.segment.start_offset + self.part.begin,
            end_offset,
            records,
            reader.end.is_blank,
            not reader.end.is_blank and head == _NOTHING[: len(head)],
            last_time,
            reader.is_at_limit,
            self._units.refused_count,
            tuple(self._units.refused),
            missing,
            extra,
            self._kinds.light_record,
            tuple(sorted(self._kinds.batch_topics)),
            tuple(sorted(self._units.passed_over)),
        )
