# SPDX-License-Identifier: Apache-2.0
"""What a look-up asks and found."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from store_core.files.remote_bytes import NEAR, RemoteBytes
from store_core.files.segment_source import Segment, SegmentBytes, open_segment, segment_at, size_on_disk
from store_core.files.storage import NOTHING, Moved
from store_core.files.store_lock import ABORT_FILE, is_lock_held
from store_core.files.url_path import UrlPath
from store_core.format.columnar.chain import Chain, Place
from store_core.format.record.scan import Framing, check_frame
from store_core.format.words import agreeing, counted
from store_core.snapshot.config import covered_until, read_checkpoint
from store_core.snapshot.log import first_store_timestamp
from store_core.store.read.picks import Picks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from store_core.files.store_path import StorePaths
    from store_core.store.read.ranges import ReadRange
    from store_core.store.read.read_options import ReadOptions


@dataclass(frozen=True, slots=True)
class LookUpCosts:
    """Limits within which look-ups are used. Tests set them so that every plan is made."""

    least_log: int = 64 << 20  # bytes of the log below which it is scanned: that takes a fraction of a second
    per_file: int = 64 << 10  # cost of opening a file and finding its last unit
    per_database: int = 128 << 20  # cost of opening a RocksDB, which takes a process of its own
    per_stored_unit: int = 8 << 10  # cost of a unit in a RocksDB
    per_record: int = 1 << 10  # cost of a record that is picked out of the log; a page is read for it
    per_request: int = 256 << 10  # cost of a request to a storage that is not this machine's
    most_share: float = 0.5  # largest cost of a look-up as a share of the scan's bytes


DEFAULT_COSTS: Final = LookUpCosts()

_MOST_OPEN: Final = 64
"""Segments of which what was read is kept."""

EVERYTHING: Final = 2**63 - 1
"""After all offsets."""


@dataclass(frozen=True)
class Question:
    """What is looked up, and where. What is read of segments on another machine is kept for the records' reader."""

    root: Path  # with queues or an index
    segments: Sequence[Segment]  # all of the log, in order
    options: ReadOptions
    costs: LookUpCosts
    room: int  # what the look-up may cost, in bytes of a scan
    _sources: dict[Segment, RemoteBytes] = field(default_factory=dict)

    @contextmanager
    def opened(self, segment: Segment) -> Iterator[SegmentBytes]:
        """Open a segment; errors as of `open_segment`."""
        known = self._sources.get(segment)
        source = open_segment(segment) if known is None else known
        if known is None and isinstance(source, RemoteBytes) and len(self._sources) < _MOST_OPEN:
            known = self._sources[segment] = source
        with source if known is None else nullcontext():
            yield source

    @property
    def chains(self) -> dict[Segment, Chain]:
        """The segments of which something is kept."""
        return {segment: Chain(segment.view(source)) for segment, source in self._sources.items()}

    def close(self) -> None:
        """Close what is open; what was loaded stays, and its reader opens the file again if it needs more."""
        for source in self._sources.values():
            source.__exit__(None, None, None)

    @cached_property
    def doubt(self) -> int:
        """Physical offset from which the log is scanned, whatever queues and index hold; `EVERYTHING` for none.

        After an unclean end, with nobody who holds the store, what was on disk of queues and index may be less than
        what the log has. A recovery would make them again from the newest segment on that the checkpoint covers, by
        its times and, where it has one, by its offset (RocketMQ: ``CommitLog.isMappedFileMatchedRecover``; each
        release asks for one or both).
        """
        if not (self.root / ABORT_FILE).exists() or is_lock_held(self.root):
            return EVERYTHING
        checkpoint = read_checkpoint(self.root) or {}
        limit = covered_until(checkpoint.get("physic_msg_timestamp", 0), checkpoint.get("logics_msg_timestamp", 0))
        flushed = checkpoint.get("logics_physical_offset", 0)
        for segment in reversed(self.segments):
            stored = first_store_timestamp(segment)
            if stored is not None and stored <= limit and (flushed <= 0 or segment.start_offset <= flushed):
                return segment.start_offset
        return 0

    def record_at(self, start: int, picks: Picks | None = None) -> Proven | None:
        """Return the sound record at a physical offset; None if there is none, or not the only one that `picks` has."""
        segment = segment_at(self.segments, start)
        if segment is None:
            return None
        lead, verify_crc = segment.framing.lead, self.options.verify_crc
        at = start - segment.start_offset - lead
        if at < 0:
            return None
        with self.opened(segment) as source:
            raw = segment.view(source).frame(at, with_body=True)
            size = int.from_bytes(raw[lead : lead + 4].tobytes(), "big", signed=True)
            picks = Picks.of([start], [size]) if picks is None else picks
            if not picks.size or not picks.are_right(raw, segment, np.array([lead])).all():
                return None
            check = check_frame(raw.data, 0, start - lead, segment.framing, verify_crc=verify_crc)
        return Proven(segment, start, start + picks.size) if check.reason is None else None


class Proven(NamedTuple):
    """A record that a unit or an entry names, and that is what this says.

    * `start`, `end`: Physical offsets.
    """

    segment: Segment
    start: int
    end: int


def size_in(segment: Segment, source: SegmentBytes, start: int) -> int:
    """Return the bytes of the record that may be at a physical offset, as it says itself; 0 if none fits there."""
    at = start - segment.start_offset
    if not 0 <= at <= segment.size - 4:
        return 0
    size = int.from_bytes(source.chunk(at, at + 4).tobytes(), "big", signed=True)
    return size if 0 < size <= segment.size - at else 0


OPENING: Final = 2
"""Requests that opening a file takes; as many see at the end whether it is still the same."""

_BLOCK: Final = 4 << 20
"""Bytes of the largest requests."""


def is_far(segments: Iterable[Segment]) -> bool:
    """Return whether segments are not on this machine."""
    return any(segment.remote is not None for segment in segments)


def price_of_picks(pieces: Sequence[Picks], segments: Sequence[Segment], costs: LookUpCosts) -> int:
    """Return what it costs to read records, in bytes of a scan; from elsewhere they are read to plan, and again."""
    if not is_far(segments):
        return sum(len(piece) * costs.per_record + piece.size for piece in pieces)
    bounds = [np.stack([piece.starts, piece.starts + piece.sizes]) for piece in pieces]
    moved = _moved(np.concatenate([np.empty((2, 0), np.int64), *bounds], axis=1))
    return 2 * (moved.bytes + moved.requests * costs.per_request)


def moved_by(ranges: Sequence[ReadRange]) -> Moved:
    """Return what reading some ranges moves, about, if nothing is kept of what planning moved, and nothing fails."""
    moved = Moved()
    for part in ranges:
        if part.segment.remote is None:
            continue
        if part.picks is not None:
            found = _moved(np.stack([part.picks.starts, part.picks.starts + part.picks.sizes]))
        else:
            size = size_on_disk(part.segment) if part.segment.codec else part.data_end - part.segment.start_offset
            found = Moved(-(-size // _BLOCK), size)
        moved = moved.and_also(found).and_also(Moved(2 * OPENING))
    return moved


def _moved(bounds: npt.NDArray[np.int64]) -> Moved:
    """Return the requests for ranges, of which near ones are one."""
    if not bounds.size:
        return Moved()
    starts, ends = bounds[:, np.argsort(bounds[0])]
    ends = np.maximum.accumulate(ends)
    gaps = starts[1:] - ends[:-1]
    size = int(ends[-1] - starts[0]) - int(gaps[gaps > NEAR].sum())
    return Moved(max(int((gaps > NEAR).sum()) + 1, -(-size // _BLOCK)), size)


class TrafficOf:
    """What is moved for some paths from when this is made.

    * `paths`: As of `store_core.files.store_path.located`.
    """

    def __init__(self, paths: StorePaths) -> None:
        given = paths if isinstance(paths, list) else [paths]
        found = {path.place.storage.traffic for path in given if isinstance(path, UrlPath)}
        self._before = [(each, each.moved) for each in found]

    @property
    def moved(self) -> Moved:
        """Until now."""
        total = Moved()
        for traffic, before in self._before:
            total = total.and_also(traffic.moved.since(before))
        return total


SCAN: Final = "scan"


@dataclass(frozen=True, slots=True)
class ReadExplanation:
    """The plan of a read.

    Attributes
    ----------
    plan : str
        ``"scan"``, ``"queues"``, ``"index"`` or ``"position"``.
    why : str
        Why this one was chosen.
    files : int
        Segment files that will be read.
    bytes : int
        Bytes of the log in the records and ranges that will be read. A scan that needs few columns touches fewer.
    units, entries : int
        Units of queues, and entries of the index, that lead to the records.
    records : int
        Records that are read at their positions; those of scanned ranges are not counted.
    reach : int
        Physical offset up to which queues or index are trusted; what is behind it is scanned.
    scanned : int
        Bytes of the log that are scanned beside them.
    planned, reading : Moved
        Of a store in another storage: requests and bytes of planning, counted, and those of reading, about, where
        nothing of the plan's is kept.
    notes : tuple of str
        What an operator should know, such as a queue that could not be used.

    Examples
    --------
    >>> print(ReadExplanation("scan", "no option narrows it", files=3, bytes=2_000))
    scan: no option narrows it
      reads 2,000 bytes of the log in 3 files
    """

    plan: str
    why: str
    files: int = 0
    bytes: int = 0
    units: int = 0
    entries: int = 0
    records: int = 0
    reach: int = 0
    scanned: int = 0
    planned: Moved = NOTHING
    reading: Moved = NOTHING
    notes: tuple[str, ...] = field(default=())

    def for_ranges(self, ranges: Sequence[ReadRange]) -> ReadExplanation:
        """Return the explanation with what the ranges of the plan will read."""
        picks = [part.picks for part in ranges if part.picks is not None]
        scanned = sum(part.end - part.walk_begin for part in ranges if part.picks is None)
        return replace(
            self,
            files=len({part.segment.path for part in ranges}),
            bytes=scanned + sum(each.size for each in picks),
            records=sum(map(len, picks)),
            scanned=scanned,
            reading=moved_by(ranges),
        )

    @property
    def line(self) -> str:
        """The plan in one line, for a log."""
        return " ".join(str(self).split())

    def __str__(self) -> str:
        """Return it as text, a fact a line."""
        lines = [
            f"{self.plan}: {self.why}",
            f"  reads {counted(self.bytes, 'byte')} of the log in {counted(self.files, 'file')}",
        ]
        if self.units or self.entries:
            lines.append(f"  of {self._sources}, {counted(self.records, 'record')} {self._is_read}")
        if self.reach:
            scanned = counted(self.scanned, "byte")
            lines.append(f"  trusts them up to offset {self.reach:,}, and scans {scanned} that they do not cover")
        if self.planned.requests:
            lines.append(f"  moves {self.planned} to plan, and about {self.reading} to read")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])

    @property
    def _sources(self) -> str:
        """What planning rests on: units, entries or both."""
        units = f"{counted(self.units, 'unit')} of queues"
        entries = f"{self.entries:,} {agreeing(self.entries, 'entry', 'entries')} of the index"
        return " and ".join(text for number, text in ((self.units, units), (self.entries, entries)) if number)

    @property
    def _is_read(self) -> str:
        return agreeing(self.records, "is read at its position", "are read at their positions")


@dataclass(frozen=True, slots=True)
class LookedUp:
    """How a read finds its records: the plan, and the records that queues or index lead to. A scan knows of none."""

    explained: ReadExplanation
    picked: Picks | None = None  # the records; those that are not in `trusted` are found by the scan
    trusted: tuple[tuple[int, int], ...] = ()  # ranges of physical offsets, ascending, that need no scan
    edges: frozenset[int] = frozenset()
    """Those of their ends at which a record begins or ends, so that a scan can begin there."""
    furthest: Proven | None = None  # the last record that is known: the search for the log's end begins after it
    chains: Mapping[Segment, Chain] = field(default_factory=dict)  # segments on another machine of which bytes are kept

    @classmethod
    def scan(cls, why: str, notes: tuple[str, ...] = ()) -> Self:
        """Return that all of the log is read."""
        return cls(ReadExplanation(SCAN, why, notes=notes))

    @property
    def is_scan(self) -> bool:
        """Whether all records are read."""
        return self.explained.plan == SCAN

    def known_place(self, segment: Segment) -> Place:
        """Return up to where a segment's records are known; in a DLedger log an entry is checked with all before it."""
        found = self.furthest
        if found is None or found.segment != segment or segment.framing is not Framing.RECORDS:
            return Place()
        return Place(found.end - segment.start_offset, found.start - segment.start_offset)

    def narrowed(self, parts: Sequence[ReadRange]) -> list[ReadRange]:
        """Return the picked records of trusted parts of ranges, and the other parts, to be scanned, in log order."""
        return [piece for part in parts for piece in self._pieces(part)]

    def _pieces(self, part: ReadRange) -> Iterator[ReadRange]:
        at = part.begin
        for begin, end in self.trusted:
            if end <= at or begin >= part.end:
                continue
            if at < begin:
                yield self._scanned(part, at, begin)
            inner = replace(part, begin=max(at, begin), end=min(end, part.end))
            picks = None if self.picked is None else self.picked.between(inner.begin, inner.end)
            if picks is not None:
                yield replace(inner, picks=picks, walk_start=self._walk_start(part, inner.begin))
            at = inner.end
        if at < part.end:
            yield self._scanned(part, at, part.end)

    def _scanned(self, part: ReadRange, begin: int, end: int) -> ReadRange:
        return replace(part, begin=begin, end=end, walk_start=self._walk_start(part, begin))

    def _walk_start(self, part: ReadRange, begin: int) -> int | None:
        """Return from where records are walked to a place: from there, if a record, or what follows one, is there."""
        is_known = begin in self.edges and begin > part.segment.start_offset
        return begin if is_known and part.segment.framing is Framing.RECORDS else part.walk_start
