# SPDX-License-Identifier: Apache-2.0
"""The command lines of ``jobs/check.py``, ``recover`` and ``repair``: answers, on Spark."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark_commitlog.jobs.answer_job import add_storage, run_answer, store_parser
from store_core.answers.limits import MOST_MESSAGES, ONLY_DRY, RELEASE_CHOICES
from store_core.command.output.report_file import write_json
from store_core.format.releases.release import DEFAULT_RELEASE, RELEASES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.answers.report import Report
    from store_core.store.parts import Engine

__all__ = ["check", "recover", "repair"]

_CHECK_REMARK: Final = "With 1 there are findings; what a crash leaves, and what a broker is writing, is none."
_RECOVER_REMARK: Final = "With 1 something would change; with 4 a broker would not open the store."
_REPAIR_REMARK: Final = "With 1 there is something to do, or left that no repair of queues and index mends."


def check(arguments: Sequence[str] | None = None) -> int:
    """Run ``check.py``; return the exit code, see `store_core.command.exit_code`."""
    about = "Checks that a RocketMQ store is whole: log, queues and index against each other."
    parser = store_parser("commitlog-check", about, _CHECK_REMARK)
    add_storage(parser)
    parser.add_argument("--topic", action="append", help="only queues of this topic; can be repeated")
    _add_rules(parser)
    parser.add_argument("--no-bodies", action="store_true", help="do not check the checksums of bodies")
    given = parser.parse_args(arguments)
    from store_core.answers.checking.check_options import CheckOptions
    from store_core.answers.store_check import check_by

    options = CheckOptions(
        topic=given.topic,
        release=given.release,
        broker_config=given.config,
        check_crc=not given.no_bodies,
    )
    return run_answer(parser.prog, given, lambda engine: check_by(engine, given.store, options))


def recover(arguments: Sequence[str] | None = None) -> int:
    """Run ``recover.py``; return the exit code, see `store_core.command.exit_code`."""
    about = "Shows what opening a store for writing, as a broker does, would truncate, rebuild or refuse."
    parser = store_parser("commitlog-recover", about, _RECOVER_REMARK)
    parser.add_argument("--dry-run", action="store_true", help="change nothing; required")
    shown = "RocketMQ that would open the store; all: each, side by side (default %(default)s)"
    parser.add_argument("--release", choices=RELEASE_CHOICES, default=DEFAULT_RELEASE, help=shown)
    listed = f"list all messages that would be truncated, not just {MOST_MESSAGES}"
    parser.add_argument("--messages", action="store_true", help=listed)
    given = parser.parse_args(arguments)
    if not given.dry_run:
        parser.error(ONLY_DRY)
    return run_answer(parser.prog, given, lambda engine: _recovered(engine, given))


def _recovered(engine: Engine, given: argparse.Namespace) -> Report[Any]:
    """Make the dry runs."""
    from store_core.answers.store_recover import recover_by
    from store_core.store.configured_store import config_of

    config = config_of(given.config, given.store_path_commit_log)
    most = None if given.messages else MOST_MESSAGES
    return recover_by(engine, given.store, config, releases=RELEASE_CHOICES[given.release], most_messages=most)


def repair(arguments: Sequence[str] | None = None) -> int:
    """Run ``repair.py``; return the exit code, see `store_core.command.exit_code`."""
    about = "Makes queues and index right again, from the log: plans by default, and does what a plan says."
    parser = store_parser("commitlog-repair", about, _REPAIR_REMARK)
    deed = parser.add_mutually_exclusive_group()
    deed.add_argument("--plan", type=_new_file, metavar="FILE", help="write the plan to a new file, as JSON")
    deed.add_argument("--apply", type=_old_file, metavar="FILE", help="carry out the plan in this file")
    _add_rules(parser)
    for option, what in (("--hash-slot-num", "slots"), ("--index-num", "entries")):
        parser.add_argument(option, type=int, metavar="N", help=f"{what} of an index file, if no file shows them")
    given = parser.parse_args(arguments)
    said = (given.release, given.config, given.store_path_commit_log, given.hash_slot_num, given.index_num)
    if given.apply is not None and any(each is not None for each in said):
        parser.error(
            "--apply takes everything from its plan: it goes with no --release, --config, --store-path-commit-log, "
            "--hash-slot-num, --index-num"
        )
    return run_answer(parser.prog, given, lambda engine: _repaired(engine, given))


def _repaired(engine: Engine, given: argparse.Namespace) -> Report[Any]:
    """Carry out a plan, or make one."""
    from store_core.answers.checking.check_options import CheckOptions
    from store_core.answers.store_repair import plan_repair_by, repair_by

    if given.apply is not None:
        return repair_by(engine, given.store, given.apply)
    options = CheckOptions(
        release=given.release,
        broker_config=given.config,
        store_path_commit_log=given.store_path_commit_log,
        hash_slot_num=given.hash_slot_num,
        index_num=given.index_num,
    )
    made = plan_repair_by(engine, given.store, options)
    write_json(made.to_json(), given.plan)
    return made


def _add_rules(parser: argparse.ArgumentParser) -> None:
    """Add what says by whose rules a store is checked; without a release, those that its files tell."""
    shown = "RocketMQ that serves the store (default: the one that served it last, as far as its files tell)"
    parser.add_argument("--release", choices=RELEASES, help=shown)


def _new_file(path: str) -> str:
    if Path(path).exists():
        raise argparse.ArgumentTypeError(f"{path} exists already: delete it first, or give another file")
    return path


def _old_file(path: str) -> str:
    if not Path(path).is_file():
        raise argparse.ArgumentTypeError(f"no such file: {path}. Make a plan with --plan")
    return path
