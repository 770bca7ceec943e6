# SPDX-License-Identifier: Apache-2.0
"""The command that says how a read would be made."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from store_core.command.arguments import examples
from store_core.command.exit_code import ExitCode
from store_core.command.output_arguments import with_output
from store_core.command.read_arguments import STORES, with_read_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from store_core.command.output.output import Output
    from store_core.store.read.lookup.explanation import ReadExplanation

__all__ = ["explain"]


@click.command(
    epilog=examples(
        "commitlog explain /data/store --topic orders --queue-id 1",
        "commitlog explain /data/store --key order-4711",
        "commitlog explain /data/store --physical-offset 41921 --format jsonl",
    ),
)
@STORES
@with_read_options
@with_output("fields")
def explain(stores: tuple[str, ...], read: Mapping[str, Any], output: Output) -> ExitCode:
    """Say how `cat` with the same options would read: which plan, why, and how many bytes of the log.

    The plan is scan, or a look-up by queues, index or position. Only what planning needs is read,
    unless neither queues nor configuration know the topic.
    """
    from store_core.store.read.read_messages import explain as explained
    from store_core.store.read.unknown_topic import is_nowhere

    found = explained(stores, **read)
    table = _as_table(found)
    with output.writer(table.schema) as writer:
        for batch in table.to_batches():
            writer.write(batch)
    return ExitCode.USAGE if is_nowhere(stores, read) else ExitCode.DONE


def _as_table(found: ReadExplanation) -> pa.Table:
    """Return a table with one row, whose columns are the fields of an explanation."""
    import pyarrow as pa

    from store_core.format.columns import STRINGS_TYPE

    text, number = pa.string(), pa.int64()
    schema = pa.schema(
        {"plan": text, "why": text, "files": number, "bytes": number, "units": number, "entries": number}
        | {"records": number, "notes": STRINGS_TYPE}
    )
    return pa.Table.from_pylist([{**asdict(found), "notes": list(found.notes) or None}], schema)
