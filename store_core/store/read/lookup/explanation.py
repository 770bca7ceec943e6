# SPDX-License-Identifier: Apache-2.0
"""What a read trusts, scans and costs.

A look-up is used if what it moves, for its proof and for its answer, costs less than a share of the scan. A request
counts as `LookUpCosts.per_request` bytes. What is not known beforehand is bounded: a unit has 20 bytes, and the record
it leads to at least 91, so units are never more than a fifth of the log that they describe.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.files.remote.remote_bytes import NEAR
from store_core.files.remote.storage import NOTHING, Moved
from store_core.files.remote.url_path import UrlPath
from store_core.files.segment_source import size_on_disk
from store_core.format.words import agreeing, counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from store_core.files.segment_source import Segment
    from store_core.files.store_path import StorePaths
    from store_core.store.read.lookup.looked_up import LookUpCosts
    from store_core.store.read.picks import Picks
    from store_core.store.read.ranges import ReadRange

__all__ = ["OPENING", "SCAN", "ReadExplanation", "TrafficOf", "is_far", "moved_by", "price_of_picks"]

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
