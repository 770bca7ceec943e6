# SPDX-License-Identifier: Apache-2.0
"""The queues of a store as a release loads them, and what is wrong with each of their units by the log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias

import numpy as np

from store_core.errors import SegmentLayoutError
from store_core.files.access import in_words
from store_core.files.file_system import OsFileSystem
from store_core.files.names import CONSUME_QUEUE, CONSUME_QUEUE_EXT
from store_core.queue.consume_queue.consume_queue_ext import LAST_EXT_ADDRESS, ConsumeQueueExt
from store_core.queue.queue_path import QueueRules, is_light, queue_path
from store_core.snapshot.queues import FileQueue, Queues
from store_core.snapshot.units import QueueKind, QueueName, Units
from store_core.store.rebuild.findings import Finding, FindingKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.snapshot.log_end import FoundEnd, LiveMoment
    from store_core.store.rebuild.findings import LostBytes


_NOWHERE: Final = 2**63 - 1
_FILES: Final = OsFileSystem()

COMPARED: Final = np.dtype([("physical_offset", "<i8"), ("size", "<i8"), ("tags_code", "<i8"), ("count", "<i8")])

Compared: TypeAlias = "np.ndarray[Any, np.dtype[np.void]]"
"""Physical offset, size, tags code and number of messages of each unit."""


class Side(NamedTuple):
    """The units of a queue on one side of a comparison."""

    indexes: npt.NDArray[np.int64]  # places in the queue
    units: Compared  # their physical offsets, sizes, tags codes and, in a batch queue, numbers of messages

    def chosen(self, mask: npt.NDArray[np.bool_]) -> Side:
        """Return some of the units."""
        return Side(self.indexes[mask], self.units[mask])


NO_UNITS: Final = Side(np.empty(0, np.int64), np.empty(0, COMPARED))


def plain_columns(units: npt.NDArray[np.void]) -> Compared:
    """Make stored units of any kind of queue comparable; none of them counts messages."""
    compared = np.zeros(len(units), COMPARED)
    compared["physical_offset"] = units["physical_offset"]
    compared["size"] = units["store_size"]
    compared["tags_code"] = units["tags_code"]
    return compared


class StoredQueues:
    """The queues of a directory as a release has them when it has loaded them; a context manager.

    * `root`: Directory with ``consumequeue`` and so on.
    """

    def __init__(self, root: Path, rules: QueueRules) -> None:
        self._root = root
        self._rules = rules
        self._queues = Queues(root)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._queues.close()

    def names(self) -> set[tuple[str, int]]:
        """Return topic and id of the queues."""
        return set(self._queues.names())

    def place(self, name: QueueName) -> str:
        """Return where findings of a queue are said to be."""
        topic, queue_id = name
        return f"{self._root}/{CONSUME_QUEUE}/{topic}/{queue_id}"

    def side(self, name: QueueName, min_offset: int) -> Side:
        """Return the units that point at or after an offset of the log; those of a batch queue count messages.

        Raises `SegmentLayoutError`: If the release would not load the queue.
        """
        topic, rules = name[0], self._rules
        kind = QueueKind.BATCH if topic in rules.batch_topics else QueueKind.SIMPLE
        queues = self._queues
        is_in_database = queues.database is not None or (is_light(topic) and queues.light_database is not None)
        queue = queues.get(*name) if is_in_database else None
        files = FileQueue(name, kind, self._root, _FILES)
        stored = files.loaded(rules) if queue is None else queue.units(0, _NOWHERE)
        sides = [NO_UNITS, *(_live(units, min_offset) for units in stored)]
        side = Side(*(np.concatenate(columns) for columns in zip(*sides, strict=True)))
        has_ext = rules.is_ext_enabled and kind is QueueKind.SIMPLE and not is_in_database
        return self._expanded(side, name) if has_ext else side

    def _expanded(self, side: Side, name: QueueName) -> Side:
        """Take values that are in an extension from there, as their addresses may differ."""
        directory = queue_path(self._root / CONSUME_QUEUE_EXT, *name)
        ext = ConsumeQueueExt(directory, self._rules, _FILES, writable=False)
        try:
            ext.load()
            ext.recover()
            codes = side.units["tags_code"]
            for place in np.flatnonzero(codes <= LAST_EXT_ADDRESS).tolist():
                unit = ext.get(int(codes[place]))
                if unit is not None:
                    codes[place] = unit.tags_code
        finally:
            ext.close()
        return side


def _live(units: Units, min_offset: int) -> Side:
    """Leave out units below the log's start, and filler units before a file's first real one."""
    kept = units.chosen((units.starts >= min_offset) & ~units.are_fillers)
    compared = plain_columns(kept.stored)
    if kept.kind is QueueKind.BATCH:
        compared["count"] = kept.counts
    return Side(kept.offsets, compared)


class LogBounds(NamedTuple):
    """The part of a log that counts in a comparison."""

    min_offset: int  # physical offset where the log starts; units below it point to deleted records
    moment: LiveMoment | None = None  # as of when a store that a broker is writing is compared
    end: FoundEnd | None = None  # where the log ends, and what follows; if it is not known, no unit is after it
    is_open: bool = False
    """Whether the store was not closed: the header of its last index file may be older than the rest of the file."""

    @property
    def has_crashed(self) -> bool:
        """Whether the store was not closed, and no broker has it.

        Then a torn last record, units and entries of it, and records that have none yet are what a crash leaves. A
        restart removes the former, and completes the latter.
        """
        return self.is_open and self.moment is None

    @property
    def log_end(self) -> int:
        """Physical offset where the log ends."""
        if self.moment is not None:
            return self.moment.log_end
        return _NOWHERE if self.end is None else self.end.end_offset

    @property
    def torn(self) -> tuple[int, int]:
        """Begin and end of a last record that is damaged, whose unit is not judged; zeros are none."""
        tails = [] if self.end is None else [each for each in self.end.tails if each.reason.is_damage]
        return (tails[0].begin, tails[-1].end) if tails else (0, 0)


def judge_queue(
    name: QueueName, ours: Side, stored: StoredQueues, bounds: LogBounds, lost: LostBytes | None = None
) -> QueueJudgement:
    """Judge each unit of a queue by those that the log gives it; units below the log's start are ignored.

    A unit whose record is damaged now was right, so its place in the queue does not count.
    """
    judged, place = QueueJudgement(*name, digest_of(ours)), stored.place(name)
    try:
        theirs = stored.side(name, bounds.min_offset)
    except (SegmentLayoutError, OSError) as error:
        kind, expected = FindingKind.QUEUE_UNREADABLE, "files that the release loads"
        finding = Finding(kind, place, *name, expected=expected, found=in_words(error, Path(place)))
        least = int(ours.units["physical_offset"].min()) if len(ours.indexes) else -1
        return replace(judged, counts=((kind, 1),), first=(finding,), missing_from=least)
    due = ours
    if bounds.moment is not None:  # a live store may have newer units than were read, and not yet have the last ones
        theirs = theirs.chosen(bounds.moment.judges(theirs.units["physical_offset"]))
        is_due = ours.units["physical_offset"] < bounds.moment.dispatched
        due = ours if is_due.all() else ours.chosen(is_due | np.isin(ours.indexes, theirs.indexes))
    return _judge_units(judged, place, *_undamaged(due, theirs, lost, bounds.torn), bounds.log_end)


def _undamaged(ours: Side, theirs: Side, lost: LostBytes | None, torn: tuple[int, int]) -> tuple[Side, Side]:
    """Leave out the places at which the store has units of records that are damaged."""
    begin, end = torn
    offsets = theirs.units["physical_offset"]
    is_lost = (offsets >= begin) & (offsets < end)
    if lost is not None and lost.total:
        is_lost |= lost.holds(offsets)
    if not is_lost.any():
        return ours, theirs
    is_ours = ~np.isin(ours.indexes, theirs.indexes[is_lost])
    return ours.chosen(is_ours), theirs.chosen(~is_lost)


_KEPT: Final = 20
"""Findings of a queue that are kept of each kind; all are counted."""


@dataclass(frozen=True, slots=True)
class QueueJudgement:
    """A judgement on a queue of a store."""

    topic: str
    queue_id: int
    digest: str
    """SHA-256 of the units as the log has them, in hexadecimal digits: of their queue offsets (64 bits each, least byte
    first), then of physical offset, size, tags code and number of messages of each."""
    counts: tuple[tuple[FindingKind, int], ...] = ()  # wrong units by kind, of those kinds that there are
    first: tuple[Finding, ...] = ()  # the first of each kind, in order of the queue
    missing_from: int = -1  # least physical offset of a record without its unit; -1 if there is none
    reaches: int = -1  # greatest physical offset of a unit that is right; -1 if there is none
    missing_behind: int = 0  # how many records without their units come after that of the last unit that is right
    missing_behind_from: int = -1  # least physical offset of these; -1 if there is none


def _judge_units(judged: QueueJudgement, place: str, ours: Side, theirs: Side, log_end: int) -> QueueJudgement:
    """Judge each unit of a store's queue.

    * `ours`, `theirs`: The units derived from the log, and those of the store, both by ascending place.
    * `log_end`: Physical offset where the log ends.
    """
    if np.array_equal(ours.indexes, theirs.indexes) and np.array_equal(ours.units, theirs.units):
        reaches = int(ours.units["physical_offset"].max(initial=-1))
        return replace(judged, reaches=reaches)
    _, mine, other = np.intersect1d(ours.indexes, theirs.indexes, return_indices=True)
    is_right = ours.units[mine] == theirs.units[other]
    right = mine[is_right]
    found = list(_findings(ours, theirs, (mine[~is_right], other[~is_right]), right, log_end))
    missing = _missing(ours, theirs, found)
    found.append((FindingKind.UNIT_MISSING, ours, missing, ""))
    counts = tuple((kind, len(places)) for kind, _, places, _ in found if len(places))
    places_of_missing = ours.units["physical_offset"][missing]
    reaches = int(ours.units["physical_offset"][right].max(initial=-1))
    behind = places_of_missing[places_of_missing > reaches]
    queue = (place, judged.topic, judged.queue_id)
    first = [each for group in found for each in _first(queue, *group)]
    return replace(
        judged,
        counts=counts,
        first=tuple(sorted(first, key=lambda each: each.queue_offset or 0)),
        missing_from=int(places_of_missing.min()) if len(missing) else -1,
        reaches=reaches,
        missing_behind=len(behind),
        missing_behind_from=int(behind.min()) if len(behind) else -1,
    )


_Group = tuple[FindingKind, "Side", "npt.NDArray[np.int64]", str]
"""A kind, the side that shows it, the places of its units there, and what was expected, but for missing ones."""


def _findings(
    ours: Side,
    theirs: Side,
    differing: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
    right: npt.NDArray[np.int64],
    log_end: int,
) -> Iterator[_Group]:
    """Sort the units that differ, and those at places that the log does not have, by what is wrong with them."""
    mine, other = differing
    records = ours.units["physical_offset"]

    def split(places: npt.NDArray[np.int64], otherwise: FindingKind, expected: str) -> Iterator[_Group]:
        """Tell by where a unit points whose unit it is."""
        offsets = theirs.units["physical_offset"][places]
        is_duplicate, is_record = np.isin(offsets, records[right]), np.isin(offsets, records)
        is_after = offsets >= log_end
        yield FindingKind.UNIT_DUPLICATE, theirs, places[is_duplicate], expected
        yield FindingKind.UNIT_SHIFTED, theirs, places[is_record & ~is_duplicate], expected
        yield FindingKind.UNIT_AFTER_END, theirs, places[is_after & ~is_record], expected
        yield otherwise, theirs, places[~is_after & ~is_record], expected

    is_same_record = ours.units["physical_offset"][mine] == theirs.units["physical_offset"][other]
    is_size = ours.units["size"][mine] != theirs.units["size"][other]
    is_size |= ours.units["count"][mine] != theirs.units["count"][other]
    for_place = "the unit of the record that the log has for this place"
    yield FindingKind.UNIT_WRONG_SIZE, theirs, other[is_same_record & is_size], for_place
    yield FindingKind.UNIT_WRONG_TAGS_CODE, theirs, other[is_same_record & ~is_size], for_place
    yield from split(other[~is_same_record], FindingKind.UNIT_WRONG_PLACE, for_place)
    surplus = np.flatnonzero(~np.isin(theirs.indexes, ours.indexes))
    yield from split(surplus, FindingKind.UNIT_EXTRA, "no unit here")


def _missing(ours: Side, theirs: Side, found: list[_Group]) -> npt.NDArray[np.int64]:
    """Return the records without a unit, except those whose place has a wrong one that is a finding itself.

    A shifted unit is a finding about another record.
    """
    shifted = [places for kind, _, places, _ in found if kind is FindingKind.UNIT_SHIFTED]
    kept = np.ones(len(theirs.indexes), np.bool_)
    kept[np.concatenate([np.empty(0, np.int64), *shifted])] = False
    is_there = np.isin(ours.indexes, theirs.indexes[kept])
    is_elsewhere = np.isin(ours.units["physical_offset"], theirs.units["physical_offset"])
    return np.flatnonzero(~is_there & ~is_elsewhere)


def _first(
    queue: tuple[str, str, int],
    kind: FindingKind,
    side: Side,
    places: npt.NDArray[np.int64],
    expected: str,
) -> Iterator[Finding]:
    """Yield the first findings of a group in a queue: its place, topic and id."""
    for place in places[:_KEPT].tolist():
        unit = _shown(side, place)
        offset, physical = int(side.indexes[place]), int(side.units["physical_offset"][place])
        if kind is FindingKind.UNIT_MISSING:
            yield Finding(kind, *queue, offset, physical, None, unit, "no unit")
        else:
            yield Finding(kind, *queue, offset, physical, None, expected, unit)


def _shown(side: Side, place: int) -> str:
    unit = side.units[place]
    return f"record at {unit['physical_offset']} of {unit['size']} bytes, tags code {unit['tags_code']}"


def digest_of(side: Side) -> str:
    """Return the digest of a queue's units, as of `QueueJudgement.digest`."""
    found = sha256(np.ascontiguousarray(side.indexes, "<i8").data)
    found.update(np.ascontiguousarray(side.units).data)
    return found.hexdigest()
