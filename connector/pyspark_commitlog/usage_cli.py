# SPDX-License-Identifier: Apache-2.0
"""The command line of ``jobs/bill.py``: who uses the disk, on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_commitlog.jobs.answer_job import STORE, answer_parser, run_answer
from store_core.answers.store_bill import TOP, bill_by

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["bill"]

_DAMAGE_REMARK: Final = "With 5 the log is damaged: damaged ranges are not counted."


def bill(arguments: Sequence[str] | None = None) -> int:
    """Run ``bill.py``; return the exit code, see `store_core.command.exit_code`."""
    parser = answer_parser("commitlog-bill", "Says who uses the disk of a RocketMQ broker.", _DAMAGE_REMARK)
    parser.add_argument("store", metavar="STORE", help=STORE)
    parser.add_argument("--top", type=int, default=TOP, metavar="N", help="rows of each table (default %(default)s)")
    given = parser.parse_args(arguments)
    return run_answer(parser.prog, given, lambda engine: bill_by(engine, given.store, given.top))
