# SPDX-License-Identifier: Apache-2.0
"""The source of the messages to append: files of rows, or another store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from pyspark_commitlog.jobs.asked_for import SparkMessages, check_asked_for
from pyspark_commitlog.jobs.copied_columns import copied_columns, input_names
from pyspark_commitlog.session_zone import SESSION_ZONE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["AppendSource", "SourceFormat", "zone_of"]

SourceFormat: TypeAlias = Literal["parquet", "json", "csv", "store"]


@dataclass(frozen=True, slots=True)
class AppendSource:
    """Rows to append.

    Attributes
    ----------
    format : str
        ``parquet``, ``json`` (one object per line), ``csv`` (with a header) or ``store``.
    path : str
    read_options : mapping
        For the reader of the format.
    to_topic : str or None
        From a store: append them as new messages of this topic.
    keeps_store_timestamp : bool
        From a store: whether messages keep their store times, and so are the same records.
    is_base64 : bool
        From JSON and CSV: whether bodies are in base64.
    """

    format: SourceFormat
    path: str
    read_options: Mapping[str, str]
    to_topic: str | None = None
    keeps_store_timestamp: bool = False
    is_base64: bool = False

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the rows with the columns and types of messages; those of Parquet files as they are."""
        from pyspark_commitlog.write.typed_rows import WRONG_LINE, typed_rows  # noqa: PLC0415 -- as in `_with_lists`

        reader = spark.read.options(**self.read_options)
        if self.format == "parquet":
            return reader.parquet(self.path)
        if self.format == "json":
            texts = reader.option("primitivesAsString", "true").option("mode", "PERMISSIVE")
            lines = texts.option("columnNameOfCorruptRecord", WRONG_LINE).json(self.path)
            return typed_rows(_with_lists(lines), self.path, is_base64=self.is_base64)
        if self.format == "csv":
            quoted = reader.option("header", "true").option("escape", '"').option("mode", "FAILFAST")
            return typed_rows(quoted.csv(self.path), self.path, is_base64=self.is_base64)
        return self._of_store(spark)

    def check(self, spark: SparkSession) -> None:
        """Refuse topics, queues and a key that the other store does not have.

        Raises
        ------
        InvalidOptionError
            If there is no such topic, queue or key.
        """
        if self.format == "store":
            check_asked_for(SparkMessages(spark, self.path), self.path, self.read_options)

    def _of_store(self, spark: SparkSession) -> DataFrame:
        from pyspark_commitlog.write.undelivered import copied, undelivered  # noqa: PLC0415 -- as in `_with_lists`

        names = copied_columns(self.to_topic, keeps_store_timestamp=self.keeps_store_timestamp)
        options = {**zone_of(spark, self.read_options), **self.read_options, "columns": ",".join(names)}
        frame = spark.read.format("commitlog").options(**options).load(self.path).toDF(*input_names(names))
        if self.to_topic is not None:
            return undelivered(frame)
        return frame if self.keeps_store_timestamp else copied(frame)


def _with_lists(lines: DataFrame) -> DataFrame:
    """Return lines of JSON in which a key is a list of keys, where it is text in some lines and a list in others.

    Spark's reader then makes text of all, of a list its JSON.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 -- options are read without Spark, too
    from pyspark.sql.types import StringType  # noqa: PLC0415 -- as above

    if "keys" not in lines.columns or not isinstance(lines.schema["keys"].dataType, StringType):
        return lines
    keys = F.col("keys")
    listed = F.when(keys.startswith("["), F.from_json(keys, "array<string>"))
    return lines.withColumn("keys", F.coalesce(listed, F.when(keys.isNotNull(), F.array(keys))))


def zone_of(spark: SparkSession, options: Mapping[str, str]) -> dict[str, str]:
    """Return the session's time zone as an option if options have times: here it is known even if it is not set."""
    zone = spark.conf.get(SESSION_ZONE)
    has_times = any(name.lower() in ("startingtimestamp", "endingtimestamp") for name in options)
    return {"timeZone": zone} if has_times and zone is not None else {}
