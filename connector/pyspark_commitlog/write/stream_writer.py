# SPDX-License-Identifier: Apache-2.0
"""The streaming writer: appends each batch of a query to the store exactly once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter

from pyspark_commitlog.errors import without_traceback
from pyspark_commitlog.write.writer import commit_partitions, discard_partitions, plan_write, staged_partitions
from store_core.errors import InvalidOptionError, StoreError
from store_core.store.sink.commit_ledger import Transaction

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from pyspark_commitlog.write.options import WriteOptions
    from pyspark_commitlog.write.writer import StagingTask

__all__ = ["CommitLogStreamWriter", "plan_stream"]


def plan_stream(options: WriteOptions, schema: StructType, *, overwrite: bool) -> StagingTask:
    """Check a streaming write before any task runs.

    Raises `InvalidOptionError`: If options, columns and the store do not fit together, or the output mode is not
    ``append``.
    """
    if overwrite or options.overwrite_store:
        raise InvalidOptionError("a stream is appended: use outputMode('append'), without option overwriteStore")
    if options.dry_run:
        raise InvalidOptionError("option dryRun is for df.write: a stream that appends nothing is of no use")
    if options.commit_id is not None:
        raise InvalidOptionError(
            "option commitId is for df.write; a stream is known by its query's id and batch number"
        )
    return replace(plan_write(options, schema, overwrite=False), is_stream=True)


class CommitLogStreamWriter(DataSourceStreamArrowWriter):
    """Appends each batch of a streaming query: all of its rows, once.

    Spark makes one for the tasks of each batch and another one for its commit, so what the commit needs to know comes
    with the messages of the tasks. That includes the query's id: a batch that was committed before a restart is
    recognised by id and number, see `store_core.store.sink.commit_ledger`.
    """

    def __init__(self, task: StagingTask) -> None:
        self._task = task

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a partition. Called in every task, again when it is retried."""
        return self._task.run(iterator)

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
        commit_partitions(self._task.options, staged[0].job, messages, Transaction(query_id, batchId, is_batch=True))

    @without_traceback
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's name
        """Delete what has been staged. Called when a task or the commit of a batch has failed."""
        del batchId
        discard_partitions(self._task.options, messages)
