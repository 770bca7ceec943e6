# SPDX-License-Identifier: Apache-2.0
"""A program that does in a Spark of its own what tests look at: on a cluster whose workers are processes, or by URL.

Usage: spark_trial.py read MASTER URL PYTHON [SETTING=VALUE ...]
       spark_trial.py rebuild MASTER STORE TARGET SCRATCH [kill] [fail] [speculate]
       spark_trial.py log URL SETTINGS DIRECTORY

The first form reads a store, and checks it; the second one rebuilds, while tasks and executors fail; the third one
does what can be done by URL, and what fails, and logs all of it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_commitlog.answers import SparkEngine, check
from pyspark_commitlog.spark_errors import quoted_error, spark_words
from store_core.queue.queue_path import QueueRules
from store_core.store.rebuild.job import RebuildJob, Run, RunKey, TaskResult, rebuild_by
from store_core.store.rebuild.plan import RebuildRules
from tests.connector.processes import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

RULES = RebuildRules(QueueRules(consume_queue_file_size=800, max_hash_slot_num=100, max_index_num=400), has_index=True)


def session(master: str, python: str, **settings: str | bool | None) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = python
    builder = SparkSession.builder.master(master).config(map=dict(SETTINGS)).config("spark.executor.memory", "512m")
    return builder.config(map=dict(settings)).getOrCreate()


# ---- reading


def _place(_: int) -> str:
    """Return the directory of the worker in which a task runs."""
    return str(Path.cwd().parents[1])


def read(master: str, path: str, python: str, *settings: str) -> None:
    """Read, print what came, and on which workers; or print the error's last line."""
    once = {"spark.task.maxFailures": "1", "spark.executorEnv.PYSPARK_PYTHON": python}
    spark = session(master, python, **once)
    options = {f"storage.{name}": value for name, _, value in (each.partition("=") for each in settings)}
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


# ---- rebuilding


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


def rebuild(master: str, store: str, target: str, scratch: str, *accidents: str) -> None:
    """Rebuild, and print how many records were read, and by how many executors."""
    trouble = {"spark.speculation": str("speculate" in accidents).lower(), "spark.task.maxFailures": "8"}
    spark = session(master, sys.executable, **trouble, **{"spark.ui.showConsoleProgress": "false"})
    engine = FailingEngine(spark)
    engine.scratch, engine.accidents = scratch, tuple(each for each in accidents if each != "speculate")
    report = rebuild_by(engine, Path(store), Path(target), RULES)
    executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    sys.stdout.write(f"{report.records} records, executors {executors}, {spark.sparkContext.master}\n")
    spark.stop()


# ---- logging


def log(url: str, settings: str, scratch: str) -> None:
    """Do everything with an event log, and with a log of all levels from INFO on."""
    directory = Path(scratch)
    named = {f"storage.{name}": value for name, value in json.loads(settings).items()}

    def frame(place: str, **options: str) -> DataFrame:
        return spark.read.format("commitlog").options(**named, **options).load(place)

    (directory / "events").mkdir()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.eventLog.enabled", "true").config("spark.eventLog.compress", "false")
    builder = builder.config("spark.eventLog.dir", f"file://{directory}/events")
    spark = builder.config("spark.local.dir", str(directory / "local")).getOrCreate()
    spark.sparkContext.setLogLevel("INFO")
    messages = frame(url)
    messages.explain(extended=True)
    messages.createOrReplaceTempView("messages")
    spark.sql("EXPLAIN EXTENDED SELECT * FROM messages").show(truncate=False)
    messages.repartition(3).cache().count()
    frame(url, view="topics").show()
    rows = spark.readStream.format("commitlog").options(**named, columns="physical_offset").load(url)
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(directory / "checkpoint"))
    writer.trigger(availableNow=True).start(str(directory / "rows")).awaitTermination()
    for place, options in ((f"{url}-gone", {}), (url, {"storage.secret_kye": "x"}), (url, {"mode": "x"})):
        try:
            frame(place, **options).count()
        except PySparkException as error:
            sys.stdout.write(f"failed: {error}\n")
    sys.stdout.write(f"rows {messages.count()}\n")
    spark.stop()


if __name__ == "__main__":
    {"read": read, "rebuild": rebuild, "log": log}[sys.argv[1]](*sys.argv[2:])  # type: ignore[operator]  # of any
