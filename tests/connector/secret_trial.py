# SPDX-License-Identifier: Apache-2.0
"""A program: does with Spark what can be done by URL, and what fails, and logs all of it: URL SETTINGS DIRECTORY."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession


def frame(spark: SparkSession, url: str, **options: str) -> DataFrame:
    """Load a URL with the settings as options."""
    named = {f"storage.{name}": value for name, value in json.loads(sys.argv[2]).items()}
    return spark.read.format("commitlog").options(**named, **options).load(url)


def stream(spark: SparkSession, url: str, directory: Path) -> None:
    """Read a stream to its end, with a checkpoint."""
    named = {f"storage.{name}": value for name, value in json.loads(sys.argv[2]).items()}
    rows = spark.readStream.format("commitlog").options(**named, columns="physical_offset").load(url)
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(directory / "checkpoint"))
    writer.trigger(availableNow=True).start(str(directory / "rows")).awaitTermination()


def main() -> None:
    """Run everything with an event log, and with a log of all levels from INFO on."""
    url, directory = sys.argv[1], Path(sys.argv[3])
    (directory / "events").mkdir()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.eventLog.enabled", "true").config("spark.eventLog.compress", "false")
    builder = builder.config("spark.eventLog.dir", f"file://{directory}/events")
    builder = builder.config("spark.local.dir", str(directory / "local"))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("INFO")
    messages = frame(spark, url)
    messages.explain(extended=True)
    messages.createOrReplaceTempView("messages")
    spark.sql("EXPLAIN EXTENDED SELECT * FROM messages").show(truncate=False)
    messages.repartition(3).cache().count()
    frame(spark, url, view="topics").show()
    stream(spark, url, directory)
    for place, options in ((f"{url}-gone", {}), (url, {"storage.secret_kye": "x"}), (url, {"mode": "x"})):
        try:
            frame(spark, place, **options).count()
        except PySparkException as error:
            sys.stdout.write(f"failed: {error}\n")
    sys.stdout.write(f"rows {messages.count()}\n")
    spark.stop()


if __name__ == "__main__":
    main()
