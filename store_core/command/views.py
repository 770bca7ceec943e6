# SPDX-License-Identifier: Apache-2.0
"""The commands that list: segments, topics, views, columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from store_core.command.arguments import NearChoice, examples
from store_core.command.exit_code import ExitCode
from store_core.command.notices import say
from store_core.command.output_arguments import with_output
from store_core.command.read_arguments import STORES, with_view_options
from store_core.views.view_names import VIEW_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store_core.command.output.output import Output
    from store_core.files.store_path import StorePaths

__all__ = ["ls", "schema", "topics", "view"]

_FOR_PEOPLE: Final = {
    "segments": ("segment", "data_end", "messages", "first_store_timestamp", "stop_reason"),
    "topics": ("topic", "queue_id", "min_offset", "max_offset", "messages", "newest_store_timestamp"),
}
"""View -> columns of a table if none are named: those that fit a terminal."""


@click.command(
    epilog=examples(
        "commitlog ls /data/store",
        "commitlog ls /data/store --columns segment,file_size,is_last",
    ),
)
@STORES
@with_view_options("segments")
@with_output()
def ls(stores: tuple[str, ...], read: Mapping[str, Any], output: Output) -> ExitCode:
    """List the segment files of a log: where their records end and why, how many they are, and since when."""
    from store_core.snapshot.store import Store, store_at

    places = tuple(store_at(store, read.get("storage")) for store in stores)  # listed once for both
    code = _print(places, "segments", read, output)
    for note in Store(places).queue_notes:
        say(f"note: {note}")
    return code


@click.command(
    epilog=examples(
        "commitlog topics /data/store",
        "commitlog topics /data/store --topic orders --format fields",
    ),
)
@STORES
@with_view_options("topics")
@with_output()
def topics(stores: tuple[str, ...], read: Mapping[str, Any], output: Output) -> ExitCode:
    """List topics and their queues: first and last queue offsets, messages, and the last one's store time.

    Queues end where the log ends. Of the log, only first and last records of queues are read, and, if a last one is
    not there, the last file.
    """
    return _print(stores, "topics", read, output)


@click.command(
    epilog=examples(
        "commitlog view /data/store consumer_offsets",
        "commitlog view /data/store consumequeue --topic orders --queue-id 1",
        "commitlog view /data/store index --topic orders --key order-4711",
    ),
)
@click.argument("store", metavar="STORE")
@click.argument("name", metavar="VIEW", type=NearChoice(VIEW_NAMES))
@with_view_options(*VIEW_NAMES)
@with_output()
def view(store: str, name: str, read: Mapping[str, Any], output: Output) -> ExitCode:
    """Print what is beside the log: consumequeue, index, segments, topics, consumer_offsets, and so on.

    A view takes those options that make sense for it, and refuses others by name.
    """
    return _print(store, name, read, output)


def _print(stores: StorePaths, name: str, read: Mapping[str, Any], output: Output) -> ExitCode:
    from store_core.store.read.unknown_topic import is_nowhere
    from store_core.views.view import read_view

    rows = 0
    columns = _FOR_PEOPLE.get(name) if output.is_for_people else None
    with read_view(stores, name, **{"columns": columns, **read}) as reader, output.writer(reader.schema) as writer:
        for batch in reader:
            writer.write(batch)
            rows += batch.num_rows
    return ExitCode.USAGE if not rows and is_nowhere(stores, read) else ExitCode.DONE


@click.command(
    epilog=examples(
        "commitlog schema",
        "commitlog schema --format jsonl",
    ),
)
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
    with output.writer(table.schema) as writer:
        for batch in table.to_batches():
            writer.write(batch)
    return ExitCode.DONE
