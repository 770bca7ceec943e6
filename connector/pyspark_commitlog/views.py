# SPDX-License-Identifier: Apache-2.0
"""The views of a store as DataFrames: their options, and the reader that plans beside the driver and reads in tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_commitlog.errors import without_traceback
from pyspark_commitlog.options import GivenOptions, SessionTimes, absolute_times
from pyspark_commitlog.reader import ReadSchema, dataframe_schema
from store_core.errors import StoreError
from store_core.format.columns import STORE, Column, column_named
from store_core.views.view import ViewOptions, ViewPart, part_batches, plan_view, resolved

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType


_ANY_ZONE: Final = "Z"
"""The zone with which times that have none are checked, before a task knows the session's."""


@dataclass(frozen=True, slots=True)
class ViewRead:
    """The parsed options of a DataFrame of a view; can be pickled."""

    paths: tuple[str, ...]  # where the store is
    options: ViewOptions  # where times have no zone, the range covers all zones
    columns: tuple[str, ...] | None  # canonical names from option ``columns``; None without it
    times: SessionTimes | None  # what tasks use to narrow the range, if times have no zone

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> Self:
        """Parse the options that Spark passes to a data source."""
        view, paths, texts = GivenOptions.of(options)
        texts = absolute_times(paths, texts)
        times = SessionTimes.of({name: text for name, text in texts.items() if name != "columns"})
        parsed = ViewOptions.parse(view, **(texts if times is None else {**texts, "time_zone": _ANY_ZONE}))
        if times is not None:
            parsed = replace(parsed, read=times.for_planning())
        return cls(paths, parsed, parsed.columns if "columns" in texts else None, times)

    @property
    def schema(self) -> StructType:
        """The schema of the DataFrame, unless the user gives one."""
        return dataframe_schema(self.options.columns, nullable=False, of=self.known_columns)

    @property
    def known_columns(self) -> tuple[Column, ...]:
        """The columns of the view, and the one that tells several stores apart."""
        return (*self.options.view.columns, column_named(STORE))

    def task_options(self) -> ViewOptions:
        """Return the options with times in the session's zone. To be called in a task."""
        return self.options if self.times is None else replace(self.options, read=self.times.for_task())


@dataclass(frozen=True)
class ViewPartition(InputPartition):
    """A part of a view: made beside the driver, pickled, and passed to `ViewReader.read` in one task."""

    part: ViewPart
    log_end: int | None = None  # as of `ViewOptions`
    store_name: str = ""  # as of `ReadOptions`


class ViewReader(DataSourceReader):
    """Reads the parts of a view.

    Made and planned beside the driver, once for each DataFrame, then pickled to every task. As in `CommitLogReader`,
    there is no ``pushFilters``.

    * `schema`: The user's schema if there is one, which selects columns and their order, else that of `read`.
    """

    def __init__(self, read: ViewRead, schema: StructType) -> None:
        self._schema = ReadSchema.of(schema, named=read.columns, of=read.known_columns)
        self._read = replace(read, options=replace(read.options, columns=self._schema.columns))

    @without_traceback
    def partitions(self) -> list[InputPartition]:
        """Cut the view of each store into parts of bounded work, one for each task; called once, beside the driver."""
        try:
            stores = self._read.options.read.stores_of(self._read.paths)
            asked = [(store, resolved(store, self._read.options.named(store))) for store in stores]
            found = [(part, options) for store, options in asked for part in plan_view(store, options)]
        except NotImplementedError as error:
            # Spark's planner would treat it as "one partition without a value", and the DataFrame would be empty.
            raise StoreError(str(error)) from None
        return [ViewPartition(part, options.log_end, options.read.store_name) for part, options in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one part; called on an executor, once for each task and again when it is retried."""
        if not isinstance(partition, ViewPartition):
            return  # Spark's stand-in for an empty list of partitions
        try:
            options = self._read.task_options()
            read = replace(options.read, store_name=partition.store_name)
            for batch in part_batches(partition.part, replace(options, read=read, log_end=partition.log_end)):
                yield self._schema.conform(batch)
        except StoreError as error:
            # As `without_traceback` does, which can't wrap a generator.
            raise error.with_traceback(None) from None
