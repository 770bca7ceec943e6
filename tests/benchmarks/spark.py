# SPDX-License-Identifier: Apache-2.0
"""Spark reading a commit log, against Spark reading the same rows from uncompressed Parquet."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

from tests.benchmarks.measure import measure, report

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

__all__ = ["bench_spark"]

_ALL_TARGET: Final = 1.3
_COUNT_TARGET: Final = 1.5


def bench_spark(store: Path, folder: Path, runs: int) -> list[dict[str, object]]:
    """Time full reads into nothing, and a count by topic, with two task slots."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = _session()
    try:
        return _bench(spark, store, folder, runs)
    finally:
        spark.stop()


def _session() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("bench")
    settings = {
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.parquet.compression.codec": "uncompressed",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.worker.reuse": "true",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _bench(spark: SparkSession, store: Path, folder: Path, runs: int) -> list[dict[str, object]]:
    def log(columns: str | None = None, *, crc: bool = False) -> DataFrame:
        reader = spark.read.format("commitlog").option("verifyCrc", str(crc).lower()).option("minPartitions", "2")
        if columns:
            reader = reader.option("columns", columns)
        return reader.load(str(store))

    parquet = folder / f"{store.name}.parquet"
    if not (parquet / "_SUCCESS").exists():
        shutil.rmtree(parquet, ignore_errors=True)
        log().write.parquet(str(parquet))
    rows = spark.read.parquet(str(parquet))
    everything = measure("Parquet, all columns, noop", runs, lambda: _drain(rows))
    counted = measure("Parquet, count by topic", runs, lambda: rows.groupBy("topic").count().collect())
    return [
        report(everything, everything),
        report(measure("commitlog, all columns, no CRC", runs, lambda: _drain(log())), everything, _ALL_TARGET),
        report(measure("commitlog, all columns, CRC checked", runs, lambda: _drain(log(crc=True))), everything),
        report(counted, counted),
        report(
            measure("commitlog, count by topic", runs, lambda: log("topic").groupBy("topic").count().collect()),
            counted,
            _COUNT_TARGET,
        ),
    ]


def _drain(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()
