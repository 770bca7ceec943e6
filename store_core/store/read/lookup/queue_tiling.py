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
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.files.segment_source import open_segment
from store_core.format.columnar.chain import Place
from store_core.format.columnar.lockstep import scan
from store_core.format.columnar.records import Records
from store_core.format.layout import BLANK_SIZE
from store_core.format.record.framing import check_frame, frame_size
from store_core.format.record.scan import StopReason
from store_core.format.sys_flag import TRANSACTION_MASK, TransactionType
from store_core.store.memory import keep_freed_memory
from store_core.store.read.lookup.survey import Share, balance_of, survey_queue, units_in
from store_core.store.read.picks import NO_QUEUE, Picks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from store_core.files.segment_source import Segment
    from store_core.format.record.framing import Framing
    from store_core.store.read.lookup.costs import LookUpCosts
    from store_core.store.read.lookup.survey import IndexBounds, Span, Survey
    from store_core.store.read.lookup.unit_block import QueueUnits, UnitBlock

__all__ = ["THREADS", "PathEnd", "QueueTiling", "UnaccountedError", "ask_nothing", "known_end"]

THREADS: Final = 2
"""More than one processor helps, because numpy converts and adds without the interpreter's lock."""

_QUEUED: Final = [kind.value for kind in TransactionType if kind.is_queued]


class UnaccountedError(Exception):
    """The units of the queues do not account for the records of the log, so that the queues are not used."""


class PathEnd(NamedTuple):
    """Where a path of units ends: the physical offset after the last record, and that of the record."""

    offset: int
    last_start: int


class QueueTiling:
    """The units of all queues of a store, laid side by side.

    Parameters
    ----------
    queues : sequence of QueueUnits
    segments : sequence of Segment
        In order.
    ask : callable
        Returns which queue offsets of a queue are read, or None.
    costs : LookUpCosts
    most_asked : int
        Most records of a queue to keep.

    Attributes
    ----------
    segments : sequence of Segment
    surveys : list of Survey
        Of the queues that are trusted.
    notes : list of str
        Why others are not.
    """

    def __init__(
        self,
        queues: Sequence[QueueUnits],
        segments: Sequence[Segment],
        ask: Callable[[QueueUnits], IndexBounds | None],
        costs: LookUpCosts,
        most_asked: int,
    ) -> None:
        self.segments = segments
        self._costs = costs
        self._spans: list[Span] = [
            (segment.start_offset, segment.end_offset if after is None else min(segment.end_offset, after.start_offset))
            for segment, after in pairwise([*segments, None])
            if segment is not None
        ]
        keep_freed_memory()
        with ThreadPoolExecutor(THREADS) as pool:
            leads = [segment.framing.lead for segment in segments]
            read = partial(_survey, spans=self._spans, leads=leads, ask=ask, most_asked=most_asked)
            surveys = [survey for survey in pool.map(read, queues) if survey.count]
        self.notes: list[str] = []
        self.surveys = self._at_their_places(surveys)
        self._shares = [Share() for _ in segments]
        for survey in self.surveys:
            for number, share in survey.shares.items():
                self._shares[number].add(share)

    # ---------------------------------------------------------------------------------------- which queues are trusted

    def _at_their_places(self, surveys: list[Survey]) -> list[Survey]:
        """Return the queues whose first and last records are in the places that the units have in the queue.

        A queue in another's directory, and one whose units are shifted, is found out by this.
        """
        wrong = {number for edges in self._edges(surveys) for number in edges}
        for number in sorted(wrong):
            queue = surveys[number].queue
            self.notes.append(
                f"queue {queue.queue_id} of {queue.topic!r} is not used: its first or last unit is not that of a "
                f"record in this place of it"
            )
        return [survey for number, survey in enumerate(surveys) if number not in wrong]

    def _edges(self, surveys: list[Survey]) -> Iterator[list[int]]:
        """Yield, segment by segment, the numbers of queues whose first or last record is not what the unit says."""
        edges = [
            (*edge, number)
            for number, survey in enumerate(surveys)
            for edge in (survey.first, survey.last)
            if edge is not None
        ]
        table = np.array(sorted(edges), np.int64).reshape(-1, 4)
        names = tuple((survey.queue.topic, survey.queue.queue_id) for survey in surveys)
        picks = Picks(table[:, 0], table[:, 1], table[:, 3].astype(np.int32), table[:, 2], names)
        for segment, (begin, end) in zip(self.segments, self._spans, strict=True):
            part = picks.between(begin, end)
            if part is None:
                continue
            with open_segment(segment) as opened:
                is_right = part.are_right(opened.raw, segment)
            yield part.queue_numbers[~is_right].tolist()

    # -------------------------------------------------------------------------------------------------- what is covered

    @property
    def spans(self) -> tuple[Span, ...]:
        """Where each segment's records can start."""
        return tuple(self._spans)

    def path_end(self, segment: Segment) -> PathEnd | None:
        """Return where the units of a segment lead, if they are one path from its start; None if they are not."""
        if segment not in self.segments:
            return None
        number = self.segments.index(segment)
        share, begin = self._shares[number], self._spans[number][0]
        if share.last_end < 0:
            return None
        path = balance_of(np.array([begin], np.int64), np.array([share.last_end], np.int64))
        return PathEnd(share.last_end, share.last_start) if share.balance == path else None

    def starts_digest(self, segment: Segment) -> int:
        """Return the digest of where the records of all units of a segment start."""
        return self._shares[self.segments.index(segment)].starts

    def starts_in(self, segment: Segment, data_end: int) -> Iterator[npt.NDArray[np.int64]]:
        """Yield where the records of a segment's units start, up to where its records end, read again."""
        for block in self._blocks(self.segments.index(segment), data_end):
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
            holes = list(self._holes(segment, data_end))
        return self._in_holes(segment, [(begin, end) for begin, end in holes if begin < end])

    def _holes(self, segment: Segment, data_end: int | None) -> Iterator[Span]:
        """Yield the bytes before, between and after the frames of all units of a segment."""
        number = self.segments.index(segment)
        begin, end = self._spans[number]
        starts, ends = self._units_of(number, end if data_end is None else data_end)
        starts -= segment.framing.lead
        overlaps = np.flatnonzero(starts < np.append(begin, ends)[:-1])
        if overlaps.size:
            raise UnaccountedError(f"two units stand for the bytes at offset {starts[overlaps[0]]} of {segment.path}")
        edges = np.append(begin, ends), starts if data_end is None else np.append(starts, data_end)
        for hole in np.flatnonzero(edges[0][: edges[1].size] < edges[1]).tolist():
            yield int(edges[0][hole]), int(edges[1][hole])

    def _units_of(self, number: int, data_end: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return where the records of all units of a segment start and end, ascending."""
        pieces, count = [np.empty((2, 0), np.int64)], 0
        for part in self._blocks(number, data_end):
            pieces.append(np.stack([part.starts, part.ends]))
            count += part.starts.size
            if count > self._costs.most_units:
                raise UnaccountedError(f"more than {count:,} units would have to be sorted")
        starts, ends = np.concatenate(pieces, axis=1)
        order = np.argsort(starts)
        return starts[order], ends[order]

    def _blocks(self, number: int, data_end: int) -> Iterator[UnitBlock]:
        """Yield the units of a segment again, queue by queue."""
        begin, end = self._spans[number]
        for survey in self.surveys:
            share = survey.shares.get(number)
            for _, block in () if share is None else units_in(survey.queue, [(begin, end)]):
                part = block.between(begin, min(data_end, share.last_end if share else begin))
                if part is not None:
                    yield part

    def _in_holes(self, segment: Segment, holes: Sequence[Span]) -> Picks | None:
        """Read the records that units leave out."""
        size = sum(end - begin for begin, end in holes)
        if size > self._costs.most_gap:
            raise UnaccountedError(f"the queues have no units for {size:,} bytes of {segment.path}")
        pieces = []
        with open_segment(segment) as opened:
            first, framing = segment.start_offset, segment.framing
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
                    f"the record at offset {records.starts[row] + records.start_offset} is in place {offsets[row]} of "
                    f"queue {name[1]} of {name[0]!r}, where the queue's unit is that of another record"
                )


def ask_nothing(queue: QueueUnits) -> IndexBounds | None:
    """Ask for no record of a queue."""
    del queue
    return None


def known_end(tiling: QueueTiling, segment: Segment, *, verify_crc: bool) -> Place:
    """Return up to where the records of the log's last segment are known, and where the last of them starts.

    It is the segment's first byte if the units are not one path, and if the last of its records is not sound: a torn
    tail may begin before it.
    """
    path = tiling.path_end(segment)
    if path is None:
        return Place()
    first, framing = segment.start_offset, segment.framing
    last, stop = path.last_start - first - framing.lead, path.offset - first
    with open_segment(segment) as opened:
        check = check_frame(opened.raw.data, last, first, framing, verify_crc=verify_crc)
    is_sound = check.reason is None and check.size == stop - last
    return Place(stop, last) if is_sound else Place()


def _closes(raw: npt.NDArray[np.uint8], position: int, framing: Framing) -> bool:
    """Return whether a blank frame, as long as the rest of the file, closes a segment at a position."""
    if position + BLANK_SIZE > raw.size:
        return False
    is_blank = check_frame(raw.data, position, None, framing).reason is StopReason.END_OF_FILE
    return is_blank and frame_size(raw.data, position, framing) == raw.size - position


def _survey(
    queue: QueueUnits,
    spans: Sequence[Span],
    leads: Sequence[int],
    ask: Callable[[QueueUnits], IndexBounds | None],
    most_asked: int,
) -> Survey:
    return survey_queue(queue, spans, leads, ask(queue), most_asked)


def _picks(starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> Picks:
    """Return records that were found in the log itself."""
    return Picks(starts, sizes, np.full(starts.size, NO_QUEUE, np.int32), np.zeros(starts.size, np.int64))
