# SPDX-License-Identifier: Apache-2.0
"""The command that says how a read would be made."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click
import pyarrow as pa

from store_core.command.examples import examples
from store_core.command.exit_code import ExitCode
from store_core.command.output_arguments import with_output
from store_core.command.read_arguments import STORES, with_read_options
from store_core.format.columns import STRINGS_TYPE
from store_core.store.read import explain as explaining

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store_core.command.output.output import Output

__all__ = ["explain"]

_LONG: Final = pa.int64()
_SCHEMA: Final = pa.schema(
    {"plan": pa.string(), "why": pa.string(), "files": _LONG, "bytes": _LONG, "units": _LONG, "entries": _LONG}
    | {"records": _LONG, "notes": STRINGS_TYPE}
)
"""The fields of `store_core.store.read.lookup.explanation.ReadExplanation`."""


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

    The plan is scan, or a look-up by queues, index or position. Only what planning needs is read.
    """
    found = explaining.explain(stores, **read)
    table = pa.Table.from_pylist([{**asdict(found), "notes": list(found.notes) or None}], _SCHEMA)
    with output.writer(table.schema) as writer:
        for batch in table.to_batches():
            writer.write(batch)
    return ExitCode.DONE
