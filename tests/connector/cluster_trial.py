# SPDX-License-Identifier: Apache-2.0
"""A program that reads a store on a standalone cluster, and checks it.

Usage: cluster_trial.py MASTER URL PYTHON [SETTING=VALUE ...]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.connector.submitting import SETTINGS


def _place(_: int) -> str:
    """Return the directory of the worker in which a task runs."""
    return str(Path.cwd().parents[1])


def main() -> None:
    """Read, print what came, and on which workers; or print the error's last line."""
    master, path, python, *settings = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = python
    spark = (
        SparkSession.builder.master(master)
        .config(map=dict(SETTINGS))
        .config("spark.executor.memory", "512m")
        .config("spark.task.maxFailures", "1")
        .config("spark.executorEnv.PYSPARK_PYTHON", python)
        .getOrCreate()
    )
    options = {f"storage.{name}": value for name, _, value in (each.partition("=") for each in settings)}
    from pyspark_commitlog.answers import check  # noqa: PLC0415 -- Spark has to be there
    from pyspark_commitlog.spark_errors import quoted_error, spark_words  # noqa: PLC0415

    try:
        frame = spark.read.format("commitlog").options(**options).load(path)
        sys.stdout.write(f"rows {frame.count()}\n")
        places = spark.sparkContext.parallelize(range(64), 64).map(_place).distinct().count()
        sys.stdout.write(f"directories {places}\n")
        if not settings:
            sys.stdout.write(f"verdict {check(spark, path).verdict.name}\n")
    except Exception as error:  # noqa: BLE001 -- what a user sees
        quoted = quoted_error(str(error))
        sys.stdout.write(f"error {spark_words(error) if quoted is None else quoted[1]}\n")
    spark.stop()


if __name__ == "__main__":
    main()
