# SPDX-License-Identifier: Apache-2.0
"""Appends rows in this process, through the same staging and commit as Spark's tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark_commitlog.write.writer import CommitLogWriter, plan_write
from store_core.files.clock import SystemClock
from store_core.store.sink.job_owner import owner_text

if TYPE_CHECKING:
    from pyspark_commitlog.jobs.local_rows import LocalRows
    from pyspark_commitlog.write.options import WriteOptions

__all__ = ["append_here"]


def append_here(rows: LocalRows, options: WriteOptions) -> None:
    """Append rows as ``df.write`` does whose DataFrame has one partition; what was done is in the report.

    Raises
    ------
    StoreError, OSError
        As `pyspark_commitlog.write.writer.plan_write`, `StagingTask.stage` and `SinkCommit.run`. Nothing is left then
        of what was staged.
    """
    planned = plan_write(options, rows.schema, overwrite=False)
    task = replace(planned, owner=owner_text(SystemClock()))
    writer = CommitLogWriter(task, overwrite=False)
    try:
        task.claim()
        writer.commit([task.stage(rows.batches)])
    except BaseException:
        writer.abort([])
        raise
