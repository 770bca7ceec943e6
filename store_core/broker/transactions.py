# SPDX-License-Identifier: Apache-2.0
"""Transactions: what their half and op messages say, and how each ended."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from store_core.broker.topic_kind import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, HALF_TOPICS, OP_TOPICS
from store_core.format.columnar.arrow_slices import with_properties
from store_core.format.layout import TRANSACTION_MASK, TransactionType

if TYPE_CHECKING:
    from store_core.files.store_path import StorePaths
    from store_core.store.message_store import DefaultMessageStore


_PLACE: Final = ("topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp")
HALF_COLUMNS: Final = (*_PLACE, "properties")
SETTLED_COLUMNS: Final = (*_PLACE, "sys_flag", "prepared_transaction_offset", "unique_key")
OP_COLUMNS: Final = (*_PLACE, "tags", "properties", "body")

_OF_HALF: Final = {
    "real_topic": "REAL_TOPIC",
    "real_queue_id": "REAL_QID",
    "group": "PGROUP",
    "unique_key": "UNIQ_KEY",
    "check_times": "TRANSACTION_CHECK_TIMES",
}
_OF_OPERATION: Final = {"half_physical_offset": "TRANS_OFFSET"}


def half_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return half messages, read with `HALF_COLUMNS`, with the properties that matter as columns of strings."""
    return with_ms(with_properties(batch, _OF_HALF))


def operation_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return records of `OP_TOPICS`, read with `OP_COLUMNS`, with the property that matters as a column."""
    return with_ms(with_properties(batch, _OF_OPERATION))


def settled_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the records, read with `SETTLED_COLUMNS`, whose system flag has bits of a transaction."""
    kinds: pa.Array = pc.bit_wise_and(batch["sys_flag"], TRANSACTION_MASK)
    return with_ms(batch.filter(pc.not_equal(kinds, 0)))


def with_ms(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with its store times in ms, whatever a damaged record claims."""
    at = batch.schema.get_field_index("store_timestamp")
    return batch.set_column(at, "store_timestamp", pc.divide(batch.column(at).cast(pa.int64()), 1000))


_REMOVE_TAG: Final = "d"
_INDEX: Final = re.compile(rb"[0-9]{1,19}")


class TransactionStatus(Enum):
    """The outcome of a transaction."""

    PENDING = "neither committed nor rolled back: the broker asks the producer"
    COMMITTED = "its message is in its topic"
    ROLLED_BACK = "settled, without a message in its topic"
    ORPHANED = "its half message is no longer in the log, or the broker has given it up"


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transactional message.

    Attributes
    ----------
    status : TransactionStatus
    topic : str or None
        Its real topic; None if only the record of its end is left.
    queue_id : int or None
    group : str or None
        Producer group (PGROUP).
    unique_key : str or None
        Usually its transaction id.
    half_offset : int or None
        Physical offset of the half message, the newest copy if the broker rewrote it; for one that was deleted, its
        former offset, if known.
    half_queue_offset : int or None
        Its index in its queue of `HALF_TOPIC`; None for one of another topic, and for a prepared message of RocketMQ
        4.2 and before.
    store_timestamp : int
        Ms since 1970, of its first record in the log.
    checks : int
        How often the broker has asked its producer, rewriting the half message each time and counting in property
        TRANSACTION_CHECK_TIMES.
    commit_offset : int or None
        Physical offset of the committed message.
    op_offset : int or None
        Physical offset of the record that says that it is settled. Release 5.3 writes it seconds after the commit; a
        committed message without one was committed just before a crash, and its producer may be asked again.
    """

    status: TransactionStatus
    topic: str | None
    queue_id: int | None
    group: str | None
    unique_key: str | None
    half_offset: int | None
    half_queue_offset: int | None
    store_timestamp: int
    checks: int = 0
    commit_offset: int | None = None
    op_offset: int | None = None


@dataclass(frozen=True, slots=True)
class TransactionState:
    """All transactions of a log.

    Attributes
    ----------
    transactions : tuple of Transaction
        In the order in which they began; those whose beginning was deleted come last.
    notes : tuple of str
        Invalid records of `OP_TOPIC`, each with its physical offset.
    """

    transactions: tuple[Transaction, ...]
    notes: tuple[str, ...] = ()

    def of(self, status: TransactionStatus) -> tuple[Transaction, ...]:
        """Return the transactions with a status."""
        return tuple(transaction for transaction in self.transactions if transaction.status is status)

    def counts(self) -> dict[TransactionStatus, int]:
        """Return the number of transactions by status."""
        found = Counter(transaction.status for transaction in self.transactions)
        return {status: found[status] for status in TransactionStatus}


_Row = dict[str, Any]


def transactions_of(
    halves: Iterable[_Row], records: Iterable[_Row], operations: Iterable[_Row], given_up: Iterable[str | None]
) -> TransactionState:
    """Put transactions together.

    * `halves`, `records`, `operations`: Rows as of `store_core.broker.transactions`, each in log order.
    * `given_up`: Unique keys of the half messages that the broker has moved to `CHECK_MAX_TIME_TOPIC`.
    """
    settling = list(records)
    book = _Book(halves, settling)
    for record in settling:
        book.settle_by_record(record)
    for operation in operations:
        book.settle_by_operation(operation)
    return book.state({key for key in given_up if key is not None})


class _Book:
    """The known transactions, by the place of the half message and by unique key."""

    def __init__(self, halves: Iterable[_Row], records: Iterable[_Row]) -> None:
        self._found: list[Transaction] = []
        self._starts: list[int] = []
        self._by_key: dict[str, int] = {}
        self._by_offset: dict[int, int] = {}
        self._by_index: dict[tuple[int, int], int] = {}
        self._lost: list[Transaction] = []
        self._notes: list[str] = []
        for half in halves:
            self._add_half(half)
        for record in records:
            if TransactionType.of(record["sys_flag"]) is TransactionType.PREPARED_TYPE:
                self._add(_prepared(record), record["physical_offset"])

    def _add_half(self, row: _Row) -> None:
        """Add a half message; one with a known unique key is the broker's new copy."""
        half = Transaction(
            TransactionStatus.PENDING,
            row["real_topic"],
            _number(row["real_queue_id"]),
            row["group"],
            row["unique_key"],
            row["physical_offset"],
            row["queue_offset"] if row["topic"] == HALF_TOPIC else None,
            row["store_timestamp"],
            checks=_number(row["check_times"]) or 0,
        )
        place = self._by_key.get(half.unique_key) if half.unique_key else None
        if place is None:
            place = self._add(half, row["physical_offset"])
            if half.unique_key:
                self._by_key[half.unique_key] = place
        else:
            known = self._found[place]
            self._found[place] = replace(
                known,
                half_offset=half.half_offset,
                half_queue_offset=half.half_queue_offset,
                checks=max(known.checks + 1, half.checks),
            )
            self._by_offset[row["physical_offset"]] = place
        if row["topic"] == HALF_TOPIC:
            self._by_index[row["queue_id"], row["queue_offset"]] = place

    def _add(self, transaction: Transaction, start: int) -> int:
        self._found.append(transaction)
        self._starts.append(start)
        self._by_offset[start] = len(self._found) - 1
        return len(self._found) - 1

    def settle_by_record(self, row: _Row) -> None:
        """Process a message of type COMMIT or ROLLBACK."""
        kind = TransactionType.of(row["sys_flag"])
        if kind is TransactionType.PREPARED_TYPE:
            return
        offset: int = row["prepared_transaction_offset"]
        place = self._by_offset.get(offset)
        if offset == 0 and (place is None or self._found[place].unique_key != row["unique_key"]):
            return
        where: int = row["physical_offset"]
        if place is None:
            self._lost.append(replace(_lost(row, kind, where), half_offset=offset))
        elif kind is TransactionType.COMMIT_TYPE:
            self._found[place] = replace(self._found[place], status=TransactionStatus.COMMITTED, commit_offset=where)
        else:
            self._end(place, where)

    def _end(self, place: int, where: int) -> None:
        """Mark a transaction as settled; without a commit that means rolled back."""
        known = self._found[place]
        is_pending = known.status is TransactionStatus.PENDING
        status = TransactionStatus.ROLLED_BACK if is_pending else known.status
        self._found[place] = replace(known, status=status, op_offset=where)

    def settle_by_operation(self, row: _Row) -> None:
        """Process a record that names settled half messages: by a physical offset, or by indexes of their queue."""
        where: int = row["physical_offset"]
        named = _number(row["half_physical_offset"])
        indexes = _indexes(row["body"] or b"") if row["tags"] == _REMOVE_TAG and named is None else None
        if named is not None:
            self._settle(self._by_offset.get(named), row, half_offset=named)
        elif indexes is None:
            found = f"tag {row['tags']!r} and {(row['body'] or b'')[:40]!r}"
            self._notes.append(
                f"the record of {row['topic']} at {where} settles nothing: expected tag {_REMOVE_TAG!r} "
                f"and comma-separated indexes, found {found}"
            )
        for index in indexes or ():
            self._settle(self._by_index.get((row["queue_id"], index)), row, half_queue_offset=index)

    def _settle(self, place: int | None, row: _Row, **half: int) -> None:
        """Mark what a record of an operation names as settled, or note that its half message is not in the log."""
        if place is None:
            self._lost.append(replace(_lost(row, None, row["physical_offset"]), **half))  # type: ignore[arg-type]  # ints
        else:
            self._end(place, row["physical_offset"])

    def state(self, given_up: set[str]) -> TransactionState:
        """Return the result; pending transactions that were given up are orphaned."""
        for key in given_up & self._by_key.keys():
            known = self._found[self._by_key[key]]
            if known.status is TransactionStatus.PENDING:
                self._found[self._by_key[key]] = replace(known, status=TransactionStatus.ORPHANED)
        order = sorted(range(len(self._found)), key=self._starts.__getitem__)
        return TransactionState((*(self._found[place] for place in order), *self._lost), tuple(self._notes))


def _prepared(row: _Row) -> Transaction:
    """Make a transaction from a prepared message of release 4.2 and before, which lies in its real topic."""
    return Transaction(
        TransactionStatus.PENDING,
        row["topic"],
        row["queue_id"],
        None,
        row["unique_key"],
        row["physical_offset"],
        None,
        row["store_timestamp"],
    )


def _lost(row: _Row, kind: TransactionType | None, where: int) -> Transaction:
    """Make a transaction from the record that settles one whose half message was deleted."""
    return Transaction(
        TransactionStatus.ORPHANED,
        row["topic"] if kind is not None else None,
        row["queue_id"] if kind is not None else None,
        None,
        row.get("unique_key"),
        None,
        None,
        row["store_timestamp"],
        commit_offset=where if kind is TransactionType.COMMIT_TYPE else None,
        op_offset=where if kind is not TransactionType.COMMIT_TYPE else None,
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and _INDEX.fullmatch(text.encode()) else None


def _indexes(body: bytes) -> list[int] | None:
    """Parse the indexes that an operation names: one up to release 5.0, a list such as ``12,15,`` from 5.1 on."""
    parts = body.rstrip(b",").split(b",")
    return [int(part) for part in parts] if all(_INDEX.fullmatch(part) for part in parts) else None


def transaction_state(store: DefaultMessageStore | StorePaths, **options: Any) -> TransactionState:  # noqa: ANN401 -- as read_messages
    """Return the outcome of each transactional message in a log.

    Only the log is read; no broker, queue or configuration file is used. A half message is committed if a message of
    type COMMIT names its offset. It is rolled back if a record of `OP_TOPIC` names its index in the queue and there is
    no such message: that is all RocketMQ leaves of a rollback. Half messages with the same UNIQ_KEY are one
    transaction, about which the broker has asked in between. Releases 4.2 and before know neither topic: a PREPARED
    message of the real topic is settled by one of type COMMIT or ROLLBACK that names its offset; if both do, it is
    committed, as consumers see it.

    Parameters
    ----------
    store : DefaultMessageStore, path or sequence of paths
        An open store, or a path as for `read_messages`.
    **options
        Those of `read_messages` for the handling of damage, for the release that wrote the store, and for where reading
        starts and ends. If it does not start with the log, transactions that began earlier are orphaned.

    Raises
    ------
    StoreError
        As `read_messages`.

    Notes
    -----
    A delayed message that was committed carries COMMIT again when it is delivered, then naming offset 0. So a commit
    that names 0 counts only if the half message there has the same UNIQ_KEY.
    """
    if not isinstance(store, (str, os.PathLike, Sequence)):  # an open one
        options = {"release": store.config.release} | options
        store = store.commit_log.mapped_file_queue.paths.all_paths
    # In a growing log, settling records are read before the half messages: so nothing new appears orphaned.
    kept = [row["unique_key"] for row in _rows(store, options, ["unique_key"], topic=[CHECK_MAX_TIME_TOPIC])]
    operations = list(_rows(store, options, OP_COLUMNS, operation_rows, topic=OP_TOPICS))
    records = list(_rows(store, options, SETTLED_COLUMNS, settled_rows))
    halves = _rows(store, options, HALF_COLUMNS, half_rows, topic=HALF_TOPICS)
    return transactions_of(halves, records, operations, kept)


def _rows(
    store: StorePaths,
    options: dict[str, Any],
    columns: Sequence[str],
    reduced: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
    **more: Any,  # noqa: ANN401 -- options
) -> Iterator[dict[str, Any]]:
    from store_core.store.read.read_messages import read_messages  # noqa: PLC0415 -- answers need only the book

    for batch in read_messages(store, columns=tuple(columns), **options, **more):
        yield from (batch if reduced is None else reduced(batch)).to_pylist()
