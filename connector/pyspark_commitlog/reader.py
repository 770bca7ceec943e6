# SPDX-License-Identifier: Apache-2.0
"""The batch reader of the source, the DataFrame's schema, and the Arrow schema that must match it exactly.

Spark compares the first Arrow batch with the DataFrame's schema: names, order, types and nullability, including those
of list elements and map values.
"""

from __future__ import annotations

import gc
import logging
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Final, ParamSpec, Self, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_commitlog.errors import without_traceback
from store_core.errors import InvalidOptionError, StoreError
from store_core.format.columns import COLUMNS, Column, arrow_schema, resolve_columns
from store_core.store.read.message_reader import read_range
from store_core.store.read.ranges import ReadRange, task_groups
from store_core.store.read.read_messages import TopicWatch
from store_core.store.read.read_plan import plan_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark_commitlog.options import CommitLogOptions
    from store_core.snapshot.store import Store


_SPARK_TYPES: Final[dict[pa.DataType, DataType]] = {
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.bool_(): BooleanType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
}


def spark_type(kind: pa.DataType) -> DataType:
    """Return the Spark type of a column's Arrow type."""
    if pa.types.is_list(kind):
        return ArrayType(spark_type(kind.value_type), kind.value_field.nullable)
    if pa.types.is_map(kind):
        return MapType(spark_type(kind.key_type), spark_type(kind.item_type), kind.item_field.nullable)
    return _SPARK_TYPES[kind]


def dataframe_schema(columns: Sequence[str], *, nullable: bool, of: Sequence[Column] = COLUMNS) -> StructType:
    """Return the schema of a DataFrame.

    * `nullable`: Whether damaged ranges become rows, as with mode PERMISSIVE: columns of a message are null in such
      rows.
    """
    fields = arrow_schema(columns, nullable=nullable, columns=of)
    return StructType([StructField(field.name, spark_type(field.type), field.nullable) for field in fields])


@dataclass(frozen=True, slots=True)
class ReadSchema:
    """The columns to read, and the Arrow schema that Spark expects."""

    columns: tuple[str, ...]  # canonical names, in the DataFrame's order
    arrow: pa.Schema  # the same columns, with names and nullability as in the DataFrame's schema

    @classmethod
    def of(
        cls,
        schema: StructType,
        *,
        named: Sequence[str] | None,
        nullable: bool = False,
        of: Sequence[Column] = COLUMNS,
    ) -> Self:
        """Check the schema of a DataFrame, which may come from the user, against the columns of a view.

        * `named`: Canonical names from option ``columns``, if it was given.
        * `nullable`, `of`: As for `dataframe_schema`.
        """
        columns = resolve_columns(schema.fieldNames(), of)
        if named is not None and tuple(named) != columns:
            raise InvalidOptionError(
                f"option columns says {', '.join(named)}, and the schema says {', '.join(columns)}; "
                "give one of the two, or the same columns in the same order"
            )
        stored = arrow_schema(columns, nullable=nullable, columns=of)
        return cls(columns, pa.schema([_field(ours, theirs) for ours, theirs in zip(stored, schema, strict=True)]))

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the names and the nullability that Spark expects. Copies no data."""
        arrays = [
            array if array.type == field.type else array.cast(field.type)
            for array, field in zip(batch.columns, self.arrow, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)


def _field(ours: pa.Field, theirs: StructField) -> pa.Field:
    expected, found = spark_type(ours.type).simpleString(), theirs.dataType.simpleString()
    if expected != found:
        raise InvalidOptionError(f"column {theirs.name!r} of the schema: expected type {expected}, found {found}")
    if ours.nullable and not theirs.nullable:
        raise InvalidOptionError(
            f"column {theirs.name!r} of the schema is declared NOT NULL, but can be null; declare it {expected} alone"
        )
    return pa.field(theirs.name, _with_nullability(ours.type, theirs.dataType), theirs.nullable)


def _with_nullability(kind: pa.DataType, declared: DataType) -> pa.DataType:
    """Declare list elements and map values as the schema does; ours are never null, so either declaration is true."""
    if isinstance(declared, ArrayType):
        return pa.list_(kind.value_field.with_nullable(declared.containsNull))
    if isinstance(declared, MapType):
        return pa.map_(kind.key_field, kind.item_field.with_nullable(declared.valueContainsNull))
    return kind


@dataclass(frozen=True)
class CommitLogPartition(InputPartition):
    """Ranges of segment files, mostly one: made beside the driver, pickled, and passed to `CommitLogReader.read`."""

    ranges: tuple[ReadRange, ...]
    store_name: str = ""  # as of `ReadOptions`


_LARGE: Final = 4 << 30
"""Bytes of a log from which on a scan of all of it is worth a hint."""

_HINTED: Final[set[str]] = set()
"""The hint, once this process has given it."""

_LOG = logging.getLogger(__name__)


class CommitLogReader(DataSourceReader):
    """Reads the ranges of one store, or of several.

    Made and planned beside the driver, once for each DataFrame, then pickled to every task. There is deliberately no
    ``pushFilters``: Spark 4.3 keeps one pushed filter for all scans of a DataFrame, so that
    ``df.where("a").union(df.where("b"))`` would return wrong rows. Options narrow what is read instead.

    * `schema`: The user's schema if there is one, which selects columns and their order, else that of `options`.
    * `is_followed`: Whether ranges are those of a stream, which begins where its checkpoint says: no time is then
      compared.
    """

    def __init__(self, options: CommitLogOptions, schema: StructType, *, is_followed: bool = False) -> None:
        self._paths = options.paths
        self._schema = ReadSchema.of(schema, named=options.columns, nullable=options.read.is_permissive)
        self._options = replace(options.read, columns=self._schema.columns)
        self._times = options.times
        self._is_followed = is_followed

    @without_traceback
    def partitions(self) -> list[InputPartition]:
        """Cut each store into ranges, mostly one for each task.

        Called once for each DataFrame, beside the driver, at its first action: "latest" is what is there then.
        The partitions are pickled. An empty list reaches `read` as one ``InputPartition(None)``.
        """
        keep_old_objects()
        try:
            stores = self._options.stores_of(self._paths)
            plans = [(self.name_of(store), plan_ranges(store.paths, self._options, by_tail=True)) for store in stores]
            TopicWatch.of(stores, self._options).warn_before_read()
        except NotImplementedError as error:
            # Spark's planner would treat it as "one partition without a value", and the DataFrame would be empty.
            raise StoreError(str(error)) from None
        if not (self._options.selects_rows or self._times or self._is_followed):
            _hint_at_scan(sum(part.end - part.begin for _, plan in plans for part in plan.ranges))
        return [CommitLogPartition(group, name) for name, plan in plans for group in task_groups(plan.ranges)]

    def name_of(self, store: Store) -> str:
        """Return what column ``store`` has, if it is requested: otherwise no file is read for it."""
        return self._options.named(store).store_name

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the messages of one partition.

        Called on an executor, once for each task and again when the task is retried, in a Python process that goes on
        to the next task. Batches reach the JVM as they are, unsplit.
        """
        if not isinstance(partition, CommitLogPartition):
            return
        keep_old_objects()
        try:
            options = self._options
            if self._times is not None:
                options = replace(self._times.for_task(), columns=options.columns)
            if self._is_followed:
                options = replace(options, starting_timestamp=None)
            options = replace(options, store_name=partition.store_name)
            for part in partition.ranges:
                for batch in read_range(part, options):
                    yield self._schema.conform(batch)
        except StoreError as error:
            # As `without_traceback` does, which can't wrap a generator.
            raise error.with_traceback(None) from None


def _hint_at_scan(size: int) -> None:
    """Say once that a query reads all of a large log, whatever it filters: Spark keeps that to itself."""
    text = (
        "hint: this query reads the whole log, %.1f GiB. WHERE and where(...) filter rows that were read; options such "
        "as topic, key, startingTimestamp and columns narrow what is read: docs/guides/read.md"
    )
    if size >= _LARGE and text not in _HINTED:
        _HINTED.add(text)
        _LOG.warning(text, size / (1 << 30))


# ---- objects that a worker keeps


P = ParamSpec("P")
T = TypeVar("T")


@cache
def keep_old_objects() -> None:
    """Exempt the objects that a worker has now from later collections, so that these do not take longer than a task.

    Called at the start of tasks, and of what is done beside the driver to plan; only the first call in a process does
    anything. A worker that is reused collects garbage after each task and each plan (``pyspark.daemon``, 4.x), which
    takes 16 to 29 ms with NumPy, Arrow and PySpark imported, while the next worker of the query wants the processor.
    Nothing is collected first: what imports leave is little.
    """
    gc.freeze()


def with_old_objects_kept(task: Callable[P, T]) -> Callable[P, T]:
    """Wrap a task's function, so that it calls `keep_old_objects` first. Called on the driver."""

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        keep_old_objects()
        return task(*args, **kwargs)

    return run
