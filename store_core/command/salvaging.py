# SPDX-License-Identifier: Apache-2.0
"""The command that salvages a damaged log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from store_core.command.choices import NearChoice
from store_core.command.examples import examples
from store_core.command.report_output import shown_engine, with_processes, with_report
from store_core.command.storage_arguments import with_storage
from store_core.store.salvage.salvage_format import SalvageFormat

if TYPE_CHECKING:
    from store_core.command.exit_code import ExitCode
    from store_core.command.report_output import ReportOutput
    from store_core.command.storage_arguments import Store

__all__ = ["salvage"]


@click.command(
    epilog=examples(
        "commitlog salvage /data/store",
        "commitlog salvage /data/store --into /data/salvaged",
        "commitlog salvage /data/store --into /data/rows --format parquet",
    )
)
@click.argument("store", metavar="STORE")
@click.option("--into", metavar="PATH", help="Where nothing is yet; without it nothing is written.")
@click.option(
    "--format",
    "kind",
    type=NearChoice([each.value for each in SalvageFormat]),
    default=SalvageFormat.STORE.value,
    help="store: one with a new log. parquet: a directory of files, a row per message with its grade.  "
    "[default: store]",
)
@with_processes
@with_storage
@with_report
def salvage(store: Store, into: str | None, kind: str, processes: int, output: ReportOutput) -> ExitCode:
    """Take every message of a damaged log that proves itself, and account for every other byte.

    STORE is only read. The exit code is 0 if nothing is lost, and 5 if something is.
    """
    from store_core.answers.log_salvage import salvage_by

    with shown_engine(processes) as engine:
        report = salvage_by(engine, store, into, kind)
    return output.put(report)
