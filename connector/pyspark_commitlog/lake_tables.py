# SPDX-License-Identifier: Apache-2.0
"""Tables of Delta and Iceberg that get exports, where the session has them."""

from __future__ import annotations

import math
import re
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 -- its usual name

from pyspark_commitlog.reader import dataframe_schema
from pyspark_commitlog.spark_errors import spark_words
from store_core.errors import CorruptRecordError, InvalidOptionError, UnsupportedStoreError
from store_core.store.export.lake_files import LAKE_SCHEMA, NO_DAY_NAME, SegmentTotals, totals_by_segment

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from store_core.store.export.lake_table import LakeTable, TableCommit


_CRC_BITS: Final = 0x7FFFFFFF
"""Of a CRC-32 that RocketMQ keeps (``UtilAll.crc32``)."""

_PARTITION: Final = "day"
"""Not the topic: as a directory, one of 255 characters has no room in the names of a file system."""

_MARK: Final = "commitlog-export"
"""Property of a snapshot of Iceberg that says which export it is, and prefix of Delta's ``txnAppId``."""

_PACKAGES: Final = {
    "delta": "io.delta:delta-spark_SPARK_2.13, spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension and "
    "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-SPARK_2.13, and a catalog: "
    "spark.sql.catalog.NAME=org.apache.iceberg.spark.SparkCatalog",
}
_ABSENT: Final = re.compile(
    r"DATA_SOURCE_NOT_FOUND|CATALOG_NOT_FOUND|REQUIRES_SINGLE_PART_NAMESPACE|CANNOT_LOAD_CATALOG"
    r"|ClassNotFoundException|Cannot find catalog plugin"
)
_OF_OTHER_SPARK: Final = re.compile(
    r"java\.lang\.(?:NoSuchMethodError|NoSuchFieldError|IncompatibleClassChangeError|AbstractMethodError"
    r"|NoClassDefFoundError|ClassCastException)|must implement RelationCatalog"
)


def lake_table(spark: SparkSession, into: str | os.PathLike[str], table: str | None) -> LakeTable:
    """Return a table of Iceberg by its name, with its catalog; without one that of Delta in the ledger's directory."""
    return _Delta(spark, str(Path(into).resolve())) if table is None else _Iceberg(spark, table)


@dataclass(frozen=True)
class _Delta:
    """A table of Delta, which ignores an append of a transaction that it has."""

    spark: SparkSession
    path: str

    @property
    def name(self) -> str:
        return "delta"

    def open(self, *, is_new: bool) -> None:
        with _explained(self.spark, "delta"):
            writer = _nothing(self.spark).write.format("delta").partitionBy(_PARTITION)
            writer.mode("ignore").save(self.path)
            if is_new:
                _check_empty(self._frame(), self.path)

    def append(self, commit: TableCommit) -> None:
        with _explained(self.spark, "delta"):
            writer = _rows_of(self.spark, commit).write.format("delta").mode("append").partitionBy(_PARTITION)
            transaction = {"txnAppId": f"{_MARK} {commit.ledger}", "txnVersion": str(commit.number)}
            writer.options(**transaction).save(self.path)

    def totals(self, starts: Sequence[int]) -> Iterable[SegmentTotals]:
        with _explained(self.spark, "delta"):
            return _totals_of(self._frame(), starts)

    def _frame(self) -> DataFrame:
        return self.spark.read.format("delta").load(self.path)


@dataclass(frozen=True)
class _Iceberg:
    """A table of Iceberg, whose snapshots say which export each is."""

    spark: SparkSession
    table: str

    @property
    def name(self) -> str:
        return f"iceberg {self.table}"

    def open(self, *, is_new: bool) -> None:
        with _explained(self.spark, "iceberg"):
            if not self.spark.catalog.tableExists(self.table):
                _nothing(self.spark).writeTo(self.table).using("iceberg").partitionedBy(F.col(_PARTITION)).create()
            if is_new:
                _check_empty(self.spark.table(self.table), self.table)

    def append(self, commit: TableCommit) -> None:
        mark = f"{commit.ledger}/{commit.number}"
        with _explained(self.spark, "iceberg"):
            if self._has(mark):
                return
            self._check_absent(commit)
            writer = _rows_of(self.spark, commit).writeTo(self.table).option(f"snapshot-property.{_MARK}", mark)
            writer.option("distribution-mode", "none").option("fanout-enabled", "true").append()

    def totals(self, starts: Sequence[int]) -> Iterable[SegmentTotals]:
        with _explained(self.spark, "iceberg"):
            return _totals_of(self.spark.table(self.table), starts)

    def _has(self, mark: str) -> bool:
        self.spark.catalog.refreshTable(self.table)
        snapshots = self.spark.table(f"{self.table}.snapshots")
        return not snapshots.where(F.col("summary")[_MARK] == mark).isEmpty()

    def _check_absent(self, commit: TableCommit) -> None:
        """Refuse to append messages that are there: the snapshot that says so may have expired."""
        place = F.col("physical_offset")
        rows = self.spark.table(self.table).where((place >= commit.begin) & (place < commit.end))
        if not rows.isEmpty():
            expected = (
                f"no messages of offsets {commit.begin} to {commit.end}, as no snapshot is export {commit.number}"
            )
            raise CorruptRecordError(
                "a table has messages that its ledger does not know", self.table, commit.begin, expected, "some", b"",
                "The ledger is an older one, or the snapshot was expired: export into another table.",
            )  # fmt: skip


def _nothing(spark: SparkSession) -> DataFrame:
    """Return no rows, with the columns of a table."""
    day = F.lit(None).cast("date").alias(_PARTITION)
    columns = dataframe_schema(["topic", *LAKE_SCHEMA.names], nullable=True)
    return spark.createDataFrame([], columns).select("*", day)


def _rows_of(spark: SparkSession, commit: TableCommit) -> DataFrame:
    """Return the staged rows with topic and day, sorted so that statistics of row groups tell topics apart."""
    paths = [each.path.as_uri() for each in commit.rows]
    days = [None if each.day == NO_DAY_NAME else date.fromisoformat(each.day) for each in commit.rows]
    places = [(each.path.name, each.topic, day) for each, day in zip(commit.rows, days, strict=True)]
    of_files = spark.createDataFrame(places, f"file_name string, topic string, {_PARTITION} date")
    staged = spark.read.schema(dataframe_schema(LAKE_SCHEMA.names, nullable=True)).parquet(*paths)
    rows = staged.select("*", "_metadata.file_name").join(F.broadcast(of_files), "file_name")
    columns = rows.select("topic", *LAKE_SCHEMA.names, _PARTITION)
    return columns.sortWithinPartitions(_PARTITION, "topic", "physical_offset")


def _totals_of(frame: DataFrame, starts: Sequence[int]) -> list[SegmentTotals]:
    """Return the totals of rows by segment, by checksums of the bodies that are really there: all by Spark's own SQL.

    Rows are grouped by the largest step that all segments begin at a multiple of, so that no group is of two of them.
    """
    step = math.gcd(*starts) or 1 << 30
    crc = F.crc32(F.coalesce("body", F.lit(b""))).bitwiseAND(F.lit(_CRC_BITS))
    place = F.col("physical_offset")
    mixed = (crc + 1).cast("decimal(11, 0)") * place.cast("decimal(19, 0)")
    sums = (F.count("*"), F.sum(F.col("store_size").cast("long")), F.sum(crc), F.sum(mixed))
    rows = frame.groupBy(F.expr(f"physical_offset div {step}")).agg(*sums)
    known = np.array(starts, np.int64)
    parts = []
    for group, messages, size, crcs, places in rows.collect():
        owner = int(np.searchsorted(known, group * step, "right")) - 1
        segment = starts[owner] if owner >= 0 else -1
        parts.append(SegmentTotals(segment, messages, size, crcs, int(places) % (1 << 64)))
    return list(totals_by_segment(parts).values())


def _check_empty(frame: DataFrame, name: str) -> None:
    if not frame.isEmpty():
        raise InvalidOptionError(f"into: {name} has rows that no ledger there knows: export into a new table")


@contextmanager
def _explained(spark: SparkSession, kind: str) -> Iterator[None]:
    """Say by name what a session lacks."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        text = str(error)
        if other := _OF_OTHER_SPARK.search(text):
            found = f"its jar is built for another Spark than {spark.version} ({other[0]}: {spark_words(error)[:200]})"
        elif _ABSENT.search(text):
            found = f"Spark {spark.version} has none here"
        else:
            raise
        wanted = _PACKAGES[kind].replace("SPARK", ".".join(spark.version.split(".")[:2]))
        raise UnsupportedStoreError(
            f"format {kind} does not work in this session: {found}; it needs {wanted}"
        ) from error
