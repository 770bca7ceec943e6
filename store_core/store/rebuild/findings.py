# SPDX-License-Identifier: Apache-2.0
"""What a check of a store can find, counted by kind; ranges of the log that are lost, and what stands for them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from store_core.format.layout import MIN_RECORD_SIZE
from store_core.snapshot.log import Log

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from store_core.files.segment_source import Segment
    from store_core.queue.consume_queue_unit import CqUnit


class FindingKind(StrEnum):
    """What is wrong; the value is its name in reports."""

    meaning: str  # for a person, without a full stop

    def __new__(cls, value: str, meaning: str) -> Self:
        """Make a member from its name in JSON and its meaning."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    @property
    def is_of_log(self) -> bool:
        """Whether it is about the commit log."""
        return self.startswith("log_")

    @property
    def is_of_queues(self) -> bool:
        """Whether it is about consume queues."""
        return self.startswith(("unit_", "queue_", "unknown_"))

    @property
    def is_of_index(self) -> bool:
        """Whether it is about the key index."""
        return self.startswith("index_")

    @property
    def depends_on_release(self) -> bool:
        """Whether another release may leave what this one would not."""
        return self not in _BY_ANY_RELEASE

    # ---- the log
    LOG_LAYOUT = "log_layout", "the segment files do not form one log, or the release would not load them all"
    LOG_DAMAGE = "log_damage", "bytes of the log that are no record"
    LOG_CRC = "log_crc", "a body that does not match its checksum"
    LOG_RECORD_CRC = "log_record_crc", "a record that does not match its checksum over all of it"
    LOG_TIME = "log_time", "a record without a store time"
    LOG_BODY = "log_body", "a compressed body that no consumer can expand"
    LOG_OFFSETS = "log_offsets", "a queue's offsets do not increase by one from record to record"
    LOG_REFUSED = "log_refused", "a record that no queue can have"

    # ---- consume queues
    UNIT_MISSING = "unit_missing", "the log has a record, and the queue no unit of it"
    UNIT_EXTRA = "unit_extra", "a unit for which the log has no record"
    UNIT_SHIFTED = "unit_shifted", "a record's unit is at another place of its queue"
    UNIT_DUPLICATE = "unit_duplicate", "a second unit of a record"
    UNIT_WRONG_SIZE = "unit_wrong_size", "a unit with another size than its record"
    UNIT_WRONG_TAGS_CODE = "unit_wrong_tags_code", "a unit with another tags code than its record"
    UNIT_WRONG_PLACE = "unit_wrong_place", "a unit that points at no record of its queue"
    UNIT_AFTER_END = "unit_after_end", "a unit that points at or after the log's end"
    QUEUE_UNREADABLE = "queue_unreadable", "a queue that the release would not load"
    UNKNOWN_TOPIC = "unknown_topic", "a queue with units, of a topic that neither log nor configuration know"
    UNKNOWN_QUEUE = "unknown_queue", "a queue with units, and no record of it in the log"

    # ---- the key index
    INDEX_MISSING = "index_missing", "a key of a record without its entry"
    INDEX_EXTRA = "index_extra", "an entry for which the log has no key"
    INDEX_WRONG_HASH = "index_wrong_hash", "an entry with another hash than its record's key"
    INDEX_WRONG_PLACE = "index_wrong_place", "an entry that leads to another place than its key's record"
    INDEX_AFTER_END = "index_after_end", "an index file that points at or after the log's end"
    INDEX_CHAIN = "index_chain", "entries that a search does not reach: a hash chain is broken"
    INDEX_HEADER = "index_header", "an index file whose header differs from its first and last entry"
    INDEX_ORDER = "index_order", "an index file that begins before the one before it ends"
    INDEX_UNREADABLE = "index_unreadable", "an index file that the release would not load"

    # ---- checkpoint and configuration
    CHECKPOINT = "checkpoint", "a checkpoint that can't be right"
    CONFIG_UNREADABLE = "config_unreadable", "a configuration file that can't be read, nor its backup"
    CONFIG_OFFSET = "config_offset", "a consumer's or a delay level's offset that its queue can't have"
    TIMER_UNIT = "timer_unit", "a pending timer whose place in the log holds no timer"


_BY_ANY_RELEASE: Final = frozenset(
    {
        FindingKind.LOG_DAMAGE,
        FindingKind.LOG_CRC,
        FindingKind.LOG_RECORD_CRC,
        FindingKind.LOG_BODY,
        FindingKind.UNIT_WRONG_SIZE,
        FindingKind.UNIT_WRONG_PLACE,
        FindingKind.UNIT_DUPLICATE,
        FindingKind.INDEX_CHAIN,
        FindingKind.INDEX_HEADER,
        FindingKind.INDEX_ORDER,
    }
)


class Finding(NamedTuple):
    """One finding. Fields that do not apply are None.

    * `begin`, `end`: Physical offsets of the bytes of the log that it is about; the end is exclusive.
    """

    kind: FindingKind
    where: str  # the file or directory
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    begin: int | None = None
    end: int | None = None
    expected: str = ""
    found: str = ""


class FindingPlace(NamedTuple):
    """Where findings of a kind are: a file, or a queue. Fields that do not apply are None."""

    kind: FindingKind
    where: str
    topic: str | None
    queue_id: int | None


@dataclass(slots=True)
class Tally:
    """Findings, counted by kind; the first of each kind are kept."""

    most: int = 100  # how many findings of a kind are kept
    first: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    places: dict[FindingPlace, int | None] = field(default_factory=dict)
    """All places that have findings, each with the least physical offset of those that were given."""
    _counts: Counter[FindingKind] = field(default_factory=Counter)
    _kept: Counter[FindingKind] = field(default_factory=Counter)

    def add(self, kind: FindingKind, count: int, findings: Iterable[Finding]) -> None:
        """Add findings of one kind, of which only the first may be given."""
        if count:
            self._counts[kind] += count
        for finding in findings:
            place = FindingPlace(finding.kind, finding.where, finding.topic, finding.queue_id)
            known = self.places.get(place)
            begins = [begin for begin in (known, finding.begin) if begin is not None]
            self.places[place] = min(begins, default=None)
            if self._kept[kind] < self.most:
                self._kept[kind] += 1
                self.first.append(finding)

    def add_all(self, findings: Iterable[Finding]) -> None:
        """Add findings that are all given."""
        for finding in findings:
            self.add(finding.kind, 1, [finding])

    def common_with(self, earlier: Tally) -> Tally:
        """Return the findings that an earlier tally also has, each at the same place; with the notes of this one.

        Of a kind of which not all are kept, there are as many as the tally with fewer has.
        """
        again, known = Tally(self.most, notes=self.notes), {_identity(each) for each in earlier.first}
        for kind, count in self.counts:
            kept = [each for each in self.first if each.kind is kind]
            both = [each for each in kept if _identity(each) in known]
            if both:
                again.add(kind, len(both) if len(kept) == count else min(count, earlier._counts[kind]), both)
        return again

    @property
    def counts(self) -> tuple[tuple[FindingKind, int], ...]:
        """How many findings of each kind there are, in the order of `FindingKind`."""
        return tuple((kind, self._counts[kind]) for kind in FindingKind if self._counts[kind])


def _identity(finding: Finding) -> tuple[object, ...]:
    """Return what tells findings apart: what was expected and found may be of another moment."""
    return finding[: Finding._fields.index("end")]


_UNREADABLE_SIZE: Final = 2


class StandIn(NamedTuple):
    """The unit to store at the queue offsets of lost records.

    * `physical_offset`, `store_size`, `tags_code`: Fields of the unit.

    RocketMQ has no unit for "nothing here" (ADR 0015). How 4.3.0, 4.9.7 and 5.3.3 treat the candidates:

    * The units before a queue's first one, position 0 and size 2**31 - 1, are below its minimum offset, so nobody
      gets them. Inside a queue, with position 0 the cleaning of queues deletes a file that ends with one, searches by
      time and the correction of the minimum offset go wrong, and a get skips what comes next in the first log file.
    * For a record that can't be read, a get skips **all** units that point into the same log file, up to the first one
      that points into a later file (``DefaultMessageStore.getMessage``, ``rollNextFile``). So a unit that can't be read
      is harmless only if the next record is in a later file than it.
    * All of them expect positions that do not decrease.

    So if the next record is in a later segment than the one before, a stand-in points to two bytes across the start of
    the next record's segment: never readable, and the get continues with that record. In the same segment it repeats
    the unit before the gap: a consumer gets that record again, once for each offset, which at-least-once delivery
    allows, and no existing record is skipped.
    """

    physical_offset: int
    store_size: int
    tags_code: int
    is_copy: bool  # whether it repeats the unit before the gap, so that consumers get that record again

    @classmethod
    def between(cls, last: CqUnit, next_segment: int) -> StandIn:
        """Choose the unit for a gap.

        * `last`: The unit before the gap.
        * `next_segment`: Physical offset of the first byte of the segment that has the record after it.
        """
        if next_segment > last.physical_offset:
            return cls(next_segment - 1, _UNREADABLE_SIZE, 0, is_copy=False)
        return cls(last.physical_offset, last.store_size, last.tags_code, is_copy=True)


_SHOWN: Final = 1000
"""Maximum ranges of a segment that are listed individually."""

_CARRIED: Final = 10_000
"""Maximum ranges of a segment whose bounds are kept exactly; a segment with more was crafted."""


class LostRange(NamedTuple):
    """Bytes of a segment without a readable record.

    * `begin`, `end`: Physical offsets.
    """

    begin: int
    end: int
    reason: str  # why there is no record at `begin`


class LostRanges:
    """Collects the lost ranges of one segment, in ascending order.

    * `count`, `size`: Number of ranges, and bytes in them.
    """

    def __init__(self) -> None:
        self.count = self.size = 0
        self.first: list[LostRange] = []
        self._bounds: list[tuple[int, int]] = []

    def add(self, begin: int, end: int, reason: str) -> None:
        """Add a range that begins at or after the end of the previous one."""
        self.count += 1
        self.size += end - begin
        if len(self.first) < _SHOWN:
            self.first.append(LostRange(begin, end, reason))
        if len(self._bounds) < _CARRIED:
            self._bounds.append((begin, end))
        else:
            self._bounds[-1] = (self._bounds[-1][0], end)

    def holds(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which physical offsets are in a lost range."""
        return LostBytes((), [self.packed()]).holds(offsets)

    def packed(self) -> bytes:
        """Pack the bounds of all ranges for `LostBytes`; after 10,000 ranges the bytes in between are included."""
        return np.array(self._bounds, np.int64).tobytes()


class LostBytes:
    """Computes how many bytes of a log are lost between two offsets: in damaged ranges and missing segments.

    * `segments`: The log's segments, in order.
    * `packed`: Results of `LostRanges.packed`.
    """

    def __init__(self, segments: Sequence[Segment], packed: Iterable[bytes] = ()) -> None:
        listed = np.array(Log(tuple(segments)).missing, np.int64).reshape(-1, 2)
        found = [np.frombuffer(each, np.int64).reshape(-1, 2) for each in packed]
        ranges = np.concatenate([listed, *found])
        ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
        self._begins, self._ends = ranges[:, 0], ranges[:, 1]
        self._before = np.concatenate(([0], np.cumsum(self._ends - self._begins)))
        self._starts = np.array([segment.start_offset for segment in segments], np.int64)
        self.total = int(self._before[-1])

    def between(self, begin: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Count the lost bytes from each `begin` to its `end`, both physical offsets; int64, shape (n,)."""
        return self._up_to(end) - self._up_to(begin)

    def holds(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which physical offsets are lost."""
        return self.between(offsets, offsets + 1) > 0

    def _up_to(self, offset: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        number = np.searchsorted(self._begins, offset, "right")
        if not self._ends.size:
            return np.zeros(len(offset), np.int64)
        excess = np.where(number > 0, self._ends[number - 1] - offset, 0)
        up_to: npt.NDArray[np.int64] = self._before[number] - np.maximum(excess, 0)
        return up_to

    @property
    def log_start(self) -> int:
        """Physical offset of the log's first byte."""
        return int(self._starts[0]) if self._starts.size else 0

    def segment_start(self, offset: int) -> int:
        """Return the physical offset of the first byte of the segment that holds an offset."""
        number = int(np.searchsorted(self._starts, offset, "right"))
        return int(self._starts[max(number - 1, 0)]) if self._starts.size else 0


_FREE_UNITS: Final = 1 << 20


class MissingOffsets(NamedTuple):
    """Queue offsets whose records are lost.

    * `first`, `last`: Queue offsets, both included.
    """

    first: int
    last: int
    stand_in: str
    """What a get finds there: ``"repeated"``, the preceding record once for each; ``"skipped"``, nothing; ``"below"``,
    nothing, because the queue begins after them."""


class FillBudget:
    """Limits the stand-ins a task may write, so that a crafted log can't fill the disk.

    A record takes at least 91 bytes, which bounds the records that damage can have held; but the same record may be in
    many light queues, so some stand-ins are free.
    """

    def __init__(self, lost: LostBytes) -> None:
        self.lost = lost
        self._left = _FREE_UNITS + lost.total // MIN_RECORD_SIZE

    def take(self, count: int) -> bool:
        """Use up `count` stand-ins if that many are left; return whether they were."""
        if count > self._left:
            return False
        self._left -= count
        return True
