# SPDX-License-Identifier: Apache-2.0
"""Logs that are compared: in which parts, and in what two segments differ, in bytes and records."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from enum import Enum
from hashlib import blake2b
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from store_core.errors import StoreNotFoundError
from store_core.files.segment_source import Segment, SegmentBytes, open_ahead, open_segment, segment_at
from store_core.files.store_lock import is_lock_held
from store_core.files.store_path import StorePaths, store_roots
from store_core.format.columnar.chain import Chain, Window
from store_core.format.columnar.records import Records
from store_core.format.columnar.spans import wrong_bodies
from store_core.format.layout import BLANK_SIZE
from store_core.format.properties import CRC_NAME, CRC_RESERVED, PropertyParser
from store_core.format.record.scan import StopReason, check_record, store_timestamp
from store_core.format.salvage import Damage, SalvageWalk
from store_core.snapshot.log import Log
from store_core.snapshot.log_end import SegmentEnd, segment_ends

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    _Chunks = Callable[[int, int], npt.NDArray[np.uint8]]


class DiffBy(Enum):
    """What is compared.

    Attributes
    ----------
    AUTO
        Bytes, unless a segment file of one log begins inside one of the other: their files then have different sizes.
    BYTES
        The bytes at each physical offset, as replicas have them.
    RECORDS
        The records, wherever in the log they are.
    """

    AUTO = "auto"
    BYTES = "bytes"
    RECORDS = "records"


SideName: TypeAlias = Literal["a", "b"]


@dataclass(frozen=True, slots=True)
class ComparedLog:
    """A log as it was when the comparison was planned.

    * `begin`, `end`: Physical offsets of its first byte, and one past its last sound record.
    """

    name: SideName  # ``"a"`` or ``"b"``
    path: str  # the directory that may be the store's root
    segments: tuple[Segment, ...]
    """Up to the one that the log ends in; the earlier of two files that overlap is cut where the later begins."""
    begin: int
    end: int
    compared_end: int  # where comparing bytes ends: `end`, or after the torn tail that a dead writer left
    last_start: int  # physical offset of its last sound record; -1 if it has none
    last_store_timestamp: int  # store time of that record, ms; 0 if it has none
    stale: int  # physical offset of the first sound record after the end that is older; -1 without any
    is_live: bool  # whether a broker holds the store's lock, so that what follows the end may be a record in progress
    notes: tuple[str, ...]

    @classmethod
    def of(cls, name: SideName, paths: StorePaths) -> ComparedLog:
        """List the segments of a log, and find its end."""
        log = Log.of(paths, packed="refused")
        if not log.segments:
            raise StoreNotFoundError(
                f"nothing to compare in {paths}: expected a segment with bytes, found none; {log.notes[-1]} "
                f"Copy the log again"
            )
        ends = segment_ends(log.segments, verify_crc=True)
        roots = store_roots(paths)
        is_live = any(map(is_lock_held, roots))
        last = ends[-1]
        end = last.end_offset
        torn_end = max((each.tail.end for each in ends if each.tail is not None), default=end)
        compared_end = end if is_live else max(end, torn_end)
        kept = [each for each in log.segments if each.start_offset < compared_end] or [log.segments[0]]
        last_start, last_time = _last_record(last)
        return cls(
            name,
            str(roots[0]),
            without_overlap(kept),
            log.segments[0].start_offset,
            end,
            compared_end,
            last_start,
            last_time,
            last.segment.start_offset + last.found.stale if last.found.stale >= 0 else -1,
            is_live,
            tuple(log.notes),
        )

    @property
    def last_segment(self) -> Segment:
        """The segment that the log ends in."""
        return self.segments[-1]

    def covered(self, begin: int, end: int) -> list[tuple[int, int, Segment]]:
        """Return the parts of a range that segments hold: begin, end and segment of each."""
        bounds = ((max(each.start_offset, begin), min(each.end_offset, end), each) for each in self.segments)
        return [part for part in bounds if part[0] < part[1]]


def without_overlap(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Cut each segment at the begin of the next one: no offset is in two files."""
    return tuple(_cut(each, following) for each, following in zip_longest(segments, segments[1:]))


def _cut(segment: Segment, following: Segment | None) -> Segment:
    if following is None or following.start_offset >= segment.end_offset:
        return segment
    return replace(segment, size=following.start_offset - segment.start_offset)


def _last_record(end: SegmentEnd) -> tuple[int, int]:
    """Return physical offset and store time of the last sound record before an end; -1 and 0 without any."""
    with open_segment(end.segment) as opened:
        view = end.segment.view(opened).up_to(end.found.position)
        chain = end.found.chain or Chain(view)
        kept = chain.starts_before(end.found.position)
        last = int(kept[-1]) if kept.size else -1
        if chain.stop < end.found.position:
            for part in SalvageWalk(view, only_newer=True).parts(chain.place):
                last = last if isinstance(part, Damage) else part.place.last_sound
        if last < 0:
            return -1, 0
        return end.segment.start_offset + last, store_timestamp(view.frame(last).data, 0)


Key = TypeVar("Key")


class TopicCount(NamedTuple):
    """Records of a topic, and their bytes."""

    records: int
    size: int

    def plus(self, other: TopicCount) -> TopicCount:
        """Return the sum of two counts."""
        return TopicCount(self.records + other.records, self.size + other.size)


class Ahead(NamedTuple):
    """Records of a log after the other one's end, and the store times of the first and the last, ms."""

    total: TopicCount
    first_time: int
    last_time: int

    def plus(self, later: Ahead) -> Ahead:
        """Return these records and later ones."""
        return Ahead(self.total.plus(later.total), self.first_time, later.last_time)


def add_counts(counts: dict[Key, TopicCount], more: Mapping[Key, TopicCount]) -> None:
    """Add counts to those of the same keys."""
    for key, count in more.items():
        counts[key] = count.plus(counts[key]) if key in counts else count


def topic_text(stored: bytes) -> str:
    r"""Return a topic as text; bytes that are not UTF-8 are shown as in ``\xff``."""
    return stored.decode("utf-8", "backslashreplace")


def records_of(
    segment: Segment, offsets: Sequence[int], parser: PropertyParser = PropertyParser.FIRST_SEPARATOR
) -> Iterator[Records]:
    """Yield the sound records at some physical offsets of a segment, one by one; where there is none, nothing."""
    with open_segment(segment) as opened:
        for offset in offsets:
            raw = segment.record(opened, offset)
            if check_record(raw.data, 0, offset).reason is None:
                yield Records(raw, np.zeros(1, np.int64), segment.name, offset, parser)


def record_rows(records: Records) -> list[dict[str, Any]]:
    """Return what identifies each record, as rows of a report."""
    heads, spans = records.heads, records.spans
    columns = {
        "physical_offset": (records.starts + records.start_offset).tolist(),
        "store_size": (spans.stops - spans.starts).tolist(),
        "topic": [topic_text(topic) for topic in records.packed_topics.to_pylist()],
        "queue_id": heads.leading("queue_id").tolist(),
        "queue_offset": heads.leading("queue_offset").tolist(),
        "msg_id": records.column("msg_id").to_pylist(),
        "keys": records.column("keys").to_pylist(),
        "unique_key": records.column("unique_key").to_pylist(),
        "store_timestamp": records.column("store_timestamp").cast(pa.int64()).to_pylist(),
        "is_sound": (~wrong_bodies(records.heads, records.spans)).tolist(),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def count_topics(records: Records) -> dict[str, TopicCount]:
    """Count records and their bytes by topic."""
    packed = records.packed_topics.dictionary_encode()
    sizes = records.spans.stops - records.spans.starts
    indices = packed.indices.to_numpy()
    counts = np.bincount(indices, minlength=len(packed.dictionary)).tolist()
    totals = np.zeros(len(packed.dictionary), np.int64)
    np.add.at(totals, indices, sizes)
    topics = map(topic_text, packed.dictionary.to_pylist())
    return dict(zip(topics, map(TopicCount, counts, totals.tolist()), strict=True))


JOINED: Final = 64
"""Ranges with fewer equal bytes than this between them are one: damaged bytes can be right by chance."""

_BLOCK: Final = 1 << 20
_DIGEST_SIZE: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class DifferingBytes:
    """The ranges in which two arrays differ.

    * `begins`, `ends`, `counts`: int64, shape (n,), ascending: positions, and how many bytes differ in each range. The
      first and the last byte of a range differ, and `JOINED` or more equal bytes are between two ranges.
    * `digest_a`, `digest_b`: BLAKE2b of the two arrays, 16 bytes.
    """

    begins: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    digest_a: bytes
    digest_b: bytes

    @classmethod
    def between(cls, a: _Chunks, b: _Chunks, size: int, block: int = _BLOCK) -> DifferingBytes:
        """Compare as many bytes of two arrays, each by a function that returns those of a range, some at a time."""
        digest = blake2b(digest_size=_DIGEST_SIZE)
        other: blake2b | None = None
        found: list[npt.NDArray[np.int64]] = []
        for begin in range(0, size, block):
            end = min(begin + block, size)
            piece_a, piece_b = a(begin, end), b(begin, end)
            if other is None and not np.array_equal(piece_a, piece_b):
                other = digest.copy()
            digest.update(piece_a.data)
            if other is not None:
                other.update(piece_b.data)
                found.append(_ranges(begin + np.flatnonzero(piece_a != piece_b)))
        ranges = _joined(np.concatenate([np.empty((3, 0), np.int64), *found], axis=1))
        return cls(ranges[0], ranges[1], ranges[2], digest.digest(), (other or digest).digest())

    def __len__(self) -> int:
        """Return the number of ranges."""
        return int(self.begins.size)

    def touches(self, starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return for each of some ranges whether a differing range has a byte in common with it."""
        touched: npt.NDArray[np.bool_] = np.searchsorted(self.ends, starts, "right") < np.searchsorted(
            self.begins, stops, "left"
        )
        return touched

    def before(self, position: int) -> int:
        """Return how many ranges begin before a position."""
        return int(np.searchsorted(self.begins, position))


def _ranges(positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return ranges of ascending positions, shape (3, n): begins, ends and counts."""
    if not positions.size:
        return np.empty((3, 0), np.int64)
    firsts = np.flatnonzero(np.diff(positions, prepend=positions[0] - JOINED - 1) > JOINED)
    lasts = np.append(firsts[1:], positions.size)
    return np.stack([positions[firsts], positions[lasts - 1] + 1, lasts - firsts])


def _joined(ranges: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Join the last range of a block with the first of the next one if they are close."""
    begins, ends, counts = ranges
    if begins.size < 2:  # noqa: PLR2004 -- nothing to join
        return ranges
    firsts = np.flatnonzero(np.append(True, begins[1:] - ends[:-1] >= JOINED))
    lasts = np.append(firsts[1:], begins.size) - 1
    return np.stack([begins[firsts], ends[lasts], np.add.reduceat(counts, firsts)])


CHANGED: Final = "changed"
ONLY: Final = "only"


@dataclass(frozen=True, slots=True)
class PartSide:
    """One log's share of a part.

    * `end`, `other_end`: Physical offsets at which this log and the other one end: sound records between the two are
      ahead.
    """

    name: SideName  # ``"a"`` or ``"b"``
    segment: Segment
    limit: int  # physical offset after which nothing of the segment is looked at
    is_last: bool  # whether the log ends in this segment
    end: int
    other_end: int

    @classmethod
    def of(cls, side: ComparedLog, segment: Segment, other: ComparedLog) -> PartSide:
        """Return a log's share of a part that lies in one of its segments."""
        limit = min(segment.end_offset, side.compared_end)
        return cls(side.name, segment, limit, segment == side.last_segment, side.end, other.end)


@dataclass(frozen=True, slots=True)
class DiffPart:
    """A range of offsets that one segment file of each log holds, or only one log's.

    * `begin`, `end`: Physical offsets.
    * `a`, `b`: None if that log has no file there.
    """

    begin: int
    end: int
    a: PartSide | None
    b: PartSide | None
    is_compared: bool  # whether the range belongs to what both logs should have; else its records are only counted
    most_rows: int  # differing ranges, and differing records of each log, that are listed; all are counted

    @property
    def sides(self) -> tuple[PartSide, ...]:
        """The logs that have a file there."""
        return tuple(side for side in (self.a, self.b) if side is not None)


@dataclass(slots=True)
class DiffPartial:
    """What was found in a part.

    * `digest_a`, `digest_b`: Of the compared bytes of each log.
    """

    part: DiffPart
    digest_a: bytes | None = None
    digest_b: bytes | None = None
    differing_bytes: int = 0  # without those in the rest of a file that both logs closed with a blank record there
    filler_bytes: int = 0  # differing bytes in such a rest, which nobody reads
    range_count: int = 0
    ranges: list[tuple[int, int, int]] = field(default_factory=list)
    """Begin, end and number of differing bytes of the first differing ranges; physical offsets."""
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)  # differing records by side and kind
    rows: list[dict[str, Any]] = field(default_factory=list)  # the first differing records of each log
    topics: dict[tuple[str, str], TopicCount] = field(default_factory=dict)  # differing records by side and topic
    ahead: dict[str, Ahead] = field(default_factory=dict)
    """By side: records from the other log's end on that are not among the differing ones."""

    @property
    def is_equal(self) -> bool:
        """Whether no byte differs that anybody reads."""
        return not self.differing_bytes


_ROWS: Final = 1 << 14
"""Records whose bytes are there at once."""


class _WalkedSegment:
    """The sound records of a log's segment file."""

    def __init__(self, side: PartSide, opened: SegmentBytes) -> None:
        self.side = side
        self.first = side.segment.start_offset
        self._opened = opened
        salvage = SalvageWalk(side.segment.view(opened).up_to(side.limit - self.first), only_newer=side.is_last)
        windows = (part for part in salvage.parts() if isinstance(part, Window))
        bounds = [window.run.bounds + window.base for window in windows]
        empty = np.empty(0, np.int64)
        self.starts = np.concatenate([empty, *(each[:-1] for each in bounds)])
        self.stops = np.concatenate([empty, *(each[1:] for each in bounds)])
        self.blank_end = self.first + salvage.stop + BLANK_SIZE if salvage.reason is StopReason.END_OF_FILE else None

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Physical offsets of the records."""
        return self.starts + self.first

    def records(self, mask: npt.NDArray[np.bool_], most: int | None = None) -> Iterator[Records]:
        """Yield some of the records, or the first ones of these, a few at a time."""
        starts, sizes = self.starts[mask][:most], (self.stops - self.starts)[mask][:most]
        for row in range(0, starts.size, _ROWS):
            begins, some = starts[row : row + _ROWS], sizes[row : row + _ROWS]
            at = some.cumsum() - some
            raw = self._opened.packed(begins, some)
            yield Records(raw, at, self.side.segment.name, self.first + begins - at)

    def touched(self, part: DiffPart, differing: DifferingBytes | None) -> npt.NDArray[np.bool_]:
        """Return for each record whether differing bytes are in it; all of the part are if the other log has none."""
        if differing is not None:
            shift = self.first - part.begin
            return differing.touches(self.starts + shift, self.stops + shift)
        is_missing = part.is_compared and len(part.sides) == 1
        return is_missing & (self.stops + self.first > part.begin) & (self.offsets < part.end)


def diff_part(part: DiffPart) -> DiffPartial:
    """Compare a part, in any process: bytes first, and records only if bytes differ or one log is ahead."""
    found = DiffPartial(part)
    with ExitStack() as stack:
        opened = [stack.enter_context(open_ahead(side.segment)) for side in part.sides]
        differing = _compare(part, opened, found) if len(opened) > 1 else None
        is_walked = differing is not None or len(opened) == 1 or any(part.end > side.other_end for side in part.sides)
        if not is_walked:
            return found
        walks = [_WalkedSegment(side, each) for side, each in zip(part.sides, opened, strict=True)]
        masks = [walked.touched(part, differing) for walked in walks]
        if differing is not None:
            _note_ranges(part, differing, walks, found)
        _note_records(walks, masks, part.most_rows, found)
        for walked, mask in zip(walks, masks, strict=True):
            _note_ahead(part, walked, mask, found)
    return found


def _compare(part: DiffPart, opened: list[SegmentBytes], found: DiffPartial) -> DifferingBytes | None:
    """Compare the bytes of both logs; None if all are equal. Positions count from the part's begin."""
    begins = [part.begin - side.segment.start_offset for side in part.sides]
    size = part.end - part.begin
    a, b = (_chunks_from(each, begin) for each, begin in zip(opened, begins, strict=True))
    differing = DifferingBytes.between(a, b, size)
    found.digest_a, found.digest_b = differing.digest_a, differing.digest_b
    return differing if len(differing) else None


def _chunks_from(opened: SegmentBytes, first: int) -> _Chunks:
    return lambda begin, end: opened.chunk(first + begin, first + end)


def _note_ranges(part: DiffPart, differing: DifferingBytes, walks: list[_WalkedSegment], found: DiffPartial) -> None:
    """Note the differing ranges, except those that nobody reads: after a blank record that both logs have."""
    ends = {walked.blank_end for walked in walks}
    end = ends.pop() if len(ends) == 1 else None
    read = len(differing) if end is None else differing.before(end - part.begin)
    found.differing_bytes, found.range_count = int(differing.counts[:read].sum()), read
    found.filler_bytes = int(differing.counts[read:].sum())
    rows = slice(0, min(read, part.most_rows))
    shown = (differing.begins[rows] + part.begin, differing.ends[rows] + part.begin, differing.counts[rows])
    found.ranges = [(begin, end, count) for begin, end, count in zip(*(each.tolist() for each in shown), strict=True)]


def _note_records(
    walks: list[_WalkedSegment], masks: list[npt.NDArray[np.bool_]], most: int, found: DiffPartial
) -> None:
    """Note the records that differ; one is changed if the other log has a differing record at its offset."""
    offsets = [walked.offsets[mask] for walked, mask in zip(walks, masks, strict=True)]
    for number, (walked, mask) in enumerate(zip(walks, masks, strict=True)):
        side: str = walked.side.name
        others = offsets[1 - number] if len(offsets) > 1 else np.empty(0, np.int64)
        is_changed = np.isin(offsets[number], others)
        found.counts[side, CHANGED] += int(is_changed.sum())
        found.counts[side, ONLY] += int((~is_changed).sum())
        kinds = np.where(is_changed[:most], CHANGED, ONLY).tolist()
        rows = [row for records in walked.records(mask, most) for row in record_rows(records)]
        found.rows += [{"side": side, "kind": kind, **row} for kind, row in zip(kinds, rows, strict=True)]
        for records in walked.records(mask):
            add_counts(found.topics, {(side, topic): count for topic, count in count_topics(records).items()})


def _note_ahead(part: DiffPart, walked: _WalkedSegment, touched: npt.NDArray[np.bool_], found: DiffPartial) -> None:
    """Count a log's records from the other one's end on, which that one does not have yet, or no longer."""
    offsets = walked.offsets
    begin, end = max(walked.side.other_end, part.begin), min(walked.side.end, part.end)
    mask = (offsets >= begin) & (offsets < end) & ~touched
    if not mask.any():
        return
    sizes = walked.stops[mask] - walked.starts[mask]
    ends = np.zeros_like(mask)
    ends[np.flatnonzero(mask)[[0, -1]]] = True
    times = next(walked.records(ends)).heads.column("store_timestamp")
    count = TopicCount(int(mask.sum()), int(sizes.sum()))
    found.ahead[walked.side.name] = Ahead(count, int(times[0]), int(times[-1]))


DIGESTED: Final = np.dtype([("digest", f"V{_DIGEST_SIZE}"), ("offset", "<i8")])
"""A record: its digest, and its physical offset."""

_PLACES: Final = ("physical_offset", "prepared_transaction_offset")
"""Fields that hold offsets in the log, and so differ where logs are cut into segments of different sizes."""


class Unmatched(NamedTuple):
    """A log's records of a group, beside those of the other log, as physical offsets.

    * `offsets`: int64, ascending: of those that the other log does not have.
    * `first`, `last`: Of the others; -1 if there are none.
    """

    offsets: npt.NDArray[np.int64]
    first: int
    last: int


def record_digests(records: Records) -> list[bytes]:
    """Return a digest of each record, without the fields that depend on where it is.

    These are its own physical offset, that of the prepared message it belongs to, and the checksum over the whole
    record that RocketMQ 5.x can put into a property.
    """
    heads: list[bytes] = [b""] * len(records)
    for rows, group in records.heads.groups():
        without = group.copy()
        for name in _PLACES:
            without[name] = 0
        packed = without.view(f"V{without.dtype.itemsize}").tolist()
        for row, head in zip(range(len(records)) if rows is None else rows.tolist(), packed, strict=True):
            heads[row] = head
    data, spans = records.raw.data, records.spans
    bounds = zip(heads, spans.body_start.tolist(), spans.stops.tolist(), strict=True)
    return [_digest(head, data[start:stop]) for head, start, stop in bounds]


def _digest(head: bytes, rest: memoryview) -> bytes:
    digest = blake2b(head, digest_size=_DIGEST_SIZE)
    has_crc = rest[-CRC_RESERVED : -CRC_RESERVED + len(CRC_NAME)] == CRC_NAME
    digest.update(rest[:-CRC_RESERVED] if has_crc else rest)
    return digest.digest()


def digested_records(side: PartSide) -> Iterator[npt.NDArray[np.void]]:
    """Yield the sound records of a segment as arrays of `DIGESTED`, in log order."""
    segment, first = side.segment, side.segment.start_offset
    with open_ahead(segment) as opened:
        view = segment.view(opened).up_to(side.limit - first)
        for part in SalvageWalk(view, only_newer=side.is_last).parts():
            if isinstance(part, Damage):
                continue
            for row in range(0, part.run.starts.size, _ROWS):
                records = Records(part.raw, part.run.starts[row : row + _ROWS], segment.name, first + part.base)
                found = np.empty(len(records), DIGESTED)
                found["digest"] = np.frombuffer(b"".join(record_digests(records)), DIGESTED["digest"])
                found["offset"] = records.starts + first + part.base
                yield found


def unmatched_records(a: npt.NDArray[np.void], b: npt.NDArray[np.void]) -> tuple[Unmatched, Unmatched]:
    """Find which records of two logs are not in the other; equal ones are matched one to one, in log order.

    * `a`, `b`: Of dtype `DIGESTED`.
    """
    words = np.concatenate([a["digest"], b["digest"]]).view("<u8").reshape(-1, 2)
    _, numbers = np.unique(words, axis=0, return_inverse=True)
    numbers = numbers.reshape(-1)
    of_a, of_b = numbers[: a.size], numbers[a.size :]
    most = int(numbers.max(initial=-1)) + 1
    free_a = _ranks(of_a, a["offset"]) >= np.bincount(of_b, minlength=most)[of_a]
    free_b = _ranks(of_b, b["offset"]) >= np.bincount(of_a, minlength=most)[of_b]
    return _unmatched(a["offset"], free_a), _unmatched(b["offset"], free_b)


def _unmatched(offsets: npt.NDArray[np.int64], are_free: npt.NDArray[np.bool_]) -> Unmatched:
    matched = offsets[~are_free]
    first, last = (int(matched.min()), int(matched.max())) if matched.size else (-1, -1)
    return Unmatched(np.sort(offsets[are_free]), first, last)


def _ranks(numbers: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return how many earlier records have the same number."""
    order = np.lexsort((offsets, numbers))
    placed = numbers[order]
    ranks = np.empty(numbers.size, np.int64)
    ranks[order] = np.arange(numbers.size) - np.searchsorted(placed, placed)
    return ranks


# ---- the parts of a comparison


@dataclass(frozen=True, slots=True)
class LogPair:
    """Two logs, as they were when the comparison was planned."""

    a: ComparedLog
    b: ComparedLog

    @classmethod
    def of(cls, a: StorePaths, b: StorePaths) -> LogPair:
        """Find where both logs begin and end."""
        return cls(ComparedLog.of("a", a), ComparedLog.of("b", b))

    @property
    def begin(self) -> int:
        """Physical offset from which on both have bytes."""
        return max(self.a.begin, self.b.begin)

    @property
    def end(self) -> int:
        """Physical offset up to which bytes are compared; not after `begin` if there is nothing to compare."""
        return max(min(self.a.compared_end, self.b.compared_end), self.begin)

    @property
    def is_cut_alike(self) -> bool:
        """Whether no segment file of one log begins inside one of the other.

        If one does, the two have files of different sizes: their messages may be the same, but not at the same offsets,
        since a record does not cross the end of a file.
        """
        return not (self._begins_inside(self.a, self.b) or self._begins_inside(self.b, self.a))

    def _begins_inside(self, one: ComparedLog, other: ComparedLog) -> bool:
        starts = (each.start_offset for each in one.segments if self.begin <= each.start_offset < self.end)
        holders = ((start, segment_at(other.segments, start)) for start in starts)
        return any(holder is not None and holder.start_offset != start for start, holder in holders)

    def parts(self, most_rows: int) -> Iterator[DiffPart]:
        """Yield the parts in log order: those of what both should have, then those in which one log is ahead."""
        covered = [part for side in (self.a, self.b) for part in side.covered(self.begin, self.end)]
        for begin, end in pairwise(sorted({cut for start, stop, _ in covered for cut in (start, stop)})):
            a, b = (self._share(side, begin) for side in (self.a, self.b))
            if a is not None or b is not None:
                yield DiffPart(begin, end, a, b, is_compared=True, most_rows=most_rows)
        for side, other in ((self.a, self.b), (self.b, self.a)):
            for begin, end, segment in side.covered(max(self.end, other.end, side.begin), side.end):
                share = PartSide.of(side, segment, other)
                a, b = (share, None) if side is self.a else (None, share)
                yield DiffPart(begin, end, a, b, is_compared=False, most_rows=most_rows)

    def _share(self, side: ComparedLog, offset: int) -> PartSide | None:
        segment = segment_at(side.segments, offset)
        other = self.b if side is self.a else self.a
        return None if segment is None else PartSide.of(side, segment, other)
