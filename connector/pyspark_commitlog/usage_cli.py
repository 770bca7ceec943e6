# SPDX-License-Identifier: Apache-2.0
"""The command lines of ``jobs/bill.py`` and ``producers.py``: who uses the disk, and how, on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_commitlog.jobs.answer_job import add_storage, run_answer, store_parser
from store_core.answers.limits import TOP

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

__all__ = ["bill", "producers"]

_FINDINGS_REMARK: Final = "With 1 messages were sent twice or are out of order; with 5 the log is damaged."
_DAMAGE_REMARK: Final = "With 5 the log is damaged: damaged ranges are not counted."


def bill(arguments: Sequence[str] | None = None) -> int:
    """Run ``bill.py``; return the exit code, see `store_core.command.exit_code`."""
    parser = store_parser("commitlog-bill", "Says who uses the disk of a RocketMQ broker.", _DAMAGE_REMARK)
    add_storage(parser)
    given = _parsed(parser, arguments)
    from store_core.answers.store_bill import bill_by

    return run_answer(parser.prog, given, lambda engine: bill_by(engine, given.store, given.top))


def producers(arguments: Sequence[str] | None = None) -> int:
    """Run ``producers.py``; return the exit code, see `store_core.command.exit_code`."""
    about = "Says what a RocketMQ broker can't tell of its producers."
    parser = store_parser("commitlog-producers", about, _FINDINGS_REMARK)
    add_storage(parser)
    given = _parsed(parser, arguments)
    from store_core.answers.store_producers import producers_by

    return run_answer(parser.prog, given, lambda engine: producers_by(engine, given.store, given.top))


def _parsed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the arguments that both have."""
    parser.add_argument("--top", type=int, default=TOP, metavar="N", help="rows of each table (default %(default)s)")
    return parser.parse_args(arguments)
