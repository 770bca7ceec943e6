# SPDX-License-Identifier: Apache-2.0
"""What a read will do, before it does it: the plan that was chosen, why, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from store_core.files.remote.traffic import NOTHING, Moved
from store_core.format.counted import agreeing, counted
from store_core.store.read.lookup.remote_costs import moved_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.store.read.ranges import ReadRange

__all__ = ["SCAN", "ReadExplanation"]

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
