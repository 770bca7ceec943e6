# SPDX-License-Identifier: Apache-2.0
"""The parts of an export, and what comes after its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from store_core.answers.scanning.message_scan import ScanCounts, told_apart
from store_core.errors import SegmentVanishedError
from store_core.files.file_system import OsFileSystem
from store_core.files.store_lock import is_lock_held
from store_core.files.store_path import store_roots
from store_core.snapshot.log import Log
from store_core.snapshot.log_end import find_end
from store_core.store.export.lake_files import PartitionWriters
from store_core.store.export.segment_totals import SegmentTotals
from store_core.store.read.follow.log_segments import LogSegments
from store_core.store.read.message_reader import read_range

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import pyarrow as pa

    from store_core.files.file_system import FileSystem
    from store_core.files.segment_source import Segment
    from store_core.files.store_path import StorePaths
    from store_core.store.export.lake_files import LakeFile
    from store_core.store.read.follow.log_position import LogPosition
    from store_core.store.read.ranges import ReadRange
    from store_core.store.read.read_options import ReadOptions

__all__ = ["ExportJob", "Exported", "export_notes", "totals_of"]


def export_notes(store: StorePaths, begin: int, end: LogPosition) -> tuple[str, ...]:
    """Return notes about segments that are missing since an offset, and about bytes after the end of an export.

    If a segment vanishes meanwhile, those that are known by then are returned: the next export tells.
    """
    notes: tuple[str, ...] = ()
    try:
        segments = LogSegments.of(store, compressed=True).segments
        notes = _on_gaps(segments, begin, end.physical_offset)
        return notes + _on_tails(store, segments, end)
    except SegmentVanishedError:
        return notes


def _on_gaps(segments: Sequence[Segment], begin: int, end: int) -> tuple[str, ...]:
    """Return notes about the segments that are missing between two offsets: their messages can't be exported."""
    between = [each for each in segments if each.end_offset >= begin and each.start_offset <= end]
    return tuple(problem.problem for problem in Log(tuple(between)).problems)


def _on_tails(store: StorePaths, segments: Sequence[Segment], end: LogPosition) -> tuple[str, ...]:
    """Return notes about bytes after an export's end that are not a record.

    There are none while a broker has the store open, since it may be writing a record there, nor if the log ends
    elsewhere by now.
    """
    if any(is_lock_held(root) for root in store_roots(store)):
        return ()
    found = find_end(segments, place_in=end.place_in)
    if found.end_offset != end.physical_offset:
        return ()
    return tuple(f"the log ends at offset {found.end_offset}: {tail}; no newer record follows" for tail in found.tails)


@dataclass(frozen=True, slots=True)
class Exported:
    """What became of a range."""

    totals: SegmentTotals
    counts: ScanCounts
    files: tuple[LakeFile, ...]


@dataclass(frozen=True, slots=True)
class ExportJob:
    """Writes each range into staged files; see `store_core.store.parts.Job`."""

    ranges: tuple[ReadRange, ...]
    options: ReadOptions  # with the default columns, in mode PERMISSIVE
    staged: Path  # A directory that all workers see
    number: int  # of the export
    file_system: FileSystem | None = None  # None for the real one, which each worker has

    def plan(self) -> Sequence[ReadRange]:
        """Return the ranges."""
        return self.ranges

    def run(self, part: ReadRange) -> Exported:
        """Read a range, and write its files; a task that runs twice makes others, and those of one are used."""
        stem = f"{self.number:08d}-{part.begin:020d}"
        totals, counts = SegmentTotals(part.segment.start_offset), ScanCounts()
        with PartitionWriters(self.staged, stem, self.file_system or OsFileSystem()) as writers:
            for batch in read_range(part, self.options):
                messages, damage = told_apart(batch, part)
                counts += ScanCounts.of_messages(messages) + ScanCounts.of_damage(damage)
                if messages.num_rows:
                    totals += totals_of(messages, part)
                    writers.add(messages)
            return Exported(totals, counts, writers.finish())

    def merge(self, exported: Iterable[Exported]) -> list[Exported]:
        """Return what became of the ranges."""
        return list(exported)


def totals_of(messages: pa.RecordBatch, part: ReadRange) -> SegmentTotals:
    """Return the totals of messages of a range, whose bodies were compared with their checksums.

    The checksum of an empty body is 0, whatever is stored: nothing compares it.
    """
    names = ("physical_offset", "store_size", "body_crc")
    places, sizes, crcs = (messages.column(name).to_numpy().astype(np.int64) for name in names)
    is_empty = pc.equal(pc.binary_length(messages.column("body")), 0).to_numpy(zero_copy_only=False)
    return SegmentTotals.of(part.segment.start_offset, places, sizes, np.where(is_empty, 0, crcs))
