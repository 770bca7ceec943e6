# SPDX-License-Identifier: Apache-2.0
"""Where salvaged records go.

In a new log they are complete again, one after the other, in segments closed by blank records.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from store_core.files.access import naming
from store_core.files.names import COMMIT_LOG
from store_core.files.segment_source import Segment, open_ahead
from store_core.format.columnar.chain import Chain, Place
from store_core.format.columnar.encode_batch import EncodedBatch, complete_batch
from store_core.format.columnar.records import Records
from store_core.format.columns import arrow_schema
from store_core.format.layout import V6_BITS
from store_core.format.segment_room import blank_head, fill_segments
from store_core.store.new_directory import NewDirectory
from store_core.store.salvage_tiles import PropertyCrc, SalvageFormat
from store_core.store.segment_salvage import SALVAGED_COLUMNS, Salvaged, property_crcs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from io import BufferedWriter
    from pathlib import Path

    import numpy.typing as npt


_ROWS: Final = 1 << 14


class NewLog:
    """Writes the log of a new store, from offset 0 on.

    Each record keeps its bytes, so its queue offset, times and hosts, except for its physical offset, and for its
    property CRC, which covers that and is made anew where it was right.

    * `root`: The new store's root.
    * `segment_size`: Bytes of each segment.
    """

    def __init__(self, root: Path, segment_size: int) -> None:
        self._directory = root / COMMIT_LOG
        self._directory.mkdir()
        self._segment_size = segment_size
        self._offset = 0
        self._file: BufferedWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            with naming(self._directory):
                self._file.truncate(self._segment_size)  # a hole, as RocketMQ creates its files
                self._file.close()

    def append(self, piece: Path) -> None:
        """Append the records of a file in which they follow one another."""
        size = piece.stat().st_size
        if not size:
            return
        segment = Segment(str(piece), 0, size)
        with open_ahead(segment) as opened:
            for window in Chain(segment.view(opened)).windows(Place(), size, _ROWS):
                bounds = window.run.bounds
                for first in range(0, bounds.size - 1, _ROWS):
                    self._append(window.raw, bounds[first : first + _ROWS + 1])

    def _append(self, raw: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int64]) -> None:
        records = Records(raw, bounds[:-1], "", 0)
        batch = _encoded(records, bounds)
        times = records.heads.column("store_timestamp")
        offsets = records.heads.leading("queue_offset")
        kinds = [check is PropertyCrc.MATCH for check in property_crcs(records)]
        room = -self._offset % self._segment_size if self._file is not None else 0
        for number, rows in enumerate(fill_segments(batch.starts, room, self._segment_size)):
            if number:
                self._roll()
            for has_crc, some in _alike(kinds, rows):
                graded = replace(batch, append_property_crc=has_crc)
                self._write(complete_batch(graded, some, self._offset, offsets, times))

    def _roll(self) -> None:
        """Close the segment with a blank record, and begin the next one."""
        if self._file is not None:
            self._write(memoryview(blank_head(-self._offset % self._segment_size)))
            with naming(self._directory):
                self._file.truncate(self._segment_size)
                self._file.close()
            self._offset += -self._offset % self._segment_size
        self._file = (self._directory / f"{self._offset:020d}").open("xb")

    def _write(self, data: memoryview) -> None:
        if self._file is None:
            raise AssertionError("no segment was begun")
        with naming(self._directory):
            self._file.write(data)
        self._offset += len(data)


def _encoded(records: Records, bounds: npt.NDArray[np.int64]) -> EncodedBatch:
    """Return records as a batch to complete; it needs no queues, since the records have their offsets."""
    rows = np.arange(len(records), dtype=np.int32)
    data = records.raw[bounds[0] : bounds[-1]].copy()
    v6_bits = (records.heads.leading("sys_flag") & V6_BITS).astype(np.uint8)
    return EncodedBatch(data, bounds - bounds[0], (), rows, np.zeros(rows.size, np.bool_), v6_bits)


def _alike(kinds: Sequence[bool], rows: slice) -> Iterator[tuple[bool, slice]]:
    """Split rows into stretches with, or without, a property CRC."""
    for has_crc, numbers in groupby(range(rows.start, rows.stop), kinds.__getitem__):
        listed = list(numbers)
        yield has_crc, slice(listed[0], listed[-1] + 1)


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
    """A target that does not exist yet, and the directory beside it where it is made; use it in a ``with`` block."""

    format: SalvageFormat

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
    """Write the records of a segment; a task that runs twice replaces its file by an equal one."""
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
