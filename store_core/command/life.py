# SPDX-License-Identifier: Apache-2.0
"""The commands that tell what became of messages: trace, transactions, delays, deadletters and replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from store_core.command.choices import NearChoice
from store_core.command.examples import examples
from store_core.command.exit_code import ExitCode
from store_core.command.read_arguments import with_replayed_options
from store_core.command.report_output import shown_engine, with_processes, with_release, with_report
from store_core.command.storage_arguments import with_config, with_storage
from store_core.format.releases.release import DEFAULT_RELEASE
from store_core.store.read.word_kind import WordKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from store_core.command.report_output import ReportOutput
    from store_core.command.storage_arguments import Store
    from store_core.format.releases.release import Release

__all__ = ["deadletters", "delays", "replay", "trace", "transactions"]


_with_most_rows: Final = click.option(
    "--most-rows", type=click.IntRange(0), default=1000, metavar="N", help="Rows that are listed; all are counted."
)


def _with_judging(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say what is listed, as of when, and by which release."""
    for option in (
        click.option("--at", metavar="TIME", help="As of this time: ISO 8601 or ms since 1970.  [default: now]"),
        click.option("--all", "lists_all", is_flag=True, help="List those that are as they should be, too."),
        _with_most_rows,
        with_release,
    ):
        command = option(command)
    return command


_with_config: Final = with_config("messageDelayLevel")


def _time_of(at: str | None) -> int | None:
    from store_core.store.read.store_time import store_time

    return None if at is None else store_time("at", at)


@click.command(
    epilog=examples(
        "commitlog trace /data/store order-4711",
        "commitlog trace /data/store 7F00000100002A9F000000000000A3C1 --json",
        "commitlog trace /data/store orders/1/42 --html order.html",
    )
)
@click.argument("store", metavar="STORE")
@click.argument("what", metavar="KEY|UNIQ_KEY|MSGID|TOPIC/QUEUE/OFFSET")
@click.option(
    "--as",
    "kind",
    type=NearChoice([kind.value for kind in WordKind]),
    help="What the argument is.  [default: what it looks like, and else a key]",
)
@with_release
@with_processes
@_with_config
@with_report
def trace(  # noqa: PLR0913 -- click passes all by name
    store: Store,
    what: str,
    kind: str | None,
    config: str | None,
    release: Release,
    processes: int,
    output: ReportOutput,
) -> ExitCode:
    """Tell what happened to a message, in order: sends, delays, transaction, attempts, dead letter, replays.

    Duplicates are sends with the same unique key. The exit code is 1 if there are any, or if the message is a dead
    letter, and 2 if there is no such message.
    """
    from store_core.answers.message_trace import TraceOptions, trace_by

    word = None if kind is None else WordKind(kind)
    options = TraceOptions(kind=word, broker_config=config, release=release)
    with shown_engine(processes) as engine:
        report = trace_by(engine, store, what, options)
    return output.put(report)


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
@with_storage
@with_report
def transactions(store: Store, at: str | None, processes: int, output: ReportOutput, **judging: Any) -> ExitCode:  # noqa: ANN401 -- the options' own
    """Tell how transactions ended: pending, committed, rolled back, given up, lost.

    Only the log, consume queues and consumerOffset.json are read. The exit code is 1 if one will not end by itself, or
    is pending for too long.
    """
    from store_core.answers.store_transactions import TransactionsOptions, transactions_by

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
@_with_judging
@with_processes
@_with_config
@with_report
def delays(
    store: Store,
    at: str | None,
    config: str | None,
    processes: int,
    output: ReportOutput,
    **judging: Any,  # noqa: ANN401 -- as above
) -> ExitCode:
    """Tell when delayed messages and timers are due, which are overdue, and which no broker will deliver.

    Only the topics where they wait are read, and delayOffset.json and timercheck. The exit code is 1 if messages are
    late, or will not be delivered.
    """
    from store_core.answers.store_delays import DelaysOptions, delays_by

    options = DelaysOptions(at=_time_of(at), broker_config=config, **judging)
    with shown_engine(processes) as engine:
        report = delays_by(engine, store, options)
    return output.put(report)


@click.command(
    epilog=examples(
        "commitlog deadletters /data/store",
        "commitlog deadletters /data/store --group billing --json",
        "commitlog deadletters /data/store --html report.html",
    )
)
@click.argument("store", metavar="STORE")
@click.option("--group", multiple=True, metavar="GROUP", help="Only of this consumer group; can be repeated.")
@_with_most_rows
@with_release
@with_processes
@with_storage
@with_report
def deadletters(store: Store, group: tuple[str, ...], processes: int, output: ReportOutput, **judging: Any) -> ExitCode:  # noqa: ANN401 -- as above
    """Tell which messages consumers gave up, by group and topic, why, and where their first messages are.

    Only the topics of dead letters are read, and the records that they name. The exit code is 1 if there are any.
    """
    from store_core.answers.store_dead_letters import DeadLettersOptions, dead_letters_by

    options = DeadLettersOptions(group=group, **judging)
    with shown_engine(processes) as engine:
        report = dead_letters_by(engine, store, options)
    return output.put(report)


@click.command(
    epilog=examples(
        "commitlog replay /data/store --topic %DLQ%billing --id T-4711 --dry-run",
        "commitlog replay /data/store --topic %DLQ%billing --id T-4711",
        "commitlog replay /data/store --key order-1 --id T-4712 --into /data/new",
    )
)
@click.argument("store", metavar="STORE")
@click.option("--id", "replay_id", required=True, metavar="NAME", help="Under one name, messages are appended once.")
@click.option("--into", metavar="PATH", help="A store, made if there is none.  [default: STORE]")
@click.option("--to-topic", metavar="TOPIC", help="Where they go.  [default: where each was sent at first]")
@click.option("--queues", type=click.IntRange(1), metavar="N", help="Queues of each topic.  [default: as it has, or 4]")
@click.option("--dry-run", is_flag=True, help="Count and encode them, and append nothing.")
@with_report
@with_replayed_options
def replay(store: str, into: str | None, read: Mapping[str, Any], output: ReportOutput, **given: Any) -> ExitCode:  # noqa: ANN401 -- as above
    """Append messages again, such as dead letters: all that filters choose, or none, and once.

    No broker may be running on the store that they go to. Each becomes a new message with properties that say where it
    comes from: REPLAY_ID, REPLAY_ORIGIN_MESSAGE_ID, REPLAY_ORIGIN_TOPIC.
    """
    from store_core.answers.store_replay import ReplayOptions
    from store_core.answers.store_replay import replay as replay_messages
    from store_core.command.unknown_topic import has_unknown_topic
    from store_core.store.read.read_options import ReadOptions

    release = read.get("release", DEFAULT_RELEASE)
    report = replay_messages(store, into or store, ReplayOptions(release=release, **given), **read)
    code = output.put(report)
    return ExitCode.USAGE if not report.found.messages and has_unknown_topic(store, ReadOptions.parse(**read)) else code
