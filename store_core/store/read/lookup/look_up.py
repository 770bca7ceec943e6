# SPDX-License-Identifier: Apache-2.0
"""Choosing how a read finds its records: at a position, by the index, by the queues, or by a scan."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from store_core.files.segment_source import open_segment
from store_core.format.columnar.chain import Place
from store_core.store.read.found_end import SegmentEnd, segment_end
from store_core.store.read.lookup.explanation import SCAN, ReadExplanation
from store_core.store.read.lookup.index_look_up import IndexLookUp, plan_index_look_up
from store_core.store.read.lookup.position_look_up import plan_position_look_up
from store_core.store.read.lookup.queue_look_up import Unsuitable, plan_queue_look_up

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from store_core.files.segment_source import Segment, SegmentBytes
    from store_core.files.store_path import StorePaths
    from store_core.format.columnar.chain import Chain
    from store_core.store.read.found_end import PlainEnd
    from store_core.store.read.lookup.costs import LookUpCosts
    from store_core.store.read.lookup.position_look_up import PositionLookUp
    from store_core.store.read.lookup.queue_look_up import QueueLookUp
    from store_core.store.read.ranges import ReadRange
    from store_core.store.read.read_options import ReadOptions

__all__ = ["LookUp"]

T = TypeVar("T")

_log: Final = logging.getLogger("store_core")

_Chosen: TypeAlias = "PositionLookUp | IndexLookUp | QueueLookUp | Unsuitable"


class LookUp:
    """How a read finds its records, chosen before the log's end is known.

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
    """

    def __init__(
        self, paths: StorePaths, segments: Sequence[Segment], asked_size: int, options: ReadOptions, costs: LookUpCosts
    ) -> None:
        self._resources = ExitStack()
        self._asked = (paths, segments, asked_size, options, costs, self._resources)
        self._options = options
        self._notes: tuple[str, ...] = ()
        self._chosen: _Chosen = Unsuitable("nothing was chosen")
        try:
            self._chosen = self._choose()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close what it reads from; the ranges that it returned stay as they are."""
        if not isinstance(self._chosen, Unsuitable):
            self._chosen.close()
        self._resources.close()

    def _choose(self) -> _Chosen:
        paths, segments, _, options, costs, resources = self._asked
        if any(segment.archive for segment in segments):
            return Unsuitable("the store is in an archive, whose queues and index are not read")
        if any(segment.codec is not None for segment in segments):
            return Unsuitable("segments are compressed, which are read from their beginning")
        if options.position is not None and options.is_failfast and options.use_consume_queues != "never":
            return plan_position_look_up(paths, segments, options, costs, resources)
        if options.key is None and options.unique_key is None:
            return plan_queue_look_up(*self._asked)
        found = plan_index_look_up(*self._asked)
        return self._without_index(found) if isinstance(found, Unsuitable) else found

    def _without_index(self, why: Unsuitable) -> QueueLookUp | Unsuitable:
        """Look topics and queues up, since the index is of no use for the key."""
        found = plan_queue_look_up(*self._asked)
        self._notes = why.notes
        if isinstance(found, Unsuitable) and not self._options.names_queues:
            return Unsuitable(why.reason)
        self._notes = (*why.notes, f"the index is not used: {why.reason}")
        return found

    @property
    def is_scan(self) -> bool:
        """Whether no look-up is used, so that all records are read one after the other."""
        return isinstance(self._chosen, Unsuitable)

    @property
    def mapped(self) -> dict[Segment, Chain]:
        """Segments that were mapped for it."""
        return {} if isinstance(self._chosen, Unsuitable) else self._chosen.mapped

    def end_of(
        self, segment: Segment, *, is_first: bool, open_bytes: Callable[[Segment], SegmentBytes] = open_segment
    ) -> SegmentEnd:
        """Find where a segment's records end, from where they are known, or recall it: without the chain then.

        Parameters as of `segment_end`.
        """
        crc, has_tail = self._options.verify_crc, self._options.is_permissive
        after = Place()
        if not isinstance(self._chosen, Unsuitable):
            after = self._chosen.known_end(segment, verify_crc=crc)
        fresh: list[SegmentEnd] = []

        def found() -> PlainEnd:
            end = segment_end(
                segment, is_first=is_first, verify_crc=crc, has_tail=has_tail, after=after, open_bytes=open_bytes
            )
            fresh.append(end)
            return end.plain

        known = self.fact(
            ("end", segment.start_offset, is_first, crc, has_tail, after.position, after.last_sound), found
        )
        return fresh[0] if fresh else SegmentEnd.of_plain(segment, known)

    def fact(self, name: Hashable, find: Callable[[], T]) -> T:
        """Return what follows from the store's files, from what is known if that is kept: see `ProofsOfStore.fact`."""
        proofs = None if isinstance(self._chosen, Unsuitable) else self._chosen.proofs
        return find() if proofs is None else proofs.fact(name, find)

    def save_proofs(self, explanation: ReadExplanation) -> ReadExplanation:
        """Write what is known of the store into the file that the options ask for; add notes on that file."""
        proofs = None if isinstance(self._chosen, Unsuitable) else self._chosen.proofs
        if proofs is None:
            return explanation
        proofs.save()
        return replace(explanation, notes=(*explanation.notes, *proofs.notes))

    def looked_up(
        self, known: Sequence[ReadRange], parts: Sequence[ReadRange]
    ) -> tuple[list[ReadRange], ReadExplanation]:
        """Return what is asked for, or the records of it that the look-up leaves; and why.

        Parameters
        ----------
        known : sequence of ReadRange
            The segments whose end is known.
        parts : sequence of ReadRange
            What the options ask for of them.
        """
        chosen = self._chosen
        if isinstance(chosen, Unsuitable):
            return list(parts), ReadExplanation(SCAN, chosen.reason, notes=(*self._notes, *chosen.notes))
        found = chosen.narrowed(known, parts)
        if not isinstance(found, Unsuitable):
            entries = chosen.entries if isinstance(chosen, IndexLookUp) else 0
            notes = (*self._notes, *chosen.notes)
            return found, ReadExplanation(chosen.plan, chosen.why, units=chosen.units, entries=entries, notes=notes)
        if isinstance(chosen, IndexLookUp):
            _log.warning("the index is not used: %s", found.reason)
            self._chosen = self._without_index(found)
            return self.looked_up(known, parts)
        _log.warning("the log is scanned: %s", found.reason)
        notes = (*self._notes, *found.notes)
        return list(parts), ReadExplanation(SCAN, found.reason, units=chosen.units, notes=notes)
