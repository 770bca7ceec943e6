# SPDX-License-Identifier: Apache-2.0
"""The command that says who uses the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from store_core.answers.store_bill import TOP, bill_by
from store_core.command.examples import examples
from store_core.command.report_output import shown_engine, with_processes, with_report

if TYPE_CHECKING:
    from store_core.command.exit_code import ExitCode
    from store_core.command.report_output import ReportOutput

__all__ = ["bill"]


@click.command(
    epilog=examples(
        "commitlog bill /data/store",
        "commitlog bill /data/store --top 500 --json > bill.json",
        "commitlog bill /data/store --processes 4 --html bill.html",
    )
)
@click.argument("store", metavar="STORE")
@click.option("--top", type=click.IntRange(1), default=TOP, metavar="N", help=f"Rows of each table.  [default: {TOP}]")
@with_processes
@with_report
def bill(store: str, top: int, processes: int, output: ReportOutput) -> ExitCode:
    """Say who uses the disk: bytes and messages by topic, queue, tags, producer and day.

    Dead bytes are those of retries, dead letters, the broker's own topics, traces, and topics that topics.json does not
    have. For each topic it says how many segment files would be gone without it. The exit code is 5 if the log is
    damaged: damaged ranges are in no table.
    """
    with shown_engine(processes) as engine:
        return output.put(bill_by(engine, store, top))
