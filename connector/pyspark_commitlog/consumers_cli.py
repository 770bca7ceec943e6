# SPDX-License-Identifier: Apache-2.0
"""The command line of ``jobs/lag.py``: what consumers did not consume, on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_commitlog.jobs.answer_job import add_storage, run_answer, store_parser
from store_core.files.clock import SystemClock

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from store_core.answers.store_lag import LagOptions

__all__ = ["lag"]

_LAG_REMARK: Final = "With 1 an offset is below its queue's minimum, beyond its end, or of no queue."


def lag(arguments: Sequence[str] | None = None) -> int:
    """Run ``lag.py``; return the exit code, see `store_core.command.exit_code`."""
    parser = store_parser("commitlog-lag", "Says how far consumer groups are behind.", _LAG_REMARK)
    add_storage(parser)
    parser.add_argument("--group", action="append", default=[], help="only this group; can be repeated")
    parser.add_argument("--topic", action="append", default=[], help="only this topic; can be repeated")
    parser.add_argument("--messages", type=int, default=0, metavar="N", help="list so many of the messages")
    parser.add_argument("--as-of", metavar="TIME", help="queues as they were at this time, ms or ISO 8601")
    parser.add_argument("--now", metavar="TIME", help="from when ages are counted (default the clock, or --as-of)")
    parser.add_argument("--time-zone", metavar="ZONE", help="the zone of times without one")
    given = parser.parse_args(arguments)
    from store_core.answers.store_lag import lag_by

    return run_answer(parser.prog, given, lambda engine: lag_by(engine, given.store, _options(given)))


def _options(given: argparse.Namespace) -> LagOptions:
    from store_core.answers.store_lag import LagOptions

    return LagOptions.of(
        group=given.group,
        topic=given.topic,
        as_of=given.as_of,
        now=SystemClock().now_ms() if given.now is None and given.as_of is None else given.now,
        most_messages=given.messages,
        time_zone=given.time_zone,
    )
