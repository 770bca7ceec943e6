# SPDX-License-Identifier: Apache-2.0
"""The parts of an export: ranges of the log, which become staged files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from store_core.answers.scanning.message_scan import ScanCounts, told_apart
from store_core.files.file_system import OsFileSystem
from store_core.store.export.export_ledger import SegmentTotals
from store_core.store.export.lake_files import PartitionWriters
from store_core.store.read.message_reader import read_range

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import pyarrow as pa

    from store_core.files.file_system import FileSystem
    from store_core.store.export.lake_files import LakeFile
    from store_core.store.read.ranges import ReadRange
    from store_core.store.read.read_options import ReadOptions

__all__ = ["ExportJob", "Exported", "totals_of"]


@dataclass(frozen=True, slots=True)
class Exported:
    """What became of a range."""

    totals: SegmentTotals
    counts: ScanCounts
    files: tuple[LakeFile, ...]


@dataclass(frozen=True, slots=True)
class ExportJob:
    """Writes each range into staged files; see `store_core.store.parts.Job`.

    Attributes
    ----------
    options : ReadOptions
        With the default columns, in mode PERMISSIVE.
    staged : Path
        A directory that all workers see.
    number : int
        Of the export.
    file_system : FileSystem or None
        None for the real one, which each worker has.
    """

    ranges: tuple[ReadRange, ...]
    options: ReadOptions
    staged: Path
    number: int
    file_system: FileSystem | None = None

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
