# SPDX-License-Identifier: Apache-2.0
"""The command that shows what opening a store for writing would change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from store_core.answers.limits import MOST_MESSAGES, ONLY_DRY, RELEASE_CHOICES
from store_core.command.arguments import LOG_HELP, examples
from store_core.command.notices import warnings_shown
from store_core.command.report_output import release_choice, shown_engine, with_processes, with_report
from store_core.format.releases.release import DEFAULT_RELEASE

if TYPE_CHECKING:
    from store_core.command.exit_code import ExitCode
    from store_core.command.report_output import ReportOutput

__all__ = ["recover"]


@click.command(
    epilog=examples(
        "commitlog recover /data/store --dry-run",
        "commitlog recover /data/store --dry-run --release 4.9 --config broker.conf",
        "commitlog recover /data/store --dry-run --release all",
        "commitlog recover /data/store --dry-run --release all --html recover.html",
    )
)
@click.argument("store", metavar="STORE")
@click.option("--dry-run", is_flag=True, help="Change nothing. Required: this command only looks.")
@click.option(
    "--release",
    type=release_choice(RELEASE_CHOICES),
    default=DEFAULT_RELEASE,
    help="RocketMQ that would open the store; all: what each would do, side by side. Their decisions are in --json and "
    f"--html then.  [default: {DEFAULT_RELEASE}]",
)
@click.option("--config", metavar="FILE", help="The broker's configuration, for file sizes, and where the log is.")
@click.option("--store-path-commit-log", metavar="PATH", help=LOG_HELP)
@click.option("--messages", is_flag=True, help=f"List all messages that would be truncated, not just {MOST_MESSAGES}.")
@with_processes
@with_report
def recover(  # noqa: PLR0913 -- the command's own options
    store: str,
    dry_run: bool,  # noqa: FBT001 -- click passes all by name
    release: str,
    config: str | None,
    store_path_commit_log: str | None,
    messages: bool,  # noqa: FBT001 -- as above
    processes: int,
    output: ReportOutput,
) -> ExitCode:
    """Show what opening a store for writing, as a broker does at its start, would truncate, rebuild or refuse.

    The same code runs as for a real start, on changes that are kept in memory. The exit code is 0 if nothing would
    change, 1 if something would, 4 if the store would be refused, and 5 if nothing would change but the log is damaged.
    """
    from store_core.answers.store_recover import recover_by
    from store_core.store.configured_store import config_of

    if not dry_run:
        raise click.UsageError(ONLY_DRY)
    with warnings_shown():
        given = config_of(config, store_path_commit_log)
    most = None if messages else MOST_MESSAGES
    with shown_engine(processes) as engine:
        report = recover_by(engine, store, given, releases=RELEASE_CHOICES[release], most_messages=most)
    return output.put(report)
