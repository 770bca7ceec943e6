# SPDX-License-Identifier: Apache-2.0
"""What the units of a queue contribute to the proof that all queues together account for a segment's records."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.store.read.lookup.unit_block import START
from store_core.store.read.picks import Picks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from store_core.store.read.lookup.proofs import ProofsOfStore
    from store_core.store.read.lookup.unit_block import Place, QueuePart, QueueUnits, UnitBlock, UnitReading

__all__ = [
    "FileSurvey",
    "IndexBounds",
    "LogSpans",
    "Share",
    "Span",
    "Survey",
    "TilingSummary",
    "balance_of",
    "digest",
    "digest_of_distinct",
    "in_segments",
    "mixed",
    "overlapping",
    "recalled_survey",
    "survey_queue",
]

_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)
_WORD: Final = 2**64
_BEGIN: Final = itemgetter(0)
_END: Final = itemgetter(1)

Span = tuple[int, int]
"""First physical offset of a segment, and one past the last that a record of it can have."""

IndexBounds = tuple[int, int]
"""Queue offsets that are read; the end is exclusive."""


def digest(offsets: npt.NDArray[np.int64]) -> int:
    """Return the sum of a mixing function of all numbers, modulo 2^64: equal for equal multisets, hardly for others.

    Sums of the numbers themselves would not do: two units that err in opposite directions would cancel out.
    """
    return int(np.add.reduce(mixed(offsets.view(np.uint64))))


def digest_of_distinct(offsets: npt.NDArray[np.int64]) -> int:
    """Return the digest of numbers that do not descend, each once."""
    words = mixed(offsets.view(np.uint64))
    np.putmask(words[1:], offsets[1:] == offsets[:-1], np.uint64(0))
    return int(np.add.reduce(words))


def mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return a number for each, which looks as if drawn by chance, and is always the same."""
    words = numbers * _MULTIPLIER
    words ^= words >> _HALF
    words *= words
    return words


def balance_of(starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> int:
    """Return the digest of where records end, less that of where they start, modulo 2^64."""
    return (digest(ends) - digest(starts)) % _WORD


@dataclass(slots=True)
class Share:
    """What a queue's units say about one segment.

    Attributes
    ----------
    balance : int
        Of the frames of their records, see `balance_of`.
    starts : int
        Digest of where their records start.
    last_start, last_end : int
        Physical offsets of the last record.
    """

    balance: int = 0
    starts: int = 0
    last_start: int = -1
    last_end: int = -1

    def add(self, other: Share) -> None:
        """Add what another queue says about the segment."""
        self.balance = (self.balance + other.balance) % _WORD
        self.starts = (self.starts + other.starts) % _WORD
        if other.last_end > self.last_end:
            self.last_start, self.last_end = other.last_start, other.last_end


@dataclass(frozen=True, slots=True)
class LogSpans:
    """The segments of a log.

    Attributes
    ----------
    spans : tuple of Span
        In order.
    leads : tuple of int
        Of each, the bytes of a frame before its record.
    """

    spans: tuple[Span, ...]
    leads: tuple[int, ...]

    @property
    def begin(self) -> int:
        """The log's first byte."""
        return self.spans[0][0]

    @property
    def end(self) -> int:
        """One past the last byte that a record can have."""
        return self.spans[-1][1]

    def of(self, begin: int, end: int) -> tuple[tuple[Span, int], ...]:
        """Return the segments that have bytes of a range, with their leads."""
        mine = _overlap(self.spans, begin, end)
        return tuple(zip(self.spans[mine], self.leads[mine], strict=True))


@dataclass(slots=True)
class FileSurvey:
    """What one file of a queue says.

    Attributes
    ----------
    before : Place
        Before its units.
    shares : dict of Span to Share
        By segment.
    first, last : tuple of (int, int, int) or None
        Physical offset, size and queue offset of the first and of the last record.
    last_index : int
        The highest queue offset that the units stand for.
    count : int
        Number of units.
    after : Place
        After its units.
    is_ended : bool
        Whether the queue's later files are not read.
    lowest : int
        Physical offset at which the first record of its units starts, in a segment or not.
    covered : tuple of (Span, int)
        The segments from there up to the last record's end, whether they have records of the queue or not.
    """

    before: Place
    shares: dict[Span, Share] = field(default_factory=dict)
    first: tuple[int, int, int] | None = None
    last: tuple[int, int, int] | None = None
    last_index: int = -1
    count: int = 0
    after: Place = START
    is_ended: bool = False
    lowest: int = 0
    covered: tuple[tuple[Span, int], ...] = ()

    def take(self, span: Span, lead: int, block: UnitBlock) -> None:
        """Add units of records in a segment, in order; a frame has `lead` bytes before its record."""
        starts = digest(block.starts)
        balance = (digest(block.ends) - (digest(block.starts - lead) if lead else starts)) % _WORD
        edges = [(int(block.starts[at]), int(block.ends[at])) for at in (0, -1)]
        self.shares.setdefault(span, Share()).add(Share(balance, starts, *edges[1]))
        sized = [(start, end - start) for start, end in edges]
        self.first = self.first or (*sized[0], block.first_index)
        self.last = *sized[1], block.index_at(block.starts.size - 1)
        self.last_index = block.last_index
        self.count += block.starts.size

    def holds_for(self, log: LogSpans, before: Place) -> bool:
        """Return whether the file says the same of another log, and after another file."""
        return self.before == before and self.covered == log.of(self.lowest, self.after[0])


@dataclass(slots=True)
class Survey:
    """A queue's units in the segments of a log.

    Attributes
    ----------
    queue : QueueUnits
    shares : dict of Span to Share
        By segment.
    first, last, last_index, count
        As of `FileSurvey`, of all files.
    most_asked : int
        How many units to keep at most of those that are asked for.
    asked : list of UnitBlock
        Units of records that are read.
    """

    queue: QueueUnits
    most_asked: int = 0
    shares: dict[Span, Share] = field(default_factory=dict)
    first: tuple[int, int, int] | None = None
    last: tuple[int, int, int] | None = None
    last_index: int = -1
    count: int = 0
    asked: list[UnitBlock] = field(default_factory=list)

    def stands_for(self, queue_offset: int) -> bool:
        """Return whether a unit stands for a queue offset, so that no other record can be in that place."""
        return self.first is not None and self.first[2] <= queue_offset <= self.last_index

    def add(self, part: FileSurvey) -> None:
        """Add what the queue's next file says."""
        for span, share in part.shares.items():
            self.shares.setdefault(span, Share()).add(share)
        if part.count:
            self.first, self.last, self.last_index = self.first or part.first, part.last, part.last_index
        self.count += part.count

    def ask(self, bounds: IndexBounds, block: UnitBlock) -> None:
        """Keep those of the units that are asked for, unless there are too many already."""
        part = block.within(*bounds)
        if part is not None and sum(each.starts.size for each in self.asked) <= self.most_asked:
            self.asked.append(part)

    def picks(self, number: int) -> Iterator[Picks]:
        """Yield the records that are read, as of the queue of a number."""
        for block in self.asked:
            numbers = np.full(block.starts.size, number, np.int32)
            yield Picks(block.starts, block.ends - block.starts, numbers, block.indexes)


class TilingSummary(NamedTuple):
    """What a look-up reports of the queues, and takes from them, where all else that follows from them is known.

    Attributes
    ----------
    units : int
        Number of units.
    shares : int
        How many shares of segments the queues have, and queues.
    topics : list of str
        Of the queues that are trusted, each once.
    notes : list of str
        Why others are not.
    """

    units: int
    shares: int
    topics: list[str]
    notes: list[str]


def overlapping(spans: Sequence[Span], begin: int, end: int) -> tuple[Span, ...]:
    """Return the segments that have bytes of a range of the log."""
    return tuple(spans[_overlap(spans, begin, end)])


def _overlap(spans: Sequence[Span], begin: int, end: int) -> slice:
    return slice(bisect_right(spans, begin, key=_END), bisect_left(spans, end, key=_BEGIN))


def recalled_survey(queue: QueueUnits, log: LogSpans, proofs: ProofsOfStore) -> Survey | None:
    """Return what is known of a queue's units, without reading them; None if that is not all."""
    survey, place = Survey(queue), START
    for part in queue.parts(log.begin):
        known = _recalled(part, place, log, proofs)
        if known is None:
            return None
        survey.add(known)
        place = known.after
        if known.is_ended:
            break
    return survey


def _recalled(part: QueuePart, place: Place, log: LogSpans, proofs: ProofsOfStore) -> FileSurvey | None:
    if part.state is None:
        return None
    known = proofs.recall(FileSurvey, (part.path, log.begin), part.state, is_last=part.is_last)
    return known if known is not None and known.holds_for(log, place) else None


def survey_queue(
    queue: QueueUnits, asked: IndexBounds | None, log: LogSpans, proofs: ProofsOfStore, most_asked: int
) -> Survey:
    """Read a queue's units.

    Parameters
    ----------
    queue : QueueUnits
    asked : IndexBounds or None
        Units to keep; None for none.
    log : LogSpans
    proofs : ProofsOfStore
        What is known of files, so that these need not be read again if no unit of theirs is asked for.
    most_asked : int
        How many units to keep at most, so that memory is bounded: an answer that is larger is not worth it.

    Raises
    ------
    OSError, CorruptDatabaseError
        As of `QueueUnits.blocks`.
    """
    survey, place = Survey(queue, most_asked=most_asked), START
    for part in queue.parts(log.begin):
        recalled = _recalled(part, place, log, proofs)
        known = recalled if asked is None else None
        if known is None:
            units = part.open(place)
            known, is_lasting = _survey_file(units, log, None if asked is None else partial(survey.ask, asked))
            if is_lasting and recalled is None and part.state is not None and units.state == part.state:
                proofs.keep((part.path, log.begin), part.state, known, is_last=part.is_last)
        survey.add(known)
        place = known.after
        if known.is_ended:
            break
    return survey


def _survey_file(units: UnitReading, log: LogSpans, ask: Callable[[UnitBlock], None] | None) -> tuple[FileSurvey, bool]:
    """Read a file's units; also return whether they say the same if segments are appended to the log."""
    found, leads = FileSurvey(units.place), dict(zip(log.spans, log.leads, strict=True))
    for block in units.blocks(log.begin, log.end):
        found.lowest = found.lowest if found.count else int(block.starts[0])
        parts, is_cut = in_segments(block, log.spans)
        for span, part in parts:
            found.take(span, leads[span], part)
            if ask is not None:
                ask(part)
        if is_cut:
            found.is_ended = True
            return found, False
    found.after, found.is_ended = units.place, units.is_ended or units.is_past
    found.covered = log.of(found.lowest, found.after[0])
    return found, found.count > 0 and not units.is_past


def in_segments(block: UnitBlock, spans: Sequence[Span]) -> tuple[list[tuple[Span, UnitBlock]], bool]:
    """Return units by segment, and whether the record of one would run past its segment's end, which ends the queue."""
    found: list[tuple[Span, UnitBlock]] = []
    for span in spans[bisect_right(spans, block.starts[0], key=_END) :]:
        part = block.between(*span)
        if part is not None and part.ends[-1] > span[1]:
            before = part.between(span[0], int(part.starts[-1]))
            return [*found, *(() if before is None else ((span, before),))], True
        if part is not None:
            found.append((span, part))
        if span[1] > block.starts[-1]:
            break
    return found, False
