# SPDX-License-Identifier: Apache-2.0
"""Rows as Arrow's own formats: an IPC stream, and Parquet."""

from __future__ import annotations

from typing import BinaryIO, Final

import pyarrow as pa
from pyarrow import parquet

__all__ = ["ArrowWriter", "ParquetWriter"]

_GROUP_BYTES: Final = 64 << 20
"""Bytes of rows that are collected for a row group of Parquet, so that memory is bounded and groups are not tiny."""


class ArrowWriter:
    """Writes an IPC stream, which `pyarrow.ipc.open_stream` and most tools with Arrow read."""

    def __init__(self, schema: pa.Schema, stream: BinaryIO) -> None:
        self._writer = pa.ipc.new_stream(stream, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch."""
        self._writer.write_batch(batch)

    def close(self) -> None:
        """Write the end of the stream."""
        self._writer.close()


class ParquetWriter:
    """Writes a Parquet file, compressed by Zstandard."""

    def __init__(self, schema: pa.Schema, stream: BinaryIO) -> None:
        self._schema = schema
        self._writer = parquet.ParquetWriter(stream, schema, compression="zstd")
        self._collected: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch; many together become a row group."""
        self._collected.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= _GROUP_BYTES:
            self._put_group()

    def close(self) -> None:
        """Write the last row group and the footer."""
        self._put_group()
        self._writer.close()

    def _put_group(self) -> None:
        if self._collected:
            table = pa.Table.from_batches(self._collected, self._schema)
            self._writer.write_table(table, row_group_size=table.num_rows)
            self._collected, self._bytes = [], 0
