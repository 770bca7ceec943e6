# SPDX-License-Identifier: Apache-2.0
"""The Spark session of a job."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from pyspark_commitlog.engine import SparkEngine
from pyspark_commitlog.java import require_java
from pyspark_commitlog.progress import spark_progress
from pyspark_commitlog.session import no_context_error, require_classic, spark_session

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["job_engine", "job_session"]


@contextmanager
def job_engine(name: str) -> Iterator[SparkEngine]:
    """Provide an engine on the running session, or on a new one, with a progress bar."""
    require_java()
    with job_session(name, needs_context=True) as spark, spark_progress(spark):
        yield SparkEngine(spark, name)


@contextmanager
def job_session(name: str, *, needs_context: bool = False) -> Iterator[SparkSession]:
    """Provide the running session, or a new one that is stopped at the end.

    A new one is made by `pyspark_commitlog.spark_session`. Settings of ``spark-submit`` and configuration files are
    kept, except that Spark's own progress bar is off: a job's output may be saved, and on a terminal the job draws its
    own bar (`pyspark_commitlog.progress`).

    * `name`: Name of the application.
    * `needs_context`: Whether the job needs a session with a ``sparkContext``.
    """
    active = SparkSession.getActiveSession()
    if active is None and needs_context and "SPARK_REMOTE" in os.environ:
        raise no_context_error(name, f"SPARK_REMOTE={os.environ['SPARK_REMOTE']} selects Spark Connect; unset it")
    if active is not None:
        if needs_context:
            require_classic(active, name)
        yield active
        return
    session = spark_session(name, config={"spark.ui.showConsoleProgress": False})
    try:
        if needs_context:
            require_classic(session, name)
        yield session
    finally:
        session.stop()
