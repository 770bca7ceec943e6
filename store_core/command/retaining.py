# SPDX-License-Identifier: Apache-2.0
"""The command that says what a broker will delete, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from store_core.answers.limits import MOST_DAYS, TIME_WORDS
from store_core.command.examples import examples
from store_core.command.notices import warnings_shown
from store_core.command.report_output import shown_engine, with_processes, with_release, with_report
from store_core.command.storage_arguments import with_config
from store_core.command.surroundings import Surroundings

if TYPE_CHECKING:
    from typing import Any

    from store_core.command.exit_code import ExitCode
    from store_core.command.report_output import ReportOutput
    from store_core.command.storage_arguments import Store

__all__ = ["retention"]


@click.command(
    epilog=examples(
        "commitlog retention /data/store",
        "commitlog retention /data/store --config broker.conf --days 30",
        "commitlog retention /data/store --file-reserved-time 48 --html new.html",
    )
)
@click.argument("store", metavar="STORE")
@click.option("--days", type=click.IntRange(1, MOST_DAYS), default=14, metavar="N", help="How many.  [default: 14]")
@with_release
@click.option("--file-reserved-time", type=int, metavar="HOURS", help="In place of fileReservedTime.")
@click.option("--delete-when", metavar="HOURS", help="In place of deleteWhen, such as 04 or 02;14.")
@click.option("--disk-max-used-space-ratio", type=int, metavar="PERCENT", help="In place of diskMaxUsedSpaceRatio.")
@click.option("--disk-space-clean-forcibly-ratio", type=int, metavar="PERCENT", help="In place of that setting.")
@click.option("--disk-space-warning-level-ratio", type=int, metavar="PERCENT", help="In place of that setting.")
@click.option(
    "--disk-size", metavar="BYTES", help="Of the broker's disk: a number, or 10GB, 10GiB.  [default: the store's disk]"
)
@click.option("--disk-used", metavar="BYTES", help="In use on it.  [default: what is in use on the store's]")
@click.option("--daily-growth", metavar="BYTES", help="Of the log.  [default: what its store times say]")
@click.option("--now", metavar="TIME", help=f"The present: {TIME_WORDS}.  [default: the clock]")
@with_processes
@with_config("how it deletes")
@with_report
@click.option(
    "--time-zone",
    metavar="ZONE",
    help="Of the broker's machine, and of the times in the text.  [default: this machine's]",
)
@click.pass_context
def retention(  # noqa: PLR0913 -- click passes all by name
    context: click.Context,
    /,
    store: Store,
    now: str | None,
    config: str | None,
    processes: int,
    output: ReportOutput,
    **given: Any,  # noqa: ANN401 -- options of `RetentionOptions.of`, by name
) -> ExitCode:
    """Say which files a broker will delete, when and why, and which messages nobody has consumed by then.

    RocketMQ's rules are applied to the files' modification times, to the disk, and to the growth that the log's store
    times show. The exit code is 1 if messages go that a group has not consumed now, or if the disk becomes so full that
    messages are refused.
    """
    from store_core.answers.retaining.retention_options import RetentionOptions
    from store_core.answers.store_retention import retention_by
    from store_core.store.read.relative_time import with_absolute_times

    present = Surroundings.of(context).clock.now_ms() if now is None else now
    times = with_absolute_times(store, {"now": present}, ("now",))
    options = RetentionOptions.of(times["now"], broker_config=config, **given)
    with warnings_shown(), shown_engine(processes) as engine:
        return output.put(retention_by(engine, store, options))
