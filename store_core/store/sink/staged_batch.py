# SPDX-License-Identifier: Apache-2.0
"""Files of encoded records, passed from the process that encoded them to the one that appends them.

The file is an Arrow IPC stream. It is read by another process than its writer, from a directory that others may write
to; so nothing in it is executed, and its content is compared with what the writer reported.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import pyarrow as pa

from store_core.errors import CorruptRecordError, StoreNotFoundError
from store_core.files.file_system import FileStream, FileSystem
from store_core.format.columnar.arrow_slices import fixed_array
from store_core.format.columnar.encode_batch import EncodedBatch
from store_core.format.columnar.spans import gather
from store_core.format.layout import field_position, head_dtype
from store_core.queue.dispatch.dispatch_batch import IndexHashes
from store_core.queue.dispatch.stored_batch import DerivedColumns, derive_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import numpy.typing as npt

    from store_core.queue.queue_path import QueueRules


_SCHEMA: Final = pa.schema(
    [
        pa.field("record", pa.binary(), nullable=False),
        pa.field("queue", pa.int32(), nullable=False),
        pa.field("is_queued", pa.bool_(), nullable=False),
        pa.field("v6_bits", pa.uint8(), nullable=False),
        pa.field("store_timestamp", pa.int64(), nullable=True),
        pa.field("tags_code", pa.int64(), nullable=True),
        pa.field("key_hashes", pa.list_(pa.int32()), nullable=True),
    ]
)
_BODY_CRC_AT: Final = field_position(head_dtype(), "body_crc")
_BODY_CRC: Final = np.dtype([("body_crc", head_dtype()["body_crc"])])
_QUEUES: Final = b"queues"
_PROPERTY_CRC: Final = b"append_property_crc"
_FILE_BYTES: Final = 32 << 20
"""Bytes of records after which a new file is started."""

_ADVICE: Final = "Nothing was appended: run the job again"


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file of staged records, as reported by its writer."""

    path: Path
    records: int
    log_bytes: int  # bytes that the records will occupy in the log
    file_size: int  # bytes of the file
    body_sum: int = 0  # sum of the checksums of the bodies, which is the same in whatever order and files they are


@dataclass(frozen=True, slots=True, eq=False)
class StagedBatch:
    """A batch of staged records."""

    records: EncodedBatch
    store_timestamps: npt.NDArray[np.int64] | None = None  # int64, shape (n,), ms; None means the time of the append
    derived: DerivedColumns | None = None  # what queues and index need of the records; if None, it is read from the log

    def with_derived(self, rules: QueueRules) -> StagedBatch:
        """Return the batch with the known part of what queues and index need."""
        return replace(self, derived=derive_columns(self.records, rules))


class StagedBatchWriter:
    """Writes a file of staged records; as a context manager, it closes the file.

    * `path`: In a directory that exists; an existing file is replaced.
    """

    def __init__(self, path: Path, file_system: FileSystem) -> None:
        self._path = path
        file_system.remove(path)
        self._file = file_system.open(path, create=True)
        self._sink = FileStream(self._file)
        self._stream = pa.ipc.new_stream(self._sink, _SCHEMA)
        self._records = self.log_bytes = self._body_sum = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, batch: StagedBatch) -> None:
        """Append records to the file."""
        records = batch.records
        count = len(records)
        if not count:
            return
        starts = pa.py_buffer(records.starts.astype(np.int32))
        arrays = [
            pa.Array.from_buffers(pa.binary(), count, [None, starts, pa.py_buffer(records.data)]),
            pa.array(records.queue_index, pa.int32()),
            pa.array(records.is_queued, pa.bool_()),
            pa.array(records.v6_bits, pa.uint8()),
            pa.nulls(count, pa.int64()) if batch.store_timestamps is None else pa.array(batch.store_timestamps),
            *_derived_arrays(batch.derived, count),
        ]
        about = {_QUEUES: json.dumps(records.queues), _PROPERTY_CRC: str(int(records.append_property_crc))}
        self._stream.write_batch(pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA), custom_metadata=about)
        self._records += count
        self.log_bytes += int(records.starts[-1])
        self._body_sum += int(
            gather(records.data, records.starts[:-1] + _BODY_CRC_AT, _BODY_CRC)["body_crc"].sum(dtype=np.int64)
        )

    def finish(self) -> StagedFile:
        """Complete the file, and return a description of it."""
        self._stream.close()
        return StagedFile(self._path, self._records, self.log_bytes, self._sink.position, self._body_sum)


def stage_batches(
    batches: Iterable[StagedBatch], paths: Iterator[Path], file_system: FileSystem, file_bytes: int = _FILE_BYTES
) -> Iterator[StagedFile]:
    """Write records to files of moderate size, each yielded when complete, and to be deleted as soon as it is read.

    This is mainly for speed: Linux reuses page cache pages that were just freed, while a page that has long been free
    may have to come from a virtual machine's host, at about five times the cost.

    * `paths`: Names for the files, as many as needed; one is used even if there are no records.
    * `file_bytes`: Bytes of records after which a new file is started.
    """
    rest = iter(batches)
    batch = next(rest, None)
    while True:
        with StagedBatchWriter(next(paths), file_system) as writer:
            while batch is not None and writer.log_bytes < file_bytes:
                writer.write(batch)
                batch = next(rest, None)
            yield writer.finish()
        if batch is None:
            return


def _derived_arrays(derived: DerivedColumns | None, count: int) -> list[pa.Array]:
    kinds = [_SCHEMA.field(name).type for name in ("tags_code", "key_hashes")]
    if derived is None:
        return [pa.nulls(count, kind) for kind in kinds]
    borders = np.searchsorted(derived.index_hashes.rows, np.arange(count + 1)).astype(np.int32)
    hashes = pa.ListArray.from_arrays(fixed_array(borders), fixed_array(derived.index_hashes.hashes))
    return [fixed_array(derived.tags_code), hashes]


def read_staged(staged: StagedFile) -> Iterator[StagedBatch]:
    """Read a file of staged records, whose bytes are writable and not shared."""
    try:
        source = pa.memory_map(str(staged.path))
    except FileNotFoundError as error:
        raise StoreNotFoundError(
            f"{staged.path}, where a task left its records, is gone: another job has replaced the store, or tasks and "
            f"driver do not see the same staging directory. {_ADVICE}"
        ) from error
    with source:
        _expect(staged, "file size", staged.file_size, source.size())
        records = log_bytes = 0
        for batch in _batches(staged, source):
            records += len(batch.records)
            log_bytes += int(batch.records.starts[-1])
            yield batch
    _expect(staged, "number of records", staged.records, records)
    _expect(staged, "bytes of records", staged.log_bytes, log_bytes)


def _expect(staged: StagedFile, what: str, expected: int, found: int) -> None:
    if expected != found:
        raise CorruptRecordError(f"wrong {what}", str(staged.path), 0, str(expected), str(found), b"", _ADVICE)


def _batches(staged: StagedFile, source: pa.NativeFile) -> Iterator[StagedBatch]:
    try:
        stream = pa.ipc.open_stream(source)
        while True:
            try:
                batch, about = stream.read_next_batch_with_custom_metadata()
            except StopIteration:
                return
            yield _decode(batch, dict(about or {}))
    except (pa.ArrowException, ValueError, KeyError, TypeError, OSError) as error:
        raise CorruptRecordError(
            "no staged records", str(staged.path), 0, "an Arrow stream of records", str(error), b"", _ADVICE
        ) from error


def _decode(batch: pa.RecordBatch, about: dict[bytes, bytes]) -> StagedBatch:
    batch.validate(full=True)
    if batch.schema != _SCHEMA or not batch.num_rows:
        raise ValueError(f"{batch.num_rows} rows of schema {batch.schema}")
    _, offsets, data = batch.column("record").buffers()
    starts = np.frombuffer(offsets, np.int32)[: batch.num_rows + 1].astype(np.int64)
    content = np.frombuffer(data, np.uint8)[: int(starts[-1])].copy()
    queues = tuple((str(topic), int(queue_id)) for topic, queue_id in json.loads(about[_QUEUES]))
    queue_index = batch.column("queue").to_numpy().astype(np.int32)
    if starts[0] != 0 or queue_index.min() < 0 or queue_index.max() >= len(queues):
        raise ValueError("the numbers of queues and the places of records do not fit")
    records = EncodedBatch(
        content,
        starts,
        queues,
        queue_index,
        batch.column("is_queued").to_numpy(zero_copy_only=False),
        batch.column("v6_bits").to_numpy(),
        about[_PROPERTY_CRC] == b"1",
    )
    times = batch.column("store_timestamp")
    is_timed = times.null_count < batch.num_rows
    return StagedBatch(records, times.to_numpy() if is_timed else None, _derived(batch))


def _derived(batch: pa.RecordBatch) -> DerivedColumns | None:
    tags, keys = batch.column("tags_code"), batch.column("key_hashes")
    if tags.null_count == batch.num_rows:
        return None
    hashes = keys.flatten().to_numpy().copy()
    if keys.null_count or int(hashes.min(initial=0)) < 0:
        raise ValueError("the hashes of keys are not valid")
    rows = np.repeat(np.arange(batch.num_rows), np.diff(keys.offsets.to_numpy()))
    return DerivedColumns(tags.to_numpy().copy(), IndexHashes(rows, hashes))
