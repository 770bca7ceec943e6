# SPDX-License-Identifier: Apache-2.0
"""The commands that print messages: cat, head, tail and get."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from store_core.command.arguments import NearChoice, examples
from store_core.command.exit_code import ExitCode
from store_core.command.output_arguments import with_output
from store_core.command.read_arguments import STORES, with_read_options
from store_core.command.surroundings import Surroundings
from store_core.errors import StoreNotFoundError
from store_core.store.read.option_table import NamedBy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from store_core.command.output.output import Output
    from store_core.store.read.read_options import ReadOptions

__all__ = ["cat", "get", "head", "tail"]


_FOR_PEOPLE: Final = ("store_timestamp", "topic", "queue_id", "queue_offset", "tags", "keys", "body")
"""Columns of a table if none are named: those that fit a terminal."""

_ROWS: Final = 10
_SECONDS: Final = 1.0


@click.command(
    epilog=examples(
        "commitlog cat /data/store --topic orders --tag 'paid || shipped'",
        "commitlog cat /data/store --starting-timestamp 2024-05-01T12:00:00Z",
        "commitlog cat /data/store --columns topic,keys,body --format jsonl",
        "commitlog cat /data/store -o messages.parquet",
    ),
)
@STORES
@with_read_options
@with_output()
def cat(stores: tuple[str, ...], read: Mapping[str, Any], output: Output) -> ExitCode:
    """Print the messages of a log, in its order."""
    return _print(stores, read, output, None)


@click.command(
    epilog=examples(
        "commitlog head /data/store",
        "commitlog head /data/store -n 3 --topic orders",
    ),
)
@STORES
@click.option("-n", "--rows", type=click.IntRange(0), default=_ROWS, help="How many.  [default: 10]")
@with_read_options
@with_output()
def head(stores: tuple[str, ...], rows: int, read: Mapping[str, Any], output: Output) -> ExitCode:
    """Print the first messages of a log, and read no further."""
    return _print(stores, read, output, rows)


@click.command(
    epilog=examples(
        "commitlog tail /data/store",
        "commitlog tail /data/store -n 100 --topic orders",
        "commitlog tail /data/store --follow --format jsonl",
    ),
)
@STORES
@click.option("-n", "--rows", type=click.IntRange(0), default=_ROWS, help="How many.  [default: 10]")
@click.option("-f", "--follow", is_flag=True, help="Go on with messages as a broker writes them, until ^C.")
@click.option(
    "--interval",
    type=click.FloatRange(0.05),
    default=_SECONDS,
    metavar="SECONDS",
    help="With --follow, the time between two looks at the store.  [default: 1]",
)
@with_read_options
@with_output()
def tail(  # noqa: PLR0913 -- the command's own options
    stores: tuple[str, ...],
    rows: int,
    follow: bool,  # noqa: FBT001 -- click passes all by name
    interval: float,
    read: Mapping[str, Any],
    output: Output,
) -> ExitCode:
    """Print the last messages of a log, and with --follow those that a broker writes to it from now on."""
    from store_core.command.follower import Follower
    from store_core.format.columns import arrow_schema
    from store_core.store.read.one_message import last_rows

    options = _options(read, output)
    clock = Surroundings.of(click.get_current_context()).clock
    follower = Follower(stores, options, clock) if follow else None
    batches = last_rows(stores, options, rows, follower.physical_offset if follower is not None else None)
    with output.writer(arrow_schema(options.columns, nullable=options.is_permissive)) as writer:
        for batch in batches:
            writer.write(batch)
        for batch in follower.batches(interval) if follower is not None else ():
            writer.write(batch)
    return ExitCode.DONE


@click.command(
    epilog=examples(
        "commitlog get /data/store order-4711",
        "commitlog get /data/store 7F00000100002A9F000000000000A3C1",
        "commitlog get /data/store orders/1/42",
    ),
)
@click.argument("store", metavar="STORE")
@click.argument("what", metavar="KEY|MSGID|TOPIC/QUEUE/OFFSET")
@click.option(
    "--as",
    "kind",
    type=NearChoice([kind.value for kind in NamedBy]),
    help="What the argument is.  [default: what it looks like, and else a key]",
)
@with_read_options
@with_output("fields")
def get(store: str, what: str, kind: str | None, read: Mapping[str, Any], output: Output) -> ExitCode:
    """Print the messages that have a key, or the one with an id or at a position in a queue.

    KEY is one of the words in property KEYS, or the id in property UNIQ_KEY. MSGID is an offset message id of 32 or 56
    hexadecimal digits. If nothing is found the exit code is 2.
    """
    from store_core.format.columns import COLUMNS, CORRUPT_RECORD
    from store_core.store.read.one_message import find_message

    columns = [column.name for column in COLUMNS if column.name not in {"properties_string", CORRUPT_RECORD}]
    found = find_message(store, what, None if kind is None else NamedBy(kind), {"columns": columns, **read})
    if found is None:
        raise StoreNotFoundError(
            f"{store} has no message with the key, id or position {what!r}{_reach(store, what, read)}"
        )
    with found, output.writer(found.schema) as writer:
        for batch in found:
            writer.write(batch)
    return ExitCode.DONE


def _reach(store: str, what: str, read: Mapping[str, Any]) -> str:
    """Say how far the index reaches by which a key was not found, and how to do without it."""
    from store_core.store.read.read_messages import explain

    found = explain(store, **{**read, "key": what})
    if found.plan != "index":
        return ""
    return (
        f". The index leads to none up to offset {found.reach:,}, and what is behind that was scanned; "
        f"`commitlog check` proves the index, and --use-index-files never scans all of the log"
    )


def _options(read: Mapping[str, Any], output: Output) -> ReadOptions:
    """Parse the options; without named columns, a table has those that fit a terminal."""
    from store_core.format.columns import CORRUPT_RECORD
    from store_core.store.read.option_values import ReadMode
    from store_core.store.read.read_options import ReadOptions

    options = ReadOptions.parse(**read)
    if "columns" in read or not output.is_for_people:
        return options
    damaged = ("physical_offset", CORRUPT_RECORD) if options.mode is ReadMode.PERMISSIVE else ()
    return ReadOptions.parse(**read, columns=[*_FOR_PEOPLE, *damaged])


def _print(stores: tuple[str, ...], read: Mapping[str, Any], output: Output, most: int | None) -> ExitCode:
    from store_core.store.read.read_messages import read_messages
    from store_core.store.read.unknown_topic import has_unknown_topic

    options = _options(read, output)
    rows = 0
    with (
        read_messages(stores, **{**read, "columns": options.columns}) as reader,
        output.writer(reader.schema) as writer,
    ):
        for batch in _first(reader, most):
            writer.write(batch)
            rows += batch.num_rows
    return ExitCode.DONE if rows or not has_unknown_topic(stores, options) else ExitCode.USAGE


def _first(batches: Iterable[pa.RecordBatch], most: int | None) -> Iterator[pa.RecordBatch]:
    """Yield batches until there are enough rows; of the last one only those that are missing."""
    for batch in batches:
        if most is not None and batch.num_rows >= most:
            yield batch.slice(0, most)
            return
        yield batch
        most = None if most is None else most - batch.num_rows
