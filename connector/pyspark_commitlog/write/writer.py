# SPDX-License-Identifier: Apache-2.0
"""The writers of the source, in batches and from streams: staging, commit and abort."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import uuid
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark_commitlog.errors import without_traceback
from pyspark_commitlog.write.row_encoder import RefusedRow, RowEncoder, check_columns
from store_core.errors import InvalidOptionError, StoreError
from store_core.files.access import check_writable, explained_access, naming
from store_core.files.file_system import OsFileSystem, write_all
from store_core.files.machine import SystemClock, keep_freed_memory
from store_core.files.store_lock import ProcessStat
from store_core.format.columns import iso_time
from store_core.store.sink.commit import (
    AppendTransaction,
    CommitLedger,
    CommitReport,
    SinkCommit,
    check_target,
    with_sizes_of,
)
from store_core.store.sink.staged_append import Appended
from store_core.store.sink.staged_batch import SinkDirectory, StagedFile, owner_text, stage_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from pyspark_commitlog.write.options import WriteOptions
    from store_core.queue.queue_path import QueueRules


try:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
except ModuleNotFoundError:  # no Spark asks for them
    DataSourceArrowWriter = DataSourceStreamArrowWriter = WriterCommitMessage = object  # type: ignore[misc,assignment]


QUERY_ID: Final = "sql.streaming.queryId"
"""Local property in which Spark tells tasks which streaming query they belong to; its checkpoint keeps the id."""


@dataclass(frozen=True)
class StagedPartition(WriterCommitMessage):
    """What a task has staged; pickled to the commit."""

    job: str
    partition: int
    staged: tuple[StagedFile, ...]  # in the order of the rows
    refused: int  # rows left out
    refused_path: Path | None  # file that lists them
    query_id: str | None  # id of the streaming query, if it is one


@dataclass(frozen=True)
class WriteJob:
    """One write: what all its tasks share, to which it is pickled, and its commit or abort."""

    options: WriteOptions  # with the sizes of the store
    job: str
    owner: str  # who runs the job, see `store_core.store.sink.commit`
    overwrite: bool = False  # whether the records replace the store
    transaction: AppendTransaction | None = None  # of a stream, the commit of a batch knows it
    is_stream: bool = False  # if not, `claim` has been called beside the driver

    def claim(self) -> None:
        """Create the job's directory. Called beside the driver, so that no task does it after an abort."""
        if not self.options.dry_run:
            self._sink().claim(self.job, self.owner, "driver")

    def run(self, batches: Iterator[pa.RecordBatch]) -> StagedPartition:
        """Encode rows and write them to a file of this attempt's own.

        Called in a task, again when it is retried; two attempts never share a file. Errors as of `stage`.
        """
        from pyspark import TaskContext  # noqa: PLC0415 -- `stage` needs no PySpark

        context = TaskContext.get()
        if context is None:
            raise RuntimeError("records are staged by a Spark task")
        query_id = context.getLocalProperty(QUERY_ID)
        return self.stage(batches, context.partitionId(), context.taskAttemptId(), query_id)

    def stage(
        self, batches: Iterator[pa.RecordBatch], partition: int = 0, attempt_id: int = 0, query_id: str | None = None
    ) -> StagedPartition:
        """Encode rows and write them to a file; the defaults are for a job that is one partition, without Spark."""
        file_system = OsFileSystem()
        encoder = RowEncoder(self.options, partition, SystemClock().now_ms())
        if self.options.dry_run:
            return self._count(batches, encoder, partition)
        attempt = f"{partition:05d}-{attempt_id}"
        sink = self._sink()
        if self.is_stream:
            # Spark plans each batch once for its tasks and once for its commit, which knows the first by what the
            # tasks report; what a job leaves that none of them reports, the query's next batch deletes.
            owner = json.dumps(json.loads(self.owner) | {"query": query_id})
            directory = sink.claim(self.job, owner, attempt)
        else:
            directory = sink.claimed(self.job)
        keep_freed_memory()
        rules = None if self.options.rebuild == "none" else self._queue_rules()
        encoded = (each for batch in batches for each in encoder.encode(batch))
        records = encoded if rules is None else (each.with_derived(rules) for each in encoded)
        staged = tuple(
            stage_batches(
                records, (directory / f"part-{attempt}-{number:05d}.arrow" for number in count()), file_system
            )
        )
        refused_path = self._list(encoder.refused, partition, directory / f"refused-{attempt}.jsonl", file_system)
        return StagedPartition(self.job, partition, staged, len(encoder.refused), refused_path, query_id)

    def _sink(self) -> SinkDirectory:
        return SinkDirectory(self.options.root, OsFileSystem(), self.options.staging)

    def _queue_rules(self) -> QueueRules:
        config = self.options.config
        return replace(config, message_index_enable=self.options.rebuild == "all").queue_rules()

    def _count(self, batches: Iterator[pa.RecordBatch], encoder: RowEncoder, partition: int) -> StagedPartition:
        records = size = 0
        for batch in batches:
            for encoded in encoder.encode(batch):
                records += len(encoded.records)
                size += int(encoded.records.starts[-1])
        counted = StagedFile(self.options.root, records, size, 0)
        return StagedPartition(self.job, partition, (counted,), len(encoder.refused), None, None)

    @staticmethod
    def _list(rows: list[RefusedRow], partition: int, path: Path, file_system: OsFileSystem) -> Path | None:
        if not rows:
            return None
        lines = (json.dumps({"partition": partition, **asdict(row)}) + "\n" for row in rows)
        file = file_system.open(path, create=True)
        write_all(file, memoryview("".join(lines).encode()), 0)
        file.close()
        return path

    # ---- when all tasks are done

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Append what tasks have staged."""
        staged = staged_partitions(messages)
        files = [file for each in staged for file in each.staged]
        left_out = sum(each.refused for each in staged)
        if self.options.dry_run:
            records, size = (sum(getattr(file, name) for file in files) for name in ("records", "log_bytes"))
            ledger = CommitLedger(self._sink().ledger, OsFileSystem())
            is_repeat = self.transaction is not None and not self.overwrite and ledger.has(self.transaction)
            self._write_report(CommitReport(Appended(records, 0, size), is_repeat=is_repeat, left_out=left_out))
            return
        commit = replace(
            self._commit(),
            left_out=left_out,
            refused=tuple(each.refused_path for each in staged if each.refused_path is not None),
        )
        keep_freed_memory()
        with explained_access(self.options.root):
            report = commit.run(files)
        self._write_report(report)

    def discard(self) -> None:
        """Delete what tasks have staged."""
        self._commit().discard()

    def _commit(self) -> SinkCommit:
        return SinkCommit(
            self.options.root,
            self.job,
            self.options.config,
            SystemClock(),
            OsFileSystem(),
            rebuild=self.options.rebuild,
            staging=self.options.staging,
            overwrite=self.overwrite,
            transaction=self.transaction,
        )

    def _write_report(self, report: CommitReport) -> None:
        """Write a commit's report to the file of option ``report``; if that fails, the commit stands."""
        options = self.options
        if options.report is None:
            return
        refused = self._sink().refused / f"{self.job}.jsonl"
        is_stored = report.appended.records and not options.dry_run
        values = {
            "store": str(options.root),
            "dry_run": options.dry_run,
            "is_repeat": report.is_repeat,
            "records": report.appended.records,
            "bytes": report.appended.end_offset - report.appended.begin_offset,
            "begin_offset": None if options.dry_run else report.appended.begin_offset,
            "end_offset": None if options.dry_run else report.appended.end_offset,
            "new_segments": report.appended.new_segments,
            "store_timestamp": iso_time(report.appended.store_timestamp) if is_stored else None,
            "left_out": report.left_out,
            "left_out_list": str(refused) if report.left_out and not options.dry_run and not report.is_repeat else None,
            "cleaned": report.cleaned,
        }
        try:
            with naming(options.report):
                options.report.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            _LOG.error("the report %s can't be written: %s", options.report, error)


_JVM: Final = "java"


def driver_process() -> int:
    """Return the number of the driver: the nearest Java process above this one, else this process's parent.

    Called beside the driver when a write is planned.
    """
    process = os.getppid()
    while process > 1:
        found = ProcessStat.of(process)
        if found is None:
            break
        if found.name == _JVM:
            return process
        process = found.parent
    return os.getppid()


_LOG: Final = logging.getLogger("store_core")


def plan_write(options: WriteOptions, schema: StructType | pa.Schema, *, overwrite: bool) -> WriteJob:
    """Check a write before any task runs; its columns are those of a DataFrame, or of Arrow."""
    check_columns(schema, options)
    if overwrite and not options.overwrite_store:
        raise InvalidOptionError(
            f'mode("overwrite") replaces the whole store at {options.root}, with all its topics: set '
            f'option("overwriteStore", "true") if you want that, or use mode("append")'
        )
    check_place(options)
    return new_job(options, owner_text(SystemClock(), driver_process()), overwrite=overwrite)


def new_job(options: WriteOptions, owner: str, *, overwrite: bool = False) -> WriteJob:
    """Return a job whose columns and place are checked; it keeps the sizes of a store that it does not replace."""
    if not overwrite:
        with explained_access(options.root):
            options = replace(options, config=with_sizes_of(options.root, options.config, OsFileSystem()))
    transaction = None if options.commit_id is None else AppendTransaction(options.commit_id)
    return WriteJob(options, f"job-{uuid.uuid4().hex}", owner, overwrite, transaction)


def check_place(options: WriteOptions) -> None:
    """Refuse a store that can't be written, and one that a broker or another writer has open."""
    for place in () if options.dry_run else filter(None, (options.root, options.staging)):
        check_writable(place)
    with explained_access(options.root):
        check_target(options.root, options.config, OsFileSystem(), is_dry=options.dry_run)


class _TaskWriter:
    def __init__(self, job: WriteJob) -> None:
        self._job = job

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a partition. Called in every task, again when it is retried."""
        return self._job.run(iterator)


class CommitLogWriter(_TaskWriter, DataSourceArrowWriter):
    """Appends a DataFrame to a store: all of its rows, or none.

    Made beside the driver before any task runs, and pickled to the tasks and to the commit.
    """

    @without_traceback
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Append what all tasks have staged. Called once, beside the driver, when all tasks are done."""
        self._job.commit(messages)

    @without_traceback
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete what has been staged. Called beside the driver when a task or the commit has failed."""
        del messages
        self._job.discard()


def staged_partitions(messages: Sequence[WriterCommitMessage | None]) -> list[StagedPartition]:
    """Return the partitions that tasks have staged, in order."""
    staged = [message for message in messages if isinstance(message, StagedPartition)]
    if len(staged) != len(messages):
        raise StoreError(
            f"expected a report of what it staged from each of {len(messages)} tasks, found {len(staged)}: Spark lost "
            f"the others. Nothing is appended; run the write again, with the same commitId if it has one"
        )
    return sorted(staged, key=lambda each: each.partition)


def reported(write: Callable[[Mapping[str, str]], None], given: Mapping[str, str]) -> dict[str, Any]:
    """Write with options of ``df.write``, and return the report of the commit."""
    with tempfile.TemporaryDirectory(prefix="commitlog-write-") as directory:
        report = Path(directory) / "report.json"
        write({**given, "report": str(report)})
        try:
            made: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
        except OSError as error:
            raise StoreError(
                "the write succeeded, and its messages are in the store unless it was a dry run, but the driver left "
                f"no report of it on this machine: {error}"
            ) from error
        return made


# ---- a stream


def plan_stream(options: WriteOptions, schema: StructType, *, overwrite: bool) -> WriteJob:
    """Check a streaming write before any task runs; its output mode has to be ``append``."""
    if overwrite or options.overwrite_store:
        raise InvalidOptionError("a stream is appended: use outputMode('append'), without option overwriteStore")
    if options.dry_run:
        raise InvalidOptionError(
            "option dryRun is for df.write; leave it out of a df.writeStream, which always appends"
        )
    if options.commit_id is not None:
        raise InvalidOptionError(
            "option commitId is for df.write; leave it out of a df.writeStream, which is known by its query's id and "
            "batch number"
        )
    return replace(plan_write(options, schema, overwrite=False), is_stream=True)


class CommitLogStreamWriter(_TaskWriter, DataSourceStreamArrowWriter):
    """Appends each batch of a streaming query: all of its rows, once.

    Spark makes one for the tasks of each batch and another one for its commit, so what the commit needs to know comes
    with the messages of the tasks. That includes the query's id: a batch that was committed before a restart is
    recognised by id and number, see `store_core.store.sink.commit`.
    """

    @without_traceback
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's name
        """Append what all tasks of a batch have staged. Called once for each batch, and again after a restart."""
        staged = staged_partitions(messages)
        if not staged:
            return
        query_id = staged[0].query_id
        if query_id is None:
            raise StoreError(
                "Spark did not report which streaming query this is, so a repeated batch can't be recognised"
            )
        transaction = AppendTransaction(query_id, batchId, is_batch=True)
        replace(self._job, job=staged[0].job, transaction=transaction).commit(messages)

    @without_traceback
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's name
        """Delete what has been staged. Called when a task or the commit of a batch has failed."""
        del batchId
        for job in {message.job for message in messages if isinstance(message, StagedPartition)}:
            replace(self._job, job=job).discard()
