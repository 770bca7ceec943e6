# SPDX-License-Identifier: Apache-2.0
"""Reading the records of topics and queues by their units, where that pays and the queues prove complete."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from store_core.errors import CorruptDatabaseError, UnsupportedStoreError
from store_core.files.store_kind import has_queues
from store_core.files.store_path import store_roots
from store_core.store.read.lookup.filed_proofs import proofs_of
from store_core.store.read.lookup.known_end import known_end
from store_core.store.read.lookup.opened_segments import threads_for
from store_core.store.read.lookup.queue_tiling import QueueTiling, UnaccountedError
from store_core.store.read.lookup.remote_costs import price_of_picks, price_of_proof
from store_core.store.read.lookup.store_queues import StoreQueues
from store_core.store.read.pick_windows import PickWindows
from store_core.store.read.picks import Picks
from store_core.store.read.ranges import first_wrong

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import ExitStack

    from store_core.files.segment_source import Segment
    from store_core.files.store_path import StorePaths
    from store_core.format.columnar.chain import Chain, Place
    from store_core.store.read.lookup.costs import LookUpCosts
    from store_core.store.read.lookup.filed_proofs import FiledProofs
    from store_core.store.read.lookup.survey import IndexBounds
    from store_core.store.read.lookup.unit_block import QueueUnits
    from store_core.store.read.ranges import ReadRange
    from store_core.store.read.read_options import ReadOptions

__all__ = ["QueueLookUp", "Unsuitable", "plan_queue_look_up"]

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
    proofs : FiledProofs
        What is known of the store.
    notes : list of str
    """

    tiling: QueueTiling
    picked: Picks | None
    proofs: FiledProofs
    notes: list[str] = field(default_factory=list)

    @property
    def mapped(self) -> dict[Segment, Chain]:
        """Segments that were opened to verify the records, whose pages a reader in the same process can use."""
        return self.tiling.opened.chains

    def close(self) -> None:
        """Close what was opened."""
        self.tiling.opened.close()

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
            with ThreadPoolExecutor(threads_for(self.tiling.segments)) as pool:
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
        wrong = None if mine is None else self._first_wrong(mine, segment, end)
        if wrong is not None:
            raise UnaccountedError(f"at offset {wrong} of {segment.path} there is not the record that a unit names")
        return unqueued

    def _first_wrong(self, picks: Picks, segment: Segment, end: int) -> int | None:
        if segment.is_read:
            with PickWindows(picks, segment, end) as windows:
                return windows.check()
        with self.tiling.opened.opened(segment) as opened:
            wrong = first_wrong(picks, opened, segment, end)
            self.tiling.opened.keep(segment, opened)
        return wrong

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
        proofs = proofs_of(roots[0], options, segments)
        found = StoreQueues.open(roots[0], costs, room, resources, proofs)
        if isinstance(found, str):
            return Unsuitable(found)
        return _read(found, segments, options, costs, proofs, room - found.cost)
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
    queues: StoreQueues,
    segments: Sequence[Segment],
    options: ReadOptions,
    costs: LookUpCosts,
    proofs: FiledProofs,
    room: int,
) -> QueueLookUp | Unsuitable:
    """Read the units; `room` is what the picked records may cost, in bytes of a scan."""
    tiling = QueueTiling(queues.listed, segments, _Asked(options), costs, proofs, room // costs.per_record)
    names = tuple((survey.queue.topic, survey.queue.queue_id) for survey in tiling.surveys)
    pieces = [piece for number, survey in enumerate(tiling.surveys) for piece in survey.picks(number)]
    if price_of_proof(segments, costs) + price_of_picks(pieces, segments, costs) > room:
        return Unsuitable("the answer is a large part of the log")
    return QueueLookUp(tiling, Picks.joined(pieces, names) if pieces else None, proofs, tiling.notes)


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
