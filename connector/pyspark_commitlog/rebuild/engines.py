# SPDX-License-Identifier: Apache-2.0
"""Provides Spark for the steps of a rebuild, with a session and a progress bar for each, labelled by its stages."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyspark_commitlog.engine import SparkEngine
from pyspark_commitlog.jobs.job_session import job_session
from pyspark_commitlog.progress import spark_progress
from pyspark_commitlog.progress.display import StageView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_commitlog.progress.stages import StageTasks
    from store_core.answers.rebuild import EngineSource
    from store_core.store.parts import Engine

__all__ = ["RebuildStages", "spark_engines"]


_NAMES: Final = ("reading", "writing")
_MEBIBYTE: Final = 1 << 20


class RebuildStages:
    """Describes the stages of a rebuild, for `spark_progress`.

    Parameters
    ----------
    size : int
        Bytes of the log to be read in total.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._first = -1

    def __call__(self, tasks: StageTasks, others: int, pace: float) -> StageView:
        """Describe a stage: which half of the work it is and, for reading, the log's bytes per second."""
        del others
        self._first = tasks.stage if self._first < 0 else self._first
        half = (tasks.stage - self._first) % len(_NAMES)
        rate = f"{self._size / tasks.total * pace / _MEBIBYTE:.0f} MiB/s" if half == 0 and pace else ""
        notes = [rate] * bool(rate) + [f"{tasks.failed} failed"] * bool(tasks.failed)
        return StageView(tasks.stage, _NAMES[half], tasks.done, tasks.total, pace, tuple(notes))


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
