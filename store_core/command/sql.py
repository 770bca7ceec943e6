# SPDX-License-Identifier: Apache-2.0
"""The command that asks a store in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from store_core.command.arguments import examples
from store_core.command.exit_code import ExitCode
from store_core.command.output_arguments import with_output
from store_core.command.read_arguments import with_view_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store_core.command.output.output import Output

__all__ = ["sql"]


@click.command(
    epilog=examples(
        'commitlog sql /data/store "SELECT topic, count(*) FROM messages GROUP BY 1"',
        "commitlog sql /data/store \"SELECT * FROM messages WHERE topic = 'orders'\"",
        'commitlog sql /data/store "FROM consumer_offsets" --format csv',
    ),
)
@click.argument("store", metavar="STORE")
@click.argument("query", metavar="QUERY")
@with_view_options()
@with_output()
def sql(store: str, query: str, read: Mapping[str, Any], output: Output) -> ExitCode:
    """Ask a store in SQL, in the language of DuckDB.

    The tables are `messages` and those of `commitlog view`, such as consumequeue, topics and consumer_offsets. Only the
    columns that the query names are decoded; conditions on topic, queue, store_timestamp, msg_id, uniq_msg_id and
    physical_offset narrow what is read.
    """
    from store_core.views.sql import sql as ask

    with ask(query, store, **read) as reader, output.writer(reader.schema) as writer:
        for batch in reader:
            writer.write(batch)
    return ExitCode.DONE
