# SPDX-License-Identifier: Apache-2.0
"""A program: reads a store by URL, in Python and by Spark, and compares with the local one: URL DIRECTORY SETTINGS."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from store_core import read_messages, read_view, store_at
from store_core.answers import bill


def main() -> None:
    """Compare, and print what was found to be the same."""
    url, directory, given = sys.argv[1:]
    settings: dict[str, str] = json.loads(given)
    rows = read_messages(directory).read_all()
    assert rows == read_messages(url, storage=settings).read_all()
    narrow = read_messages(url, columns=["topic", "store_size"], storage=settings)
    assert rows.select(["topic", "store_size"]) == narrow.read_all()
    assert read_view(directory, "consumequeue").read_all().num_rows == (
        read_view(url, "consumequeue", storage=settings).read_all().num_rows
    )
    assert bill(directory).to_json()["messages"] == bill(store_at(url, settings)).to_json()["messages"]
    sys.stdout.write(f"python {rows.num_rows}\n")
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    named = {f"storage.{name}": value for name, value in settings.items()}
    local = spark.read.format("commitlog").load(directory)
    found = spark.read.format("commitlog").options(**named).load(url)
    assert local.orderBy("physical_offset").collect() == found.orderBy("physical_offset").collect()
    sys.stdout.write(f"spark {found.count()}\n")
    spark.stop()


if __name__ == "__main__":
    main()
