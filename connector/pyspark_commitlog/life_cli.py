# SPDX-License-Identifier: Apache-2.0
"""The command lines of ``jobs/trace.py``, ``transactions.py``, ``delays.py``, ``deadletters.py``, ``replay.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_commitlog.jobs.answer_job import add_release, add_storage, run_answer, run_in_session, store_parser
from pyspark_commitlog.jobs.given_pairs import pairs_of
from store_core.store.read.word_kind import WordKind

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from store_core.answers.life.replay_report import ReplayReport

__all__ = ["deadletters", "delays", "replay", "trace", "transactions"]

_DEAD_LETTERS_REMARK: Final = "With 1 there are dead letters."
_TRACE_REMARK: Final = "With 1 the message was sent twice or is a dead letter, and with 2 there is none."
_TRANSACTIONS_REMARK: Final = "With 1 a transaction will not end by itself, or is pending for too long."
_REPLAY_REMARK: Final = "With 2 or more, nothing was appended unless the error says otherwise."
_DELAYS_REMARK: Final = "With 1 messages are late, or no broker will deliver them."


def trace(arguments: Sequence[str] | None = None) -> int:
    """Run ``trace.py``; return the exit code, see `store_core.command.exit_code`."""
    about = "Tells what happened to a message of a RocketMQ store, from its send to its last copy."
    parser = store_parser("commitlog-trace", about, _TRACE_REMARK)
    add_storage(parser)
    parser.add_argument("what", metavar="WHAT", help="a key, a unique key, a message id, or TOPIC/QUEUE/OFFSET")
    parser.add_argument("--as", dest="kind", type=WordKind, choices=list(WordKind), help="what WHAT is")
    add_release(parser)
    given = parser.parse_args(arguments)
    from store_core.answers.message_trace import TraceOptions, trace_by

    options = TraceOptions(kind=given.kind, broker_config=given.config, release=given.release)
    return run_answer(parser.prog, given, lambda engine: trace_by(engine, given.store, given.what, options))


def transactions(arguments: Sequence[str] | None = None) -> int:
    """Run ``transactions.py``; return the exit code, see `store_core.command.exit_code`."""
    about = "Tells how the transactions of a RocketMQ store ended, and which did not."
    parser = store_parser("commitlog-transactions", about, _TRANSACTIONS_REMARK)
    add_storage(parser)
    parser.add_argument(
        "--older-than", type=int, default=60, metavar="SECONDS", help="age of a pending one that is a finding"
    )
    parser.add_argument("--most-checks", type=int, default=15, metavar="N", help="transactionCheckMax")
    _add_judging(parser)
    given = parser.parse_args(arguments)
    from store_core.answers.store_transactions import TransactionsOptions, transactions_by

    names = ("older_than", "most_checks", "lists_all", "most_rows", "release")
    options = TransactionsOptions(at=given.at, **{name: getattr(given, name) for name in names})
    return run_answer(parser.prog, given, lambda engine: transactions_by(engine, given.store, options))


def delays(arguments: Sequence[str] | None = None) -> int:
    """Run ``delays.py``; return the exit code, see `store_core.command.exit_code`."""
    about = "Tells when the delayed messages of a RocketMQ store are due, and which will not be delivered."
    parser = store_parser("commitlog-delays", about, _DELAYS_REMARK)
    add_storage(parser)
    parser.add_argument(
        "--late-after", type=int, default=60, metavar="SECONDS", help="how long one may be overdue without a finding"
    )
    _add_judging(parser)
    given = parser.parse_args(arguments)
    from store_core.answers.store_delays import DelaysOptions, delays_by

    names = ("late_after", "lists_all", "most_rows", "release")
    options = DelaysOptions(at=given.at, broker_config=given.config, **{name: getattr(given, name) for name in names})
    return run_answer(parser.prog, given, lambda engine: delays_by(engine, given.store, options))


def deadletters(arguments: Sequence[str] | None = None) -> int:
    """Run ``deadletters.py``; return the exit code, see `store_core.command.exit_code`."""
    about = "Tells which messages consumers gave up, why, and where their first messages are."
    parser = store_parser("commitlog-deadletters", about, _DEAD_LETTERS_REMARK)
    add_storage(parser)
    parser.add_argument("--group", action="append", default=[], help="only of this group; can be repeated")
    _add_most_rows(parser)
    add_release(parser)
    given = parser.parse_args(arguments)
    from store_core.answers.store_dead_letters import DeadLettersOptions, dead_letters_by

    options = DeadLettersOptions(group=tuple(given.group), most_rows=given.most_rows, release=given.release)
    return run_answer(parser.prog, given, lambda engine: dead_letters_by(engine, given.store, options))


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


def _add_judging(parser: argparse.ArgumentParser) -> None:
    """Add what says what is listed, as of when, and by which release."""
    parser.add_argument("--at", type=_time, metavar="TIME", help="as of this time (default now)")
    parser.add_argument("--all", dest="lists_all", action="store_true", help="list those that are in order, too")
    _add_most_rows(parser)
    add_release(parser)


def _add_most_rows(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--most-rows", type=int, default=1000, metavar="N", help="rows listed (default %(default)s)")


def _time(text: str) -> int:
    from store_core.store.read.store_time import store_time

    return store_time("at", text)
