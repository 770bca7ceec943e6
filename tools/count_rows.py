# SPDX-License-Identifier: Apache-2.0
"""Counts a store's messages with the packages of this environment, and prints the number.

Usage: count_rows.py STORE
No `register`: Spark has to find the source by itself. check_wheel.py runs this where only the wheel is installed.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import pyspark_commitlog
import store_core


def main(store: str) -> int:
    """Print the number of rows, and return the exit code."""
    outside = [p.__file__ for p in (pyspark_commitlog, store_core) if not str(p.__file__).startswith(sys.prefix)]
    if outside:
        print(f"not of this environment: {outside}", file=sys.stderr)
        return 1
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    print(spark.read.format("commitlog").load(store).count())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
