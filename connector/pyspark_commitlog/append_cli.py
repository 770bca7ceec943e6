# SPDX-License-Identifier: Apache-2.0
"""The command ``commitlog-append``: its command line, checks and report."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark_commitlog.jobs.command import add_version, run_command
from pyspark_commitlog.jobs.engine_choice import add_engine
from pyspark_commitlog.jobs.given_pairs import pairs_of
from pyspark_commitlog.jobs.job_output import words_beside, write_json
from pyspark_commitlog.path_checks import check_report, check_source, check_writable
from pyspark_commitlog.running_spark import is_spark_running
from store_core.command.exit_code import ExitCode, exit_code_help
from store_core.errors import InvalidOptionError, StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark_commitlog.jobs.append_source import AppendSource, SourceFormat
    from pyspark_commitlog.jobs.engine_choice import EngineName
    from pyspark_commitlog.jobs.local_rows import LocalRows
    from pyspark_commitlog.write.options import WriteOptions

__all__ = ["append"]

_REMARK: Final = """\
With 1, all rows are in the store except those left out (badRows=skip), which are listed in \
STORE/commitlog-sink/refused. With 2 or more, nothing was appended unless the error says otherwise.
"""
_EXAMPLES: Final = """
examples:
  commitlog-append STORE --parquet rows.parquet --write-option queueNums=8
  commitlog-append NEW --from-store OLD --topic orders --preserve-store-timestamp
  commitlog-append STORE --from-store OLD --topic '%DLQ%billing' --to-topic invoices --where "attempt < 3"
"""


def append(arguments: Sequence[str] | None = None) -> int:
    """Run ``commitlog-append``; return the exit code, see `store_core.command.exit_code`."""
    parser = _parser()
    options = parser.parse_args(arguments)
    return run_command(parser.prog, lambda: _run(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="commitlog-append",
        description="Appends rows, or messages of another store, to a RocketMQ store: all of them, or none.",
        epilog=exit_code_help(_REMARK) + _EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_version(parser)
    add = parser.add_argument
    add("store", metavar="STORE", help="store root; it is created if nothing is there, or an empty directory")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--parquet", metavar="PATH", help="rows with the columns of messages")
    source.add_argument(
        "--json", metavar="PATH", help="the same, with one JSON object per line; properties are an object"
    )
    source.add_argument("--csv", metavar="PATH", help="the same, with a header; properties are JSON")
    source.add_argument("--from-store", metavar="PATH", help="messages of another store (or its URL), or of this one")
    add("--base64", action="store_true", help="bodies in JSON or CSV are in base64")
    add("--topic", help="from a store: only messages of this topic; separate several with commas")
    add("--where", metavar="SQL92", help="from a store: only messages that a consumer with this filter would get")
    add("--to-topic", metavar="TOPIC", help="append them as new messages of this topic")
    add("--preserve-store-timestamp", action="store_true", help="keep the store times of messages")
    add("--config", metavar="FILE", help="of the store's broker: where its log is, sizes, delays")
    log = "the log that is meant, if the store has one and --config names another; commas separate directories"
    add("--store-path-commit-log", metavar="PATH", help=log)
    add("--read-option", action="append", default=[], metavar="NAME=VALUE", help="any read option of the data source")
    add("--write-option", action="append", default=[], metavar="NAME=VALUE", help="any option of writing")
    add("--commit-id", metavar="NAME", help="append nothing if a job of this name has already been appended")
    add("--dry-run", action="store_true", help="encode and count all rows, and append nothing")
    add_engine(parser, "stores of up to 1 GiB and up to 256 MiB of Parquet")
    add("--report", metavar="FILE", help="write a JSON report to this file (- is standard output)")
    return parser


def _run(options: argparse.Namespace) -> ExitCode:
    from pyspark_commitlog.write.options import WriteOptions

    source = _source(options)
    with tempfile.TemporaryDirectory(prefix="commitlog-append-") as directory:
        written = Path(directory) / "report.json"
        given = _write_options(options) | {"path": options.store, "report": str(written)}
        writes = WriteOptions.from_spark(given)
        _check_paths(options, source, writes)
        began = time.monotonic()
        rows = _local_rows(options.engine, source)
        if rows is None:
            _append_by_spark(source, given)
        else:
            from pyspark_commitlog.jobs.local_append import append_here

            append_here(rows, writes)
        report = json.loads(written.read_text(encoding="utf-8"))
    report |= {"source": source.path, "seconds": round(time.monotonic() - began, 3)}
    try:
        _write(report, options.report)
    except OSError as error:
        raise StoreError(f"the messages were appended, but the report can't be written: {error}") from error
    return ExitCode.FINDINGS if report["left_out"] else ExitCode.DONE


def _local_rows(engine: EngineName, source: AppendSource) -> LocalRows | None:
    """Return the rows if they are to be appended in this process."""
    if engine == "spark" or (engine == "auto" and is_spark_running()):
        return None
    from pyspark_commitlog.jobs.local_rows import LocalRows, is_small

    rows = LocalRows.of(source) if engine == "local" or is_small(source) else None
    if rows is None and engine == "local":
        raise InvalidOptionError(
            f"--engine local: only Spark's readers can say which rows are in {source.path}: leave --engine out, or "
            f"give the rows as Parquet"
        )
    return rows


def _append_by_spark(source: AppendSource, given: dict[str, str]) -> None:
    from pyspark_commitlog.java import require_java
    from pyspark_commitlog.jobs.job_session import job_session
    from pyspark_commitlog.progress import spark_progress

    require_java()
    with job_session(f"append to {given['path']}") as spark, spark_progress(spark):
        source.check(spark)
        source.frame(spark).write.format("commitlog").mode("append").options(**given).save()


def _check_paths(options: argparse.Namespace, source: AppendSource, writes: WriteOptions) -> None:
    """Refuse paths that can't be read or written, before the seconds that starting Spark takes."""
    from store_core.files.file_system import OsFileSystem
    from store_core.store.store_layout import check_root

    check_report("--report", options.report)
    if source.format == "store":
        from pyspark_commitlog.options import CommitLogOptions
        from store_core.snapshot.log import Log

        asked = CommitLogOptions.from_spark({**source.read_options, "path": source.path})
        Log.of(asked.read.located(asked.paths), reads_entries=True, storage=asked.read.storage)
    else:
        check_source(f"--{source.format}", source.path)
    if not writes.dry_run:
        check_writable(writes.root)
    check_root(writes.root, writes.config, OsFileSystem())
    if writes.staging is not None:
        check_writable(writes.staging)


def _write_options(options: argparse.Namespace) -> dict[str, str]:
    given = pairs_of("--write-option", options.write_option)
    named = {
        "topic": options.to_topic,
        "commitId": options.commit_id,
        "config": options.config,
        "storePathCommitLog": options.store_path_commit_log,
        "preserveStoreTimestamp": "true" if options.preserve_store_timestamp else None,
        "dryRun": "true" if options.dry_run else None,
    }
    return given | {name: value for name, value in named.items() if value is not None}


def _source(options: argparse.Namespace) -> AppendSource:
    from pyspark_commitlog.jobs.append_source import AppendSource

    read = pairs_of("--read-option", options.read_option)
    if options.from_store is None:
        if options.topic or options.where:
            raise InvalidOptionError("--topic and --where select messages of a store: use them with --from-store")
        paths: dict[SourceFormat, str | None] = {"parquet": options.parquet, "json": options.json, "csv": options.csv}
        name, path = next((name, path) for name, path in paths.items() if path is not None)
        return AppendSource(name, path, read, is_base64=options.base64)
    if options.topic:
        read["topic"] = options.topic
    if options.where:
        read |= {"filter": options.where, "filterType": "SQL92"}
    keeps = options.preserve_store_timestamp
    return AppendSource("store", options.from_store, read, options.to_topic, keeps)


def _in_words(report: Mapping[str, object]) -> str:
    messages = f"{report['records']} message{'s' * (report['records'] != 1)} of {report['bytes']} bytes"
    if report["is_repeat"]:
        was = "would be" if report["dry_run"] else "was"
        return f"nothing {was} appended to {report['store']}: a job of this commit id is there already, with {messages}"
    would = "would be " if report["dry_run"] else ""
    left_out = f"{report['left_out']} row{'s' * (report['left_out'] != 1)} {would}left out"
    return f"{messages} {would}appended to {report['store']}, {left_out}"


def _write(report: dict[str, object], target: str | None) -> None:
    words_beside(target).write(f"{_in_words(report)}; {report['seconds']} s\n")
    write_json(report, target)
