# SPDX-License-Identifier: Apache-2.0
"""The commands that say who uses the disk, and what producers do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from store_core.answers.limits import TOP
from store_core.command.examples import examples
from store_core.command.report_output import shown_engine, with_processes, with_report
from store_core.command.storage_arguments import with_storage

if TYPE_CHECKING:
    from store_core.command.exit_code import ExitCode
    from store_core.command.report_output import ReportOutput
    from store_core.command.storage_arguments import Store

__all__ = ["bill", "producers"]

_with_top: Final = click.option(
    "--top", type=click.IntRange(1), default=TOP, metavar="N", help=f"Rows of each table.  [default: {TOP}]"
)


@click.command(
    epilog=examples(
        "commitlog bill /data/store",
        "commitlog bill /data/store --top 500 --json > bill.json",
        "commitlog bill /data/store --processes 4 --html bill.html",
    )
)
@click.argument("store", metavar="STORE")
@_with_top
@with_processes
@with_storage
@with_report
def bill(store: Store, top: int, processes: int, output: ReportOutput) -> ExitCode:
    """Say who uses the disk: bytes and messages by topic, queue, tags, producer and day.

    Dead bytes are those of retries, dead letters, the broker's own topics, traces, and topics that topics.json does not
    have. For each topic it says how many segment files would be gone without it. The exit code is 5 if the log is
    damaged: damaged ranges are in no table.
    """
    from store_core.answers.store_bill import bill_by

    with shown_engine(processes) as engine:
        return output.put(bill_by(engine, store, top))


@click.command(
    epilog=examples(
        "commitlog producers /data/store",
        "commitlog producers /data/store --top 500 --json > producers.json",
    )
)
@click.argument("store", metavar="STORE")
@_with_top
@with_processes
@with_storage
@with_report
def producers(store: Store, top: int, processes: int, output: ReportOutput) -> ExitCode:
    """Say what a broker can't tell of producers: clocks, messages sent twice, wrong order, sizes.

    Scratch files of about a seventh of the log are in the system's directory for temporary files. The exit code is 1
    if a unique key was sent twice, or messages of a sharding key are out of order or in several queues; and 5 if the
    log is damaged.
    """
    from store_core.answers.store_producers import producers_by

    with shown_engine(processes) as engine:
        return output.put(producers_by(engine, store, top))
