# SPDX-License-Identifier: Apache-2.0
"""The directory for append jobs' own files, which RocketMQ ignores, and the files of encoded records in it.

Such a file is an Arrow IPC stream. It is read by another process than its writer, from a directory that others may
write to; so nothing in it is executed, and its content is compared with what the writer reported.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import pyarrow as pa

from store_core.errors import CorruptRecordError, StoreNotFoundError
from store_core.files.access import naming
from store_core.files.file_system import FileStream, FileSystem, read_file, write_file
from store_core.files.store_lock import ProcessStat, StoreLock
from store_core.format.columnar.arrow_slices import fixed_array
from store_core.format.columnar.encode_batch import EncodedBatch
from store_core.format.columnar.spans import gather
from store_core.format.layout import field_position, head_dtype
from store_core.queue.dispatch.dispatch_batch import IndexHashes
from store_core.queue.dispatch.stored_batch import DerivedColumns, derive_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy.typing as npt

    from store_core.files.machine import Clock
    from store_core.queue.queue_path import QueueRules


_LOG: Final = logging.getLogger("store_core")

SINK_DIRECTORY: Final = "commitlog-sink"
"""Name below the store root."""

_REMOVED: Final = ".removed"
"""Ending of a job's directory while it is being deleted."""

_JOB: Final = re.compile(r"job-[0-9a-f]{32}(\.removed)?")
_OWNER: Final = "owner.json"
_LONGEST_OWNER: Final = 4096
_NO_OWNER: Final = (ValueError, KeyError, TypeError, RecursionError)


class SinkDirectory:
    """The directory ``commitlog-sink`` of a store: staged records, segments being written, the ledger.

    * `staging`: Where records are staged; by default here.
    """

    def __init__(self, root: Path, file_system: FileSystem, staging: Path | None = None) -> None:
        self.root = root
        self.path = root / SINK_DIRECTORY
        self.staging = staging or self.path / "staged"
        self.segments = self.path / "segments"
        self.ledger = self.path / "ledger"
        self.refused = self.path / "refused"
        self._file_system = file_system

    def job_path(self, job: str) -> Path:
        """Return the directory in which a job stages records."""
        return self.staging / job

    def claim(self, job: str, owner: str, attempt: str) -> Path:
        """Create a job's directory with a note of its owner; any of its tasks may be the first to do so.

        Of a streaming query, the first one deletes what earlier batches left: if none of a batch's tasks has reported,
        the driver can't say which directory is its.
        """
        heal(self.root, self._file_system)  # a directory in the place of a store that was being swapped would hide it
        directory = self.job_path(job)
        self._file_system.make_directories(directory)
        if self._file_system.status(directory / _OWNER) is None:
            for path in self._jobs(self.staging):
                if _is_earlier(self._owner_of(path), owner):
                    with suppress(OSError):  # another task deletes it
                        self.remove(path)
            partial = directory / f"owner-{attempt}.partial"
            write_file(partial, owner.encode(), self._file_system)
            self._file_system.rename(partial, directory / _OWNER)
        return directory

    def claimed(self, job: str) -> Path:
        """Return the directory that the driver has created for a job.

        A task never creates it: one that starts late would make it again after its job was aborted.
        """
        directory = self.job_path(job)
        if self._file_system.status(directory) is None:
            raise StoreNotFoundError(
                f"{directory}, in which the driver has made room for the records of this job, does not exist for a "
                f"worker on {os.uname().nodename}: the job has been aborted, or another one has replaced the store, or "
                f"this worker does not see the driver's {self.staging}. Run the job again. Every worker has to see it "
                f"under that path: mount it there, or set stagingDir to a directory that all of them see"
            )
        return directory

    def leftovers(self, own_job: str, is_alive: Callable[[str], bool]) -> Iterator[tuple[Path, str]]:
        """Yield directories that dead jobs left, each with a description; the caller holds the store's lock.

        * `is_alive`: Called with a job's note about its owner; returns whether the job may still be running.
        """
        for path in self._jobs(self.staging):
            owner = self._owner_of(path)
            if path.name != own_job and (path.name.endswith(_REMOVED) or not is_alive(owner)):
                yield self._leftover(path, owner)
        for path in self._jobs(self.segments):  # their job held the lock, so it is dead
            if path.name != own_job:
                yield self._leftover(path, "")

    def _jobs(self, directory: Path) -> Iterator[Path]:
        return (directory / name for name in self._file_system.names(directory) if _JOB.fullmatch(name))

    def _owner_of(self, directory: Path) -> str:
        content = read_file(directory / _OWNER, _LONGEST_OWNER, self._file_system)
        return "" if content is None else content.decode("utf-8", "replace")

    def _leftover(self, path: Path, owner: str) -> tuple[Path, str]:
        found = [self._file_system.status(path / name) for name in self._file_system.names(path)]
        sizes = [status.size for status in found if status is not None and not status.is_directory]
        found_there = f"{len(sizes)} files of {sum(sizes)} bytes"
        return path, f"{path}: {found_there} of a job that is gone ({owner or 'unknown'})"

    def keep_refused(self, job: str, lists: Sequence[Path]) -> None:
        """Merge and keep the lists of rows that a job left out; errors are only logged, since the append is done."""
        target = self.refused / f"{job}.jsonl"
        try:
            self._file_system.make_directories(self.refused)
            with naming(target), target.open("wb") as kept:
                for path in lists:
                    with path.open("rb") as source:
                        shutil.copyfileobj(source, kept)
            _LOG.warning("rows were left out; they are listed in %s", target)
        except OSError as error:
            _LOG.error("rows were left out, and the list %s can't be written: %s", target, error)

    def remove(self, path: Path) -> None:
        """Delete a job's directory, if it exists.

        It is renamed first, so that a task that is still running can't add a file meanwhile.
        """
        if self._file_system.status(path) is None:
            return
        if not path.name.endswith(_REMOVED):
            path, found = path.with_name(path.name + _REMOVED), path
            self._file_system.rename(found, path)
        for name in self._file_system.names(path):
            self._file_system.remove(path / name)
        self._file_system.remove_directory(path)


_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = Path("/proc/self/ns/pid")
_TRUSTED_SECONDS: Final = 7 * 24 * 3600
"""How long a job on another machine, which can't be checked, is assumed to be running."""


def owner_text(clock: Clock, process: int | None = None) -> str:
    """Describe who runs a job: a process on this machine.

    * `process`: Its number; by default that of this process.
    """
    process = os.getpid() if process is None else process
    owner = {
        "host": os.uname().nodename,
        "boot": _boot(),
        "namespace": _namespace(),
        "process": process,
        "started": _start_time(process),
        "created": clock.now_ms() / 1000,
    }
    return json.dumps(owner)


def is_alive(clock: Clock, owner: str) -> bool:
    """Return whether the process that `owner_text` described may still be running.

    On this machine that is known; on another one it is assumed for a week.
    """
    try:
        told = json.loads(owner)
        host, boot, namespace = told["host"], told["boot"], told["namespace"]
        process, started, created = int(told["process"]), told["started"], int(told["created"])
    except _NO_OWNER:
        return False
    if host != os.uname().nodename or (boot == _boot() and namespace != _namespace()):
        return clock.now_ms() // 1000 - created < _TRUSTED_SECONDS
    return bool(boot == _boot() and started and started == _start_time(process))


def _is_earlier(owner: str, than: str) -> bool:
    """Return whether a note is of the same streaming query, which runs one batch at a time, and older."""
    try:
        told, later = json.loads(owner), json.loads(than)
        return bool(told["query"] == later["query"] and told["created"] < later["created"])
    except _NO_OWNER:
        return False


def _start_time(process: int) -> str:
    """Return when a process began; empty if it has ended, even if no parent has noticed."""
    found = ProcessStat.of(process)
    return "" if found is None or found.has_ended else found.started


def _namespace() -> str:
    try:
        return str(_NAMESPACE.readlink())
    except OSError:
        return ""


def _boot() -> str:
    try:
        return _BOOT.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
OLD: Final = ".old"


def new_store_path(root: Path, job: str) -> Path:
    """Return the path, beside a store, where a job builds its replacement."""
    return root.with_name(f"{root.name}.{job}")


def swap(root: Path, new: Path, file_system: FileSystem) -> None:
    """Swap two stores: in one step if the file system can; otherwise no store is in place for a moment.

    Both are complete and closed. If the process ends in between, `heal` completes the swap.
    """
    file_system.sync_directory(new)
    if not _exchange(root, new):
        old = new.with_name(new.name + OLD)
        file_system.rename(root, old)
        file_system.rename(new, root)
        file_system.rename(old, new)
    file_system.sync_directory(root.parent)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two directories by Linux's ``renameat2``; return False if that is not supported."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    return bool(rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0)


def heal(root: Path, file_system: FileSystem) -> None:
    """Complete a swap that was interrupted between its steps and left no store at `root`."""
    if file_system.status(root) is not None:
        return
    for old in (each for each in stores_beside(root, file_system) if each.name.endswith(OLD)):
        new = old.with_name(old.name.removesuffix(OLD))
        with StoreLock(old, file_system):  # which its job holds, if that is only between two steps
            file_system.rename(new if file_system.status(new) is not None else old, root)
        file_system.sync_directory(root.parent)
        return


def stores_beside(root: Path, file_system: FileSystem) -> list[Path]:
    """Find replacements and replaced stores that jobs left beside a store; to the holder of its lock all are waste."""
    name = re.compile(re.escape(root.name) + r"\.job-[0-9a-f]{32}(\.old)?")
    return [root.with_name(each) for each in file_system.names(root.parent) if name.fullmatch(each)]


def remove_store(path: Path) -> bool:
    """Delete a store, if it exists; return whether it is gone."""
    shutil.rmtree(path, ignore_errors=True)
    return not path.exists()


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
