# SPDX-License-Identifier: Apache-2.0
"""The command that exports messages into a directory of Parquet files, and proves what is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from store_core.command.arguments import examples, with_storage
from store_core.command.report_output import shown_engine, with_processes, with_report

if TYPE_CHECKING:
    from store_core.command.arguments import Store
    from store_core.command.exit_code import ExitCode
    from store_core.command.report_output import ReportOutput

__all__ = ["export"]


@click.command(
    epilog=examples(
        "commitlog export /data/store --into /data/lake",
        "commitlog export /data/store --into /data/orders --topic orders",
        "commitlog export /data/store --into /data/lake --prove",
    )
)
@click.argument("store", metavar="STORE")
@click.option("--into", required=True, metavar="DIRECTORY", help="The directory of the lake, outside of STORE.")
@click.option("--topic", multiple=True, metavar="TOPIC", help="Only this topic; can be repeated.")
@click.option("--allow-loss", is_flag=True, help="Go on if retention has deleted what was not exported yet.")
@click.option("--prove", "is_proof", is_flag=True, help="Export nothing; compare what is there with the log.")
@with_processes
@with_storage
@with_report
def export(  # noqa: PLR0913 -- the command's own options
    store: Store,
    into: str,
    topic: tuple[str, ...],
    allow_loss: bool,  # noqa: FBT001 -- click passes all by name
    is_proof: bool,  # noqa: FBT001 -- as above
    processes: int,
    output: ReportOutput,
) -> ExitCode:
    """Export messages as Parquet, by topic and day: those that DIRECTORY does not have yet, each exactly once.

    STORE is only read, and may be live. A run that is killed is finished by the next one. The exit code is 0 if all is
    exported, 5 if something is damaged or gone; with --prove it is 1 if anything differs.
    """
    from store_core.answers.store_export import export_by, prove_by

    if is_proof and (topic or allow_loss):
        raise click.UsageError("--prove compares what was exported: it goes with neither --topic nor --allow-loss")
    with shown_engine(processes) as engine:
        if is_proof:
            return output.put(prove_by(engine, store, into))
        return output.put(export_by(engine, store, into, topic, allow_loss=allow_loss))
