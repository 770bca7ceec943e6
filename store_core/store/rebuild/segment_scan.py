# SPDX-License-Identifier: Apache-2.0
"""Reading one segment of the log for units of queues and index entries, packed for transport.

Segments are read independently, in any order and by any process; `store_core.store.rebuild.files` combines the results
in log order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from store_core.files.segment_source import open_segment
from store_core.format.columnar.chain import Place
from store_core.format.columnar.faults import unexpandable
from store_core.format.columnar.records import Records
from store_core.format.damage.salvage import Damage, Salvage
from store_core.format.record.scan import StopReason
from store_core.format.sys_flag import MessageSysFlag
from store_core.queue.dispatch.dispatch_reader import DispatchReader
from store_core.queue.index.index_pieces import IndexEntries, pack_entries
from store_core.store.rebuild.index_compare import IndexDifferences
from store_core.store.rebuild.inferred_kinds import ToldKinds
from store_core.store.rebuild.lost_ranges import LostRanges
from store_core.store.rebuild.proof import count_unproven
from store_core.store.rebuild.salvaged_reader import SalvagedReader
from store_core.store.rebuild.segment_part import SegmentOutcome
from store_core.store.rebuild.segment_units import SegmentUnits

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from store_core.files.segment_source import SegmentBytes
    from store_core.queue.dispatch.dispatch_batch import DispatchBatch
    from store_core.store.rebuild.index_compare import IndexComparison
    from store_core.store.rebuild.rules import RebuildRules
    from store_core.store.rebuild.segment_part import SegmentPart
    from store_core.store.rebuild.segment_units import QueuePiece

__all__ = ["IndexPiece", "SegmentScan"]

_NOTHING: Final = bytes(8)


@dataclass(frozen=True, slots=True)
class IndexPiece:
    """Consecutive index entries, `packed` as `store_core.queue.index.index_pieces` defines."""

    packed: bytes


@dataclass(slots=True)
class SegmentScan:
    """Iterates over the pieces of a part of a segment: `QueuePiece`, in log order per queue, and `IndexPiece`.

    Attributes
    ----------
    comparison : IndexComparison, optional
        Gets the index entries, which are then not yielded.
    outcome : SegmentOutcome or None
        None until the iteration is complete.
    lost : LostRanges
        Ranges without a record; complete when the iteration is.
    """

    part: SegmentPart
    rules: RebuildRules
    comparison: IndexComparison | None = None
    outcome: SegmentOutcome | None = None
    lost: LostRanges = field(default_factory=LostRanges)
    _units: SegmentUnits = field(init=False)
    _kinds: ToldKinds = field(init=False)
    _unproven: int = 0
    _unexpandable: LostRanges = field(default_factory=LostRanges)

    def __post_init__(self) -> None:
        self._units = SegmentUnits(self.rules)
        self._kinds = ToldKinds(self.rules)

    def __iter__(self) -> Iterator[QueuePiece | IndexPiece]:
        with open_segment(self.part.segment) as opened:
            reader, rules = self._reader(opened), self.rules
            records = last_start = last_time = 0
            for batch in reader:
                records += len(batch)
                last_start, last_time = int(batch.starts[-1]), int(batch.store_timestamp[-1])
                if rules.is_proven and not rules.is_salvaged:
                    first = self.part.segment.start_offset
                    self._unproven += count_unproven(opened.raw, first, batch, rules.queue_rules)
                if rules.is_proven and rules.check_crc:
                    self._note_bodies(opened.raw, batch)
                yield from self._pieces(batch)
            yield from self._units.rest()
            end = self._end(reader, opened.raw)
            is_cut = end.is_damaged and not rules.is_salvaged
            left_out = self._note_lost(opened, reader, last_start if records else -1) if is_cut else 0
            self.outcome = self._outcome(end, records, last_time, left_out)

    def _reader(self, opened: SegmentBytes) -> DispatchReader | SalvagedReader:
        raw, first, rules = opened.raw, self.part.segment.start_offset, self.rules
        if not rules.is_salvaged:
            return DispatchReader(
                raw, first, self.part.begin, rules.queue_rules,
                check_crc=rules.check_crc, read_body=rules.check_crc, limit=self.part.end,
            )  # fmt: skip
        view = self.part.segment.view(opened).up_to(self.part.end)
        reader = SalvagedReader(
            view, rules.queue_rules,
            check_crc=rules.check_crc, is_last=self.part.is_last, is_proven=rules.is_proven,
        )  # fmt: skip
        self.lost = reader.lost
        return reader

    def _note_bodies(self, raw: npt.NDArray[np.uint8], batch: DispatchBatch) -> None:
        """Note the compressed bodies that no consumer can expand."""
        segment = self.part.segment
        packed = batch.starts[(batch.sys_flag & MessageSysFlag.COMPRESSED_FLAG) != 0]
        records = Records(raw, packed, segment.name, segment.start_offset)
        for fault in unexpandable(records.only(records.spans.sound)) if packed.size else ():
            begin, error = segment.start_offset + fault.position, fault.error
            reason = f"{error.problem}: expected {error.expected}, found {error.found}"
            self._unexpandable.add(begin, begin + fault.size, reason)

    def _note_lost(self, opened: SegmentBytes, reader: DispatchReader | SalvagedReader, last_sound: int) -> int:
        """Note ranges without a record after reading ended; return how many sound records follow and are left out.

        A sound record at which a broker ends the log is also noted as a lost range.
        """
        first, left_out = self.part.segment.start_offset, 0
        salvage = Salvage(self.part.segment.view(opened), only_newer=True)
        for found in salvage.parts(Place(reader.position, last_sound)):
            if isinstance(found, Damage):
                reason = (found.check.reason or StopReason.BAD_MAGIC).value
                self.lost.add(first + found.begin, first + found.end, reason)
                continue
            is_refused = int(found.starts[0]) == reader.position
            if is_refused:
                stop = int(found.starts[1]) if found.starts.size > 1 else found.stop
                why = f"a broker of release {self.rules.queue_rules.release} considers the record damaged"
                self.lost.add(first + reader.position, first + stop, why)
            left_out += found.starts.size - is_refused
        return left_out

    def _pieces(self, batch: DispatchBatch) -> Iterator[QueuePiece | IndexPiece]:
        if self.comparison is not None:
            self.comparison.add(batch)
        elif self.rules.has_index and batch.physical_offset[-1] >= self.rules.index_since_offset:
            keys = batch.index_hashes(with_tags=self.rules.queue_rules.features.indexes_tags)
            entries = IndexEntries(batch.physical_offset, batch.store_timestamp, keys.rows, keys.hashes)
            yield IndexPiece(pack_entries(entries))
        if self.rules.has_queues:
            self._kinds.look_at(batch)
            yield from self._units.add(batch)

    def _end(self, reader: DispatchReader | SalvagedReader, raw: npt.NDArray[np.uint8]) -> _End:
        head = raw[reader.position : reader.position + len(_NOTHING)].tobytes()
        is_unwritten = head == _NOTHING[: len(head)]
        if isinstance(reader, DispatchReader):
            is_continued = reader.end.is_blank
            size = int.from_bytes(head[: len(head) // 2], signed=True)
            self._unproven += self.rules.is_proven and is_continued and size != raw.size - reader.position
            return _End(reader.position, is_continued, is_unwritten and not is_continued, reader.is_at_limit)
        is_inside = not self.part.is_last  # the walk has reported all damage up to the next segment
        return _End(reader.position, reader.is_continued, is_unwritten or is_inside, is_at_limit=False)

    def _outcome(self, end: _End, records: int, last_time: int, left_out: int) -> SegmentOutcome:
        end_offset = self.part.segment.start_offset + end.position
        index = self.comparison.finish(end_offset, self.lost) if self.comparison is not None else IndexDifferences()
        return SegmentOutcome(
            self.part.segment.path,
            self.part.segment.start_offset + self.part.begin,
            end_offset,
            records,
            end.is_continued,
            end.is_unwritten,
            last_time,
            end.is_at_limit,
            self._units.refused_count,
            tuple(self._units.refused),
            index.missing,
            index.extra,
            self._kinds.light_record,
            tuple(sorted(self._kinds.batch_topics)),
            tuple(sorted(self._units.passed_over)),
            self.lost.count,
            self.lost.size,
            tuple(self.lost.first),
            left_out,
            index.repeated,
            index.lost,
            index.unread,
            index.wrong_hash,
            index.first,
            self._unproven,
            index.has_tags,
            index.untagged,
            index.untagged_first,
            self._kinds.light,
            self._unexpandable.count,
            tuple(self._unexpandable.first),
        )


class _End(NamedTuple):
    """How the reading of a part ended, see `SegmentOutcome`."""

    position: int
    is_continued: bool
    is_unwritten: bool
    is_at_limit: bool

    @property
    def is_damaged(self) -> bool:
        return not any(self[1:])
