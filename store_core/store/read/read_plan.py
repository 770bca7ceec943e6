# SPDX-License-Identifier: Apache-2.0
"""Planning a read: the segments, the end of the log, and the ranges that tasks read separately.

Everything that can change in a live store is decided here, once: which files exist, and where the log ends. All ranges
of a plan then see the same prefix of the log, whatever a broker appends, rolls or deletes meanwhile.
"""

from __future__ import annotations

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Final

from store_core.errors import LEFT_OUT
from store_core.files.segment_source import Segment, size_on_disk
from store_core.files.store_kind import root_of_member
from store_core.files.store_lock import LOCK_FILE, is_lock_held
from store_core.files.store_path import ConfiguredRoot, StorePaths, nothing_at, places_of
from store_core.format.columnar.chain import Chain, Place
from store_core.format.salvage import find_walk_starts
from store_core.snapshot.log import Log, first_store_timestamp, has_record, retried
from store_core.snapshot.log_end import FoundEnd, SegmentEnd, covered_note, end_by_tail, segment_end, uncommitted_note
from store_core.snapshot.store import Store
from store_core.store.read.lookup.explanation import (
    DEFAULT_COSTS,
    SCAN,
    LookedUp,
    LookUpCosts,
    ReadExplanation,
    TrafficOf,
)
from store_core.store.read.lookup.look_up import look_up
from store_core.store.read.message_reader import read_range
from store_core.store.read.option_values import ReadMode
from store_core.store.read.ranges import ReadRange, with_picks
from store_core.store.read.read_options import ReadOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_log: Final = logging.getLogger("store_core")

_REQUESTS: Final = 16
"""Segments whose beginnings are read at a time, if they are not on this machine."""


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The ranges of a read in log order, and findings that a user should know.

    Attributes
    ----------
    ranges : tuple of ReadRange
    notes : tuple of str
    end : FoundEnd or None
        Where the log ends, and what follows; None if the read ends in an earlier segment, so that it is not known.
    explanation : ReadExplanation
        Which plan was chosen, and why.
    missing : tuple of (int, int)
        Physical offsets between segments of the log that none of them has; the ends are exclusive.
    """

    ranges: tuple[ReadRange, ...]
    notes: tuple[str, ...]
    end: FoundEnd | None = None
    explanation: ReadExplanation = field(default_factory=partial(ReadExplanation, SCAN, ""))
    missing: tuple[tuple[int, int], ...] = ()


def plan_ranges(
    store: StorePaths | Store, options: ReadOptions, costs: LookUpCosts = DEFAULT_COSTS, *, by_tail: bool = False
) -> ReadPlan:
    """Plan the reading of a log; called once, before any range is read.

    Parameters
    ----------
    store : path, sequence of paths or Store
        See `store_core.snapshot.log.Log.of`. A `Store` is read as of its moment.
    options : ReadOptions
    costs : LookUpCosts
        When a look-up is used in place of a scan; the rows are the same.
    by_tail : bool
        Whether the end of a remote log may be that which its last part shows, for callers that only read the ranges.

    Raises
    ------
    StoreNotFoundError
        If nothing exists at a path, or it has no segment.
    SegmentLayoutError
        If the files do not form one log, unless the options tolerate that.
    """
    return plan_and_walk(store, options, costs, by_tail=by_tail)[0]


def plan_and_walk(
    store: StorePaths | Store, options: ReadOptions, costs: LookUpCosts = DEFAULT_COSTS, *, by_tail: bool = False
) -> tuple[ReadPlan, Mapping[Segment, Chain]]:
    """Plan as `plan_ranges` does; also return segments that were mapped for it, for a reader in the same process.

    The chain of a segment is as of `store_core.format.salvage.LogEnd` if it was walked.
    """
    if isinstance(store, Store):
        store = store.configured(options.config, options.store_path_commit_log)
        paths = store.paths
    else:
        store = paths = options.store_of(store).paths

    def plan() -> tuple[ReadPlan, Mapping[Segment, Chain]]:
        traffic = TrafficOf(paths)  # before the log is listed
        as_of = None if options.as_of is None else log_end_at(store, options.as_of)
        log, end = _log_of(store) if isinstance(store, Store) else (Log.for_reading(paths), None)
        planner = _Planner(paths, log, options, costs, (end, as_of), by_tail=by_tail)
        return planner.plan(traffic), planner.mapped

    return retried(plan)


def _log_of(store: Store) -> tuple[Log, int | None]:
    """Return the segments of a store's moment that are still there, and its end."""
    log = store.asked_log.remaining()
    if not log.segments:
        raise nothing_at(places_of(store.paths), log.notes)
    return log, store.end


def log_end_at(store: StorePaths | Store, time: int) -> int | None:
    """Return where a log ended at a time: the physical offset of the first record that was stored then or later.

    It is the first in the order of the log, so what is before it is what the broker had when its clock first showed
    that time, however the clock was set later. Segments are left out as for `starting_timestamp` (ADR 0023), so one or
    two are read. Damaged ranges are no records.

    * `time`: Store time, ms.

    Returns: None if all records were stored before.
    """
    options = ReadOptions(
        columns=("physical_offset",),
        starting_timestamp=time,
        mode=ReadMode.DROPMALFORMED,
        verify_crc=False,
        fail_on_data_loss=False,
    )
    found = (batch for part in plan_ranges(store, options).ranges for batch in read_range(part, options))
    first = next(found, None)
    return None if first is None else int(first["physical_offset"][0].as_py())


class _Planner:
    def __init__(  # noqa: PLR0913 -- what is read, and how
        self,
        paths: StorePaths,
        log: Log,
        options: ReadOptions,
        costs: LookUpCosts,
        ends: tuple[int | None, int | None],  # of the moment, and of a time that is asked for
        *,
        by_tail: bool,
    ) -> None:
        self._by_tail = by_tail
        self._paths = paths
        given = [paths] if isinstance(paths, str | os.PathLike) else paths
        self._configured = next((path for path in given if isinstance(path, ConfiguredRoot)), None)
        self._options = options
        self._costs = costs
        self._log_end = ends[0]
        self._latest = min((end for end in ends if end is not None), default=None)
        self._listed = log
        self._segments, self._notes = log.segments, list(log.notes)
        self._ends: list[SegmentEnd] = []
        self._is_live = False
        self.walked: dict[Segment, Chain] = {}
        self._times: dict[Segment, int | None] = {}

    def plan(self, traffic: TrafficOf) -> ReadPlan:
        for problem in self._listed.problems:
            if self._options.is_strict:
                raise problem
            self._note(problem.problem, LEFT_OUT)
        whole = [
            self._whole(segment, following) for segment, following in zip_longest(self._segments, self._segments[1:])
        ]
        self._looked_up = self._look_up(whole)
        known = self._up_to_log_end(whole)
        start, end = self._options.start.physical, self._found_end()
        if start is not None and end is not None and start > end.end_offset:  # an offset of another log
            self._note(f"startingOffsets is {start}, after the log's end at offset {end.end_offset}: there are no rows")
        found = self._looked_up.narrowed(self._requested(known))
        ranges = tuple(self._with_walk_starts(list(with_picks(found, self._options))))
        explanation = replace(self._looked_up.explained.for_ranges(ranges), planned=traffic.moved)
        if _log.isEnabledFor(logging.INFO):
            _log.info("%s", explanation.line)
        notes, missing = tuple(self._notes), self._listed.missing
        return ReadPlan(ranges, notes, self._found_end(), explanation, missing)

    @property
    def mapped(self) -> dict[Segment, Chain]:
        """Segments that were mapped and, for the last one, walked."""
        return {**self._looked_up.chains, **self.walked}

    def _requested(self, parts: Sequence[ReadRange]) -> list[ReadRange]:
        begin, end = self._bounds()
        clipped = (
            replace(part, begin=max(part.begin, begin), end=part.end if end is None else min(part.end, end))
            for part in parts
        )
        asked = [part for part in clipped if part.begin < part.end]
        if self._options.starting_timestamp is None and self._options.ending_timestamp is None:
            return asked
        # Left out are segments that can't have rows, judging by the store times of their first records.
        times = self._first_times([part.segment for part in asked])
        timed = zip_longest(asked, times, times[1:])
        placed = (replace(part, first_stored=first, next_stored=following) for part, first, following in timed)
        return [part for part in placed if part.may_hold(self._options)]

    def _look_up(self, whole: Sequence[ReadRange]) -> LookedUp:
        """Read queues and index, if that may spare reading the log."""
        options = self._options
        is_narrow = options.starting_timestamp is not None or options.ending_timestamp is not None
        asked = self._requested(whole) if not options.is_permissive or not is_narrow else whole
        size = sum(min(part.end - part.begin, size_on_disk(part.segment)) for part in asked)
        return look_up(self._paths, self._segments, size, options, self._costs)

    def _with_walk_starts(self, parts: list[ReadRange]) -> list[ReadRange]:
        """Set where readers start walking for ranges inside the segment that was walked here."""
        if not self.walked:
            return parts
        ((segment, chain),) = self.walked.items()
        inner = [at for at, part in enumerate(parts) if part.segment == segment and part.begin > segment.start_offset]
        if inner:
            first = segment.start_offset
            begins = [min(parts[at].begin, parts[at].data_end) - first - segment.framing.lead for at in inner]
            for at, start in zip(inner, find_walk_starts(chain, begins), strict=True):
                parts[at] = replace(parts[at], walk_start=None if start is None else first + start)
        return parts

    def _note(self, text: str, extra: dict[str, bool] | None = None) -> None:
        self._notes.append(text)
        _log.warning(text, extra=extra)

    def _whole(self, segment: Segment, following: Segment | None) -> ReadRange:
        """Make the range of a whole segment; if too long, it ends where the next begins, so that no row repeats."""
        end = segment.end_offset if following is None else min(segment.end_offset, following.start_offset)
        is_cut = segment.size < self._listed.usual_size
        return ReadRange(segment, segment.start_offset, end, data_end=end, is_cut=is_cut)

    def _up_to_log_end(self, parts: list[ReadRange]) -> list[ReadRange]:
        """Fix the end of the log; segments at the end without any record are preallocated."""
        torn: list[ReadRange] = []
        while parts:
            last = parts.pop()
            if self._is_behind(last) and has_record(last.segment):
                self._ends.clear()
                return parts
            # A reader of picked records does not prove the end.
            is_by_tail = self._by_tail and self._looked_up.is_scan
            tail = _end_by_tail(last.segment, self._options) if is_by_tail else None
            end = tail or segment_end(
                last.segment,
                is_first=not parts,
                verify_crc=self._options.verify_crc,
                has_tail=self._options.is_permissive,
                after=self._looked_up.known_place(last.segment),
            )
            self._ends.append(end)
            if tail is not None:
                return [*parts, replace(last.up_to(tail), is_by_tail=True), *torn]
            part = self._up_to(last, end)
            uncommitted = uncommitted_note(end)
            if uncommitted is not None:
                self._note(uncommitted)
            if part.data_end > part.begin:
                if end.found.chain is not None and end.found.chain.begin == Place():
                    self.walked[last.segment] = end.found.chain
                return [*parts, part, *torn]
            if part.torn_end:
                torn.insert(0, part)
        return torn

    def _up_to(self, part: ReadRange, end: SegmentEnd) -> ReadRange:
        """End a range where its segment's records end, or its torn tail, if that becomes rows."""
        root = self._configured or _root_of(part.segment)
        is_remote = part.segment.remote is not None or bool(part.segment.archive)
        is_live = end.tail is not None and not is_remote and is_lock_held(root)
        self._is_live = self._is_live or is_live
        self._note_end(end, is_live=is_live)
        is_shown = (
            self._options.is_permissive and end.tail is not None and not is_live and (is_remote or self._has_lock(root))
        )
        return part.up_to(end, part.begin + end.tail_end if is_shown else 0)

    def _has_lock(self, root: Path) -> bool:
        """Return whether there is a lock file; if not, add a note, since the log may be being written."""
        is_there = (root / LOCK_FILE).exists()
        if not is_there:
            self._note(
                f"the bytes after the log's end are not returned as a row, because no file {root / LOCK_FILE} "
                f"shows that nobody is writing them. If this is a copy, create an empty file of that name to see them."
            )
        return is_there

    def _is_behind(self, part: ReadRange) -> bool:
        """Return whether the whole range is after the requested end."""
        end = self._bounds()[1]
        return end is not None and end <= part.begin

    def _note_end(self, end: SegmentEnd, *, is_live: bool) -> None:
        found = end.found
        where = f"at offset {self._known_end(end.end_offset)} of {end.segment.path}"
        if is_live:
            text = f"the log ends {where}, where a record may be in progress: another process holds the store's lock."
            self._notes.append(text)
            _log.info(text)
        elif end.tail is not None:
            reason = (
                f"{end.tail.size} bytes there are not a record" if not found.reason.is_damage else found.reason.value
            )
            if found.is_unfinished:
                reason = f"the {end.tail.size} bytes of a batch there do not count, as its writer did not finish it"
            self._note(f"the log ends {where}: {reason}; no newer record follows.")
        if found.covered >= 0:
            start = end.segment.start_offset
            self._note(covered_note(end.segment.path, start + found.position, start + found.covered))
        if found.stale >= 0:
            stale = end.segment.start_offset + found.stale
            text = f"the log ends {where}; the records from offset {stale} on are older, so they are not data."
            self._notes.append(text)
            _log.info(text)

    def _found_end(self) -> FoundEnd | None:
        """Return where the log ends; for a live log, without the record being written."""
        found = FoundEnd.of(self._ends) if self._ends else None
        if found is None or not self._is_live:
            return found
        return replace(found, end_offset=self._known_end(found.end_offset), tails=())

    def _known_end(self, found: int) -> int:
        """Return where the log ended at the moment that the plan is of: a live one may have grown since."""
        return found if self._log_end is None else min(found, self._log_end)

    def _bounds(self) -> tuple[int, int | None]:
        """Return between which physical offsets rows can start; damage everywhere else is a row in mode PERMISSIVE."""
        begin, end = self._options.start.physical or 0, self._options.end.physical
        if self._latest is not None:
            end = self._latest if end is None else min(end, self._latest)
        position = None if self._options.is_permissive else self._options.position
        if position is None:
            return begin, end
        return max(begin, position), position + 1 if end is None else min(end, position + 1)

    def _first_times(self, segments: Sequence[Segment]) -> list[int | None]:
        """Return when the first records of segments were stored, which is read once, and from elsewhere in parallel."""
        unknown = [segment for segment in segments if segment not in self._times]
        if all(segment.is_plain for segment in unknown):
            self._times.update((segment, first_store_timestamp(segment)) for segment in unknown)
        else:
            with ThreadPoolExecutor(_REQUESTS, "segment-starts") as pool:
                self._times.update(zip(unknown, pool.map(first_store_timestamp, unknown), strict=True))
        return [self._times[segment] for segment in segments]


def _root_of(segment: Segment) -> Path:
    directory = Path(segment.path).parent
    return root_of_member(directory) or directory.parent


def _end_by_tail(segment: Segment, options: ReadOptions) -> SegmentEnd | None:
    """Find the end by the last part, for a read by whose tasks the whole segment is followed once."""
    if options.max_partition_bytes is not None or options.min_partitions is not None or options.is_permissive:
        return None
    return end_by_tail(segment, verify_crc=options.verify_crc)
