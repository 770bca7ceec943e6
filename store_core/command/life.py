# SPDX-License-Identifier: Apache-2.0
"""The command that appends messages again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from store_core.command.arguments import examples
from store_core.command.exit_code import ExitCode
from store_core.command.read_arguments import with_replayed_options
from store_core.command.report_output import with_report
from store_core.format.releases.release import DEFAULT_RELEASE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store_core.command.report_output import ReportOutput

__all__ = ["replay"]


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
