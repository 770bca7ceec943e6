# SPDX-License-Identifier: Apache-2.0
"""The queues of a store as a release loads them, and what is wrong with each of their units by the log."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias

import numpy as np

from store_core.errors import SegmentLayoutError
from store_core.files.file_system import OsFileSystem
from store_core.files.names import CONSUME_QUEUE, CONSUME_QUEUE_EXT
from store_core.queue.consume_queue.consume_queue_ext import LAST_EXT_ADDRESS, ConsumeQueueExt
from store_core.queue.queue_path import QueueRules, is_light, queue_path
from store_core.snapshot.queues import FileQueue, Queues
from store_core.snapshot.units import QueueKind, Units
from store_core.store.rebuild.findings import Finding, FindingKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    from store_core.snapshot.log_end import FoundEnd, LiveMoment
    from store_core.store.rebuild.lost_ranges import LostBytes


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

    def units(self, topic: str, queue_id: int) -> Iterator[Units]:
        """Yield the units of a queue, in its order; `SegmentLayoutError` if the release would not load it."""
        queue = self._queues.get(topic, queue_id) if self._is_in_database(topic) else None
        if queue is not None:
            yield from queue.units(0, _NOWHERE)
        else:
            kind = QueueKind.BATCH if topic in self._rules.batch_topics else QueueKind.SIMPLE
            yield from FileQueue((topic, queue_id), kind, self._root, _FILES).loaded(self._rules)

    def place(self, topic: str, queue_id: int) -> str:
        """Return where findings of a queue are said to be."""
        return f"{self._root}/{CONSUME_QUEUE}/{topic}/{queue_id}"

    def _is_in_database(self, topic: str) -> bool:
        queues = self._queues
        return queues.database is not None or (is_light(topic) and queues.light_database is not None)

    def side(self, topic: str, queue_id: int, min_offset: int) -> Side:
        """Return the units that point at or after an offset of the log; those of a batch queue count messages."""
        sides = [NO_UNITS]
        sides += [_live(units, min_offset) for units in self.units(topic, queue_id)]
        side = Side(*(np.concatenate(columns) for columns in zip(*sides, strict=True)))
        has_ext = self._rules.is_ext_enabled and self._is_simple(topic)
        return self._expanded(side, topic, queue_id) if has_ext else side

    def _is_simple(self, topic: str) -> bool:
        return not self._is_in_database(topic) and topic not in self._rules.batch_topics

    def _expanded(self, side: Side, topic: str, queue_id: int) -> Side:
        """Take values that are in an extension from there, as their addresses may differ."""
        directory = queue_path(self._root / CONSUME_QUEUE_EXT, topic, queue_id)
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


def judge_queue(  # noqa: PLR0913 -- the two sides, and what is known of the log
    topic: str,
    queue_id: int,
    ours: Side,
    stored: StoredQueues,
    bounds: LogBounds,
    lost: LostBytes | None = None,
) -> QueueJudgement:
    """Judge each unit of a queue by those that the log gives it; units below the log's start are ignored.

    A unit whose record is damaged now was right, so its place in the queue does not count.
    """
    try:
        theirs = stored.side(topic, queue_id, bounds.min_offset)
    except (SegmentLayoutError, OSError) as error:
        return unreadable_queue(topic, queue_id, ours, stored.place(topic, queue_id), str(error))
    due = ours
    if bounds.moment is not None:  # a live store may have newer units than were read, and not yet have the last ones
        theirs = theirs.chosen(bounds.moment.judges(theirs.units["physical_offset"]))
        is_due = ours.units["physical_offset"] < bounds.moment.dispatched
        due = ours if is_due.all() else ours.chosen(is_due | np.isin(ours.indexes, theirs.indexes))
    sides = _undamaged(due, theirs, lost, bounds.torn)
    place = stored.place(topic, queue_id)
    return judge_units(topic, queue_id, *sides, bounds.log_end, place, digest_of(ours))


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
    counts: tuple[tuple[FindingKind, int], ...]  # wrong units by kind, of those kinds that there are
    first: tuple[Finding, ...]  # the first of each kind, in order of the queue
    missing_from: int  # least physical offset of a record without its unit; -1 if there is none
    reaches: int  # greatest physical offset of a unit that is right; -1 if there is none
    digest: str
    """SHA-256 of the units as the log has them, in hexadecimal digits: of their queue offsets (64 bits each, least byte
    first), then of physical offset, size, tags code and number of messages of each."""
    missing_behind: int = 0  # how many records without their units come after that of the last unit that is right
    missing_behind_from: int = -1  # least physical offset of these; -1 if there is none


def unreadable_queue(topic: str, queue_id: int, ours: Side, place: str, problem: str) -> QueueJudgement:
    """Return the judgement on a queue that can't be read."""
    kind, expected = FindingKind.QUEUE_UNREADABLE, "files that the release loads"
    finding = Finding(kind, place, topic, queue_id, expected=expected, found=problem)
    least = int(ours.units["physical_offset"].min(initial=2**63 - 1)) if len(ours.indexes) else -1
    return QueueJudgement(topic, queue_id, ((kind, 1),), (finding,), least, -1, digest_of(ours))


def judge_units(  # noqa: PLR0913 -- the queue, the two sides, and what is known of the log
    topic: str, queue_id: int, ours: Side, theirs: Side, log_end: int, place: str, digest: str
) -> QueueJudgement:
    """Judge each unit of a store's queue.

    * `ours`, `theirs`: The units derived from the log, and those of the store, both by ascending place.
    * `log_end`: Physical offset where the log ends.
    * `place`, `digest`: Those of its findings, and of the judgement.
    """
    if np.array_equal(ours.indexes, theirs.indexes) and np.array_equal(ours.units, theirs.units):
        reaches = int(ours.units["physical_offset"].max(initial=-1))
        return QueueJudgement(topic, queue_id, (), (), -1, reaches, digest)
    _, mine, other = np.intersect1d(ours.indexes, theirs.indexes, return_indices=True)
    is_right = ours.units[mine] == theirs.units[other]
    right = mine[is_right]
    found = list(_findings(ours, theirs, (mine[~is_right], other[~is_right]), right, log_end))
    missing = _missing(ours, theirs, found)
    found.append((FindingKind.UNIT_MISSING, ours, missing, None))
    counts = tuple((kind, len(places)) for kind, _, places, _ in found if len(places))
    places_of_missing = ours.units["physical_offset"][missing]
    reaches = int(ours.units["physical_offset"][right].max(initial=-1))
    behind = places_of_missing[places_of_missing > reaches]
    first = [each._replace(where=place, topic=topic, queue_id=queue_id) for group in found for each in _first(*group)]
    return QueueJudgement(
        topic,
        queue_id,
        counts,
        tuple(sorted(first, key=lambda each: each.queue_offset or 0)),
        int(places_of_missing.min()) if len(missing) else -1,
        reaches,
        digest,
        len(behind),
        int(behind.min()) if len(behind) else -1,
    )


_Group = tuple[FindingKind, "Side", "npt.NDArray[np.int64]", "dict[int, int] | None"]
"""A kind, the side that shows it, the places of its units there, and for each place the one on the other side."""


def _findings(
    ours: Side,
    theirs: Side,
    differing: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
    right: npt.NDArray[np.int64],
    log_end: int,
) -> Iterator[_Group]:
    """Sort the units that differ, and those at places that the log does not have, by what is wrong with them."""
    mine, other = differing
    known = _Known(ours, right, log_end)
    is_same_record = ours.units["physical_offset"][mine] == theirs.units["physical_offset"][other]
    is_size = ours.units["size"][mine] != theirs.units["size"][other]
    is_size |= ours.units["count"][mine] != theirs.units["count"][other]
    pairs = dict(zip(other.tolist(), mine.tolist(), strict=True))
    yield FindingKind.UNIT_WRONG_SIZE, theirs, other[is_same_record & is_size], pairs
    yield FindingKind.UNIT_WRONG_TAGS_CODE, theirs, other[is_same_record & ~is_size], pairs
    elsewhere = other[~is_same_record]
    for kind, mask in known.split(theirs.units["physical_offset"][elsewhere], FindingKind.UNIT_WRONG_PLACE):
        yield kind, theirs, elsewhere[mask], pairs
    surplus = np.flatnonzero(~np.isin(theirs.indexes, ours.indexes))
    for kind, mask in known.split(theirs.units["physical_offset"][surplus], FindingKind.UNIT_EXTRA):
        yield kind, theirs, surplus[mask], None


class _Known:
    """Tells by where a unit points whose unit it is."""

    def __init__(self, ours: Side, right: npt.NDArray[np.int64], log_end: int) -> None:
        self._records = ours.units["physical_offset"]
        self._right = self._records[right]
        self._log_end = log_end

    def split(
        self, offsets: npt.NDArray[np.int64], otherwise: FindingKind
    ) -> Iterator[tuple[FindingKind, npt.NDArray[np.bool_]]]:
        is_duplicate = np.isin(offsets, self._right)
        is_record = np.isin(offsets, self._records)
        is_after = offsets >= self._log_end
        yield FindingKind.UNIT_DUPLICATE, is_duplicate
        yield FindingKind.UNIT_SHIFTED, is_record & ~is_duplicate
        yield FindingKind.UNIT_AFTER_END, is_after & ~is_record
        yield otherwise, ~is_after & ~is_record


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
    kind: FindingKind, side: Side, places: npt.NDArray[np.int64], pairs: dict[int, int] | None
) -> Iterator[Finding]:
    """Yield the first findings of a group, without the queue."""
    for place in places[:_KEPT].tolist():
        unit = _shown(side, place)
        offset, physical = int(side.indexes[place]), int(side.units["physical_offset"][place])
        if kind is FindingKind.UNIT_MISSING:
            yield Finding(kind, "", None, None, offset, physical, None, unit, "no unit")
        else:
            expected = "no unit here" if pairs is None else "the unit of the record that the log has for this place"
            yield Finding(kind, "", None, None, offset, physical, None, expected, unit)


def _shown(side: Side, place: int) -> str:
    unit = side.units[place]
    return f"record at {unit['physical_offset']} of {unit['size']} bytes, tags code {unit['tags_code']}"


def digest_of(side: Side) -> str:
    """Return the digest of a queue's units, as of `QueueJudgement.digest`."""
    found = sha256(np.ascontiguousarray(side.indexes, "<i8").data)
    found.update(np.ascontiguousarray(side.units).data)
    return found.hexdigest()
