# SPDX-License-Identifier: Apache-2.0
"""Two DataFrames are written to one store at once: what is written is complete, and a refused write raises an error."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from tests.connector.written import Writer, consumed, error_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_of_concurrent_jobs_each_is_in_the_store_wholly_or_told_that_another_writes(
    spark: SparkSession, tmp_path: Path
) -> None:
    write = Writer(spark, tmp_path / "store")
    count = 50

    def told(job: int) -> str | None:
        # Spark looks a source up in the thread's active session; of what PySpark can do, this makes one active.
        spark.createDataFrame([(1,)], "unused int")
        try:
            write(write.messages(count, first=job * count))
        except PySparkException as error:
            return str(error)
        return None

    with ThreadPoolExecutor(3) as pool:
        outcomes = list(pool.map(told, range(3)))

    assert None in outcomes
    assert all("StoreLockedError" in text and str(write.root) in text for text in outcomes if text)
    winners = [job for job, text in enumerate(outcomes) if text is None]
    bodies = [row.body for row in write.read("body")]
    whole = [[f"body {number}".encode() for number in range(job * count, (job + 1) * count)] for job in winners]
    assert sorted(whole) == sorted(bodies[at : at + count] for at in range(0, len(bodies), count))
    assert consumed(write.root) == len(bodies)


def test_a_thread_without_active_session_finds_no_source_to_write_to(spark: SparkSession, tmp_path: Path) -> None:
    write = Writer(spark, tmp_path / "store")

    with ThreadPoolExecutor(1) as pool:
        text = pool.submit(error_of, lambda: write(write.messages(1))).result()

    assert "DATA_SOURCE_NOT_FOUND" in text  # once Spark finds it, the guide on appending need not speak of threads
