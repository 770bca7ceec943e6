# SPDX-License-Identifier: Apache-2.0
"""The command that plans and carries out a repair."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from store_core.command.arguments import LOG_HELP, examples
from store_core.command.new_file import check_new, write_new_json
from store_core.command.report_output import release_choice, shown_engine, with_processes, with_report

if TYPE_CHECKING:
    from store_core.command.exit_code import ExitCode
    from store_core.command.report_output import ReportOutput

__all__ = ["repair"]


@click.command(
    epilog=examples(
        "commitlog repair /data/store",
        "commitlog repair /data/store --plan plan.json",
        "commitlog repair /data/store --apply plan.json",
    )
)
@click.argument("store", metavar="STORE")
@click.option(
    "--plan",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the plan to a new file, as JSON.",
)
@click.option(
    "--apply",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Carry out the plan in this file.",
)
@click.option(
    "--release",
    type=release_choice(),
    help="RocketMQ that serves the store, for a new plan.  [default: the one that its files tell, as for check]",
)
@click.option("--config", metavar="FILE", help="The broker's configuration, for a new plan.")
@click.option("--store-path-commit-log", metavar="PATH", help=LOG_HELP)
@click.option(
    "--hash-slot-num",
    type=click.IntRange(1),
    metavar="N",
    help="Slots of an index file (maxHashSlotNum), for a new plan, if no file shows them.  [default: 5000000]",
)
@click.option(
    "--index-num",
    type=click.IntRange(1),
    metavar="N",
    help="Entries of an index file (maxIndexNum), likewise.  [default: 20000000]",
)
@with_processes
@with_report
def repair(  # noqa: PLR0913 -- the command's own options
    store: str,
    plan: Path | None,
    apply: Path | None,
    release: str | None,
    config: str | None,
    store_path_commit_log: str | None,
    hash_slot_num: int | None,
    index_num: int | None,
    processes: int,
    output: ReportOutput,
) -> ExitCode:
    """Make queues and index right again: only those that are wrong, from the log.

    Without --apply this only plans: it checks STORE, says which queues and index files are wrong and what would be
    done, and changes nothing. With --apply it does what the plan says, if the store is still what the plan was made
    for. New files are made beside the old ones, compared with the log, and put in place; the old ones are kept. No
    broker may run.

    The exit code of a plan is 1 if there is anything to do.
    """
    from store_core.answers.store_check import Check
    from store_core.answers.store_repair import plan_repair_by, repair_by

    if apply is not None:
        if any(each is not None for each in (plan, release, config, store_path_commit_log, hash_slot_num, index_num)):
            raise click.UsageError(
                "--apply takes everything from its plan: it can't be combined with --plan, --release, --config, "
                "--store-path-commit-log, --hash-slot-num, --index-num"
            )
        with shown_engine(processes) as engine:
            report = repair_by(engine, store, apply)
        return output.put(report)
    check_new("--plan", plan)
    options = Check(
        release=release,
        broker_config=config,
        store_path_commit_log=store_path_commit_log,
        hash_slot_num=hash_slot_num,
        index_num=index_num,
    )
    with shown_engine(processes) as engine:
        made = plan_repair_by(engine, store, options)
    write_new_json(plan, made.to_json())
    return output.put(made)
