# SPDX-License-Identifier: Apache-2.0
"""The queues that take part in a look-up, wherever a store has them: in files, or in a RocksDB."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from store_core.files.file_system import OsFileSystem
from store_core.files.store_kind import queue_database
from store_core.queue.dispatch.lmq_units import LMQ_PREFIX
from store_core.queue.queue_path import refusal_of
from store_core.queue.rocksdb.rocksdb_queues import RocksdbQueues
from store_core.store.read.lookup.queue_files import queue_directories
from store_core.store.read.lookup.unit_block import START, UNITS_AT_ONCE, trusted_block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import ExitStack
    from pathlib import Path

    from store_core.store.read.lookup.costs import LookUpCosts
    from store_core.store.read.lookup.file_state import FileState
    from store_core.store.read.lookup.proofs import ProofsOfStore
    from store_core.store.read.lookup.queue_files import QueueDirectory
    from store_core.store.read.lookup.unit_block import Place, QueueUnits, UnitBlock

__all__ = ["DatabasePart", "DatabaseQueue", "StoreQueues", "open_database"]

_FILE_SIZE: Final = 1 << 10
"""Bytes of memory that a listed file takes, about."""

_TOO_DEAR: Final = "reading the queues would cost too much"


@dataclass(frozen=True, slots=True, eq=False)
class DatabaseQueue:
    """One queue in a RocksDB.

    Attributes
    ----------
    topic : str
    queue_id : int
    stored : RocksdbQueues
        The open database.
    """

    topic: str
    queue_id: int
    stored: RocksdbQueues

    def parts(self, begin: int) -> Iterator[DatabasePart]:
        """Yield the whole queue."""
        del begin
        yield DatabasePart(self)

    def blocks(self, begin: int, end: int) -> Iterator[UnitBlock]:
        """Yield the units of records that start in a range of the log; see `QueueUnits`."""
        first = self.stored.start_of(self.topic, self.queue_id, begin) if begin else 0
        place = START
        for offsets, units in self.stored.units(self.topic, self.queue_id, first):
            for at in range(0, len(units), UNITS_AT_ONCE):
                part = units[at : at + UNITS_AT_ONCE]
                indexes = offsets[at : at + UNITS_AT_ONCE]
                block = trusted_block(part, int(indexes[0]), place, (indexes, np.ones_like(indexes)))
                mine = None if block is None else block.between(begin, end)
                if mine is not None:
                    yield mine
                if block is None or block.starts.size < len(part):
                    return
                place = int(block.ends[-1]), block.last_index + 1
                if place[0] >= end:
                    return


@dataclass(slots=True, eq=False)
class DatabasePart:
    """A whole queue in a RocksDB, of which nothing is kept; see `QueuePart` and `UnitReading`.

    Attributes
    ----------
    queue : DatabaseQueue
    """

    queue: DatabaseQueue
    path: str = ""
    state: FileState | None = None
    is_last: bool = True
    place: Place = START
    is_ended: bool = True
    is_past: bool = False

    def open(self, place: Place) -> Self:
        """Return itself, since it is open."""
        del place
        return self

    def blocks(self, begin: int, end: int) -> Iterator[UnitBlock]:
        """Yield the queue's units."""
        return self.queue.blocks(begin, end)


@dataclass(frozen=True, slots=True)
class StoreQueues:
    """The queues of a store that take part in look-ups, by name.

    Light message queues are left out: their units stand for records that other queues have, too.

    Attributes
    ----------
    listed : callable
        Returns them, a sequence of QueueUnits.
    cost : int
        What reading all their units costs, in bytes of the log that a scan would read meanwhile.
    are_files : bool
        Whether they can be read again when what is open now is closed.
    """

    listed: Callable[[], Sequence[QueueUnits]]
    cost: int
    are_files: bool = False

    @classmethod
    def open(cls, root: Path, costs: LookUpCosts, room: int, resources: ExitStack, proofs: ProofsOfStore) -> Self | str:
        """Find the queues of a store: its files, or else its RocksDB, as brokers do; or say why they are not read.

        Parameters
        ----------
        root : Path
        costs : LookUpCosts
        room : int
            What reading them may cost.
        resources : ExitStack
            Closes the database.
        proofs : ProofsOfStore

        Raises
        ------
        OSError
            As raised by the system.
        CorruptDatabaseError, UnsupportedStoreError
            As of `RocksdbReader.open`.
        """

        @cache
        def directories() -> Sequence[QueueDirectory]:
            return proofs.fact("queues", lambda: queue_directories(root), _weight)

        cost = proofs.fact(("cost of queues", costs.per_file, costs.per_request), lambda: _cost(directories(), costs))
        if cost is not None:
            return _TOO_DEAR if cost > room else cls(directories, cost, are_files=True)
        stored = open_database(root, costs, room, resources)
        return stored if isinstance(stored, str) else cls.stored_in(stored, costs, room)

    @classmethod
    def stored_in(cls, stored: RocksdbQueues, costs: LookUpCosts, room: int) -> Self | str:
        """Return the queues in an open database, or say why they are not read."""
        names = [name for name in stored.names if not name[0].startswith(LMQ_PREFIX) and refusal_of(*name) is None]
        cost = costs.per_database + costs.per_stored_unit * stored.estimated_units + costs.per_file * len(names)
        return _TOO_DEAR if cost > room else cls(lambda: [DatabaseQueue(*name, stored) for name in names], cost)


def _cost(directories: Sequence[QueueDirectory], costs: LookUpCosts) -> int | None:
    """Return what reading the units of queues in files costs; None if there are no files."""
    if not directories:
        return None
    return sum(
        queue.size + costs.per_file * len(queue.files) + costs.per_request * queue.requests for queue in directories
    )


def _weight(directories: Sequence[QueueDirectory]) -> int:
    return _FILE_SIZE * sum(len(queue.files) for queue in directories)


def open_database(root: Path, costs: LookUpCosts, room: int, resources: ExitStack) -> RocksdbQueues | str:
    """Open the RocksDB that has a store's queues, or say why it is not read; parameters as of `StoreQueues.open`."""
    database = queue_database(root, OsFileSystem())
    if database is None:
        return "the queues have no files"
    if costs.per_database > room:
        return _TOO_DEAR
    return resources.enter_context(RocksdbQueues.open(database))
