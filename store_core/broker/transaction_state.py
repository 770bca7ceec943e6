# SPDX-License-Identifier: Apache-2.0
"""The outcome of the transactional messages in a log."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from store_core.format.sys_flag import TRANSACTION_MASK, TransactionType
from store_core.store.message_store import DefaultMessageStore
from store_core.store.read.read_messages import read_messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.files.store_path import StorePaths

__all__ = [
    "CHECK_MAX_TIME_TOPIC",
    "HALF_TOPIC",
    "OP_TOPIC",
    "Transaction",
    "TransactionState",
    "TransactionStatus",
    "transaction_state",
]

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
"""Topic where half messages wait (RocketMQ 4.3 and later)."""
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""Topic of the records that say which half messages are settled."""
CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Topic of half messages that nobody settled, after ``transactionCheckMax`` questions to their producers."""

_REMOVE_TAG: Final = "d"
_INDEX: Final = re.compile(rb"[0-9]{1,19}")
_MICROSECONDS: Final = 1000
_UNIQUE_KEY: Final = "UNIQ_KEY"


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
        Its index in its queue of `HALF_TOPIC`; None for a prepared message of RocketMQ 4.2 and before.
    store_timestamp : int
        Ms since 1970, of its first record in the log.
    checks : int
        How often the broker has asked its producer, rewriting the half message each time.
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
    if isinstance(store, DefaultMessageStore):
        options = {"release": store.config.release} | options
        store = store.commit_log.mapped_file_queue.paths.all_paths
    # In a growing log, settling records are read before the half messages: so nothing new appears orphaned.
    given_up = {row["unique_key"] for row in _rows(store, options, ["unique_key"], topic=[CHECK_MAX_TIME_TOPIC])}
    operations = tuple(_rows(store, options, _OP_COLUMNS, topic=[OP_TOPIC]))
    records = tuple(_settled_rows(store, options))
    halves = tuple(_rows(store, options, _HALF_COLUMNS, topic=[HALF_TOPIC]))
    book = _Book(halves, records)
    for record in records:
        book.settle_by_record(record)
    for operation in operations:
        book.settle_by_operation(operation)
    return book.state(given_up - {None})


_Row = dict[str, Any]
_HALF_COLUMNS: Final = ["queue_id", "queue_offset", "physical_offset", "store_timestamp", "properties"]
_RECORD_COLUMNS: Final = [
    "topic",
    "queue_id",
    "physical_offset",
    "store_timestamp",
    "sys_flag",
    "prepared_transaction_offset",
    "unique_key",
]
_OP_COLUMNS: Final = ["queue_id", "physical_offset", "store_timestamp", "tags", "body"]


def _rows(store: StorePaths, options: dict[str, Any], columns: list[str], **more: Any) -> Iterator[_Row]:  # noqa: ANN401
    for batch in read_messages(store, columns=columns, **options, **more):
        yield from _as_rows(batch)


def _settled_rows(store: StorePaths, options: dict[str, Any]) -> Iterator[_Row]:
    """Yield all records whose system flag has bits of a transaction."""
    for batch in read_messages(store, columns=_RECORD_COLUMNS, **options):
        kinds: pa.Array = pc.bit_wise_and(batch["sys_flag"], TRANSACTION_MASK)
        yield from _as_rows(batch.filter(pc.not_equal(kinds, 0)))


def _as_rows(batch: pa.RecordBatch) -> list[_Row]:
    """Return a batch's rows, with store times in ms, whatever a damaged record claims."""
    position = batch.schema.get_field_index("store_timestamp")
    if position >= 0:
        times = pc.divide(batch.column(position).cast(pa.int64()), _MICROSECONDS)
        batch = batch.set_column(position, "store_timestamp", times)
    rows: list[_Row] = batch.to_pylist()
    return rows


class _Book:
    """The known transactions, by the place of the half message and by unique key."""

    def __init__(self, halves: tuple[_Row, ...], records: tuple[_Row, ...]) -> None:
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
        half = _half(row)
        place = self._by_key.get(half.unique_key) if half.unique_key else None
        if place is None:
            place = self._add(half, row["physical_offset"])
            if half.unique_key:
                self._by_key[half.unique_key] = place
        else:
            known = self._found[place]
            self._found[place] = replace(
                known, half_offset=half.half_offset, half_queue_offset=half.half_queue_offset, checks=known.checks + 1
            )
            self._by_offset[row["physical_offset"]] = place
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
        """Process a record that names the indexes of settled half messages."""
        indexes = _indexes(row["body"] or b"") if row["tags"] == _REMOVE_TAG else None
        if indexes is None:
            found = f"tag {row['tags']!r} and {(row['body'] or b'')[:40]!r}"
            self._notes.append(
                f"the record of {OP_TOPIC} at {row['physical_offset']} settles nothing: expected tag {_REMOVE_TAG!r} "
                f"and comma-separated indexes, found {found}"
            )
            return
        where: int = row["physical_offset"]
        for index in indexes:
            place = self._by_index.get((row["queue_id"], index))
            if place is None:
                self._lost.append(replace(_lost(row, None, where), half_queue_offset=index))
            else:
                self._end(place, where)

    def state(self, given_up: set[str]) -> TransactionState:
        """Return the result; pending transactions that were given up are orphaned."""
        for key in given_up & self._by_key.keys():
            known = self._found[self._by_key[key]]
            if known.status is TransactionStatus.PENDING:
                self._found[self._by_key[key]] = replace(known, status=TransactionStatus.ORPHANED)
        order = sorted(range(len(self._found)), key=self._starts.__getitem__)
        return TransactionState((*(self._found[place] for place in order), *self._lost), tuple(self._notes))


def _half(row: _Row) -> Transaction:
    """Make a transaction from a half message; as in Java, the last of two properties with the same name counts."""
    properties = dict(row["properties"] or ())
    queue_id = properties.get("REAL_QID") or ""
    return Transaction(
        TransactionStatus.PENDING,
        properties.get("REAL_TOPIC"),
        int(queue_id) if _INDEX.fullmatch(queue_id.encode()) else None,
        properties.get("PGROUP"),
        properties.get(_UNIQUE_KEY),
        row["physical_offset"],
        row["queue_offset"],
        row["store_timestamp"],
    )


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
        row.get("topic"),
        row["queue_id"] if kind is not None else None,
        None,
        row.get("unique_key"),
        None,
        None,
        row["store_timestamp"],
        commit_offset=where if kind is TransactionType.COMMIT_TYPE else None,
        op_offset=where if kind is not TransactionType.COMMIT_TYPE else None,
    )


def _indexes(body: bytes) -> list[int] | None:
    """Parse the indexes that an operation names: one up to release 5.0, a list such as ``12,15,`` from 5.1 on."""
    parts = body.rstrip(b",").split(b",")
    return [int(part) for part in parts] if all(_INDEX.fullmatch(part) for part in parts) else None
