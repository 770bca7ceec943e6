# SPDX-License-Identifier: Apache-2.0
"""Runs the parts of a job on Spark, with the same result as the engines in `store_core`."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql import SparkSession

from pyspark_commitlog.progress import spark_progress
from pyspark_commitlog.reader import with_old_objects_kept
from pyspark_commitlog.session import no_context_error, require_classic, spark_session
from store_core.store.parts import Engine, GroupedJob, Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from pyspark import RDD

    from store_core.answers.store_replay import Replay, ReplayReport
    from store_core.files.store_path import StorePaths
    from store_core.store.export.lake_table import LakeTable


Part = TypeVar("Part")
Partial = TypeVar("Partial")
Key = TypeVar("Key", bound=tuple[Any, ...])
Piece = TypeVar("Piece")
Result = TypeVar("Result")

_ONE_MACHINE: Final = re.compile(r"local(\[.*\])?")


class SparkEngine(Engine):
    """Runs each part of a job as a Spark task, in one step or two; the shuffle carries pieces between the two.

    * `what`: What needs the session, for errors.

    * `is_one_machine`: False with ``local-cluster``, whose executors are treated as remote.
    """

    keeps_pieces = False

    def __init__(self, spark: SparkSession, what: str = "running in parts") -> None:
        require_classic(spark, what)
        self._spark = spark
        self._context = spark.sparkContext
        self.slots = self._context.defaultParallelism
        self.is_one_machine = _ONE_MACHINE.fullmatch(self._context.master or "") is not None

    def run(self, job: Job[Part, Partial, Result]) -> Result:
        """Run a job, and return its result."""
        call = job.run
        return job.merge(self._mapped(job.plan(), lambda parts: map(call, parts)).collect())

    def run_grouped(self, job: GroupedJob[Part, Key, Piece, Partial, Result]) -> Result:
        """Run a job in two steps, and return its result."""
        call = job.run
        pieces = self._mapped(job.plan(), lambda parts: chain.from_iterable(map(call, parts)))
        grouped = pieces.repartitionAndSortWithinPartitions(job.groups, itemgetter(0))
        return job.merge(grouped.mapPartitions(with_old_objects_kept(job.gather)).collect())

    def lake_table(self, kind: str, into: str | os.PathLike[str], table: str | None) -> LakeTable:
        """Return the table of Delta or Iceberg that exports go to, see `store_core.store.export.lake_table`."""
        from pyspark_commitlog.lake_tables import lake_table  # noqa: PLC0415 -- few jobs write one

        del kind  # only Iceberg's tables have names
        return lake_table(self._spark, into, table)

    def replay(self, asked: Replay, store: StorePaths, into: Path) -> ReplayReport:
        """Append messages again, chosen and edited by SQL, see `store_core.answers.replay`."""
        from pyspark_commitlog.replay import replay_report  # noqa: PLC0415 -- as above

        return replay_report(self._spark, asked, store, into)

    def _mapped(self, parts: Sequence[Part], call: Callable[[Iterable[Part]], Iterable[Partial]]) -> RDD[Partial]:
        kept = with_old_objects_kept(call)
        return self._context.parallelize(parts, max(len(parts), 1)).mapPartitions(kept)


# ---- the session of a job


@contextmanager
def job_engine(name: str) -> Iterator[SparkEngine]:
    """Provide an engine on the running session, or on a new one, with a progress bar."""
    if SparkSession.getActiveSession() is None and "SPARK_REMOTE" in os.environ:
        raise no_context_error(name, f"SPARK_REMOTE={os.environ['SPARK_REMOTE']} selects Spark Connect; unset it")
    with job_session(name) as spark, shown_engine(spark, name) as engine:
        yield engine


@contextmanager
def shown_engine(spark: SparkSession, what: str) -> Iterator[SparkEngine]:
    """Provide a session as an engine, and show its progress."""
    engine = SparkEngine(spark, what)
    with spark_progress(spark):
        yield engine


@contextmanager
def job_session(name: str) -> Iterator[SparkSession]:
    """Provide the running session, or a new one that is stopped at the end.

    A new one is made by `pyspark_commitlog.spark_session`. Settings of ``spark-submit`` and configuration files are
    kept, except that Spark's own progress bar is off: a job's output may be saved, and on a terminal the job draws its
    own bar (`pyspark_commitlog.progress`).
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    session = spark_session(name, config={"spark.ui.showConsoleProgress": False})
    try:
        yield session
    finally:
        session.stop()
