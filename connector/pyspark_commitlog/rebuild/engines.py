# SPDX-License-Identifier: Apache-2.0
"""Provides Spark for the steps of a rebuild, with a session and a progress bar for each."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark_commitlog.engine import SparkEngine
from pyspark_commitlog.jobs.job_session import job_session
from pyspark_commitlog.progress import spark_progress
from pyspark_commitlog.rebuild.progress import RebuildStages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.store.parts import Engine
    from store_core.store.rebuild.store_rebuild import EngineSource

__all__ = ["spark_engines"]


def spark_engines(size: int) -> EngineSource:
    """Return a function that provides a Spark engine for a step, as `StoreRebuild` expects it.

    Parameters
    ----------
    size : int
        Bytes of the log to be read, for the progress bar.
    """

    @contextmanager
    def provide(step: str) -> Iterator[Engine]:
        session = job_session(f"commitlog {step}", needs_context=True)
        with session as spark, spark_progress(spark, describe=RebuildStages(size)):
            yield SparkEngine(spark, "rebuilding")

    return provide
