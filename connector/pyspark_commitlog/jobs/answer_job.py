# SPDX-License-Identifier: Apache-2.0
"""What the jobs that answer a question about a store share: their command lines, and how they run on Spark."""

from __future__ import annotations

import argparse
import sys
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, Final

from pyspark_commitlog.jobs.command import add_version, run_command
from store_core.command.exit_code import ExitCode, exit_code_help
from store_core.command.output.new_file import check_report, words_beside, write_json, write_text
from store_core.format.releases.release import DEFAULT_RELEASE, RELEASES

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from store_core.answers.report import Report

__all__ = ["add_release", "add_storage", "run_in_session", "store_parser"]

_STORE: Final = "store root, on a file system that every worker sees"
_STORAGE: Final = "settings of the object store or file system, if the store is a URL, such as region=eu-west-1"

_CONFIG: Final = "the broker's configuration: where the log is (storePathCommitLog), and what else counts of it"
_LOG: Final = "the log that is meant, if the store has one and --config names another; commas separate directories"

_TARGETS: Final = ("json", "html")
"""Options for files that are written."""


def store_parser(name: str, about: str, remark: str) -> argparse.ArgumentParser:
    """Return the parser of a job about a store, with the options that all of them have."""
    parser = argparse.ArgumentParser(
        prog=name,
        description=about,
        epilog=exit_code_help(remark),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_version(parser)
    parser.add_argument("--json", metavar="FILE", help="write the report to this file (- is standard output)")
    parser.add_argument("--html", metavar="FILE", help="write the report to this file, for a browser")
    parser.add_argument("--config", metavar="FILE", help=_CONFIG)
    parser.add_argument("--store-path-commit-log", metavar="PATH", help=_LOG)
    parser.add_argument("store", metavar="STORE", help=_STORE)
    return parser


def add_release(parser: argparse.ArgumentParser) -> None:
    """Add the option that says by whose rules a store is read."""
    parser.add_argument("--release", choices=RELEASES, default=DEFAULT_RELEASE, help="RocketMQ that serves the store")


def add_storage(parser: argparse.ArgumentParser) -> None:
    """Add the option that says how the storage of a store's URL is opened, as the command has it."""
    parser.add_argument("--storage", metavar="NAME=VALUE,...", help=_STORAGE)


def run_in_session(name: str, given: argparse.Namespace, answer: Callable[[SparkSession], Report[Any]]) -> int:
    """Run an answer in a session, print and write its report, and return the exit code."""
    return run_command(name, lambda: _run(name, given, answer))


def _locate(given: argparse.Namespace) -> None:
    """Replace the store by a path that knows the settings of ``--storage``, and where ``--config`` says the log is."""
    from store_core.files.store_path import notes_of  # noqa: PLC0415 -- as below
    from store_core.store.read.store_at import store_at  # noqa: PLC0415 -- usage errors need not wait for numpy

    given.store = store_at(given.store, getattr(given, "storage", None), given.config, given.store_path_commit_log)
    for note in notes_of(given.store):
        sys.stderr.write(f"warning: {note}\n")


def _run(name: str, given: argparse.Namespace, answer: Callable[[SparkSession], Report[Any]]) -> ExitCode:
    _locate(given)
    targets = {f"--{name}": getattr(given, name, None) for name in _TARGETS}
    for option, target in targets.items():
        check_report(option, target)
    from pyspark_commitlog.java import require_java  # noqa: PLC0415 -- PySpark need not be installed
    from pyspark_commitlog.jobs.job_session import job_session  # noqa: PLC0415
    from pyspark_commitlog.progress import spark_progress  # noqa: PLC0415

    require_java()
    with job_session(name, needs_context=True) as spark, spark_progress(spark):
        report = answer(spark)
    code = ExitCode.of(report.verdict)
    words_beside("-" if "-" in targets.values() else None).write(f"{report.to_text(get_terminal_size().columns)}\n")
    write_json(report.to_json(exit_code=int(code)), given.json)
    if given.html is not None:
        write_text(report.to_html(), given.html)
    return code
