# SPDX-License-Identifier: Apache-2.0
"""A program that rebuilds on a cluster whose workers are separate processes, while tasks and executors fail.

Usage: cluster_rebuild.py MASTER STORE TARGET SCRATCH [kill] [fail] [speculate]
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from pyspark_commitlog.engine import SparkEngine
from store_core.queue.queue_path import QueueRules
from store_core.store.rebuild.job import RebuildJob, Run, RunKey, TaskResult, rebuild_by
from store_core.store.rebuild.plan import RebuildRules
from tests.connector.submitting import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


RULES = RebuildRules(QueueRules(consume_queue_file_size=800, max_hash_slot_num=100, max_index_num=400), has_index=True)


def kill_executor() -> None:
    """Kill the JVM that this worker's daemon belongs to, with its part of the shuffle."""
    daemon = os.getppid()
    stat = Path(f"/proc/{daemon}/stat").read_text(encoding="utf-8")
    os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)


@dataclass(frozen=True)
class FailingJob(RebuildJob):
    """A job whose tasks write, and then, at the first attempt, fail or kill their executor."""

    scratch: str = ""
    accidents: tuple[str, ...] = ()

    def gather(self, runs: Iterable[tuple[RunKey, Run]]) -> Iterator[TaskResult]:
        """Write everything, then fail."""
        made = list(super().gather(runs))
        for accident in self.accidents:
            if self._is_first(accident):
                if accident == "kill":
                    kill_executor()
                raise RuntimeError(f"{accident} after writing")
        yield from made

    def _is_first(self, accident: str) -> bool:
        try:
            Path(self.scratch, accident).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


class FailingEngine(SparkEngine):
    """Runs jobs whose tasks fail."""

    scratch = ""
    accidents: tuple[str, ...] = ()

    def run_grouped(self, job: Any) -> Any:  # noqa: ANN401 -- it is a `RebuildJob`
        """Run a job."""
        values = {field.name: getattr(job, field.name) for field in fields(RebuildJob)}
        return super().run_grouped(FailingJob(**values, scratch=self.scratch, accidents=self.accidents))


def main() -> None:
    master, store, target, scratch, *accidents = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(master)
        .config(map=dict(SETTINGS))
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.executor.memory", "512m")
        .config("spark.speculation", str("speculate" in accidents).lower())
        .config("spark.task.maxFailures", "8")
        .getOrCreate()
    )
    engine = FailingEngine(spark)
    engine.scratch, engine.accidents = scratch, tuple(each for each in accidents if each != "speculate")
    report = rebuild_by(engine, Path(store), Path(target), RULES)
    executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    sys.stdout.write(f"{report.records} records, executors {executors}, {spark.sparkContext.master}\n")
    spark.stop()


if __name__ == "__main__":
    main()
