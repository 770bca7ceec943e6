# SPDX-License-Identifier: Apache-2.0
"""Reading the records of topics and queues by their units, where that pays and the queues prove complete."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from store_core.errors import CorruptDatabaseError, UnsupportedStoreError
from store_core.files.segment_source import open_segment
from store_core.files.store_kind import has_queues
from store_core.files.store_path import store_roots
from store_core.format.columnar.chain import Chain
from store_core.store.read.lookup.proofs import proofs_of
from store_core.store.read.lookup.queue_tiling import THREADS, QueueTiling, UnaccountedError, known_end
from store_core.store.read.lookup.store_queues import StoreQueues
from store_core.store.read.picks import Picks

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import ExitStack

    from store_core.files.segment_source import Segment
    from store_core.files.store_path import StorePaths
    from store_core.format.columnar.chain import Place
    from store_core.store.read.lookup.costs import LookUpCosts
    from store_core.store.read.lookup.proofs import ProofsOfStore
    from store_core.store.read.lookup.survey import IndexBounds
    from store_core.store.read.lookup.unit_block import QueueUnits
    from store_core.store.read.ranges import ReadRange
    from store_core.store.read.read_options import ReadOptions

__all__ = ["MOST_MAPPED", "QueueLookUp", "Unsuitable", "plan_queue_look_up"]

MOST_MAPPED: Final = 64
"""Segments that stay mapped; each takes a file descriptor."""

_ALL: Final = (0, 2**63 - 1)


@dataclass(frozen=True, slots=True)
class Unsuitable:
    """Why the queues are not used."""

    reason: str
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class QueueLookUp:
    """The queues of a store, read and found worth using.

    Attributes
    ----------
    tiling : QueueTiling
    picked : Picks or None
        Records of the units that were asked for, in all segments.
    notes : list of str
    mapped : dict of Segment to Chain
        Segments that were mapped to verify the records, whose pages a reader in the same process need not map again.
    """

    tiling: QueueTiling
    picked: Picks | None
    notes: list[str] = field(default_factory=list)
    mapped: dict[Segment, Chain] = field(default_factory=dict)

    @property
    def plan(self) -> str:
        """Name of the plan."""
        return "queues"

    @property
    def why(self) -> str:
        """Why it was chosen."""
        return "units of queues lead to the records, and account for all others"

    @property
    def units(self) -> int:
        """Number of units that were read."""
        return self.tiling.units

    def known_end(self, segment: Segment, *, verify_crc: bool) -> Place:
        """Return up to where the last segment's records are known: the search for the log's end starts there."""
        return known_end(self.tiling, segment, verify_crc=verify_crc)

    def narrowed(self, whole: Sequence[ReadRange], parts: Sequence[ReadRange]) -> list[ReadRange] | Unsuitable:
        """Return the records to read, if all units are what they should be, in all segments.

        Parameters
        ----------
        whole : sequence of ReadRange
            The segments whose end is known.
        parts : sequence of ReadRange
            What the options ask for of them.
        """
        ends = {part.segment: part.data_end for part in whole}
        try:
            with ThreadPoolExecutor(THREADS) as pool:
                ends_of = (ends.get(each) for each in self.tiling.segments)
                found = list(pool.map(self._accounted, self.tiling.segments, ends_of))
        except (UnaccountedError, CorruptDatabaseError) as error:
            return Unsuitable(f"the queues are not complete: {error}", tuple(self.notes))
        unqueued = dict(zip(self.tiling.segments, found, strict=True))
        picked = ((part, self._picks(part, unqueued[part.segment])) for part in parts)
        return [replace(part, picks=picks) for part, picks in picked if picks is not None]

    def _accounted(self, segment: Segment, data_end: int | None) -> Picks | None:
        """Return the records of a segment that are in no queue; check that the others are what their units say."""
        unqueued = self.tiling.unqueued(segment, data_end)
        end = segment.end_offset if data_end is None else data_end
        mine = None if self.picked is None else self.picked.between(segment.start_offset, end)
        if mine is not None:
            with open_segment(segment) as opened:
                wrong = mine.first_wrong(opened.raw[: end - segment.start_offset], segment)
                if len(self.mapped) < MOST_MAPPED:
                    self.mapped[segment] = Chain(segment.view(opened))
            if wrong is not None:
                raise UnaccountedError(f"at offset {wrong} of {segment.path} there is not the record that a unit names")
        return unqueued

    def _picks(self, part: ReadRange, unqueued: Picks | None) -> Picks | None:
        pieces = [each for each in (self.picked, unqueued) if each is not None]
        mine = [each for each in (piece.between(part.begin, part.end) for piece in pieces) if each is not None]
        if not mine:
            return None
        return Picks.joined(mine, () if self.picked is None else self.picked.queues)


def plan_queue_look_up(  # noqa: PLR0913 -- where to look, what for, and what it may cost
    paths: StorePaths,
    segments: Sequence[Segment],
    asked_size: int,
    options: ReadOptions,
    costs: LookUpCosts,
    resources: ExitStack,
) -> QueueLookUp | Unsuitable:
    """Read the units of a store's queues, if the options ask for a part of them that is worth it.

    Parameters
    ----------
    paths : path or sequence of paths
        As given to the read.
    segments : sequence of Segment
        All of the log, in order.
    asked_size : int
        Bytes of those that can have rows.
    options : ReadOptions
    costs : LookUpCosts
    resources : ExitStack
        Closes what the look-up reads from.
    """
    reason = _refusal(options)
    if reason is None and asked_size < costs.least_log:
        reason = f"a scan reads less than {costs.least_log >> 20} MiB"
    if reason is not None:
        return Unsuitable(reason)
    roots = [root for root in store_roots(paths) if has_queues(root)]
    if len(roots) != 1:
        return Unsuitable("there are no queues beside the log" if not roots else "there are queues of several stores")
    try:
        room = int(costs.most_share * asked_size)
        found = StoreQueues.open(roots[0], costs, room, resources)
        if isinstance(found, str):
            return Unsuitable(found)
        return _read(found.queues, segments, options, costs, proofs_of(roots[0], options), room - found.cost)
    except (OSError, CorruptDatabaseError, UnsupportedStoreError) as error:
        return Unsuitable(f"the queues can't be read: {error}")


def _refusal(options: ReadOptions) -> str | None:
    if options.use_consume_queues == "never":
        return "option use_consume_queues is never"
    if not options.is_failfast:
        return f"mode {options.mode.name} looks for damage everywhere"
    if not options.names_queues:
        return "no option names topics or queues"
    return None


def _read(  # noqa: PLR0913 -- the queues, the log, what is asked of them, and what is known
    queues: Sequence[QueueUnits],
    segments: Sequence[Segment],
    options: ReadOptions,
    costs: LookUpCosts,
    proofs: ProofsOfStore,
    room: int,
) -> QueueLookUp | Unsuitable:
    """Read the units; `room` is what the picked records may cost, in bytes of a scan."""
    tiling = QueueTiling(queues, segments, _Asked(options), costs, proofs, room // costs.per_record)
    names = tuple((survey.queue.topic, survey.queue.queue_id) for survey in tiling.surveys)
    pieces = [piece for number, survey in enumerate(tiling.surveys) for piece in survey.picks(number)]
    if sum(len(piece) * costs.per_record + piece.size for piece in pieces) > room:
        return Unsuitable("the answer is a large part of the log")
    return QueueLookUp(tiling, Picks.joined(pieces, names) if pieces else None, list(tiling.notes))


class _Asked:
    """Which queue offsets of a queue the options ask for."""

    def __init__(self, options: ReadOptions) -> None:
        self._topics, self._queue_ids = frozenset(options.topic), frozenset(options.queue_id)
        pattern = options.topics_pattern
        self._pattern = None if pattern is None else re.compile(pattern)
        self._starts = {(topic, queue_id): offset for topic, queue_id, offset in options.start.queues}
        self._ends = {(topic, queue_id): offset for topic, queue_id, offset in options.end.queues}

    def __call__(self, queue: QueueUnits) -> IndexBounds | None:
        if (
            (self._topics and queue.topic not in self._topics)
            or (self._pattern is not None and self._pattern.fullmatch(queue.topic) is None)
            or (self._queue_ids and queue.queue_id not in self._queue_ids)
        ):
            return None
        name = queue.topic, queue.queue_id
        return self._starts.get(name, _ALL[0]), self._ends.get(name, _ALL[1])
