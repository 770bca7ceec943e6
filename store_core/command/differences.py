# SPDX-License-Identifier: Apache-2.0
"""The command that compares the logs of two stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from store_core.command.choices import NearChoice
from store_core.command.examples import examples
from store_core.command.report_output import shown_engine, with_processes, with_report
from store_core.command.storage_arguments import with_storage
from store_core.store.diff.diff_options import DiffBy, DiffOptions

if TYPE_CHECKING:
    from store_core.command.exit_code import ExitCode
    from store_core.command.report_output import ReportOutput
    from store_core.command.storage_arguments import Store

__all__ = ["diff"]


@click.command(
    epilog=examples(
        "commitlog diff /data/master/store /data/slave/store",
        "commitlog diff /data/store /backup/store --same-extent --processes 4",
        "commitlog diff /data/store /backup/store --json",
    )
)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "--by",
    type=NearChoice([each.value for each in DiffBy]),
    default=DiffBy.AUTO.value,
    help="bytes: those at each physical offset. records: wherever in the logs they are. auto: bytes, unless the two "
    "have segments of different sizes.  [default: auto]",
)
@click.option("--same-extent", is_flag=True, help="Also report it if one begins or ends elsewhere.")
@click.option("--most-rows", type=click.IntRange(0), default=1000, metavar="N", help="Rows listed; all are counted.")
@with_processes
@with_storage
@with_report
def diff(  # noqa: PLR0913 -- click passes all by name
    a: Store,
    b: Store,
    by: str,
    same_extent: bool,  # noqa: FBT001 -- as above
    most_rows: int,
    processes: int,
    output: ReportOutput,
) -> ExitCode:
    """Compare the logs of two stores, such as master and slave, or a backup and the live store.

    The exit code is 0 if nothing differs in what both logs should have, and 1 if something does. A record in progress
    at the end of a live log is no difference.
    """
    from store_core.answers.log_diff import diff_by

    options = DiffOptions(DiffBy(by), most_rows, same_extent)
    with shown_engine(processes) as engine:
        report = diff_by(engine, a, b, options)
    return output.put(report)
