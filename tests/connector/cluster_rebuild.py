# SPDX-License-Identifier: Apache-2.0
"""A program that rebuilds on a cluster whose workers are processes of their own, while tasks and executors fail.

Usage: cluster_rebuild.py MASTER STORE TARGET SCRATCH [kill] [fail] [speculate]
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from pyspark_commitlog.rebuild.driver import rebuild_by, spark_runner
from pyspark_commitlog.rebuild.tasks import RebuildTasks
from store_core.queue.queue_rules import QueueRules
from store_core.store.rebuild.rules import RebuildRules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark_commitlog.rebuild.driver import Rows
    from pyspark_commitlog.rebuild.tasks import Run, RunKey

RULES = RebuildRules(QueueRules(consume_queue_file_size=800, max_hash_slot_num=100, max_index_num=400), has_index=True)


def kill_executor() -> None:
    """Kill the JVM that this worker's daemon belongs to, with everything it has of a shuffle."""
    daemon = os.getppid()
    stat = Path(f"/proc/{daemon}/stat").read_text(encoding="utf-8")
    os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)


@dataclass(frozen=True)
class FailingTasks(RebuildTasks):
    """Tasks that write, and then fail or have their executor killed, each the first time."""

    scratch: str = ""
    accidents: tuple[str, ...] = ()

    def write(self, runs: Iterable[tuple[RunKey, Run]]) -> Iterator[tuple[int, str]]:
        """Write all, and let it have been in vain."""
        made = list(super().write(runs))
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


def main() -> None:
    master, store, target, scratch, *accidents = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(master)
        .config("spark.driver.host", "localhost")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.executor.memory", "512m")
        .config("spark.speculation", str("speculate" in accidents).lower())
        .config("spark.task.maxFailures", "8")
        .getOrCreate()
    )
    run = spark_runner(spark)

    def run_failing(tasks: RebuildTasks) -> Rows:
        values = {field.name: getattr(tasks, field.name) for field in fields(RebuildTasks)}
        failing = tuple(accident for accident in accidents if accident != "speculate")
        return run(FailingTasks(**values, scratch=scratch, accidents=failing))

    report = rebuild_by(run_failing, 2, Path(store), Path(target), RULES)
    executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    sys.stdout.write(f"{report.records} records, executors {executors}, {spark.sparkContext.master}\n")
    spark.stop()


if __name__ == "__main__":
    main()
