# SPDX-License-Identifier: Apache-2.0
"""Records of a segment that a look-up picked, and what their units say about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow.compute as pc

from store_core.format.columnar.arrow_slices import packed_items, take_rows, true_mask
from store_core.format.columnar.records import Records
from store_core.format.columnar.spans import Heads, sound_leads
from store_core.format.layout import MIN_RECORD_SIZE, MagicCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    import numpy.typing as npt

    from store_core.files.segment_source import Segment

__all__ = ["NO_QUEUE", "Picks"]

NO_QUEUE: Final = -1
"""Stands for the queue of a record that was found in the log itself."""

_MAGICS: Final = (MagicCode.MESSAGE_V1, MagicCode.MESSAGE_V2)


@dataclass(frozen=True, slots=True, eq=False)
class Picks:
    """Records to read, in log order.

    * `starts`, `sizes`: int64, shape (n,), n >= 1: physical offsets and bytes.
    """

    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    queue_numbers: npt.NDArray[np.int32]  # int32, shape (n,): positions in `queues`, or `NO_QUEUE`
    queue_offsets: npt.NDArray[np.int64]  # int64, shape (n,): the places in their queues
    queues: tuple[tuple[str, int], ...] = ()  # topics and queue ids

    @classmethod
    def joined(cls, pieces: Sequence[Self], queues: tuple[tuple[str, int], ...]) -> Self:
        """Return the records of several, in log order; `queues` are those that all their numbers mean."""
        starts, sizes = (np.concatenate([getattr(each, name) for each in pieces]) for name in ("starts", "sizes"))
        numbers = np.concatenate([each.queue_numbers for each in pieces])
        offsets = np.concatenate([each.queue_offsets for each in pieces])
        return cls(starts, sizes, numbers, offsets, queues).take(np.argsort(starts, kind="stable"))

    def take(self, rows: slice | npt.NDArray[np.intp]) -> Self:
        """Return some of the records."""
        starts, sizes = self.starts[rows], self.sizes[rows]
        return type(self)(starts, sizes, self.queue_numbers[rows], self.queue_offsets[rows], self.queues)

    def __len__(self) -> int:
        """Return the number of records."""
        return self.starts.size

    @property
    def size(self) -> int:
        """Bytes of the records."""
        return int(self.sizes.sum())

    def between(self, begin: int, end: int) -> Self | None:
        """Return the records that start in a range; None if there are none."""
        first, stop = np.searchsorted(self.starts, (begin, end)).tolist()
        if first >= stop:
            return None
        return self.take(slice(first, stop))

    def places(self, segment: Segment) -> list[tuple[int, int]]:
        """Return where the records are in a segment, with what precedes them in their frames: as positions in it."""
        begins = np.maximum(self.starts - segment.start_offset - segment.framing.lead, 0)
        ends = np.minimum(self.starts - segment.start_offset + self.sizes, segment.size)
        return [(begin, end) for begin, end in zip(begins.tolist(), ends.tolist(), strict=True) if begin < end]

    def windows(self, most: int, most_rows: int | None = None) -> Iterator[Self]:
        """Yield the records in parts of a number of bytes, or one record, and of a number of records."""
        ends = self.sizes.cumsum()
        rows = len(self) if most_rows is None else most_rows
        first = 0
        while first < len(self):
            before = int(ends[first - 1]) if first else 0
            stop = max(int(np.searchsorted(ends, before + most, "right")), first + 1)
            stop = min(stop, first + rows)
            yield self.take(slice(first, stop))
            first = stop

    def are_right(
        self, raw: npt.NDArray[np.uint8], segment: Segment, positions: npt.NDArray[np.int64] | None = None
    ) -> npt.NDArray[np.bool_]:
        """Return which records are sound and have the size, topic, queue and queue offset that their units say.

        * `raw`: uint8, shape (m,): the segment, up to where its records end.
        * `positions`: int64, shape (n,): where the records are in `raw`, if that is not the segment itself.
        """
        positions = self.starts - segment.start_offset if positions is None else positions
        lead = segment.framing.lead
        is_right = (positions >= lead) & (positions <= raw.size - np.maximum(self.sizes, MIN_RECORD_SIZE))
        rows = np.flatnonzero(is_right)
        heads = Heads(raw, positions[rows])
        is_record = np.isin(heads.leading("magic_code"), _MAGICS)
        rows = rows[is_record & (heads.leading("total_size") == self.sizes[rows])]
        records = Records(raw, positions[rows], "", (self.starts - positions)[rows])
        rows = rows[records.spans.sound]
        is_right[:] = False
        is_right[rows] = self._are_named(records.only(records.spans.sound), rows)
        if lead:
            is_right[rows] &= sound_leads(raw, positions[rows] - lead, (self.starts - positions)[rows])
        return is_right

    def _are_named(self, records: Records, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which sound records are in the place of the queue that their units are in."""
        numbers = self.queue_numbers[rows]
        is_queued = numbers != NO_QUEUE
        if not is_queued.any():
            return np.ones(rows.size, np.bool_)
        topics = packed_items([topic.encode("utf-8", "surrogateescape") for topic, _ in self.queues])
        queue_ids = np.array([queue_id for _, queue_id in self.queues], np.int64)
        is_one = len({topic for topic, _ in self.queues}) == 1
        expected = topics[0] if is_one else take_rows(topics, np.where(is_queued, numbers, 0))
        is_same = true_mask(pc.equal(records.packed_topics, expected))
        is_same &= records.heads.leading("queue_id") == queue_ids[numbers]
        is_same &= records.heads.leading("queue_offset") == self.queue_offsets[rows]
        is_same |= ~is_queued
        return is_same
