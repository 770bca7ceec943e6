# SPDX-License-Identifier: Apache-2.0
"""The answer `transactions`: which half messages are pending, and how the others ended."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from store_core.answers.life.message_read import read_of
from store_core.answers.life.message_reads import ReadJob
from store_core.answers.life.queue_presence import QueuedRecord, absent_records
from store_core.answers.life.transaction_ends import BROKER_GROUP, End, Evidence, end_of
from store_core.answers.life.transaction_report import TransactionsFacts, TransactionsReport
from store_core.answers.local_engine import local_engine
from store_core.broker.transaction_book import transactions_of
from store_core.broker.transaction_rows import (
    CHECK_MAX_TIME_TOPIC,
    HALF_COLUMNS,
    HALF_TOPIC,
    HALF_TOPICS,
    OP_COLUMNS,
    OP_TOPICS,
    SETTLED_COLUMNS,
    half_rows,
    operation_rows,
    with_ms,
)
from store_core.files.clock import SystemClock
from store_core.format.iso_time import iso_time
from store_core.format.releases.release import DEFAULT_RELEASE
from store_core.format.sys_flag import TRANSACTION_MASK, TransactionType
from store_core.format.table_time import table_time
from store_core.snapshot.config import CONSUMER_OFFSETS, Config
from store_core.snapshot.log import Log
from store_core.store.configured_store import configured_paths
from store_core.store.least_value import check_least
from store_core.store.read.store_time import check_calendar_time
from store_core.views.store_root import root_of

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from store_core.answers.life.message_reads import FoundRows
    from store_core.broker.transaction_book import Transaction
    from store_core.files.clock import Clock
    from store_core.files.store_path import StorePaths
    from store_core.store.parts import Engine, ProgressSink

__all__ = ["TransactionsOptions", "transactions", "transactions_by"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsOptions:
    """How transactions are judged.

    Attributes
    ----------
    at : int, optional
        As of which time, ms since 1970; now by default.
    older_than : int
        Seconds for which a transaction may be pending before that is a finding.
    most_checks : int
        How often the broker asks about one (``transactionCheckMax``).
    lists_all : bool
        Whether the table has transactions that ended as they should, too.
    most_rows : int
        Transactions that are listed; all are counted.
    release : str
        RocketMQ release that serves the store.
    """

    at: int | None = None
    older_than: int = 60
    most_checks: int = 15
    lists_all: bool = False
    most_rows: int = 1000
    release: str = DEFAULT_RELEASE


def transactions(  # noqa: PLR0913 -- what is asked, of which store, and by how many processes
    paths: StorePaths,
    options: TransactionsOptions | None = None,
    *,
    config: str | os.PathLike[str] | None = None,
    processes: int = 1,
    on_progress: ProgressSink | None = None,
    clock: Clock | None = None,
) -> TransactionsReport:
    """Tell how the transactions of a store ended, and which did not.

    The system topics are read through their queues where these prove complete; of all other messages only heads are
    read. Nothing is written, and no lock is taken. Damage is left out, and reported.

    Parameters
    ----------
    paths : path or sequence of paths
        As of `store_core.read_messages`.
    options : TransactionsOptions, optional
    config : path, optional
        The broker's configuration, as of option `config` of `store_core.read_messages`.
    processes : int
        1 is this process alone. More are started by ``spawn``, so a script has to call this below
        ``if __name__ == "__main__":``.
    on_progress : callable, optional
        Called with a `store_core.store.parts.PartsDone` after each part.
    clock : Clock, optional

    Raises
    ------
    StoreError
        If an option is invalid, or the path has nothing to read.

    Examples
    --------
    >>> from store_core.answers import transactions
    >>> print(transactions("/data/store").to_text())  # doctest: +SKIP
    """
    paths = configured_paths(paths, config)
    with local_engine(processes, on_progress) as engine:
        return transactions_by(engine, paths, options, clock=clock)


def transactions_by(
    engine: Engine, paths: StorePaths, options: TransactionsOptions | None = None, *, clock: Clock | None = None
) -> TransactionsReport:
    """Tell how transactions ended, on an engine; see `transactions`."""
    chosen = options or TransactionsOptions()
    check_calendar_time("at", chosen.at)
    check_least(0, older_than=chosen.older_than, most_checks=chosen.most_checks, most_rows=chosen.most_rows)
    root = root_of(paths)
    # A growing store: where the broker is in the half messages is asked first, so that the new copies of those that it
    # is past are read, too; and settling records are planned before half messages, so nothing new appears orphaned.
    asked_next = _asked_next(root)
    shared: dict[str, Any] = {"release": chosen.release}
    reads = {
        "given_up": read_of(("unique_key",), topic=(CHECK_MAX_TIME_TOPIC,), **shared),
        "operations": read_of(OP_COLUMNS, operation_rows, topic=OP_TOPICS, **shared),
        "settled": read_of(
            (*SETTLED_COLUMNS, "store_size", _SOUND), _settled, is_permissive=True, flag_bits=TRANSACTION_MASK, **shared
        ),
        "halves": read_of(HALF_COLUMNS, half_rows, topic=HALF_TOPICS, **shared),
    }
    found = engine.run(ReadJob(paths, reads))
    at = (clock or SystemClock()).now_ms() if chosen.at is None else chosen.at
    return _Judged(root, Log.for_reading(paths), found, chosen, at, asked_next).report()


def _asked_next(root: Path) -> tuple[int, tuple[str, ...]]:
    """Return the queue offset of the half message that the broker looks at next, and a note on the file.

    It is 0 if it is not known.
    """
    found_offsets, notes = Config(root).known(CONSUMER_OFFSETS, "what groups have consumed")
    offsets = None if found_offsets is None else found_offsets.by_group
    return (offsets or {}).get((HALF_TOPIC, BROKER_GROUP), {}).get(0, 0), notes


_SOUND: Final = "magic_code"
"""A column that each message has, and that rows of damaged ranges lack."""


def _settled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the records that settle transactions, and where damage is."""
    kinds = pc.fill_null(pc.bit_wise_and(batch["sys_flag"], TRANSACTION_MASK), 0)
    return with_ms(batch.filter(pc.or_(pc.not_equal(kinds, 0), pc.is_null(batch[_SOUND]))))


class _Judged:
    """The rows that were found, and what they say."""

    def __init__(  # noqa: PLR0913 -- all that is known
        self,
        root: Path,
        log: Log,
        found: FoundRows,
        options: TransactionsOptions,
        at: int,
        asked_next: tuple[int, tuple[str, ...]],
    ) -> None:
        self._root = root
        self._log = log
        self._found = found
        self._options = options
        self._at = at
        self._asked_next, self._offset_notes = asked_next
        settled = found.tables["settled"]
        is_lost = pc.is_null(settled[_SOUND])
        self._settled = settled.filter(pc.invert(is_lost)).to_pylist()
        self._damage = [(row["physical_offset"], row["store_size"]) for row in settled.filter(is_lost).to_pylist()]

    def report(self) -> TransactionsReport:
        """Make the report."""
        tables = self._found.tables
        state = transactions_of(
            tables["halves"].to_pylist(),
            self._settled,
            tables["operations"].to_pylist(),
            tables["given_up"]["unique_key"].to_pylist(),
        )
        absent = self._absent()
        evidence = self._evidence(absent or ())
        ended = [(end_of(each, evidence), each) for each in state.transactions]
        facts = self._facts(ended, evidence, (*self._found.notes, *state.notes, *self._offset_notes))
        facts = replace(facts, are_queues_checked=absent is not None)
        return TransactionsReport.of(facts, {"groups": list(_groups(ended)), "transactions": self._rows(ended)})

    def _absent(self) -> set[int] | None:
        """Return the commits to which no queue leads."""
        names = QueuedRecord._fields
        commits = [row for row in self._settled if TransactionType.of(row["sys_flag"]) is TransactionType.COMMIT_TYPE]
        return absent_records(self._root, [QueuedRecord(*(row[name] for name in names)) for row in commits])

    def _evidence(self, absent: Collection[int]) -> Evidence:
        halves = self._found.tables["halves"]
        queued = halves.filter(pc.equal(halves["topic"], HALF_TOPIC))["queue_offset"]
        damage = [(begin, begin + size) for begin, size in self._damage]
        return Evidence(
            absent,
            self._asked_next,
            sorted([*self._log.missing, *damage]),
            self._log.begin,
            pc.min(queued).as_py(),
        )

    def _facts(
        self, ended: Sequence[tuple[End, Transaction]], evidence: Evidence, notes: tuple[str, ...]
    ) -> TransactionsFacts:
        counts: dict[str, Any] = Counter(end.value for end, _ in ended)
        pending = [each.store_timestamp for end, each in ended if end is End.PENDING]
        too_old = self._at - 1000 * self._options.older_than
        often = [each for end, each in ended if end in _UNSETTLED and each.checks >= self._options.most_checks]
        return TransactionsFacts(
            store=str(self._root),
            at=iso_time(self._at),
            begin=self._log.begin,
            end=self._log.end,
            half_messages=self._found.tables["halves"].num_rows,
            transactions=len(ended),
            **counts,
            old_pending=sum(time < too_old for time in pending),
            checked_too_often=len(often),
            oldest_pending=iso_time(min(pending)) if pending else None,
            lost_bytes=sum(end - begin for begin, end in evidence.lost),
            notes=notes,
        )

    def _rows(self, ended: Iterable[tuple[End, Transaction]]) -> list[dict[str, Any]]:
        """Return the rows of the transactions, those that are findings first."""
        kept = [(end, each) for end, each in ended if self._options.lists_all or end.is_finding or end is End.PENDING]
        kept.sort(key=lambda pair: not pair[0].is_finding)
        names = ("topic", "queue_id", "group", "unique_key", "checks", "half_offset", "half_queue_offset",
                 "commit_offset", "op_offset")  # fmt: skip
        return [
            {"state": end.value, "store_timestamp": table_time(each.store_timestamp)}
            | {name: getattr(each, name) for name in names}
            for end, each in kept[: self._options.most_rows]
        ]


_UNSETTLED: Final = frozenset({End.PENDING, End.GIVEN_UP})


def _groups(ended: Iterable[tuple[End, Transaction]]) -> Iterator[dict[str, Any]]:
    """Yield how many transactions of each producer group and topic ended in which way."""
    found: dict[tuple[str, str, str], list[Transaction]] = {}
    for end, each in ended:
        found.setdefault((each.group or "", each.topic or "", end.value), []).append(each)
    for (group, topic, state), those in sorted(found.items()):
        times = [each.store_timestamp for each in those]
        yield {
            "group": group or None,
            "topic": topic or None,
            "state": state,
            "transactions": len(those),
            "most_checks": max(each.checks for each in those),
            "first_timestamp": table_time(min(times)),
            "last_timestamp": table_time(max(times)),
        }
