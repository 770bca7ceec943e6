# SPDX-License-Identifier: Apache-2.0
"""Records of a segment that a look-up picked, and what their units say about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import pyarrow.compute as pc

from store_core.errors import CorruptRecordError
from store_core.files.segment_source import Segment, SegmentBytes, open_segment
from store_core.format.columnar.arrow_slices import packed_items, take_rows, true_mask
from store_core.format.columnar.records import Records
from store_core.format.columnar.spans import Heads, sound_leads
from store_core.format.layout import MIN_RECORD_SIZE, MagicCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt


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
    def of(
        cls,
        starts: npt.ArrayLike,
        sizes: npt.ArrayLike,
        queue_offsets: npt.ArrayLike | None = None,
        queue: tuple[str, int] | None = None,
    ) -> Self:
        """Return records of one queue, or some that were found in the log itself."""
        starts, sizes = np.asarray(starts, np.int64), np.asarray(sizes, np.int64)
        numbers = np.full(starts.size, NO_QUEUE if queue is None else 0, np.int32)
        offsets = np.zeros(starts.size, np.int64) if queue_offsets is None else np.asarray(queue_offsets, np.int64)
        return cls(starts, sizes, numbers, offsets, () if queue is None else (queue,))

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

    def inside(self, segment: Segment) -> Self:
        """Return those that can be records of a segment, by their places and sizes."""
        is_inside = (self.starts >= segment.start_offset + segment.framing.lead) & (self.sizes >= MIN_RECORD_SIZE)
        return self.take(np.flatnonzero(is_inside & (self.starts + self.sizes <= segment.end_offset)))

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
        self, raw: npt.NDArray[np.uint8], segment: Segment, positions: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Return which records are sound and have the size, topic, queue and queue offset that their units say.

        * `raw`: uint8, shape (m,): bytes of the segment.
        * `positions`: int64, shape (n,): where the records are in `raw`.
        """
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


_AT_ONCE: Final = 8 << 20
"""Bytes of records that are read, checked and decoded at once."""

_MOST_KEPT: Final = 64 << 20
"""Bytes of records up to which what was read to check them stays for those who decode them."""


@dataclass(frozen=True, slots=True, eq=False)
class PickWindow:
    """Some of the records, and their bytes."""

    picks: Picks
    segment: Segment
    raw: npt.NDArray[np.uint8]  # uint8, shape (m,): the records one after another, with what precedes each in its frame
    positions: npt.NDArray[np.int64]  # int64, shape (n,), ascending: where the records are in `raw`

    def are_right(self) -> npt.NDArray[np.bool_]:
        """Return which records are what their units say, as of `Picks.are_right`."""
        return self.picks.are_right(self.raw, self.segment, self.positions)

    def first_wrong(self) -> int | None:
        """Return the physical offset of the first record that is not what its unit says; None if all are."""
        is_right = self.are_right()
        return None if is_right.all() else int(self.picks.starts[int(is_right.argmin())])


class PickWindows:
    """The picked records of one segment, which is opened.

    * `data_end`: Physical offset at which its records end.
    * `most_rows`: Records of a window.
    * `opened`: Of a segment on another machine: what planning has read of it is there without a request.
    """

    def __init__(
        self,
        picks: Picks,
        segment: Segment,
        data_end: int,
        most_rows: int | None = None,
        opened: SegmentBytes | None = None,
    ) -> None:
        self._segment = segment
        self._end = data_end
        self._parts = list(picks.windows(_AT_ONCE, most_rows))
        self._kept: list[PickWindow] = []
        self._opened = open_segment(segment) if opened is None else opened

    def check(self) -> int | None:
        """Return the physical offset of the first record that is not what its unit says; None if all are.

        What was read stays for `checked`, as far as it is not too much.
        """
        room = _MOST_KEPT
        for part in self._parts:
            wrong = self._first_outside(part)
            if wrong is not None:
                return wrong
            window = self._read(part)
            wrong = window.first_wrong()
            if wrong is not None:
                return wrong
            room -= part.size
            if room >= 0:
                self._kept.append(window)
        return None

    def checked(self) -> Iterator[PickWindow]:
        """Yield the windows, after `check` has found nothing wrong, as it has seen them."""
        count = len(self._kept)
        while self._kept:
            yield self._kept.pop(0)
        for part in self._parts[count:]:
            window = self._read(part)
            wrong = window.first_wrong()
            if wrong is not None:
                raise self._changed(wrong)
            yield window

    def right(self) -> Iterator[Picks]:
        """Yield the records that are what their units say."""
        for part in self._parts:
            yield part.take(np.flatnonzero(self._read(part).are_right()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._opened.__exit__(*raised)

    def _first_outside(self, part: Picks) -> int | None:
        """Return the physical offset of the first record that does not lie within the records of the segment."""
        begins = part.starts - self._segment.framing.lead
        is_outside = (begins < self._segment.start_offset) | (part.starts + part.sizes > self._end)
        return int(part.starts[int(is_outside.argmax())]) if is_outside.any() else None

    def _read(self, part: Picks) -> PickWindow:
        """Read records with what precedes them in their frames."""
        lead = self._segment.framing.lead
        sizes = part.sizes + lead
        raw = self._opened.packed(part.starts - lead - self._segment.start_offset, sizes)
        return PickWindow(part, self._segment, raw, sizes.cumsum() - part.sizes)

    def _changed(self, offset: int) -> CorruptRecordError:
        return CorruptRecordError(
            "record changed while it was read",
            self._segment.path,
            offset,
            "the record that a queue's unit names, as it was when the read began",
            "another",
            advice="Another process writes to the file; read it again.",
        )
