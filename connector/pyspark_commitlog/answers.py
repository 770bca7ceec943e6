# SPDX-License-Identifier: Apache-2.0
"""Answers about whole stores in a session: Spark reads the stores, and the reports' tables are DataFrames.

Each function does what the one of the same name in `store_core` does, with the same result. Every worker must see the
stores. They work on RDDs, so a Spark Connect session is refused.

Examples
--------
>>> from pyspark_commitlog.answers import check
>>> answer = check(spark, "/data/rocketmq/store")  # doctest: +SKIP
>>> answer.frame("findings").groupBy("topic").count().show()  # doctest: +SKIP
"""

from __future__ import annotations

import inspect
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from pyspark.sql import SparkSession

from pyspark_commitlog.progress import spark_progress
from pyspark_commitlog.reader import with_old_objects_kept
from pyspark_commitlog.session import no_context_error, require_classic, spark_session
from store_core.answers import answer as asked
from store_core.answers import rebuild
from store_core.answers.log_diff import Diff
from store_core.answers.log_salvage import Salvage
from store_core.answers.message_trace import Trace
from store_core.answers.report import Report, Verdict
from store_core.answers.store_bill import Bill
from store_core.answers.store_check import Check
from store_core.answers.store_dead_letters import DeadLetters
from store_core.answers.store_delays import Delays
from store_core.answers.store_export import Export, Prove
from store_core.answers.store_lag import Lag
from store_core.answers.store_producers import Producers
from store_core.answers.store_recover import Recover
from store_core.answers.store_redact import Redact
from store_core.answers.store_repair import PlanRepair, Repair
from store_core.answers.store_replay import Replay
from store_core.answers.store_retention import Retention
from store_core.answers.store_transactions import Transactions
from store_core.errors import InvalidOptionError
from store_core.store.parts import Engine, GroupedJob, Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from pyspark import RDD
    from pyspark.sql import DataFrame

    from store_core.answers.rebuild import RebuildResult
    from store_core.answers.store_replay import ReplayReport
    from store_core.files.store_path import StorePaths
    from store_core.store.export.lake_table import LakeTable
    from store_core.store.rebuild.plan import RebuildOptions


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


AnyReport = TypeVar("AnyReport", bound=Report[Any])


@dataclass(frozen=True)
class Answer(Generic[AnyReport]):
    """A report, whose tables are DataFrames of a session. A notebook shows it as a page with plots.

    Attributes
    ----------
    spark : SparkSession
    report : Report
        As without Spark: with `facts`, Arrow tables, `to_json`, `to_text` and `to_html`.
    """

    spark: SparkSession
    report: AnyReport

    @property
    def verdict(self) -> Verdict:
        """What was found."""
        return self.report.verdict

    def frame(self, name: str) -> DataFrame:
        """Return a table of the report.

        Parameters
        ----------
        name : str
            One of those that ``docs/reports.md`` lists for the report.

        Raises
        ------
        InvalidOptionError
            If the report has no such table.
        """
        tables = self.report.tables
        if name not in tables:
            raise InvalidOptionError(f"no table {name!r} in this report; it has {', '.join(tables)}")
        return self.spark.createDataFrame(tables[name])

    def __str__(self) -> str:
        return self.report.to_text()

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return self.report._repr_html_()


def _on_spark(answer: type[asked.Answer[AnyReport]]) -> Callable[..., Answer[AnyReport]]:
    """Return an answer as a function: of a session, the store, the options, and `config`."""

    def ask(
        spark: SparkSession,
        store: StorePaths,
        *given: Any,  # noqa: ANN401 -- the options
        config: str | os.PathLike[str] | None = None,
        **options: Any,  # noqa: ANN401 -- as above
    ) -> Answer[AnyReport]:
        question = answer.of(*given, **options)
        with shown_engine(spark, name) as engine:
            return Answer(spark, question.ask(store, config=config, engine=engine))

    of_core = asked.function_of(answer)
    name = of_core.__name__
    inner = [
        each for each in inspect.signature(of_core).parameters.values() if each.name not in {"processes", "on_progress"}
    ]
    session = inspect.Parameter("spark", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ask.__signature__ = inspect.Signature([session, *inner])  # type: ignore[attr-defined]
    ask.__name__ = ask.__qualname__ = name
    ask.__doc__ = f"{(answer.__doc__ or '').partition(chr(10))[0]} See `store_core.answers.{name}`."
    return ask


bill = _on_spark(Bill)
producers = _on_spark(Producers)
diff = _on_spark(Diff)
redact = _on_spark(Redact)
retention = _on_spark(Retention)
salvage = _on_spark(Salvage)
transactions = _on_spark(Transactions)
delays = _on_spark(Delays)
trace = _on_spark(Trace)
dead_letters = _on_spark(DeadLetters)
lag = _on_spark(Lag)
check = _on_spark(Check)
plan_repair = _on_spark(PlanRepair)
repair = _on_spark(Repair)
recover = _on_spark(Recover)
replay = _on_spark(Replay)
export = _on_spark(Export)
prove = _on_spark(Prove)


def rebuild_consume_queue(
    spark: SparkSession, path: str | os.PathLike[str], options: RebuildOptions | None = None
) -> RebuildResult:
    """Rebuild the consume queues of a store from its commit log; see `store_core.rebuild_consume_queue`."""
    return rebuild.rebuild_consume_queue(path, options, engines=lambda step: shown_engine(spark, step))


def rebuild_index(
    spark: SparkSession, path: str | os.PathLike[str], options: RebuildOptions | None = None
) -> RebuildResult:
    """Rebuild the key index of a store from its commit log; see `store_core.rebuild_index`."""
    return rebuild.rebuild_index(path, options, engines=lambda step: shown_engine(spark, step))
