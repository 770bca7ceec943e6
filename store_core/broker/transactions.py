# SPDX-License-Identifier: Apache-2.0
"""The outcome of the transactional messages in a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from store_core.broker.transaction_book import (
    CHECK_MAX_TIME_TOPIC,
    HALF_COLUMNS,
    HALF_TOPIC,
    HALF_TOPICS,
    OP_COLUMNS,
    OP_TOPIC,
    OP_TOPICS,
    SETTLED_COLUMNS,
    Transaction,
    TransactionState,
    TransactionStatus,
    half_rows,
    operation_rows,
    settled_rows,
    transactions_of,
)
from store_core.store.message_store import DefaultMessageStore
from store_core.store.read.read_messages import read_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

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
    for batch in read_messages(store, columns=tuple(columns), **options, **more):
        yield from (batch if reduced is None else reduced(batch)).to_pylist()
