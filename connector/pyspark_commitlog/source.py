# SPDX-License-Identifier: Apache-2.0
"""The data source ``commitlog``, Spark's entry point to this package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from pyspark_commitlog.errors import require_pyspark, without_traceback

# Spark imports this module in every session that uses any Python data source. Whatever needs numpy and pyarrow is
# imported in the methods, which Spark calls only for commit logs.

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_commitlog.stream import StreamOptions


class CommitLogDataSource(DataSource):
    """A RocketMQ message store, read as a DataFrame, or written from one.

    Spark makes an instance for each DataFrame, in a separate Python process beside the driver, with the options as a
    mapping that ignores case. It pickles it to the driver, and from there to the process that plans the scan.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.read.format``."""
        return "commitlog"

    @without_traceback
    def schema(self) -> StructType:
        """Return the columns of the DataFrame.

        Called once for each DataFrame, at ``load()``, unless the user gave a schema. Reads no file.

        Raises
        ------
        InvalidOptionError
            If an option is unknown or invalid.
        """
        from pyspark_commitlog.reader import dataframe_schema, keep_old_objects  # noqa: PLC0415

        keep_old_objects()
        if self._has_view():
            from pyspark_commitlog.views import ViewRead  # noqa: PLC0415

            return ViewRead.from_spark(self.options).schema
        options = self._stream_options().common
        return dataframe_schema(options.read.columns, nullable=options.read.is_permissive)

    @without_traceback
    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of a batch query.

        Called once for each DataFrame, at its first action, beside the driver. The reader is pickled to the tasks.

        Parameters
        ----------
        schema : StructType
            The user's schema if there is one, which selects columns and their order, else the result of `schema`.

        Raises
        ------
        InvalidOptionError
            If an option is unknown or invalid, or the schema does not fit a commit log.
        """
        from pyspark_commitlog.options import CommitLogOptions  # noqa: PLC0415
        from pyspark_commitlog.reader import CommitLogReader  # noqa: PLC0415

        if self._has_view():
            from pyspark_commitlog.views import ViewRead, ViewReader  # noqa: PLC0415

            return ViewReader(ViewRead.from_spark(self.options), schema)
        return CommitLogReader(CommitLogOptions.from_spark(self.options), schema)

    @without_traceback
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 -- Spark's signature
        """Make the writer of ``df.write``.

        Called once, beside the driver, before any task runs. The writer is pickled to the tasks and to the commit.

        Parameters
        ----------
        schema : StructType
            The DataFrame's.
        overwrite : bool
            Whether the mode is ``overwrite``; otherwise it is ``append``. Spark itself refuses other modes.

        Raises
        ------
        InvalidOptionError
            If options, columns and the store do not fit together.
        StoreLockedError
            If a broker holds the store.
        """
        from pyspark_commitlog.write.options import WriteOptions  # noqa: PLC0415
        from pyspark_commitlog.write.writer import CommitLogWriter, plan_write  # noqa: PLC0415

        require_pyspark()
        job = plan_write(WriteOptions.from_spark(self.options), schema, overwrite=overwrite)
        job.claim()
        return CommitLogWriter(job)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 -- Spark's name
        """Make the reader of a streaming query.

        Called when a query starts, in a process that belongs to the query, and once for each batch to plan its tasks,
        to which the reader is pickled. What is wrong with options or schema is raised by the reader's methods.

        Parameters
        ----------
        schema : StructType
            As of `reader`.
        """
        from pyspark_commitlog.stream import CommitLogStreamReader, RefusedStream  # noqa: PLC0415
        from store_core.errors import StoreError  # noqa: PLC0415

        try:
            return CommitLogStreamReader(self._stream_options(), schema)
        except StoreError as error:
            return RefusedStream(error)

    @without_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802, FBT001 -- Spark's
        """Make the writer of ``df.writeStream``.

        Called beside the driver for each batch: once for its tasks, and once for its commit.

        Parameters
        ----------
        schema : StructType
            The DataFrame's.
        overwrite : bool
            Whether the output mode is ``complete``.

        Raises
        ------
        InvalidOptionError
            As `writer`.
        """
        from pyspark_commitlog.write.options import WriteOptions  # noqa: PLC0415
        from pyspark_commitlog.write.writer import CommitLogStreamWriter, plan_stream  # noqa: PLC0415

        require_pyspark()
        return CommitLogStreamWriter(plan_stream(WriteOptions.from_spark(self.options), schema, overwrite=overwrite))

    def _has_view(self) -> bool:
        """Return whether the rows are something else than messages."""
        from store_core.views.view_columns import MESSAGES, is_messages  # noqa: PLC0415

        require_pyspark()
        return not is_messages(self.options.get("view", MESSAGES))

    def _stream_options(self) -> StreamOptions:
        """Parse the options of a batch or a stream: `schema` is called for both, and is not told which it is."""
        from pyspark_commitlog.stream import StreamOptions  # noqa: PLC0415

        require_pyspark()
        return StreamOptions.from_spark(self.options)
