# SPDX-License-Identifier: Apache-2.0
"""The stages that Spark is running, for classic and Spark Connect sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

__all__ = ["ClassicStages", "ConnectStages", "StageTasks", "Stages", "is_connect", "stages_of"]


@dataclass(frozen=True, slots=True, order=True)
class StageTasks:
    """A stage that is running, and how many of its tasks are done."""

    stage: int
    total: int
    done: int = 0
    running: int = 0
    failed: int = 0


class Stages(Protocol):
    """Reports which stages are running."""

    def running(self) -> list[StageTasks]:
        """Return the running stages in the order of their numbers. Called in a thread of its own; never raises."""

    def close(self) -> None:
        """Release the session."""


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is a Spark Connect session, which has no ``sparkContext``."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def stages_of(spark: SparkSession) -> Stages:
    """Choose the implementation for a session."""
    return ConnectStages(spark) if is_connect(spark) else ClassicStages(spark)


class ClassicStages:
    """All stages of the application, from the status tracker of a session in this process."""

    def __init__(self, spark: SparkSession) -> None:
        self._tracker = spark.sparkContext.statusTracker()

    def running(self) -> list[StageTasks]:
        """Return the running stages; none once the session is stopped."""
        try:
            found = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
        except (Py4JError, OSError):
            return []
        return sorted(
            StageTasks(info.stageId, info.numTasks, info.numCompletedTasks, info.numActiveTasks, info.numFailedTasks)
            for info in found
            if info is not None
        )

    def close(self) -> None:
        """Do nothing: the tracker holds no resources."""


class ConnectStages:
    """Stages that a Connect server reports by itself, by default every two seconds."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._operations: dict[str, list[StageTasks]] = {}
        spark.registerProgressHandler(self._take)  # type: ignore[arg-type]  # Spark's class is a signature

    def running(self) -> list[StageTasks]:
        """Return the running stages of all operations."""
        return sorted(stage for stages in self._operations.copy().values() for stage in stages)

    def close(self) -> None:
        """Remove the handler."""
        self._spark.removeProgressHandler(self._take)  # type: ignore[arg-type]  # as above

    def _take(
        self,
        stages: Iterable[object] | None,
        inflight_tasks: int,
        operation_id: str | None,
        done: bool,  # noqa: FBT001 -- Spark's signature
    ) -> None:
        """Store a report of the server. Called by keyword, in the thread that waits for the operation."""
        name = operation_id or ""
        if done:
            self._operations.pop(name, None)
            return
        told = [_stage_of(stage) for stage in stages or () if not getattr(stage, "done", True)]
        # The number of running tasks is not reported per stage.
        self._operations[name] = [
            StageTasks(stage.stage, stage.total, stage.done, inflight_tasks * (len(told) == 1)) for stage in told
        ]


def _stage_of(told: object) -> StageTasks:
    """Convert a ``pyspark.sql.connect.shell.progress.StageInfo``."""
    stage, total, done = (int(getattr(told, name)) for name in ("stage_id", "num_tasks", "num_completed_tasks"))
    return StageTasks(stage, total, done)
