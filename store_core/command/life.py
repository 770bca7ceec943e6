# SPDX-License-Identifier: Apache-2.0
"""The commands that tell what became of messages: transactions and delays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from store_core.answers.store_delays import DelaysOptions, delays_by
from store_core.answers.store_transactions import TransactionsOptions, transactions_by
from store_core.command.examples import examples
from store_core.command.report_output import shown_engine, with_processes, with_report
from store_core.format.releases.release import DEFAULT_RELEASE, RELEASES
from store_core.store.read.store_time import store_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from store_core.command.exit_code import ExitCode
    from store_core.command.report_output import ReportOutput

__all__ = ["delays", "transactions"]


def _with_judging(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say what is listed, as of when, and by which release."""
    release = click.Choice(list(RELEASES))
    for option in (
        click.option("--at", metavar="TIME", help="As of this time: ISO 8601 or ms since 1970.  [default: now]"),
        click.option("--all", "lists_all", is_flag=True, help="List those that are as they should be, too."),
        click.option("--most-rows", type=click.IntRange(0), default=1000, metavar="N", help="Rows; all are counted."),
        click.option(
            "--release",
            type=release,
            default=DEFAULT_RELEASE,
            help=f"RocketMQ that serves the store.  [default: {DEFAULT_RELEASE}]",
        ),
    ):
        command = option(command)
    return command


def _time_of(at: str | None) -> int | None:
    return None if at is None else store_time("at", at)


@click.command(
    epilog=examples(
        "commitlog transactions /data/store",
        "commitlog transactions /data/store --older-than 3600 --html report.html",
        "commitlog transactions /data/store --all --json",
    )
)
@click.argument("store", metavar="STORE")
@click.option(
    "--older-than",
    type=click.IntRange(0),
    default=60,
    metavar="SECONDS",
    help="A pending one is a finding after these.",
)
@click.option(
    "--most-checks",
    type=click.IntRange(0),
    default=15,
    metavar="N",
    help="How often a broker asks about one (transactionCheckMax).",
)
@_with_judging
@with_processes
@with_report
def transactions(store: str, at: str | None, processes: int, output: ReportOutput, **judging: Any) -> ExitCode:  # noqa: ANN401 -- the options' own
    """Tell how transactions ended: pending, committed, rolled back, given up, lost.

    Only the log, consume queues and consumerOffset.json are read. The exit code is 1 if one will not end by itself, or
    is pending for too long.
    """
    options = TransactionsOptions(at=_time_of(at), **judging)
    with shown_engine(processes) as engine:
        report = transactions_by(engine, store, options)
    return output.put(report)


@click.command(
    epilog=examples(
        "commitlog delays /data/store",
        "commitlog delays /data/store --at 2024-05-01T12:00:00Z --html report.html",
        "commitlog delays /data/store --config broker.conf --all --json",
    )
)
@click.argument("store", metavar="STORE")
@click.option(
    "--late-after",
    type=click.IntRange(0),
    default=60,
    metavar="SECONDS",
    help="An overdue one is a finding after these.",
)
@click.option("--config", "broker_config", metavar="FILE", help="The broker's configuration, for messageDelayLevel.")
@_with_judging
@with_processes
@with_report
def delays(store: str, at: str | None, processes: int, output: ReportOutput, **judging: Any) -> ExitCode:  # noqa: ANN401 -- as above
    """Tell when delayed messages and timers are due, which are overdue, and which no broker will deliver.

    Only the topics where they wait are read, and delayOffset.json and timercheck. The exit code is 1 if messages are
    late, or will not be delivered.
    """
    options = DelaysOptions(at=_time_of(at), **judging)
    with shown_engine(processes) as engine:
        report = delays_by(engine, store, options)
    return output.put(report)
