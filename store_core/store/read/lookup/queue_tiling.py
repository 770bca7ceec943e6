# SPDX-License-Identifier: Apache-2.0
"""The proof that a store's queues, all together, account for every record of a segment; see ADR 0019.

A unit is an edge from where its record's frame starts, which is the record itself or its DLedger entry, to where it
ends. If the edges of all queues form one path from a
segment's start to where its records end, every record on the way is in exactly one queue, and the units of the queues
that are not asked for need no look at their records. The path is there if and only if every position, except the first
and the last, is as often the start of an edge as the end of one: that is one sum per segment, without sorting.

Where the sum does not come out, the units of that segment are sorted, and what they leave out is read in the log:
records in no queue, such as rolled-back ones, and those that are not dispatched yet.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.format.columnar.lockstep import scan
from store_core.format.columnar.records import Records
from store_core.format.layout import BLANK_SIZE
from store_core.format.record.framing import check_frame, frame_size
from store_core.format.record.scan import StopReason
from store_core.format.sys_flag import TRANSACTION_MASK, TransactionType
from store_core.store.memory import keep_freed_memory
from store_core.store.read.lookup.opened_segments import OpenedSegments, threads_for
from store_core.store.read.lookup.survey import (
    LogSpans,
    Share,
    TilingSummary,
    balance_of,
    in_segments,
    recalled_survey,
    survey_queue,
)
from store_core.store.read.picks import NO_QUEUE, Picks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from store_core.files.segment_source import Segment
    from store_core.format.record.framing import Framing
    from store_core.store.read.lookup.costs import LookUpCosts
    from store_core.store.read.lookup.proofs import ProofsOfStore
    from store_core.store.read.lookup.store_queues import StoreQueues
    from store_core.store.read.lookup.survey import IndexBounds, Span, Survey
    from store_core.store.read.lookup.unit_block import QueueUnits, UnitBlock

__all__ = ["PathEnd", "QueueTiling", "UnaccountedError", "ask_nothing", "whole_tiling"]

_PIECES: Final = 64
"""Into how many pieces queues are divided among threads."""

_SHARE_SIZE: Final = 1 << 10
"""Bytes of memory that what a queue says about a segment takes, about, with its place in a table."""

_TEXT_SIZE: Final = 64
"""Bytes of memory that a text takes besides its characters, about."""

_BEYOND: Final = 4 << 10
"""Bytes after a range whose records are walked that may be looked at: a blank record, or a record's head."""

_QUEUED: Final = [kind.value for kind in TransactionType if kind.is_queued]


class UnaccountedError(Exception):
    """The units of the queues do not account for the records of the log, so that the queues are not used."""


class PathEnd(NamedTuple):
    """Where a path of units ends: the physical offset after the last record, and that of the record."""

    offset: int
    last_start: int


class QueueTiling:
    """The units of all queues of a store, laid side by side; they are read, or recalled, when something needs them.

    Parameters
    ----------
    queues : callable
        Returns the queues, a sequence of QueueUnits.
    segments : sequence of Segment
        In order.
    ask : callable
        Returns which queue offsets of a queue are read, or None.
    costs : LookUpCosts
    proofs : ProofsOfStore
        What is known of their files.
    most_asked : int
        Most records of a queue to keep.

    Attributes
    ----------
    segments : sequence of Segment
    proofs : ProofsOfStore
    opened : OpenedSegments
        What was opened of them.
    """

    def __init__(  # noqa: PLR0913 -- the queues, the log, what is asked of them, and what is known
        self,
        queues: Callable[[], Sequence[QueueUnits]],
        segments: Sequence[Segment],
        ask: Callable[[QueueUnits], IndexBounds | None],
        costs: LookUpCosts,
        proofs: ProofsOfStore,
        most_asked: int = 0,
    ) -> None:
        self.segments = segments
        self.proofs = proofs
        self.opened = OpenedSegments()
        self._costs = costs
        self._spans: list[Span] = [
            (segment.start_offset, segment.end_offset if after is None else min(segment.end_offset, after.start_offset))
            for segment, after in pairwise([*segments, None])
            if segment is not None
        ]
        self._queues, self._ask, self._most_asked = queues, ask, most_asked

    # ------------------------------------------------------------------------------------------------ what is in queues

    @cached_property
    def _read(self) -> list[Survey]:
        """All queues that have units."""
        log = LogSpans(self.spans, tuple(segment.framing.lead for segment in self.segments))
        read = partial(survey_queue, log=log, proofs=self.proofs, most_asked=self._most_asked)
        recall = partial(recalled_survey, log=log, proofs=self.proofs)
        asked = [(queue, self._ask(queue)) for queue in self._queues()]
        return [survey for survey in _surveys(asked, read, recall, threads_for(self.segments)) if survey.count]

    @cached_property
    def surveys(self) -> list[Survey]:
        """Those that are trusted."""
        return [survey for number, survey in enumerate(self._read) if number not in self._wrong]

    @cached_property
    def _shares(self) -> dict[Span, Share]:
        """What all of these say about each segment."""
        shares = {span: Share() for span in self._spans}
        for survey in self.surveys:
            for span, share in survey.shares.items():
                shares[span].add(share)
        return shares

    # ---------------------------------------------------------------------------------------- which queues are trusted

    @cached_property
    def _wrong(self) -> list[int]:
        """The numbers of queues whose first and last records are not in the places that the units have in the queue.

        A queue in another's directory, and one whose units are shifted, is found out by this.
        """
        return self.proofs.fact(("wrong queues", *self.extent), self._wrong_queues)

    @property
    def notes(self) -> list[str]:
        """Why queues are not trusted."""
        queues = (self._read[number].queue for number in self._wrong)
        return [
            f"queue {queue.queue_id} of {queue.topic!r} is not used: its first or last unit is not that of a record in "
            f"this place of it"
            for queue in queues
        ]

    def _wrong_queues(self) -> list[int]:
        return sorted({number for edges in self._edges() for number in edges})

    def _edges(self) -> Iterator[list[int]]:
        """Yield, segment by segment, the numbers of queues whose first or last record is not what the unit says."""
        edges = [
            (*edge, number)
            for number, survey in enumerate(self._read)
            for edge in (survey.first, survey.last)
            if edge is not None
        ]
        table = np.array(sorted(edges), np.int64).reshape(-1, 4)
        names = tuple((survey.queue.topic, survey.queue.queue_id) for survey in self._read)
        picks = Picks(table[:, 0], table[:, 1], table[:, 3].astype(np.int32), table[:, 2], names)
        for segment, (begin, end) in zip(self.segments, self._spans, strict=True):
            part = picks.between(begin, end)
            if part is None:
                continue
            with self.opened.opened(segment) as opened:
                opened.load_many(part.places(segment))
                is_right = part.are_right(opened.raw, segment)
            yield part.queue_numbers[~is_right].tolist()

    # -------------------------------------------------------------------------------------------------- what is covered

    @property
    def extent(self) -> tuple[int, int]:
        """Which segments it is about: the first offset of the log that it knows, and how many there are."""
        return self.segments[0].start_offset, len(self.segments)

    @property
    def units(self) -> int:
        """Number of units that were read."""
        return sum(survey.count for survey in self.surveys)

    def summary(self) -> TilingSummary:
        """Return what is worth knowing of the queues when all else is known."""
        topics = {survey.queue.topic: None for survey in self.surveys}
        return TilingSummary(
            self.units, sum(len(survey.shares) + 1 for survey in self.surveys), list(topics), self.notes
        )

    @property
    def spans(self) -> tuple[Span, ...]:
        """Where each segment's records can start."""
        return tuple(self._spans)

    def span_of(self, segment: Segment) -> Span:
        """Return where a segment's records can start."""
        return self._spans[self.segments.index(segment)]

    def path_end(self, segment: Segment) -> PathEnd | None:
        """Return where the units of a segment lead, if they are one path from its start; None if they are not."""
        if segment not in self.segments:
            return None
        span = self.span_of(segment)
        share = self._shares[span]
        if share.last_end < 0:
            return None
        path = balance_of(np.array([span[0]], np.int64), np.array([share.last_end], np.int64))
        return PathEnd(share.last_end, share.last_start) if share.balance == path else None

    def starts_digest(self, segment: Segment) -> int:
        """Return the digest of where the records of all units of a segment start."""
        return self._shares[self.span_of(segment)].starts

    def starts_in(self, segment: Segment, data_end: int) -> Iterator[npt.NDArray[np.int64]]:
        """Yield where the records of a segment's units start, up to where its records end, read again."""
        for block in self._blocks(self.span_of(segment), data_end):
            yield block.starts

    def unqueued(self, segment: Segment, data_end: int | None) -> Picks | None:
        """Return the records of a segment that are in no queue, None if there are none: all others have a unit.

        Parameters
        ----------
        segment : Segment
        data_end : int or None
            Physical offset at which its records end; later units are ignored. None if that is not known: what follows
            the last unit is not looked at then.

        Raises
        ------
        UnaccountedError
            If the units do not account for the records, or contradict them.
        """
        path = self.path_end(segment)
        if path is not None and (data_end is None or path.offset <= data_end):
            holes = [] if data_end is None else [(path.offset, data_end)]
        else:
            holes = self._known_holes(segment, data_end)
        return self._in_holes(segment, [(begin, end) for begin, end in holes if begin < end])

    def _known_holes(self, segment: Segment, data_end: int | None) -> list[Span]:
        """Return `_holes`, which follow from where all units start and end."""
        span = self.span_of(segment)
        share = self._shares[span]
        sums = "holes", span, data_end, segment.framing.lead, share.balance, share.starts, share.last_end
        found = self.proofs.following(
            sums, lambda: np.array([*self._holes(segment, data_end)], np.int64).reshape(-1, 2)
        )
        return [] if found is None else [(begin, end) for begin, end in found.tolist()]

    def _holes(self, segment: Segment, data_end: int | None) -> Iterator[Span]:
        """Yield the bytes before, between and after the frames of all units of a segment."""
        begin, end = span = self.span_of(segment)
        starts, ends = self._units_of(span, end if data_end is None else data_end)
        starts -= segment.framing.lead
        overlaps = np.flatnonzero(starts < np.append(begin, ends)[:-1])
        if overlaps.size:
            raise UnaccountedError(f"two units stand for the bytes at offset {starts[overlaps[0]]} of {segment.path}")
        edges = np.append(begin, ends), starts if data_end is None else np.append(starts, data_end)
        for hole in np.flatnonzero(edges[0][: edges[1].size] < edges[1]).tolist():
            yield int(edges[0][hole]), int(edges[1][hole])

    def _units_of(self, span: Span, data_end: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return where the records of all units of a segment start and end, ascending."""
        pieces, count = [np.empty((2, 0), np.int64)], 0
        for part in self._blocks(span, data_end):
            pieces.append(np.stack([part.starts, part.ends]))
            count += part.starts.size
            if count > self._costs.most_units:
                raise UnaccountedError(f"more than {count:,} units would have to be sorted")
        starts, ends = np.concatenate(pieces, axis=1)
        order = np.argsort(starts)
        return starts[order], ends[order]

    def _blocks(self, span: Span, data_end: int) -> Iterator[UnitBlock]:
        """Yield the units of a segment again, queue by queue."""
        for survey in self.surveys:
            share = survey.shares.get(span)
            for block in () if share is None else survey.queue.blocks(*span):
                parts, is_cut = in_segments(block, [span])
                known = (part.between(span[0], min(data_end, share.last_end if share else 0)) for _, part in parts)
                yield from (part for part in known if part is not None)
                if is_cut:
                    break

    def _in_holes(self, segment: Segment, holes: Sequence[Span]) -> Picks | None:
        """Read the records that units leave out."""
        size = sum(end - begin for begin, end in holes)
        if size > self._costs.most_gap:
            raise UnaccountedError(f"the queues have no units for {size:,} bytes of {segment.path}")
        pieces = []
        with self.opened.opened(segment) as opened:
            first, framing = segment.start_offset, segment.framing
            opened.load_many([(begin - first, end - first + _BEYOND) for begin, end in holes])
            for begin, end in holes:
                found = scan(opened.raw, begin - first, end - first, first, framing)
                is_closed = end == segment.end_offset and _closes(opened.raw, found.stop, framing)
                if found.stop != end - first and not is_closed:
                    raise UnaccountedError(
                        f"{segment.path} is damaged at offset {found.stop + first}, beside the units"
                    )
                starts = found.starts + framing.lead
                self._check(Records(opened.raw, starts, segment.name, first))
                stops = np.append(found.starts[1:], found.stop)
                pieces.append(_picks(starts + first, stops - starts))
        return Picks.joined(pieces, ()) if pieces else None

    def _check(self, records: Records) -> None:
        """Check that no queue has a unit in the place of a record that units left out."""
        by_name = {(survey.queue.topic, survey.queue.queue_id): survey for survey in self.surveys}
        heads = records.heads
        is_queued = np.isin(heads.leading("sys_flag") & TRANSACTION_MASK, _QUEUED)
        topics = records.packed_topics.to_pylist()
        queue_ids, offsets = heads.leading("queue_id").tolist(), heads.leading("queue_offset").tolist()
        for row in np.flatnonzero(is_queued).tolist():
            name = topics[row].decode("utf-8", "surrogateescape"), queue_ids[row]
            survey = by_name.get(name)
            if survey is not None and survey.stands_for(offsets[row]):
                raise UnaccountedError(
                    f"the record at offset {records.offset(row)} is in place {offsets[row]} of "
                    f"queue {name[1]} of {name[0]!r}, where the queue's unit is that of another record"
                )


def ask_nothing(queue: QueueUnits) -> IndexBounds | None:
    """Ask for no record of a queue."""
    del queue
    return None


def whole_tiling(
    found: StoreQueues, segments: Sequence[Segment], costs: LookUpCosts, proofs: ProofsOfStore
) -> tuple[QueueTiling, TilingSummary]:
    """Lay side by side the units of all queues, none of which is asked for, or return what is known of that."""
    tiling = QueueTiling(found.listed, segments, ask_nothing, costs, proofs)
    if not found.are_files:
        return tiling, tiling.summary()
    summary = proofs.fact(("tiling summary", *tiling.extent), tiling.summary, _weight)
    name = "tiling", *tiling.extent, *costs.values, segments[0].is_mapped  # which it opens
    return proofs.fact(name, lambda: tiling, lambda _: _SHARE_SIZE * summary.shares), summary


def _weight(summary: TilingSummary) -> int:
    return sum(_TEXT_SIZE + len(text) for text in (*summary.topics, *summary.notes))


def _closes(raw: npt.NDArray[np.uint8], position: int, framing: Framing) -> bool:
    """Return whether a blank frame, as long as the rest of the file, closes a segment at a position."""
    if position + BLANK_SIZE > raw.size:
        return False
    is_blank = check_frame(raw.data, position, None, framing).reason is StopReason.END_OF_FILE
    return is_blank and frame_size(raw.data, position, framing) == raw.size - position


def _surveys(
    asked: Sequence[tuple[QueueUnits, IndexBounds | None]],
    read: Callable[[QueueUnits, IndexBounds | None], Survey],
    recall: Callable[[QueueUnits], Survey | None],
    threads: int,
) -> list[Survey]:
    """Read the queues that are asked for or not known; threads get many at a time, since most queues are small."""
    found = [None if bounds is not None else recall(queue) for queue, bounds in asked]
    rest = [at for at, survey in enumerate(found) if survey is None]
    if rest:
        keep_freed_memory()
        size = -(-len(rest) // _PIECES)
        pieces = [rest[at : at + size] for at in range(0, len(rest), size)]
        with ThreadPoolExecutor(threads) as pool:
            parts = pool.map(lambda piece: [read(*asked[at]) for at in piece], pieces)
            for at, survey in zip(rest, chain.from_iterable(parts), strict=True):
                found[at] = survey
    return [survey for survey in found if survey is not None]


def _picks(starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> Picks:
    """Return records that were found in the log itself."""
    return Picks(starts, sizes, np.full(starts.size, NO_QUEUE, np.int32), np.zeros(starts.size, np.int64))
