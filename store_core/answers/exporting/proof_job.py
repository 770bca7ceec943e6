# SPDX-License-Identifier: Apache-2.0
"""The parts of a proof: files of the lake and ranges of the log, each read again as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from store_core.answers.exporting.export_job import totals_of
from store_core.answers.scanning.message_scan import told_apart
from store_core.format.columnar.arrow_slices import binary_parts
from store_core.format.columnar.checksums import body_crcs
from store_core.store.export.segment_totals import SegmentTotals, totals_by_segment
from store_core.store.read.message_reader import read_range
from store_core.store.read.ranges import ReadRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from store_core.store.read.read_options import ReadOptions

__all__ = ["LakePart", "ProofJob", "Proved"]

_COLUMNS: Final = ("physical_offset", "store_size", "body")
_BATCH_ROWS: Final = 16384


@dataclass(frozen=True, slots=True)
class LakePart:
    """A file of the lake, as the ledger names it, and the segments that its messages may be of."""

    path: str
    messages: int
    starts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Proved:
    """What a part has.

    Attributes
    ----------
    totals : tuple of SegmentTotals
    is_lake : bool
        Whether it is a file of the lake.
    problem : str
        What is wrong with that file by itself; empty if nothing is.
    path : str
    """

    totals: tuple[SegmentTotals, ...]
    is_lake: bool
    problem: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class ProofJob:
    """Totals both sides; see `store_core.store.parts.Job`.

    Attributes
    ----------
    target : Path
    files : tuple of LakePart
    ranges : tuple of ReadRange
    options : ReadOptions
        As of the export, with the columns that are totalled.
    """

    target: Path
    files: tuple[LakePart, ...]
    ranges: tuple[ReadRange, ...]
    options: ReadOptions

    def plan(self) -> Sequence[LakePart | ReadRange]:
        """Return files and ranges."""
        return [*self.files, *self.ranges]

    def run(self, part: LakePart | ReadRange) -> Proved:
        """Total a file or a range."""
        if isinstance(part, ReadRange):
            return Proved(tuple(self._of_range(part)), is_lake=False)
        try:
            totals = self._of_file(part)
        except (OSError, pa.ArrowInvalid, KeyError) as error:
            return Proved((), is_lake=True, problem=f"{type(error).__name__}: {error}", path=part.path)
        found = sum(each.messages for each in totals)
        problem = "" if found == part.messages else f"{found} messages, but the ledger has {part.messages}"
        return Proved(tuple(totals), is_lake=True, problem=problem, path=part.path)

    def merge(self, proved: Iterable[Proved]) -> list[Proved]:
        """Return what the parts have."""
        return list(proved)

    def _of_range(self, part: ReadRange) -> list[SegmentTotals]:
        batches = (told_apart(batch, part)[0] for batch in read_range(part, self.options))
        return list(totals_by_segment(totals_of(batch, part) for batch in batches if batch.num_rows).values())

    def _of_file(self, part: LakePart) -> list[SegmentTotals]:
        starts = np.array(part.starts, np.int64)
        found: list[SegmentTotals] = []
        with pq.ParquetFile(Path(self.target, part.path)) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=list(_COLUMNS)):
                found += _of_rows(batch, starts)
        return list(totals_by_segment(found).values())


def _of_rows(batch: pa.RecordBatch, starts: npt.NDArray[np.int64]) -> Iterator[SegmentTotals]:
    """Yield totals of rows of a lake, by checksums of the bodies that are really there.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
        With `physical_offset`, `store_size` and `body`.
    starts : numpy.ndarray
        int64, shape (n,): the starts of segments, in order; -1 stands for a segment before the first one.
    """
    places, sizes = (batch.column(name).to_numpy().astype(np.int64) for name in ("physical_offset", "store_size"))
    offsets, data, _ = binary_parts(batch.column("body"))
    bounds = offsets.astype(np.int64)
    crcs = body_crcs(np.ascontiguousarray(data), bounds[:-1], bounds[1:])
    owners = np.searchsorted(starts, places, "right") - 1
    for owner in np.unique(owners).tolist():
        mine = owners == owner
        segment = int(starts[owner]) if owner >= 0 else -1
        yield SegmentTotals.of(segment, places[mine], sizes[mine], crcs[mine])
