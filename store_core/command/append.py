# SPDX-License-Identifier: Apache-2.0
"""The command that appends rows, or messages of another store, to a store: append."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

from store_core.command.arguments import LOG_HELP, examples
from store_core.command.console import Console, connector, is_on_spark, with_spark
from store_core.command.exit_code import ExitCode
from store_core.command.new_file import check_report, stream_for_text, write_json
from store_core.errors import InvalidOptionError, StoreError
from store_core.store.read.option_table import pairs_of

if TYPE_CHECKING:
    from collections.abc import Mapping


_OF_TEXTS: Final = ("path", "mode")
_SOURCES: Final = {"parquet": ("path",), "json": _OF_TEXTS, "csv": _OF_TEXTS, "from_store": ("path", "columns")}
"""Sources, and the options of their readers that the command sets by itself."""

_ONE: Final = "expected exactly one of --parquet, --json, --csv and --from-store"


@click.command(
    epilog=examples(
        "commitlog append /data/store --parquet rows.parquet",
        "commitlog append /data/new --from-store /data/store --topic orders",
        "commitlog append /data/store --json rows.json --dry-run --spark",
    )
)
@click.argument("store", metavar="STORE")
@click.option(
    "--parquet",
    metavar="PATH",
    help="Append the rows of this Parquet file or directory; columns are those of messages.",
)
@click.option(
    "--json",
    metavar="PATH",
    help="Append the rows of this file, a JSON object per line; properties are an object. Needs --spark.",
)
@click.option(
    "--csv", metavar="PATH", help="Append the rows of this CSV file with a header; properties are JSON. Needs --spark."
)
@click.option("--from-store", metavar="PATH", help="Append messages of another store (or its URL), or of this one.")
@click.option("--base64", "is_base64", is_flag=True, help="Bodies in JSON or CSV are in base64.")
@click.option("--topic", help="From a store: only messages of this topic; separate several with commas.")
@click.option(
    "--where", metavar="SQL92", help="From a store: only messages that a consumer with this filter would get."
)
@click.option("--to-topic", metavar="TOPIC", help="Append them as new messages of this topic.")
@click.option("--preserve-store-timestamp", "keeps_times", is_flag=True, help="Keep the store times of messages.")
@click.option("--config", metavar="FILE", help="The broker's configuration: where its log is, sizes, delays.")
@click.option("--store-path-commit-log", metavar="PATH", help=LOG_HELP)
@click.option(
    "--read-option", multiple=True, metavar="NAME=VALUE", help="Any read option of the data source; can be repeated."
)
@click.option("--write-option", multiple=True, metavar="NAME=VALUE", help="Any option of writing; can be repeated.")
@click.option("--commit-id", metavar="NAME", help="Append nothing if a job of this name has already been appended.")
@click.option("--dry-run", is_flag=True, help="Encode and count all rows, and append nothing.")
@click.option("--report", metavar="FILE", help="Write a JSON report to this file (- is standard output).")
@with_spark
def append(store: str, *, report: str | None, **given: Any) -> ExitCode:  # noqa: ANN401 -- of `_source` and `_write_options`
    """Append rows, or messages of another store, to a store: all of them, or none.

    STORE is created if nothing is there, or an empty directory. The exit code is 1 if all rows are in the store except
    those left out (badRows=skip), which are listed in STORE/commitlog-sink/refused. With 2 or more, nothing was
    appended unless the error says otherwise.
    """
    read = pairs_of("--read-option", given["read_option"])
    writes = _write_options(given) | {"path": store}
    source = _source(given, read)
    check_report("--report", report)
    spark = is_on_spark()
    appending = connector("append") if spark else import_module("pyspark_commitlog.append")
    clock = Console.of(click.get_current_context()).clock
    began = clock.monotonic()
    made = appending.append(writes, appending.AppendSource(**source), on_spark=spark)
    made |= {"source": source["path"], "seconds": round(clock.monotonic() - began, 3)}
    try:
        click.echo(f"{_in_words(made)}; {made['seconds']} s", file=stream_for_text(report))
        write_json(made, report)
    except OSError as error:
        raise StoreError(f"the messages were appended, but the report can't be written: {error}") from error
    return ExitCode.FINDINGS if made["left_out"] else ExitCode.DONE


def _source(given: Mapping[str, Any], read: dict[str, str]) -> dict[str, Any]:
    """Return the arguments of `pyspark_commitlog.append.AppendSource`."""
    named = [name for name in _SOURCES if given[name] is not None]
    if len(named) != 1:
        raise InvalidOptionError(_ONE)
    selected = {"topic": given["topic"], "filter": given["where"], "filterType": given["where"] and "SQL92"}
    read = _once("--read-option", read, selected, _SOURCES[named[0]])
    source = {"path": given[named[0]], "read_options": read}
    if given["from_store"] is None:
        if given["topic"] or given["where"]:
            raise InvalidOptionError("--topic and --where select messages of a store: use them with --from-store")
        return source | {"format": named[0], "is_base64": given["is_base64"]}
    return source | {"format": "store", "to_topic": given["to_topic"], "keeps_store_timestamp": given["keeps_times"]}


def _write_options(given: Mapping[str, Any]) -> dict[str, str]:
    named = {
        "topic": given["to_topic"],
        "commitId": given["commit_id"],
        "config": given["config"],
        "storePathCommitLog": given["store_path_commit_log"],
        "preserveStoreTimestamp": "true" if given["keeps_times"] else None,
        "dryRun": "true" if given["dry_run"] else None,
    }
    return _once("--write-option", pairs_of("--write-option", given["write_option"]), named, ("path", "report"))


def _once(
    option: str, pairs: Mapping[str, str], named: Mapping[str, str | None], others: tuple[str, ...]
) -> dict[str, str]:
    """Return options with those that the command has arguments for; none may be given twice.

    * `others`: Names of options that the command sets by itself, or by an argument that is always there.
    """
    found = {name: text for name, text in named.items() if text is not None}
    twice = {name.lower() for name in (*found, *others)}
    for name in pairs:
        if name.lower() in twice:
            raise InvalidOptionError(
                f"{option} {name}: the command sets it, by itself or by another argument; leave it out"
            )
    return {**pairs, **found}


def _in_words(report: Mapping[str, Any]) -> str:
    messages = f"{report['records']} message{'s' * (report['records'] != 1)} of {report['bytes']} bytes"
    if report["is_repeat"]:
        was = "would be" if report["dry_run"] else "was"
        return f"nothing {was} appended to {report['store']}: a job of this commit id is there already, with {messages}"
    would = "would be " if report["dry_run"] else ""
    left_out = f"{report['left_out']} row{'s' * (report['left_out'] != 1)} {would}left out"
    return f"{messages} {would}appended to {report['store']}, {left_out}"
