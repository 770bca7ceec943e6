# SPDX-License-Identifier: Apache-2.0
"""A relative time is so long before the store time of the log's last message, on Spark as without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core import read_messages
from tests.builders import FIRST_STORE_TIMESTAMP, LogBuilder

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_spark_takes_it_in_batches_and_streams_whatever_its_zone(spark: SparkSession, tmp_path: Path) -> None:
    log = LogBuilder(2048)
    for number in range(3):
        log.append(b"x" * 300, store_timestamp=FIRST_STORE_TIMESTAMP + 60_000 * number)
    store = str(log.write(tmp_path / "store", preallocated=1))
    options = {"startingTimestamp": "-90s", "columns": "physical_offset"}
    read = read_messages(store, columns=["physical_offset"], starting_timestamp="-90s").read_all()
    expected = read.column(0).to_pylist()
    spark.conf.set("spark.sql.session.timeZone", "Asia/Shanghai")
    try:
        batch = spark.read.format("commitlog").options(**options).load(store)
        assert expected == sorted(row[0] for row in batch.collect())
        stream = spark.readStream.format("commitlog").options(**options).load(store)
        query = stream.writeStream.format("memory").queryName("relative").trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
        assert expected == sorted(row[0] for row in spark.table("relative").collect())
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
