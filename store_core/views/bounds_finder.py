# SPDX-License-Identifier: Apache-2.0
"""Finding the bounds of many queues: in their files, or in a RocksDB that is opened once."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from store_core.files.file_system import OsFileSystem
from store_core.files.store_kind import queue_database
from store_core.format.sys_flag import TransactionType
from store_core.queue.rocksdb.rocksdb_queues import RocksdbQueues
from store_core.store.read.read_messages import read_messages
from store_core.views.log_bound import bounding_segments
from store_core.views.queue_bounds import EMPTY, QueueBounds, find_bounds
from store_core.views.queue_listing import QueueKind, queue_in_files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from store_core.files.segment_source import Segment
    from store_core.views.queue_listing import ListedQueue

__all__ = ["BoundsFinder", "QueueSource", "Unflushed", "unflushed_rows"]

_log: Final = logging.getLogger("store_core")

_QUEUE: Final = ("topic", "queue_id")
_PLACE: Final = ("queue_offset", "physical_offset", "store_size")
_QUEUED: Final = [kind.name for kind in TransactionType if kind.is_queued]


class Unflushed(NamedTuple):
    """What the log has of a queue that its RocksDB has not.

    Attributes
    ----------
    first, last : tuple of int
        Queue offset, physical offset and size of the first and the last record.
    """

    first: tuple[int, int, int]
    last: tuple[int, int, int]


class QueueSource(NamedTuple):
    """Where the bounds of a store's queues are found.

    Attributes
    ----------
    root : Path
    log_start : int
        Physical offset at which the log starts.
    database : Path or None
        The RocksDB that has the queues.
    unflushed : dict
        By topic and queue id: what only the log has, as of planning.
    log : tuple of str
        Paths of the log, if records in it may not be in the RocksDB.
    segments : tuple of Segment
        As of `store_core.views.log_bound.bounding_segments`.
    """

    root: Path
    log_start: int
    database: Path | None = None
    unflushed: dict[tuple[str, int], Unflushed] = {}  # noqa: RUF012 -- never changed
    log: tuple[str, ...] = ()
    segments: tuple[Segment, ...] = ()

    @classmethod
    def of(cls, root: Path, segments: Sequence[Segment]) -> Self:
        """Look at a store; of a log whose queues are in a RocksDB, the records that are not in it are read.

        Raises
        ------
        StoreError
            As of `RocksdbQueues.open` and `read_messages`.
        """
        start = segments[0].start_offset if segments else 0
        database = queue_database(root, OsFileSystem())
        if database is None:
            return cls(root, start, segments=bounding_segments(root, segments))
        with RocksdbQueues.open(database) as queues:
            flushed = max(queues.dispatched_offset, start)
        paths = [segment.path for segment in segments]
        is_below = any(Path(path).is_relative_to(root) for path in paths)
        log = (str(root),) if is_below else tuple(paths)
        return cls(root, start, database, _unflushed(log, flushed), log, bounding_segments(root, segments))


class BoundsFinder:
    """Finds the bounds of queues of one store; a context manager.

    Parameters
    ----------
    source : QueueSource
    """

    def __init__(self, source: QueueSource) -> None:
        self._source = source
        self._opened = ExitStack()
        self._queues: RocksdbQueues | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    def find(self, topic: str, queue_id: int) -> QueueBounds | None:
        """Return the bounds of a queue; None if there is none. Errors are those of `of`."""
        if self._source.database is not None:
            return self._stored(self._source.database, topic, queue_id)
        queue = queue_in_files(self._source.root, topic, queue_id)
        return None if queue is None else self.of(queue)

    def of(self, queue: ListedQueue) -> QueueBounds:
        """Return the bounds of a listed queue; for one in files see `store_core.views.queue_bounds.find_bounds`.

        Raises
        ------
        SegmentVanishedError
            If a file is gone since it was listed.
        CorruptDatabaseError
            If the RocksDB is damaged.
        """
        if self._source.database is not None and queue.kind is QueueKind.ROCKSDB:
            return self._stored(self._source.database, queue.topic, queue.queue_id) or EMPTY
        return find_bounds(queue, self._source.log_start)

    def database(self, directory: Path) -> RocksdbQueues:
        """Return the RocksDB that has the queues, opened until the block ends."""
        if self._queues is None:
            self._queues = self._opened.enter_context(RocksdbQueues.open(directory))
        return self._queues

    def _stored(self, database: Path, topic: str, queue_id: int) -> QueueBounds | None:
        queues, more = self.database(database), self._source.unflushed.get((topic, queue_id))
        if (topic, queue_id) not in queues and more is None:
            return None
        begin, end = queues.start_of(topic, queue_id, self._source.log_start), queues.end_of(topic, queue_id)
        edges = [queues.unit_from(topic, queue_id, offset) for offset in (begin, end - 1)] if begin < end else []
        places = [(int(each.units["physical_offset"][0]), int(each.units["store_size"][0])) for each in edges if each]
        found = QueueBounds(begin, end, *places) if len(places) == len(_EDGES) else QueueBounds(end, end)
        if more is None:
            return found if end else EMPTY
        is_empty = found.first is None
        return QueueBounds(
            more.first[0] if is_empty else begin,
            max(end, more.last[0] + 1),
            more.first[1:] if is_empty else found.first,
            more.last[1:] if more.last[0] >= end else found.last,
        )


_EDGES: Final = ("first", "last")


def unflushed_rows(log: Sequence[str], start: int, **narrowed: Any) -> pa.Table:  # noqa: ANN401 -- as of `read_messages`
    """Return queue and place of the records from a physical offset on that belong in a queue.

    Parameters
    ----------
    log : sequence of str
        Paths of the log.
    start : int
    **narrowed
        Options of `read_messages` that request some of them.
    """
    columns = [*_QUEUE, *_PLACE, "transaction_type"]
    found = read_messages(list(log), columns=columns, starting_offsets=start, verify_crc=False, **narrowed)
    return pa.Table.from_batches(
        (batch.filter(pc.is_in(batch["transaction_type"], pa.array(_QUEUED))) for batch in found), found.schema
    )


def _unflushed(log: Sequence[str], start: int) -> dict[tuple[str, int], Unflushed]:
    """Read what the log has after the last flush."""
    if not log:
        return {}
    ends = [(name, edge) for name in _PLACE for edge in _EDGES]
    rows = unflushed_rows(log, start).group_by(list(_QUEUE), use_threads=False).aggregate(ends)
    return {
        (row["topic"], row["queue_id"]): Unflushed(
            *(tuple(row[f"{name}_{edge}"] for name in _PLACE) for edge in _EDGES)
        )
        for row in rows.to_pylist()
    }
