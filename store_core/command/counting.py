# SPDX-License-Identifier: Apache-2.0
"""The command that counts messages by columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from store_core.command.arguments import examples
from store_core.command.exit_code import ExitCode
from store_core.command.output_arguments import with_output
from store_core.command.read_arguments import STORES, with_read_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store_core.command.output.output import Output

__all__ = ["count"]


@click.command(
    epilog=examples(
        "commitlog count /data/store",
        "commitlog count /data/store --by topic,queue_id",
        "commitlog count /data/store --by hour,tags --topic orders --format csv",
    ),
)
@STORES
@click.option("--by", metavar="COLUMNS", help="Columns, separated by commas; also hour, day, minute (UTC).")
@with_read_options
@with_output()
def count(stores: tuple[str, ...], by: str | None, read: Mapping[str, Any], output: Output) -> ExitCode:
    """Count messages, and the bytes of their records."""
    from store_core.command.groups import Groups
    from store_core.store.read.read_messages import read_messages
    from store_core.store.read.read_options import ReadOptions
    from store_core.store.read.unknown_topic import has_unknown_topic

    groups = Groups.by([name.strip() for name in by.split(",")] if by else [])
    options = ReadOptions.parse(**{**read, "columns": groups.columns})
    with read_messages(stores, **{**read, "columns": groups.columns}) as reader:
        for batch in reader:
            groups.add(batch)
    table = groups.table()
    with output.writer(table.schema) as writer:
        for batch in table.to_batches():
            writer.write(batch)
    return ExitCode.DONE if groups.messages or not has_unknown_topic(stores, options) else ExitCode.USAGE
