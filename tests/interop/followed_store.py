# SPDX-License-Identifier: Apache-2.0
"""A streaming query that is killed while it follows a store.

Usage: followed_store.py STORE OUTPUT CHECKPOINT follow|drain. Each batch becomes a file of OUTPUT; one that is repeated
must have the same rows. Prints ``begin``, each batch, and ``end`` if it drains the store.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

COLUMNS: Final = "physical_offset,store_size,topic,tags,keys,body_crc,properties"
LIMIT: Final = 4000


def say(text: str) -> None:
    """Report progress to the test."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Sink:
    """Keeps each batch in a file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Write a batch, or compare it with what was written before."""
        rows, path = frame.toArrow(), self.directory / f"{number:06d}.parquet"
        if path.exists():
            if pq.read_table(path).to_pylist() != rows.to_pylist():
                self.directory.joinpath("differs").write_text(f"{number}\n")
        else:
            partial = path.with_suffix(".partial")
            pq.write_table(rows, partial)
            partial.rename(path)
        say(f"batch {number}")


def main(store: str, output: str, checkpoint: str, way: str) -> None:
    """Follow until killed, or read what is there."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "localhost").getOrCreate()
    log = spark.readStream.format("commitlog").options(columns=COLUMNS, maxOffsetsPerTrigger=LIMIT).load(store)
    stream = log.writeStream.foreachBatch(Sink(Path(output))).option("checkpointLocation", checkpoint)
    query = (stream.trigger(availableNow=True) if way == "drain" else stream).start()
    say("begin")
    query.awaitTermination()
    say("end")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
