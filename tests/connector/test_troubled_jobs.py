# SPDX-License-Identifier: Apache-2.0
"""Executors, workers and drivers are killed, jobs cancelled or run twice: a job is there as a whole or not at all."""

from __future__ import annotations

import os
import random
import select
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from itertools import chain, takewhile
from operator import not_
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from store_core.errors import StoreError
from store_core.files.file_system import OsFileSystem
from store_core.files.machine import SystemClock
from store_core.store.sink.commit import SinkCommit
from tests.builders import LogBuilder
from tests.connector.processes import CLUSTER, command_of, descendants, kill, run_program, wait_for_end
from tests.connector.stores import SMALL_CONFIG, Writer, consumed, left_behind, rows_of
from tests.connector.troubled_jobs import COPIED, JOBS, trouble, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


pytestmark = [pytest.mark.spark, pytest.mark.slow]

_PROGRAM: Final = Path(__file__).with_name("troubled_jobs.py")
_TROUBLES: Final = ("executors", "workers", "cancel", "twice", "driver")
_TROUBLE_SEED: Final = 23
_WARM_SECONDS: Final = 0.5
"""What a job is likely to take in the session of all tests."""


def run(master: str, folder: Path, rounds: int, *pairs: str) -> list[str]:
    """Run the program with jobs and their troubles, and return its lines, one for each."""
    words: list[str | Path] = [master, folder / "jobs", str(rounds), str(_TROUBLE_SEED), *pairs]
    done = run_program(folder, sys.executable, _PROGRAM, *words, seconds=None)
    assert 0 == done.returncode, done.stderr[-4000:]
    return done.stdout.splitlines()


@pytest.mark.timeout(0)
@pytest.mark.parametrize("pair", ["export:cancel", "append:twice"])
def test_an_export_that_is_cancelled_and_an_append_that_runs_twice_leave_each_message_once(
    pair: str, spark: SparkSession, tmp_path: Path
) -> None:
    ends = trouble(spark, tmp_path, pair, 1, _TROUBLE_SEED, _WARM_SECONDS)

    # A cancelled job may have been done before, and one of two that append is refused while the other writes.
    assert ends in ([{"0 done": 1}, {"1 done": 1}] if "cancel" in pair else [{"1 done": 1}, {"2 done": 1}])


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", JOBS)
def test_each_job_bears_each_trouble(name: str, tmp_path: Path) -> None:
    assert len(_TROUBLES) == len(run(CLUSTER, tmp_path, 10, *(f"{name}:{kind}" for kind in _TROUBLES)))


SEED: Final = 8
ROWS: Final = 600
GUESS: Final = 5.0
"""Seconds that the first driver is likely to write; the others are measured."""

SEGMENT: Final = 8192
"""Bytes of the segments of a store that is copied."""

ROOT: Final = Path(__file__).parents[2]


def bodies(root: Path) -> list[bytes]:
    return [row["body"] for row in rows_of(root, "body")] if any((root / "commitlog").glob("*")) else []


# ---- tasks and commits


@pytest.mark.parametrize("points", [4, pytest.param(100, marks=pytest.mark.soak)])
def test_python_workers_that_are_killed_leave_all_or_nothing_of_a_job(
    points: int, spark: SparkSession, tmp_path: Path
) -> None:
    write, chance = Writer(spark, tmp_path / "store"), random.Random(SEED)  # noqa: S311 -- no secret
    began = time.monotonic()
    write(write.messages(ROWS))
    seconds = time.monotonic() - began
    stored, failed = bodies(write.root), 0
    for number in range(1, points + 1):
        added = [f"body {each}".encode() for each in range(number * ROWS, (number + 1) * ROWS)]
        frame = write.messages(ROWS, first=number * ROWS)
        killer = threading.Timer(chance.uniform(0, seconds), kill_workers)
        killer.start()
        said = is_written(write, frame)
        killer.cancel()
        killer.join()
        # The next job recovers the store, and clears away what is left. Spark notices a killed worker that was idle
        # only when it wants to use it, and fails the job, so several may be needed.
        said_next = list(takewhile(not_, (is_written(write, write.messages(0)) for _ in range(20))))
        assert len(said_next) < 20
        failed += len(said_next) + (not said)
        found = bodies(write.root)

        assert found in (stored, stored + added)
        assert not said or found == stored + added
        stored = found
    assert consumed(write.root) == len(stored)
    # A job of which the abort fails, too, stays until its driver has ended, as nobody else can know that it is over.
    assert len(set(left_behind(write.root))) <= failed
    SinkCommit(
        write.root, f"job-{0:032x}", SMALL_CONFIG, SystemClock(), OsFileSystem(), is_alive=lambda _: False
    ).clean()
    assert [] == left_behind(write.root)


def is_written(write: Writer, frame: DataFrame) -> bool:
    """Write, and return whether Spark reports success."""
    try:
        write(frame)
    except (PySparkException, Py4JJavaError, OSError):  # Py4J's own: what ends a worker beside the driver
        return False
    return True


def kill_workers() -> None:
    """Kill all Python processes of this process's Spark: those of tasks, and those beside the driver."""
    kill([each for each in descendants(os.getpid()) if "pyspark" in command_of(each) and not is_java(each)])


def is_java(process: int) -> bool:
    return "java" in command_of(process).split(" ", 1)[0]


# ---- drivers


@dataclass
class Driver:
    """A program that writes the lines of a source, a batch for each file, and may be killed."""

    kind: str
    folder: Path
    chance: random.Random

    @property
    def root(self) -> Path:
        return self.folder / "store"

    @property
    def arguments(self) -> list[str]:
        return [self.kind, *(str(self.folder / name) for name in ("store", "source", "checkpoint"))]

    def finish(self, spark: SparkSession) -> float:
        """Write in a session that nobody kills; return the seconds that this took."""
        self._forget_what_never_began()
        began = time.monotonic()
        write(spark, *self.arguments)
        return time.monotonic() - began

    def _forget_what_never_began(self) -> None:
        """Delete a checkpoint whose first batch never began, as Spark asks: it takes one by its unfinished file."""
        checkpoint = self.folder / "checkpoint"
        if not [path for path in checkpoint.glob("offsets/*") if not path.name.startswith(".")]:
            shutil.rmtree(checkpoint, ignore_errors=True)

    def run(self, delay: float) -> None:
        """Write in a new process, and kill it with those below it after some seconds."""
        self._forget_what_never_began()
        command = [sys.executable, "-m", "tests.connector.troubled_jobs", "write", *self.arguments]
        settings = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": str(ROOT / "spark-conf")}
        with (self.folder / "errors").open("a") as errors:
            process = subprocess.Popen(  # noqa: S603 -- our own program
                command, stdout=subprocess.PIPE, stderr=errors, env=settings, cwd=ROOT
            )
            assert process.stdout is not None
            assert process.stdout.readline() == b"begin\n"
            select.select([process.stdout], [], [], delay)
            below = descendants(process.pid)
            # Sometimes only the driver, whose workers then end by themselves, sometimes all processes at once.
            drivers = [each for each in below if is_java(each)]
            kill([process.pid, *(below if self.chance.random() < 0.5 else drivers)])
            process.communicate()
            wait_for_end(below)


@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("points", "kind"),
    [
        (1, "batch"),  # and a stream, below
        pytest.param(50, "batch", marks=pytest.mark.soak),
        pytest.param(50, "stream", marks=pytest.mark.soak),
    ],
)
def test_after_a_driver_is_killed_another_finishes_and_has_each_message_once(
    points: int, kind: str, spark: SparkSession, tmp_path: Path
) -> None:
    chance = random.Random(f"{SEED}{kind}")  # noqa: S311 -- no secret
    seconds = GUESS
    for number in range(points):
        driver = Driver(kind, tmp_path / str(number), chance)
        seconds = write_and_check(driver, chance.uniform(0, seconds), spark)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("points", [1, pytest.param(50, marks=pytest.mark.soak)])
def test_a_copy_by_a_stream_that_is_killed_has_each_message_once_and_in_order(
    points: int, spark: SparkSession, tmp_path: Path
) -> None:
    chance = random.Random(SEED)  # noqa: S311 -- no secret
    log, root, driver = LogBuilder(SEGMENT), tmp_path / "source", Driver("copy", tmp_path, chance)
    seconds = GUESS
    for number in range(points):
        log.append_all(*[b"%d-%d" % (number, each) for each in range(4 * COPIED)])
        log.write(root, preallocated=1)
        driver.run(chance.uniform(0, seconds))
        check_copy(driver.root, [record.body for record in log.records])
        seconds = driver.finish(spark)
    assert bodies(driver.root) == [record.body for record in log.records]
    assert consumed(driver.root) == len(log.records)
    assert [] == left_behind(driver.root)


def check_copy(root: Path, expected: list[bytes]) -> None:
    """Check that the first batches are there, in order, and nothing else."""
    try:
        copied = bodies(root)
    except StoreError:  # as in `check`
        return
    assert copied == expected[: len(copied)]
    assert len(copied) % COPIED == 0


def write_and_check(driver: Driver, delay: float, spark: SparkSession) -> float:
    """Kill a driver after a delay, then let another finish; return the seconds that the other took."""
    files = [[f"{name}-{number}" for number in range(100)] for name in "abcd"]
    (driver.folder / "source").mkdir(parents=True)
    for number, lines in enumerate(files):
        path = driver.folder / "source" / f"{number}.txt"
        path.write_text("".join(f"{line}\n" for line in lines))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    driver.run(delay)
    check(driver.root, files, driver.kind)
    seconds = driver.finish(spark)
    assert sorted(chain(*files)) == sorted(seen(driver.root))
    assert sum(map(len, files)) == consumed(driver.root)
    assert [] == left_behind(driver.root)
    return seconds


def check(root: Path, files: list[list[str]], kind: str) -> None:
    """Check that whole batches are there, in order, and nothing else; a batch job is one batch."""
    try:
        lines = seen(root)
    except StoreError:  # as readers do between the steps of a commit: recovery decides
        return
    counts = range(len(files) + 1) if kind == "stream" else (0, len(files))
    assert sorted(lines) in [sorted(chain(*files[:count])) for count in counts]


def seen(root: Path) -> list[str]:
    return [body.decode().rstrip(".") for body in bodies(root)]
