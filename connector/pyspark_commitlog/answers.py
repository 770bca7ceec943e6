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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pyspark_commitlog.engine import shown_engine
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

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from store_core.answers.rebuild import RebuildResult
    from store_core.files.store_path import StorePaths
    from store_core.store.rebuild.plan import RebuildOptions


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
