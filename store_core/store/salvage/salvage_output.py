# SPDX-License-Identifier: Apache-2.0
"""Where salvaged records go: files beside the target, which then appear there together, or not at all."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from store_core.files.access import naming
from store_core.format.columns import arrow_schema
from store_core.store.new_directory import NewDirectory, places_beside
from store_core.store.salvage.salvage_format import SalvageFormat
from store_core.store.salvage.segment_salvage import SALVAGED_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import Self

    from store_core.files.store_path import StorePaths
    from store_core.store.salvage.segment_salvage import Salvaged

__all__ = ["PIECES", "SALVAGED_SCHEMA", "SalvageOutput", "write_piece"]

PIECES: Final = "pieces"
"""Directory of salvaged records on their way into a new store."""

SALVAGED_SCHEMA: Final = pa.schema(
    [
        *arrow_schema(SALVAGED_COLUMNS),
        pa.field("found_by", pa.string(), nullable=False),
        pa.field("property_crc", pa.string(), nullable=False),
    ]
)
"""Columns of a Parquet file: those of a message, and its grade."""


@dataclass(frozen=True, slots=True)
class SalvageOutput(NewDirectory):
    """A target that does not exist yet, and the directory beside it where it is made; use it in a ``with`` block.

    Attributes
    ----------
    format : SalvageFormat
    """

    format: SalvageFormat

    @classmethod
    def of_format(cls, into: Path, kind: SalvageFormat, source: StorePaths) -> Self:
        """Choose where a target is made.

        Raises
        ------
        InvalidOptionError
            As `places_beside`.
        """
        return cls(*places_beside(into, "salvage", source), kind)

    def __enter__(self) -> Self:
        NewDirectory.__enter__(self)  # `super` does not know the class that slots make
        if self.format is SalvageFormat.STORE:
            (self.work / PIECES).mkdir()
        return self

    def piece_path(self, start_offset: int) -> Path:
        """Return where the records of a segment go."""
        if self.format is SalvageFormat.STORE:
            return self.work / PIECES / f"{start_offset:020d}"
        return self.work / f"part-{start_offset:020d}.parquet"


def write_piece(output: SalvageOutput, start_offset: int, found: Iterable[Salvaged]) -> None:
    """Write the records of a segment; a task that runs twice replaces its file by an equal one.

    Raises
    ------
    OSError
        If a system call fails.
    """
    path = output.piece_path(start_offset)
    attempt = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        with naming(path):
            if output.format is SalvageFormat.STORE:
                _write_records(attempt, found)
            else:
                _write_rows(attempt, found)
        attempt.rename(path)
    finally:
        attempt.unlink(missing_ok=True)


def _write_records(path: Path, found: Iterable[Salvaged]) -> None:
    with path.open("wb") as file:
        for piece in found:
            records = piece.records
            file.writelines(_slices(records.raw.data, records.starts.tolist(), records.spans.stops.tolist()))


def _slices(data: memoryview, starts: list[int], stops: list[int]) -> Iterator[memoryview]:
    return (data[start:stop] for start, stop in zip(starts, stops, strict=True))


def _write_rows(path: Path, found: Iterable[Salvaged]) -> None:
    with pq.ParquetWriter(path, SALVAGED_SCHEMA, compression="zstd") as writer:
        for piece in found:
            writer.write_batch(_graded(piece))


def _graded(piece: Salvaged) -> pa.RecordBatch:
    rows = piece.batch.num_rows
    found_by = pa.array([piece.found_by.value] * rows, pa.string())
    checks = pa.array([check.value for check in piece.property_crcs], pa.string())
    return pa.RecordBatch.from_arrays([*piece.batch.columns, found_by, checks], schema=SALVAGED_SCHEMA)
