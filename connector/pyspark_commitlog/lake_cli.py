# SPDX-License-Identifier: Apache-2.0
"""The command line of ``jobs/export.py``: copies of messages, on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark_commitlog.jobs.answer_job import add_storage, run_in_session, store_parser
from store_core.store.export.lake_table import LAKE_FORMATS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from store_core.answers.report import Report

__all__ = ["export"]

_REMARK: Final = "With 1 something differs (--prove); with 5 something is damaged or gone, and not exported."


def export(arguments: Sequence[str] | None = None) -> int:
    """Run ``export.py``; return the exit code, see `store_core.command.exit_code`."""
    about = "Exports the messages of a RocketMQ store into a data lake, each exactly once."
    parser = store_parser("commitlog-export", about, _REMARK)
    add_storage(parser)
    parser.add_argument("--into", required=True, metavar="DIRECTORY", help="the lake, on such a file system, too")
    parser.add_argument("--format", choices=LAKE_FORMATS, default="parquet", help="tables need jars in the session")
    parser.add_argument("--table", metavar="NAME", help="with iceberg: CATALOG.NAMESPACE.TABLE; --into has the ledger")
    parser.add_argument("--topic", action="append", help="only this topic; can be repeated")
    parser.add_argument("--allow-loss", action="store_true", help="go on if retention deleted what was not exported")
    parser.add_argument("--prove", action="store_true", help="export nothing; compare what is there with the log")
    given = parser.parse_args(arguments)
    if given.prove and (given.topic or given.allow_loss):
        parser.error("--prove compares what was exported: it goes with neither --topic nor --allow-loss")
    if (given.table is not None) != (given.format == "iceberg"):
        parser.error("--table names the table of --format iceberg; other formats have --into alone")
    return run_in_session(parser.prog, given, lambda spark: _exported(spark, given))


def _exported(spark: SparkSession, given: argparse.Namespace) -> Report[Any]:
    from pyspark_commitlog import answers

    lake = {"kind": given.format, "table": given.table}
    if given.prove:
        return answers.prove(spark, given.store, given.into, **lake).report
    given_topic, loss = given.topic, given.allow_loss
    return answers.export(spark, given.store, given.into, given_topic, allow_loss=loss, **lake).report
