# SPDX-License-Identifier: Apache-2.0
"""The commands that print rows: messages, counts of them, views of what is beside the log, answers to SQL, plans."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from store_core.command.arguments import STORES, NearChoice, examples, with_output, with_read_options, with_view_options
from store_core.command.console import Console, say
from store_core.command.exit_code import ExitCode
from store_core.errors import InvalidOptionError, StoreNotFoundError
from store_core.store.read.option_table import NamedBy
from store_core.views.view_names import VIEW_PLANS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from store_core.command.output import Output
    from store_core.files.store_path import StorePaths
    from store_core.snapshot.store import Store
    from store_core.store.read.follow.log_follower import StoresFollower
    from store_core.store.read.lookup.explanation import ReadExplanation
    from store_core.store.read.read_options import ReadOptions


_MESSAGE_COLUMNS: Final = ("store_timestamp", "topic", "queue_id", "queue_offset", "tags", "keys", "body")
"""Columns of a table of messages if none are named: those that fit a terminal."""

_VIEW_COLUMNS: Final = {
    "segments": ("segment", "data_end", "messages", "first_store_timestamp", "stop_reason"),
    "topics": ("topic", "queue_id", "min_offset", "max_offset", "messages", "newest_store_timestamp"),
}
"""View -> the same."""

_ROWS: Final = click.option(
    "-n", "--rows", type=click.IntRange(0), default=10, help="How many messages are printed.  [default: 10]"
)


def _command(
    *lines: str,
    own: Sequence[Callable[..., Any]] = (STORES,),
    read: Callable[[Callable[..., ExitCode]], Callable[..., ExitCode]] = with_read_options,
    default: str = "table",
) -> Callable[[Callable[..., ExitCode]], click.Command]:
    """Return what makes a command of a function that prints rows.

    * `lines`: Examples.
    * `own`: Its own arguments and options, which its help shows first.
    * `read`: What gives it the options of the reader.
    * `default`: The format on standard output.
    """

    def decorate(function: Callable[..., ExitCode]) -> click.Command:
        command = read(with_output(default)(function))
        for option in reversed(own):
            command = option(command)
        return click.command(epilog=examples(*lines))(command)

    return decorate


# ---- messages


@_command(
    "commitlog cat /data/store --topic orders --tag 'paid || shipped'",
    "commitlog cat /data/store --starting-timestamp 2024-05-01T12:00:00Z",
    "commitlog cat /data/store --columns topic,keys,body --format jsonl",
    "commitlog cat /data/store -o messages.parquet",
)
def cat(stores: tuple[str, ...], read: Mapping[str, Any], output: Output) -> ExitCode:
    """Print the messages of a log, in its order."""
    return _print_messages(stores, read, output, None)


@_command("commitlog head /data/store", "commitlog head /data/store -n 3 --topic orders", own=(STORES, _ROWS))
def head(stores: tuple[str, ...], rows: int, read: Mapping[str, Any], output: Output) -> ExitCode:
    """Print the first messages of a log, and read no further."""
    return _print_messages(stores, read, output, rows)


@_command(
    "commitlog tail /data/store",
    "commitlog tail /data/store -n 100 --topic orders",
    "commitlog tail /data/store --follow --format jsonl",
    own=(
        STORES,
        _ROWS,
        click.option("-f", "--follow", is_flag=True, help="Go on with messages as a broker writes them, until ^C."),
        click.option(
            "--interval",
            type=click.FloatRange(0.05),
            default=1.0,
            metavar="SECONDS",
            help="With --follow, the time between two looks at the store.  [default: 1]",
        ),
    ),
)
def tail(  # noqa: PLR0913 -- the command's own options
    stores: tuple[str, ...],
    rows: int,
    follow: bool,  # noqa: FBT001 -- click passes all by name
    interval: float,
    read: Mapping[str, Any],
    output: Output,
) -> ExitCode:
    """Print the last messages of each log, and with --follow those that a broker writes to it from now on."""
    from store_core.format.columns import arrow_schema
    from store_core.store.read.follow.log_follower import NO_LIMITS
    from store_core.store.read.message_reader import read_range
    from store_core.store.read.read_messages import TopicWatch, last_rows

    options, rows_printed = _options(read, output), 0
    found = options.stores_of(stores)
    log = _follower(found, options) if follow else None
    at = {} if log is None else log.initial(at_end=True)
    begins: Sequence[int | None] = [each.physical_offset for each in at.values()] or [None] * len(found)
    with output.writer(arrow_schema(options.columns, nullable=options.is_permissive)) as writer:
        for store, begin in zip(found, begins, strict=True):
            for batch in last_rows(store.paths, options.named(store), rows, begin):
                writer.write(batch)
                rows_printed += batch.num_rows
        if not rows_printed:
            TopicWatch.of(found, options).warn_after_read()
        while log is not None:
            Console.of(click.get_current_context()).clock.sleep(interval)
            end = log.advance(at, NO_LIMITS)
            for name, part in log.ranges(at, end):
                for batch in read_range(part, options.named(log.stores[name])):
                    writer.write(batch)
            at = end
    return _code_of(rows_printed, stores, options)


@_command(
    "commitlog get /data/store order-4711",
    "commitlog get /data/store 7F00000100002A9F000000000000A3C1",
    "commitlog get /data/store orders/1/42",
    own=(
        STORES,
        click.argument("what", metavar="KEY|MSGID|TOPIC/QUEUE/OFFSET"),
        click.option(
            "--as",
            "kind",
            type=NearChoice([kind.value for kind in NamedBy]),
            help="How to read the argument.  [default: what it looks like, and else a key]",
        ),
    ),
    default="fields",
)
def get(stores: tuple[str, ...], what: str, kind: str | None, read: Mapping[str, Any], output: Output) -> ExitCode:
    """Print the messages that have a key, or the one with an id or at a position in a queue.

    KEY is one of the words in property KEYS, or the id in property UNIQ_KEY. MSGID is an offset message id of 32 or 56
    hexadecimal digits. If nothing is found the exit code is 2.
    """
    from store_core.format.columns import BODY_TEXT, COLUMNS, CORRUPT_RECORD
    from store_core.store.read.read_messages import find_message

    again = {"properties_string", BODY_TEXT, CORRUPT_RECORD}  # what other columns show
    columns = [column.name for column in COLUMNS if column.name not in again]
    found = find_message(stores, what, None if kind is None else NamedBy(kind), {"columns": columns, **read})
    if found is None:
        raise StoreNotFoundError(
            f"{', '.join(stores)} has no message with the key, id or position {what!r}{_reach(stores, what, read)}"
        )
    with found:
        output.put(found.schema, found)
    return ExitCode.DONE


@_command(
    "commitlog count /data/store",
    "commitlog count /data/store --by topic,queue_id",
    "commitlog count /data/store --by hour,tags --topic orders --format csv",
    own=(
        STORES,
        click.option("--by", metavar="COLUMNS", help="Columns, separated by commas; also hour, day, minute (UTC)."),
    ),
)
def count(stores: tuple[str, ...], by: str | None, read: Mapping[str, Any], output: Output) -> ExitCode:
    """Count messages, and the bytes of their records."""
    from store_core.answers.group_table import Groups
    from store_core.store.read.read_messages import read_messages
    from store_core.store.read.read_options import ReadOptions

    groups = Groups.by([name.strip() for name in by.split(",")] if by else [])
    options = ReadOptions.parse(**{**read, "columns": groups.columns})
    with read_messages(stores, **{**read, "columns": groups.columns}) as reader:
        for batch in reader:
            groups.add(batch)
    table = groups.table()
    output.put(table.schema, table.to_batches())
    return _code_of(groups.messages, stores, options)


def _reach(stores: tuple[str, ...], what: str, read: Mapping[str, Any]) -> str:
    """Say how far the index reaches by which a key was not found, and how to do without it."""
    found = [each for _, each in _explained(stores, {**read, "key": what}) if each.plan == "index"]
    if not found:
        return ""
    reach = ", ".join(f"{each.reach:,}" for each in found)
    return (
        f". The index leads to none up to offset {reach}, and what is behind that was scanned; "
        f"`commitlog check` proves the index, and --use-index-files never scans all of the log"
    )


def _explained(stores: tuple[str, ...], read: Mapping[str, Any]) -> list[tuple[str, ReadExplanation]]:
    """Return how each of some stores would be read, with its name; times are known already."""
    from store_core.store.read.read_messages import explain
    from store_core.store.read.read_options import ReadOptions

    found = ReadOptions.parse(**read).stores_of(stores)
    return [(store.name if len(found) > 1 else "", explain(store.paths, **read)) for store in found]


def _options(read: Mapping[str, Any], output: Output) -> ReadOptions:
    """Parse the options; without named columns, a table has those that fit a terminal."""
    from store_core.format.columns import CORRUPT_RECORD
    from store_core.store.read.option_values import ReadMode
    from store_core.store.read.read_options import ReadOptions

    options = ReadOptions.parse(**read)
    if "columns" in read or not output.is_for_people:
        return options
    damaged = ("physical_offset", CORRUPT_RECORD) if options.mode is ReadMode.PERMISSIVE else ()
    return ReadOptions.parse(**read, columns=[*_MESSAGE_COLUMNS, *damaged])


def _print_messages(stores: tuple[str, ...], read: Mapping[str, Any], output: Output, most: int | None) -> ExitCode:
    from store_core.store.read.read_messages import read_messages

    options = _options(read, output)
    with read_messages(stores, **{**read, "columns": options.columns}) as reader:
        rows = output.put(reader.schema, _first(reader, most))
    return _code_of(rows, stores, options)


def _code_of(rows: int, stores: StorePaths, options: ReadOptions) -> ExitCode:
    """Return how a read of messages ends: wrong usage if it had none because a topic or queue is not known."""
    from store_core.store.read.read_messages import has_unknown_topic

    return ExitCode.DONE if rows or not has_unknown_topic(stores, options) else ExitCode.USAGE


def _first(batches: Iterable[pa.RecordBatch], most: int | None) -> Iterator[pa.RecordBatch]:
    """Yield batches until there are enough rows; of the last one only those that are missing."""
    for batch in batches:
        if most is not None and batch.num_rows >= most:
            yield batch.slice(0, most)
            return
        yield batch
        most = None if most is None else most - batch.num_rows


def _follower(stores: Sequence[Store], options: ReadOptions) -> StoresFollower:
    """Follow logs; an end would stop that."""
    from store_core.store.read.follow.log_follower import StoresFollower

    times = (options.ending_timestamp, options.as_of)
    if times != (None, None) or options.end.physical is not None or options.end.queues:
        names = "ending_offsets, ending_timestamp and as_of"
        raise InvalidOptionError(f"--follow reads without an end: leave out {names}")
    return StoresFollower(stores, options)


# ---- what is beside the log


@_command(
    "commitlog ls /data/store",
    "commitlog ls /data/store --columns segment,file_size,is_last",
    read=with_view_options("segments"),
)
def ls(stores: tuple[str, ...], read: Mapping[str, Any], output: Output) -> ExitCode:
    """List the segment files of a log: where their records end and why, how many they are, and since when."""
    from store_core.files.store_path import given_paths
    from store_core.snapshot.store import stores_of

    places = {name: read[name] for name in ("storage", "config", "store_path_commit_log") if name in read}
    found = stores_of(stores, **places)  # listed once for both
    code = _print_view([path for store in found for path in given_paths(store.paths)], "segments", read, output)
    for note in (note for store in found for note in store.queue_notes):
        say(f"note: {note}")
    return code


@_command(
    "commitlog topics /data/store",
    "commitlog topics /data/store --topic orders --format fields",
    read=with_view_options("topics"),
)
def topics(stores: tuple[str, ...], read: Mapping[str, Any], output: Output) -> ExitCode:
    """List topics and their queues: first and last queue offsets, messages, and the last one's store time.

    Queues end where the log ends. Of the log, only first and last records of queues are read, and, if a last one is
    not there, the last file.
    """
    return _print_view(stores, "topics", read, output)


@_command(
    "commitlog view /data/store consumer_offsets",
    "commitlog view /data/store consumequeue --topic orders --queue-id 1",
    "commitlog view /data/store index --topic orders --key order-4711",
    own=(STORES, click.argument("name", metavar="VIEW", type=NearChoice(tuple(VIEW_PLANS)))),
    read=with_view_options(*VIEW_PLANS),
)
def view(stores: tuple[str, ...], name: str, read: Mapping[str, Any], output: Output) -> ExitCode:
    """Print what is beside the log: consumequeue, index, segments, topics, consumer_offsets, and so on.

    A view takes those options that make sense for it, and refuses others by name.
    """
    return _print_view(stores, name, read, output)


def _print_view(stores: StorePaths, name: str, read: Mapping[str, Any], output: Output) -> ExitCode:
    from store_core.store.read.read_messages import is_nowhere
    from store_core.views.view import read_view

    columns = _VIEW_COLUMNS.get(name) if output.is_for_people else None
    with read_view(stores, name, **{"columns": columns, **read}) as reader:
        rows = output.put(reader.schema, reader)
    return ExitCode.USAGE if not rows and is_nowhere(stores, read) else ExitCode.DONE


@_command(
    'commitlog sql /data/store "SELECT topic, count(*) FROM messages GROUP BY 1"',
    "commitlog sql /data/store \"SELECT * FROM messages WHERE topic = 'orders'\"",
    'commitlog sql /data/store "FROM consumer_offsets" --format csv',
    own=(STORES, click.argument("query", metavar="QUERY")),
    read=with_view_options(),
)
def sql(stores: tuple[str, ...], query: str, read: Mapping[str, Any], output: Output) -> ExitCode:
    """Ask a store in SQL, in the language of DuckDB.

    The tables are `messages` and those of `commitlog view`, such as consumequeue, topics and consumer_offsets. Only the
    columns that the query names are decoded; conditions on topic, queue, store_timestamp, msg_id, uniq_msg_id and
    physical_offset narrow what is read.
    """
    from store_core.views.sql import sql as ask

    with ask(query, stores, **read) as reader:
        output.put(reader.schema, reader)
    return ExitCode.DONE


@_command(
    "commitlog explain /data/store --topic orders --queue-id 1",
    "commitlog explain /data/store --key order-4711",
    "commitlog explain /data/store --physical-offset 41921 --format jsonl",
    default="fields",
)
def explain(stores: tuple[str, ...], read: Mapping[str, Any], output: Output) -> ExitCode:
    """Say how `cat` with the same options would read: which plan, why, and how many bytes of the log.

    The plan is scan, or a look-up by queues, index or position. Only what planning needs is read,
    unless neither queues nor configuration know the topic.
    """
    from store_core.store.read.read_messages import is_nowhere

    table = _as_table(_explained(stores, read))
    output.put(table.schema, table.to_batches())
    return ExitCode.USAGE if is_nowhere(stores, read, names_topics=True) else ExitCode.DONE


def _as_table(found: Sequence[tuple[str, ReadExplanation]]) -> pa.Table:
    """Return a table with a row for each store, whose columns are the fields of an explanation."""
    import pyarrow as pa

    from store_core.format.columns import STORE, STRINGS_TYPE

    text, number = pa.string(), pa.int64()
    schema = pa.schema(
        {"plan": text, "why": text, "files": number, "bytes": number, "units": number, "entries": number}
        | {"records": number, "notes": STRINGS_TYPE}
    )
    rows = [{STORE: name, **asdict(each), "notes": list(each.notes) or None} for name, each in found]
    return pa.Table.from_pylist(rows, pa.schema([(STORE, text), *schema]) if len(found) > 1 else schema)


@click.command(epilog=examples("commitlog schema", "commitlog schema --format jsonl"))
@with_output()
def schema(output: Output) -> ExitCode:
    """List the columns that --columns takes, with their Arrow types."""
    import pyarrow as pa

    from store_core.format.columns import COLUMNS

    table = pa.table(
        {
            "column": [column.name for column in COLUMNS],
            "type": [str(column.type) for column in COLUMNS],
            "null": [column.nullable for column in COLUMNS],
            "default": [column.default for column in COLUMNS],
            "meaning": [column.doc.replace("`", "") for column in COLUMNS],
        }
    )
    output.put(table.schema, table.to_batches())
    return ExitCode.DONE
