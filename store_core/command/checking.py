# SPDX-License-Identifier: Apache-2.0
"""The command that checks whether a store is whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from store_core.command.arguments import examples, with_config
from store_core.command.output.new_file import check_new, write_new_json
from store_core.command.report_output import release_choice, shown_engine, with_processes, with_report

if TYPE_CHECKING:
    from store_core.command.arguments import Store
    from store_core.command.exit_code import ExitCode
    from store_core.command.report_output import ReportOutput

__all__ = ["check"]


@click.command(
    epilog=examples(
        "commitlog check /data/store",
        "commitlog check /data/store --topic orders --processes 4",
        "commitlog check /data/store --json > check.json",
        "commitlog check /data/store --html check.html",
        "commitlog check /data/store --certificate ticket-4711.json",
    )
)
@click.argument("store", metavar="STORE")
@click.option("--topic", multiple=True, metavar="TOPIC", help="Only queues of this topic; can be repeated.")
@click.option(
    "--release",
    type=release_choice(),
    help="RocketMQ that serves the store.  [default: the one that served it last, as far as its files tell]",
)
@click.option("--bodies/--no-bodies", default=True, help="Check each body's checksum.  [default: bodies]")
@click.option(
    "--certificate",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the report to a new file as well, as JSON for a ticket.",
)
@with_processes
@with_config("sizes that no file shows")
@with_report
def check(  # noqa: PLR0913 -- the command's own options
    store: Store,
    topic: tuple[str, ...],
    release: str | None,
    config: str | None,
    bodies: bool,  # noqa: FBT001 -- click passes all by name
    certificate: Path | None,
    processes: int,
    output: ReportOutput,
) -> ExitCode:
    """Check that a store is whole: commit log, consume queues and key index against each other.

    Each record is compared with its units and index entries, and each unit and entry with its record. What a crash
    leaves at the log's end is noted, and is no finding. A store that a broker is writing is compared as of one moment.
    The exit code is 1 if there are findings.
    """
    from store_core.answers.checking.check_options import CheckOptions
    from store_core.answers.store_check import check_by

    check_new("--certificate", certificate)
    options = CheckOptions(topic=topic or None, release=release, broker_config=config, check_crc=bodies)
    with shown_engine(processes) as engine:
        report = check_by(engine, store, options)
    write_new_json(certificate, report.to_json())
    return output.put(report)
