# SPDX-License-Identifier: Apache-2.0
"""What the units of a queue contribute to the proof that all queues together account for a segment's records."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.store.read.picks import Picks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from store_core.store.read.lookup.unit_block import QueueUnits, UnitBlock

__all__ = [
    "IndexBounds",
    "Share",
    "Span",
    "Survey",
    "balance_of",
    "digest",
    "digest_of_distinct",
    "mixed",
    "survey_queue",
    "units_in",
]

_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)
_WORD: Final = 2**64

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


@dataclass(slots=True)
class Survey:
    """A queue's units in the segments of a log.

    Attributes
    ----------
    queue : QueueUnits
    shares : dict of int to Share
        By the number of the segment.
    first, last : tuple of (int, int, int) or None
        Physical offset, size and queue offset of the first and of the last record.
    last_index : int
        The highest queue offset that the units stand for.
    count : int
        Number of units.
    asked : list of UnitBlock
        Units of records that are read.
    """

    queue: QueueUnits
    shares: dict[int, Share] = field(default_factory=dict)
    first: tuple[int, int, int] | None = None
    last: tuple[int, int, int] | None = None
    last_index: int = -1
    count: int = 0
    asked: list[UnitBlock] = field(default_factory=list)

    def stands_for(self, queue_offset: int) -> bool:
        """Return whether a unit stands for a queue offset, so that no other record can be in that place."""
        return self.first is not None and self.first[2] <= queue_offset <= self.last_index

    def _take(self, number: int, block: UnitBlock, lead: int) -> None:
        starts = digest(block.starts)
        balance = (digest(block.ends) - (digest(block.starts - lead) if lead else starts)) % _WORD
        edges = [(int(block.starts[at]), int(block.ends[at])) for at in (0, -1)]
        self.shares.setdefault(number, Share()).add(Share(balance, starts, *edges[1]))
        sized = [(start, end - start) for start, end in edges]
        self.first = self.first or (*sized[0], block.first_index)
        self.last = *sized[1], block.index_at(block.starts.size - 1)
        self.last_index = block.last_index
        self.count += block.starts.size

    def picks(self, number: int) -> Iterator[Picks]:
        """Yield the records that are read, as of the queue of a number."""
        for block in self.asked:
            numbers = np.full(block.starts.size, number, np.int32)
            yield Picks(block.starts, block.ends - block.starts, numbers, block.indexes)


def survey_queue(
    queue: QueueUnits, spans: Sequence[Span], leads: Sequence[int], asked: IndexBounds | None, most_asked: int
) -> Survey:
    """Read a queue's units.

    Parameters
    ----------
    queue : QueueUnits
    spans : sequence of Span
        The segments, in order.
    leads : sequence of int
        Of each segment, the bytes of a frame before its record.
    asked : IndexBounds or None
        Units to keep; None for none.
    most_asked : int
        Of them, how many to keep at most, so that memory is bounded: an answer that is larger is not worth it.

    Raises
    ------
    OSError, CorruptDatabaseError
        As of `QueueUnits.blocks`.
    """
    survey, kept = Survey(queue), 0
    for number, block in units_in(queue, spans):
        survey._take(number, block, leads[number])  # noqa: SLF001 -- it is made here
        part = None if asked is None else block.within(*asked)
        if part is not None and kept <= most_asked:
            survey.asked.append(part)
            kept += part.starts.size
    return survey


def units_in(queue: QueueUnits, spans: Sequence[Span]) -> Iterator[tuple[int, UnitBlock]]:
    """Yield a queue's units segment by segment, up to the first whose record would run past its segment's end."""
    ends = [end for _, end in spans]
    for block in queue.blocks(spans[0][0], spans[-1][1]):
        first, last = bisect_right(ends, block.starts[0]), bisect_right(ends, block.starts[-1])
        for number in range(first, min(last, len(spans) - 1) + 1):
            part = block.between(*spans[number])
            if part is None:
                continue
            if part.ends[-1] > spans[number][1]:
                before = part.between(spans[number][0], int(part.starts[-1]))
                if before is not None:
                    yield number, before
                return
            yield number, part
