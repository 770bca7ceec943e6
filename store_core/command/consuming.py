# SPDX-License-Identifier: Apache-2.0
"""The command that says how far consumer groups are behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from store_core.command.arguments import examples, with_storage
from store_core.command.notices import warnings_shown
from store_core.command.report_output import shown_engine, with_processes, with_report
from store_core.command.surroundings import Surroundings

if TYPE_CHECKING:
    from store_core.command.arguments import Store
    from store_core.command.exit_code import ExitCode
    from store_core.command.report_output import ReportOutput

__all__ = ["lag"]

_MOST: Final = 1000
_TIME: Final = "ms since 1970, ISO 8601, or -15m: before the log's last message."


@click.command(
    epilog=examples(
        "commitlog lag /data/store",
        "commitlog lag /data/store --group billing --messages --limit 20",
        "commitlog lag /data/store --as-of 2024-05-01T14:05:00Z",
        "commitlog lag /data/store --json | jq .tables.queues",
    )
)
@click.argument("store", metavar="STORE")
@click.option("--group", multiple=True, metavar="GROUP", help="Only this group; can be repeated.")
@click.option("--topic", multiple=True, metavar="TOPIC", help="Only this topic; can be repeated.")
@click.option("--messages", is_flag=True, help="List the messages that are not consumed, with tags and keys.")
@click.option(
    "--limit", type=click.IntRange(1), default=_MOST, metavar="N", help=f"How many of them.  [default: {_MOST}]"
)
@click.option("--as-of", metavar="TIME", help=f"Queues as they were at this time: {_TIME}")
@click.option("--now", metavar="TIME", help="From when ages are counted.  [default: the clock; with --as-of that time]")
@with_processes
@with_storage
@with_report
@click.option(
    "--time-zone", metavar="ZONE", help="The zone of times without one, and of those in the text, such as +08:00."
)
@click.pass_context
def lag(  # noqa: PLR0913 -- the command's own options
    context: click.Context,
    store: Store,
    group: tuple[str, ...],
    topic: tuple[str, ...],
    messages: bool,  # noqa: FBT001 -- click passes all by name
    limit: int,
    as_of: str | None,
    now: str | None,
    time_zone: str | None,
    processes: int,
    output: ReportOutput,
) -> ExitCode:
    """Say how far consumer groups are behind: messages, bytes and age, by group, topic and queue.

    What groups have committed is compared with the queues, which end where the log ends. Of the log only single
    messages are read: the first one that a group has not consumed, last ones of queues, and those that --messages
    lists. The exit code is 1 if an offset is below its queue's minimum, beyond its end, or of no queue: how far a group
    is behind is then not what a difference would say.
    """
    from store_core.answers.store_lag import LagOptions, lag_by
    from store_core.store.read.relative_time import with_absolute_times

    present = Surroundings.of(context).clock.now_ms() if now is None and as_of is None else now
    times = with_absolute_times(store, {"as_of": as_of, "now": present}, ("as_of", "now"))
    options = LagOptions.of(
        group=group,
        topic=topic,
        **times,
        most_messages=limit if messages else 0,
        time_zone=time_zone,
    )
    with warnings_shown(), shown_engine(processes) as engine:
        return output.put(lag_by(engine, store, options))
