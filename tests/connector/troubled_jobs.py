# SPDX-License-Identifier: Apache-2.0
"""A program that runs jobs that write on a cluster, while its processes are killed, jobs cancelled, or run twice.

Usage: troubled_jobs.py MASTER FOLDER ROUNDS SEED JOB:TROUBLE ...
       troubled_jobs.py MASTER FOLDER once JOB
       troubled_jobs.py write batch|stream|copy STORE SOURCE CHECKPOINT

Each job finds what its writer in `tests.store_core.kills` finds, and has to leave what that one has to leave. The
second form runs a job of the folder once, after a word on standard output: it is the driver that is killed. So is the
third one, which writes the lines of a source.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_commitlog import answers
from store_core import read_messages
from store_core.errors import StoreError
from tests.connector.processes import SETTINGS, command_of, descendants, kill, wait_for_end
from tests.connector.stores import SMALL, consumed, left_behind
from tests.store_core.kills.targets import Exporting, Rebuilding, Redacting, Repairing, Replaying

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.store_core.kills.campaign import Target

ROWS: Final = 200
SECONDS: Final = 3.0
"""A job is likely to take as long at first; the others are measured."""


class Appending:
    """A job of ``df.write``."""

    def prepare(self, folder: Path) -> None:
        """Begin with no store."""

    def work(self, folder: Path, seed: int, tell: Callable[[int], None]) -> None:
        """Do nothing: Spark writes."""

    def check(self, folder: Path, seed: int, told: list[int]) -> None:
        """Check that each job is there as a whole or not at all, and once, and that nothing is left behind."""
        del seed
        root = folder / "store"
        bodies = read_messages(root, columns=["body"], mode="FAILFAST").read_all()["body"].to_pylist()
        assert sorted(bodies) == sorted(set(bodies))
        jobs = Counter(body.split(b".")[0] for body in bodies)
        assert set(jobs.values()) <= {ROWS}
        assert told == [] or len(jobs) >= len(told)
        assert consumed(root) == len(bodies)
        assert left_behind(root) == []


def append(spark: SparkSession, folder: Path) -> None:
    """Append messages of a name that no other job has."""
    name = f"{time.monotonic_ns()}"
    frame = spark.range(0, ROWS, 1, 4).selectExpr("concat('topic', id % 3) AS topic", f"concat('{name}.', id) AS body")
    frame.write.format("commitlog").mode("append").options(**SMALL).save(str(folder / "store"))


@dataclass(frozen=True)
class Job:
    """A job, and what it begins with and leaves; whether it may be run again after it was done."""

    run: Callable[[SparkSession, Path], object]
    target: Target
    is_repeated: bool = True


JOBS: Final[dict[str, Job]] = {
    "append": Job(append, Appending()),
    "rebuild-queues": Job(
        lambda spark, folder: answers.rebuild_consume_queue(spark, folder / "store", Rebuilding().options),
        Rebuilding(),
    ),
    "rebuild-index": Job(
        lambda spark, folder: answers.rebuild_index(spark, folder / "store", Rebuilding.of_index().options),
        Rebuilding.of_index(),
    ),
    "repair": Job(
        lambda spark, folder: answers.repair(spark, folder / "store", folder / "plan.json"),
        Repairing(),
        is_repeated=False,
    ),
    "redact": Job(
        lambda spark, folder: answers.redact(spark, folder / "store", folder / "copy", text="xxx"),
        Redacting(),
        is_repeated=False,
    ),
    "export": Job(lambda spark, folder: answers.export(spark, folder / "store", folder / "lake"), Exporting()),
    "replay": Job(
        lambda spark, folder: answers.replay(
            spark, folder / "store", replay_id="again", to_topic="again", release="5.3", topic="topic1"
        ),
        Replaying(),
    ),
}


def session(master: str) -> SparkSession:
    """Make a session whose tasks are run again, also before they have failed."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings: dict[str, Any] = {
        **SETTINGS,
        "spark.ui.showConsoleProgress": "false",
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "8",
        "spark.speculation": "true",
        "spark.speculation.interval": "20ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.3",
        "spark.speculation.minTaskRuntime": "20ms",
        "spark.excludeOnFailure.enabled": "false",
    }
    return SparkSession.builder.master(master).config(map=settings).getOrCreate()


def processes(word: str) -> list[int]:
    """Return the processes below this one that have a word in their command lines."""
    return [each for each in descendants(os.getpid()) if word in command_of(each)]


def set_active(spark: SparkSession) -> None:
    """Give this thread the session: Spark looks for sources that are made with Python in that of the thread alone."""
    of_java: Any = spark
    of_java._get_j_spark_session_class(of_java._jvm).setActiveSession(of_java._jsparkSession)


class Troubled:
    """The rounds of one job and one trouble."""

    def __init__(self, spark: SparkSession, chance: random.Random, seconds: float) -> None:
        self.spark, self.chance, self.seconds = spark, chance, seconds
        self.ends: Counter[str] = Counter()

    def is_done(self, job: Job, folder: Path) -> bool:
        """Run a job, and return whether it says that it is done."""
        try:
            job.run(self.spark, folder)
        except (PySparkException, Py4JJavaError, StoreError, OSError) as error:
            sys.stderr.write(f"{job.target.__class__.__name__}: {error!s:.3000}\n")
            return False
        return True

    def round(self, name: str, trouble: str, folder: Path) -> None:
        """Trouble a job once; then the next one has to succeed, and to leave what has to be there."""
        job = JOBS[name]
        folder.mkdir(parents=True)
        job.target.prepare(folder)
        done = getattr(self, f"_{trouble}")(name, job, folder)
        self.ends[f"{done} done"] += 1
        if job.is_repeated or not done:
            began = time.monotonic()
            # Spark notices a killed worker that was idle only when it wants to use it, and then fails the job.
            assert any(self.is_done(job, folder) for _ in range(5)), f"{name} does not go on after {trouble}"
            self.seconds = time.monotonic() - began
        job.target.check(folder, 0, [0] * max(done, 1))

    def _beside(self, action: Callable[[], object], job: Job, folder: Path) -> int:
        timer = threading.Timer(self.chance.uniform(0, self.seconds), action)
        timer.start()
        is_done = self.is_done(job, folder)
        timer.cancel()
        timer.join()
        return int(is_done)

    def _executors(self, _: str, job: Job, folder: Path) -> int:
        """Kill an executor, with its part of the shuffle: stages are run again."""
        return self._beside(lambda: kill(processes("CoarseGrainedExecutorBackend")[:1]), job, folder)

    def _workers(self, _: str, job: Job, folder: Path) -> int:
        """Kill the Python processes of tasks: they are run again."""
        return self._beside(lambda: kill(processes("pyspark.daemon")), job, folder)

    def _cancel(self, _: str, job: Job, folder: Path) -> int:
        """Cancel what runs in the session."""
        return self._beside(self.spark.sparkContext.cancelAllJobs, job, folder)

    def _twice(self, _: str, job: Job, folder: Path) -> int:
        """Run it twice at once."""
        done: list[bool] = []

        def run() -> None:
            set_active(self.spark)
            done.append(self.is_done(job, folder))

        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(done) == len(threads)
        return sum(done)

    def _driver(self, name: str, _: Job, folder: Path) -> int:
        """Kill a driver, with all that is below it."""
        command = [sys.executable, __file__, "local[2]", str(folder), "once", name]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: S603 -- our own
            assert process.stdout is not None
            assert process.stdout.readline() == b"begin\n"
            time.sleep(self.chance.uniform(0, self.seconds))
            is_done = process.poll() is not None
            below = descendants(process.pid)
            kill([process.pid, *below])
            process.wait()
            wait_for_end(below)
        return int(is_done and process.returncode == 0)


def trouble(
    spark: SparkSession, folder: Path, pair: str, rounds: int, seed: int, seconds: float = SECONDS
) -> dict[str, int]:
    """Trouble a job in a session round by round; return how many rounds ended with each number of jobs done."""
    name, kind = pair.split(":")
    troubled = Troubled(spark, random.Random(f"{seed}-{name}-{kind}"), seconds)  # noqa: S311 -- no secret
    for number in range(rounds):
        troubled.round(name, kind, folder / f"{name}-{kind}-{number}")
    return dict(sorted(troubled.ends.items()))


# ---- what a driver writes that is killed meanwhile, and one that is not


COPIED: Final = 50
"""Messages in a batch of a copy."""


def say(word: str) -> None:
    """Report progress to the test."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def messages(frame: DataFrame) -> DataFrame:
    """Make messages from lines of text; they fill many small segments."""
    return frame.selectExpr("concat('topic', length(value) % 3) AS topic", "rpad(value, 300, '.') AS body")


def streamed(kind: str, spark: SparkSession, source: str) -> DataFrame:
    """Read lines of text, a file in a batch, or another store, a few messages in a batch."""
    if kind == "copy":
        log = spark.readStream.format("commitlog").options(columns="topic,body", maxOffsetsPerTrigger=COPIED)
        return log.load(source)
    return messages(spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(source))


def write(spark: SparkSession, kind: str, store: str, source: str, checkpoint: str) -> None:
    """Write the lines of a source once."""
    if kind == "batch":
        batch = messages(spark.read.text(source)).write.format("commitlog").mode("append").options(**SMALL)
        batch.option("commitId", "once").save(store)
    else:
        lines = streamed(kind, spark, source)
        stream = lines.writeStream.format("commitlog").options(**SMALL).trigger(availableNow=True)
        stream.option("checkpointLocation", checkpoint).start(store).awaitTermination()


def write_in_a_session(kind: str, store: str, source: str, checkpoint: str) -> None:
    """Write in a session of its own, and say when that begins and ends."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "localhost").getOrCreate()
    spark.range(10).selectExpr("'warm-up' AS topic", "'' AS body").write.format("commitlog").mode("append").options(
        **SMALL
    ).save(f"{checkpoint}-warm-up")
    say("begin")
    write(spark, kind, store, source, checkpoint)
    say("end")
    spark.stop()


def main(master: str, folder: str, *asked: Any) -> None:  # noqa: ANN401 -- command lines
    """Run the program."""
    spark = session(master)
    if asked[0] == "once":
        spark.range(8).rdd.map(str).count()
        say("begin")
        JOBS[asked[1]].run(spark, Path(folder))
        return
    rounds, seed, *pairs = asked
    for pair in pairs:
        say(f"{pair}: {trouble(spark, Path(folder), pair, int(rounds), int(seed))}")
    spark.stop()


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write_in_a_session(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
