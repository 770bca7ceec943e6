# SPDX-License-Identifier: Apache-2.0
"""The command that lists the columns of a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from store_core.command.examples import examples
from store_core.command.exit_code import ExitCode
from store_core.command.output_arguments import with_output

if TYPE_CHECKING:
    from store_core.command.output.output import Output

__all__ = ["schema"]


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
