# SPDX-License-Identifier: Apache-2.0
"""What a driver writes that is killed meanwhile, and one that is not.

Usage: killed_driver.py batch|stream|copy STORE SOURCE CHECKPOINT. Prints ``begin`` and ``end`` on standard output.
"""

from __future__ import annotations

import sys
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from tests.connector.stores import SMALL

COPIED: Final = 50
"""Messages in a batch of a copy."""


def say(word: str) -> None:
    """Report progress to the test."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def messages(frame: DataFrame) -> DataFrame:
    """Make messages from lines of text; they fill many small segments."""
    return frame.selectExpr("concat('topic', length(value) % 3) AS topic", "rpad(value, 300, '.') AS body")


def streamed(kind: str, spark: SparkSession, source: str) -> DataFrame:
    """Read lines of text, a file in a batch, or another store, a few messages in a batch."""
    if kind == "copy":
        log = spark.readStream.format("commitlog").options(columns="topic,body", maxOffsetsPerTrigger=COPIED)
        return log.load(source)
    return messages(spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(source))


def write(spark: SparkSession, kind: str, store: str, source: str, checkpoint: str) -> None:
    """Write the lines of a source once."""
    if kind == "batch":
        batch = messages(spark.read.text(source)).write.format("commitlog").mode("append").options(**SMALL)
        batch.option("commitId", "once").save(store)
    else:
        lines = streamed(kind, spark, source)
        stream = lines.writeStream.format("commitlog").options(**SMALL).trigger(availableNow=True)
        stream.option("checkpointLocation", checkpoint).start(store).awaitTermination()


def main(kind: str, store: str, source: str, checkpoint: str) -> None:
    """Write in a session of its own."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "localhost").getOrCreate()
    spark.range(10).selectExpr("'warm-up' AS topic", "'' AS body").write.format("commitlog").mode("append").options(
        **SMALL
    ).save(f"{checkpoint}-warm-up")
    say("begin")
    write(spark, kind, store, source, checkpoint)
    say("end")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
