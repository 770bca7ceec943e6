# SPDX-License-Identifier: Apache-2.0
"""Follows a log that grows: where it ends now, where batches begin and end, and what tasks read for them.

Several logs are followed as one: a position of all is one of each.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from store_core.errors import (
    DataLossError,
    InvalidOptionError,
    MissingSegmentsError,
    ReplacedStoreError,
    TruncatedLogError,
)
from store_core.files.segment_source import Segment, open_segment
from store_core.snapshot.log import Log, retried
from store_core.store.read.follow.log_segments import (
    Continuation,
    LogPosition,
    LogSegments,
    RecordProof,
    RecordVanishedError,
    Stretch,
    find_continuation,
)
from store_core.store.read.ranges import ReadRange, split_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from store_core.files.store_path import StorePaths
    from store_core.snapshot.store import Store
    from store_core.store.read.read_options import ReadOptions


_log: Final = logging.getLogger("store_core")


def batch_ranges(log: LogSegments, start: LogPosition, end: LogPosition, options: ReadOptions) -> list[ReadRange]:
    """Return the ranges between two positions, in log order.

    The segment that the batch ends in is read as if the log ended there, so that a batch has the same rows whatever
    was appended since.
    """
    segments = [
        each
        for each in log.segments
        if each.end_offset > start.physical_offset and each.start_offset < end.physical_offset
    ]
    for problem in Log(tuple(segments)).problems:
        if options.is_strict:
            raise problem
        _log.warning("%s", problem.problem)
    whole = _whole(segments, start, end, Log(log.segments).usual_size)
    return list(split_ranges([part for part in whole if part.begin < part.end], options))  # an empty file has none


def _whole(segments: list[Segment], start: LogPosition, end: LogPosition, usual: int) -> Iterator[ReadRange]:
    for segment, following in zip_longest(segments, segments[1:]):
        limit = segment.end_offset if following is None else min(segment.end_offset, following.start_offset)
        data_end = min(limit, end.physical_offset)
        yield ReadRange(
            segment,
            max(segment.start_offset, start.physical_offset),
            data_end,
            data_end=data_end,
            is_last=end.physical_offset < segment.end_offset,
            is_cut=segment.size < usual,
            walk_start=start.walk_start(segment),
        )


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits of a batch; it has at least one record, if there is one."""

    max_records: int | None = None  # most records, whether or not filters let them become rows
    max_bytes: int | None = None  # most bytes of the log


NO_LIMITS: Final = ReadLimits()


def limited_end(log: LogSegments, start: LogPosition, end: LogPosition, limits: ReadLimits) -> LogPosition:
    """Return where a batch ends that begins at a position: at a record's end, no later than `end`.

    If there are limits, the records of the batch are walked, and no more than about twice as many bytes.
    """
    if limits == NO_LIMITS:
        return end
    taken = 0
    last: tuple[Stretch, int] | None = None
    for stretch in log.stretches(start, end):
        count = _admitted(stretch, start, taken, limits)
        taken += count
        last = (stretch, count) if count else last
        if count < stretch.offsets.size:
            break
    else:
        return end
    if last is None:
        return start
    (stretch, count), segment = last, last[0].segment
    with open_segment(segment) as opened:  # that of the stretch is closed if the walk has gone on to the next segment
        return log.position_after(segment, segment.view(opened), int(stretch.window.starts[count - 1]))


def _admitted(stretch: Stretch, start: LogPosition, taken: int, limits: ReadLimits) -> int:
    """Return how many records of a stretch still belong to the batch."""
    offsets = stretch.offsets
    count = offsets.size if limits.max_records is None else min(offsets.size, limits.max_records - taken)
    if limits.max_bytes is not None:
        ends: npt.NDArray[np.int64] = np.append(offsets[1:], stretch.end_offset)
        by_size = int(np.searchsorted(ends, start.physical_offset + limits.max_bytes, "right"))
        count = min(count, max(by_size, 0 if taken else 1))
    return count


def count_records(log: LogSegments, start: LogPosition, end: LogPosition, most: int) -> int:
    """Count the records between two positions, up to a number that is enough."""
    found = 0
    for stretch in log.stretches(start, end):
        found += stretch.offsets.size
        if found >= most:
            return most
    return found


T = TypeVar("T")


class LogFollower:
    """Follows the log at some paths.

    Between two calls it remembers only where the log ended last, so that its end is not searched for from the start of
    a segment again; the first records of segments; which losses and which odd files it has reported; and where reading
    ends altogether, once that is fixed. All else follows from the positions that a caller passes.

    * `options`: Columns and filters have no influence on positions.
    * `compressed`: Whether segments that are compressed as a whole are read, too. A file that is being compressed is
      there twice.
    """

    def __init__(self, paths: StorePaths, options: ReadOptions, *, compressed: bool = False) -> None:
        self._paths = options.store_of(paths).paths
        self._compressed = compressed
        self._options = options
        self._end: LogPosition | None = None
        self._reported: set[str] = set()
        self._firsts: dict[Segment, RecordProof] = {}
        self._stop: LogPosition | None = None

    @property
    def end(self) -> LogPosition | None:
        """Where the log ended when it was last looked at; None if it has not been yet."""
        return self._end

    def initial(self, *, at_end: bool = False) -> LogPosition:
        """Return where reading begins, by the options.

        * `at_end`: Whether it begins at the log's end, if no time says otherwise.
        """

        def find(log: LogSegments) -> LogPosition:
            time, offset = self._options.starting_timestamp, self._options.start.physical
            if time is not None:
                return log.first_since(time, self._latest(log))
            if at_end:
                return self._latest(log)
            return log.earliest if offset is None else self._first_at(log, offset)

        return self._retried(find)

    def _first_at(self, log: LogSegments, offset: int) -> LogPosition:
        end = self._latest(log)
        if offset > end.physical_offset:
            raise InvalidOptionError(
                f"option startingOffsets: expected at most {end.physical_offset}, where "
                f"the log ends in {log.segments[-1].path}, found {offset}. To read what is stored from now on, begin "
                f"at the log's end (in Spark latest)"
            )
        return log.first_at(offset, end)

    def latest(self, known: LogPosition | None = None) -> LogPosition:
        """Return where the log ends now.

        * `known`: A position that has been read, to search from if no end is known yet.
        """
        return self._retried(lambda log: self._latest(log, known))

    def fix_end(self) -> None:
        """Let reading end, for good, where the log ends now.

        If that place is cut off later, by a recovery or with the whole log, reading ends where the log then ends.
        """
        self._stop = self.latest()

    @property
    def has_fixed_end(self) -> bool:
        """Whether `fix_end` was called."""
        return self._stop is not None

    def advance(self, start: LogPosition, limits: ReadLimits) -> LogPosition:
        """Return where the batch ends that begins at a position; `start` itself if there is nothing new."""

        def find(log: LogSegments) -> LogPosition:
            resumed = self._resumed(log, start)
            end = self._end_of_reading(log, resumed)
            return limited_end(log, resumed, end, limits) if _is_before(resumed, end) else resumed

        return self._retried(find)

    def waiting_records(self, start: LogPosition, most: int) -> int:
        """Count the records after a position, up to a number that is enough; errors as of `advance`."""

        def count(log: LogSegments) -> int:
            resumed = self._resumed(log, start)
            end = self._end_of_reading(log, resumed)
            return count_records(log, resumed, end, most) if _is_before(resumed, end) else 0

        return self._retried(count)

    def ranges(self, start: LogPosition, end: LogPosition) -> list[ReadRange]:
        """Return what tasks read for a batch: the same whenever it is called, as long as the bytes are there."""

        def plan(log: LogSegments) -> list[ReadRange]:
            found = self._continued(log, start), self._continued(log, end)
            self._face_losses(found)
            begin, stop = (each.position for each in found)
            return batch_ranges(log, begin, stop, self._options) if _is_before(begin, stop) else []

        return self._retried(plan)

    def _end_of_reading(self, log: LogSegments, start: LogPosition) -> LogPosition:
        if self._stop is None:
            return self._latest(log, start)
        if isinstance(self._continued(log, self._stop).loss, TruncatedLogError | ReplacedStoreError):
            self._stop = self._latest(log, start)
        return self._stop

    def _latest(self, log: LogSegments, known: LogPosition | None = None) -> LogPosition:
        """Find the end from the later of two proven positions."""
        candidates = [each for each in (self._end, known) if each is not None and log.is_proven(each)]
        latest = max(candidates, key=lambda each: each.physical_offset, default=log.earliest)
        self._end = log.latest(latest, verify_crc=self._options.verify_crc)
        return self._end

    def _resumed(self, log: LogSegments, position: LogPosition) -> LogPosition:
        """Return where reading goes on; raise or report what is lost."""
        found = self._continued(log, position)
        self._face_losses([found])
        return found.position

    def _continued(self, log: LogSegments, position: LogPosition) -> Continuation:
        return find_continuation(log, position, verify_crc=self._options.verify_crc)

    def _face_losses(self, found: Sequence[Continuation]) -> None:
        """Raise or report what is lost at some positions; nothing twice, as one loss has bytes of another."""
        losses = sorted(
            (each.loss for each in found if each.loss is not None), key=lambda loss: loss.end - loss.begin, reverse=True
        )
        told: list[DataLossError] = []
        fatal = [loss for loss in losses if self._options.fail_on_data_loss and not self._is_passed(loss)]
        if fatal:
            raise fatal[0]
        for loss in losses:
            if not any(other.begin <= loss.begin and loss.end <= other.end for other in told):
                told.append(loss)
                self._report(loss)

    def _is_passed(self, loss: DataLossError) -> bool:
        """Return whether reading goes on after a loss as after damage: inside a batch it does, too."""
        return isinstance(loss, MissingSegmentsError) and not self._options.is_failfast

    def _report(self, loss: DataLossError) -> None:
        self._firsts.clear()  # of another log, it may be
        if loss.problem not in self._reported:
            self._reported.add(loss.problem)
            _log.warning("%s. Reading goes on at offset %d", loss.problem, loss.resume_offset)

    def _retried(self, step: Callable[[LogSegments], T]) -> T:
        return retried(lambda: step(self._listed()), RecordVanishedError)

    def _listed(self) -> LogSegments:
        storage = self._options.storage
        return LogSegments.of(
            self._paths, storage, compressed=self._compressed, known_firsts=self._firsts, told=self._reported
        )


def _is_before(start: LogPosition, end: LogPosition) -> bool:
    return start.physical_offset < end.physical_offset


Positions = dict[str, LogPosition]
"""Name of a store -> where its log is read up to. The name is empty where there is only one store."""

_STORES: Final = "stores"
_OFFSET: Final = "physicalOffset"


class StoresFollower:
    """Follows the logs of all stores at some paths; each as `LogFollower` does.

    The stores are those that were there when this was made. Positions of other stores are refused: where a new store
    would begin would follow from what is there at that moment, and a batch that is repeated could have other rows.
    """

    def __init__(self, paths: StorePaths | Sequence[Store], options: ReadOptions) -> None:
        stores = options.stores_of(paths)
        names = [store.name for store in stores] if len(stores) > 1 else [""]
        self.stores = dict(zip(names, stores, strict=True))
        self._logs = {name: LogFollower(store.paths, options) for name, store in self.stores.items()}
        self._turns = list(self._logs)  # those whose turn it is first, where a batch has no record for each

    @property
    def end(self) -> Positions | None:
        """Where the logs ended when they were last looked at; None if one has not been yet."""
        ends = {name: end for name, log in self._logs.items() if (end := log.end) is not None}
        return ends if len(ends) == len(self._logs) else None

    @property
    def has_fixed_end(self) -> bool:
        """Whether `fix_end` was called."""
        return all(log.has_fixed_end for log in self._logs.values())

    def initial(self, *, at_end: bool = False) -> Positions:
        """Return where reading begins, by the options; see `LogFollower.initial`."""
        return {name: log.initial(at_end=at_end) for name, log in self._logs.items()}

    def latest(self) -> Positions:
        """Return where the logs end now."""
        return {name: log.latest() for name, log in self._logs.items()}

    def fix_end(self) -> None:
        """Let reading end, for good, where the logs end now."""
        for log in self._logs.values():
            log.fix_end()

    def advance(self, start: Positions, limits: ReadLimits) -> Positions:
        """Return where the batch ends that begins at a position, with no more than the limits over all logs.

        Logs share them: what one with little new leaves, the others have.
        """
        given = dict.fromkeys(self._logs, limits)
        if limits != NO_LIMITS and len(self._logs) > 1:
            given = self._shared(start, limits)
        return {
            name: start[name] if given[name].max_records == 0 else log.advance(start[name], given[name])
            for name, log in self._logs.items()
        }

    def waiting_records(self, start: Positions, most: int) -> int:
        """Count the records after a position, up to a number that is enough."""
        return min(most, sum(log.waiting_records(start[name], most) for name, log in self._logs.items()))

    def ranges(self, start: Positions, end: Positions) -> Iterator[tuple[str, ReadRange]]:
        """Yield what tasks read for a batch, with the names of the stores; see `LogFollower.ranges`."""
        for name, log in self._logs.items():
            yield from ((name, each) for each in log.ranges(start[name], end[name]))

    def as_json(self, positions: Positions) -> dict[str, Any]:
        """Return a position as values for JSON: that of the only log, or one by the name of each store."""
        found = {name: position.as_json() for name, position in positions.items()}
        return {_STORES: found} if len(found) > 1 else next(iter(found.values()))

    def from_json(self, found: Mapping[str, Any]) -> Positions:
        """Return what `as_json` made; refused if it is of other stores than those that are followed."""
        several = found.get(_STORES)
        if several is None and len(self._logs) == 1:
            return {name: LogPosition.from_json(found) for name in self._logs}
        if not isinstance(several, dict) or several.keys() != self._logs.keys():
            raise self._other_stores(several)
        return {name: LogPosition.from_json(several[name]) for name in self._logs}

    def _other_stores(self, several: object) -> InvalidOptionError:
        before = ", ".join(sorted(several)) if isinstance(several, dict) else "one store"
        now = ", ".join(sorted(self._logs)) if len(self._logs) > 1 else "one store"
        return InvalidOptionError(
            f"the checkpoint is of {before}, and the paths are of {now}: expected the same stores, by their names, as "
            f"where another would begin is not certain when a batch is repeated. Give the paths of those stores; "
            f"follow others by a query of their own, or all of them by a new query with a new checkpoint"
        )

    def _shared(self, start: Positions, limits: ReadLimits) -> dict[str, ReadLimits]:
        """Return limits for each log, which together are those of all; one may be no records, and none is no bytes."""
        records: Mapping[str, int | None] = dict.fromkeys(self._logs)
        sizes: Mapping[str, int | None] = dict.fromkeys(self._logs)
        if limits.max_records is not None:
            most = limits.max_records
            waiting = {name: self._logs[name].waiting_records(start[name], most) for name in self._turns}
            records = shares = _shares(waiting, most)
            self._turns.sort(key=lambda name: shares[name] > 0)
        if limits.max_bytes is not None:
            ends = self.latest()
            waiting = {name: ends[name].physical_offset - start[name].physical_offset for name in self._logs}
            sizes = {name: max(share, 1) for name, share in _shares(waiting, limits.max_bytes).items()}
        return {name: ReadLimits(records[name], sizes[name]) for name in self._logs}


def _shares(waiting: Mapping[str, int], most: int) -> dict[str, int]:
    """Divide what a batch may have: those that need less than an equal share leave the rest to the others.

    Where that is less than one for each, the first have one.
    """
    found = dict.fromkeys(waiting, 0)
    needy = [name for name, size in waiting.items() if size > 0][:most]
    for at, name in enumerate(sorted(needy, key=waiting.__getitem__)):
        found[name] = min(waiting[name], most // (len(needy) - at))
        most -= found[name]
    return found


def behind(end: Mapping[str, Any], latest: Mapping[str, Any]) -> int | None:
    """Return how many bytes are between two positions as JSON, over all logs; None if they are not such positions."""
    if isinstance(end.get(_STORES), dict) and isinstance(latest.get(_STORES), dict):
        pairs = [(each, latest[_STORES].get(name)) for name, each in end[_STORES].items()]
    else:
        pairs = [(end, latest)]
    offsets = [(one.get(_OFFSET), other.get(_OFFSET)) for one, other in pairs if one and other]
    distances = [max(other - one, 0) for one, other in offsets if isinstance(one, int) and isinstance(other, int)]
    return sum(distances) if len(distances) == len(pairs) else None
