# SPDX-License-Identifier: Apache-2.0
"""The task of a write: stages the records of its partition, and reports to the driver where they are."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Final

from pyspark_commitlog.write.row_encoder import RowEncoder
from pyspark_commitlog.write.spark_bases import WriterCommitMessage
from store_core.files.clock import SystemClock
from store_core.files.file_system import OsFileSystem, write_all
from store_core.store.memory import keep_freed_memory
from store_core.store.sink.directory import SinkDirectory
from store_core.store.sink.staged_batch import StagedFile, stage_batches

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from pyspark_commitlog.write.options import WriteOptions
    from pyspark_commitlog.write.row_encoder import RefusedRow
    from store_core.queue.queue_rules import QueueRules

__all__ = ["QUERY_ID", "StagedPartition", "StagingTask"]

QUERY_ID: Final = "sql.streaming.queryId"
"""Local property in which Spark tells tasks which streaming query they belong to; its checkpoint keeps the id."""


@dataclass(frozen=True)
class StagedPartition(WriterCommitMessage):
    """What a task has staged; pickled to the commit.

    Attributes
    ----------
    staged : tuple of StagedFile
        In the order of the rows.
    refused : int
        Rows left out.
    refused_path : Path or None
        File that lists them.
    query_id : str or None
        Id of the streaming query, if it is one.
    """

    job: str
    partition: int
    staged: tuple[StagedFile, ...]
    refused: int
    refused_path: Path | None
    query_id: str | None


@dataclass(frozen=True)
class StagingTask:
    """What all tasks of a job share; pickled to them.

    Attributes
    ----------
    options : WriteOptions
        With the sizes of the store.
    owner : str
        Who runs the job, see `store_core.store.sink.job_owner`.
    is_stream : bool
        If not, `claim` has been called beside the driver.
    """

    options: WriteOptions
    job: str
    owner: str
    is_stream: bool = False

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
        """Encode rows and write them to a file; the defaults are for a job that is one partition, without Spark.

        Raises
        ------
        InvalidOptionError
            If a row can't be a message, unless ``badRows=skip``.
        OSError
            If the file can't be written.
        StoreNotFoundError
            If the job has been aborted, or this worker does not see its staging directory.
        """
        file_system = OsFileSystem()
        encoder = RowEncoder(self.options, partition, SystemClock().now_ms())
        if self.options.dry_run:
            return self._count(batches, encoder, partition)
        attempt = f"{partition:05d}-{attempt_id}"
        sink = self._sink()
        # Of a stream, Spark plans each batch once for its tasks and once for its commit, which knows the first by what
        # the tasks report: of a job that none of them reports nobody would delete the directory.
        directory = sink.claim(self.job, self.owner, attempt) if self.is_stream else sink.claimed(self.job)
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
