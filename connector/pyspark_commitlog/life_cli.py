# SPDX-License-Identifier: Apache-2.0
"""The command line of ``jobs/replay.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_commitlog.jobs.answer_job import add_release, run_in_session, store_parser
from store_core.command.arguments import pairs_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from store_core.answers.life.replay import ReplayReport

__all__ = ["replay"]

_REPLAY_REMARK: Final = "With 2 or more, nothing was appended unless the error says otherwise."


def replay(arguments: Sequence[str] | None = None) -> int:
    """Run ``replay.py``; return the exit code, see `store_core.command.exit_code`."""
    about = "Appends messages of a RocketMQ store again, such as dead letters: chosen and edited by SQL, once."
    parser = store_parser("commitlog-replay", about, _REPLAY_REMARK)
    parser.add_argument("--id", dest="replay_id", required=True, help="under one name, messages are appended once")
    parser.add_argument("--into", metavar="PATH", help="a store, made if there is none (default STORE)")
    parser.add_argument("--to-topic", metavar="TOPIC", help="where they go (default where each was sent at first)")
    parser.add_argument("--where", metavar="SQL", help="which messages: a condition on the columns of messages")
    parser.add_argument(
        "--edit", action="append", default=[], metavar="COLUMN=SQL", help="topic, body, properties, flag"
    )
    parser.add_argument("--read-option", action="append", default=[], metavar="NAME=VALUE", help="of the data source")
    parser.add_argument("--queues", type=int, metavar="N", help="queues of each topic (default as it has, or 4)")
    parser.add_argument("--dry-run", action="store_true", help="encode and count them, and append nothing")
    add_release(parser)
    given = parser.parse_args(arguments)
    from store_core.answers.store_replay import ReplayOptions

    names = ("replay_id", "to_topic", "queues", "dry_run", "release")
    options = ReplayOptions(**{name: getattr(given, name) for name in names})
    edit, read = pairs_of("--edit", given.edit), pairs_of("--read-option", given.read_option)
    places = {"config": given.config, "storePathCommitLog": given.store_path_commit_log}
    read |= {name: text for name, text in places.items() if text is not None}

    def replayed(spark: SparkSession) -> ReplayReport:
        from pyspark_commitlog.replaying import replay_report

        return replay_report(spark, given.store, given.into or given.store, options, given.where, edit, read)

    return run_in_session(parser.prog, given, replayed)
