# SPDX-License-Identifier: Apache-2.0
"""The consume queues in a RocksDB, as its broker flushed them: units, and the bounds of queues, by their keys."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from store_core.errors import CorruptDatabaseError
from store_core.files.file_system import FileSystem, names_in
from store_core.files.names import CONSUME_QUEUE
from store_core.files.rocksdb_reader import Entries, RocksdbReader
from store_core.files.store_kind import queue_databases
from store_core.format.layout import (
    ROCKSDB_QUEUE_BOUND,
    ROCKSDB_QUEUE_NAME,
    ROCKSDB_QUEUE_PLACE,
    ROCKSDB_QUEUE_UNIT,
    unit_dtype,
)
from store_core.queue.queue_path import is_light

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt


CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"
"""Name of the entry, no queue, that tells up to where the log is in the database."""

_SEPARATOR: Final = 1
_NAME: Final = unit_dtype(ROCKSDB_QUEUE_NAME)
_PLACE: Final = unit_dtype(ROCKSDB_QUEUE_PLACE)
_LENGTH: Final = _NAME["topic_length"].itemsize
_QUEUE_ID: Final = _PLACE["queue_id"].itemsize
_BOUNDS: Final = (b"max", b"min")


class BoundKey(NamedTuple):
    """What the key of a bound says."""

    topic: str  # bytes that are not UTF-8 are lone surrogates, as in names of directories
    queue_id: int
    is_max: bool  # whether the bound is the queue's last unit, and not its first


def unit_key(topic: str, queue_id: int, queue_offset: int) -> bytes:
    """Return the key of a unit; keys of one queue are ordered by queue offset.

    >>> unit_key("T5", 3, 258).hex(" ")
    '00 00 00 02 01 54 35 01 00 00 00 03 01 00 00 00 00 00 00 01 02'
    """
    name = topic.encode("utf-8", "surrogateescape")
    head = np.array((len(name), _SEPARATOR), _NAME)
    place = np.array((_SEPARATOR, queue_id, _SEPARATOR, queue_offset), _PLACE)
    return head.tobytes() + name + place.tobytes()


def parse_bound_key(key: bytes) -> BoundKey | None:
    """Take the key of a bound apart; None if it is no such key.

    >>> parse_bound_key(bytes.fromhex("00000002 01 5435 01 6d6178 01 00000003"))
    BoundKey(topic='T5', queue_id=3, is_max=True)
    """
    length = int.from_bytes(key[:_LENGTH], "big", signed=True)
    name, rest = key[_NAME.itemsize :][: max(length, 0)], key[_NAME.itemsize + max(length, 0) :]
    kind, queue_id = rest[1:4], rest[-_QUEUE_ID:]
    separator = bytes([_SEPARATOR])
    expected = key[:_LENGTH] + separator + name + separator + kind + separator + queue_id
    if len(name) != length or key != expected or kind not in _BOUNDS or len(queue_id) != _QUEUE_ID:
        return None
    number = int.from_bytes(queue_id, "big", signed=True)
    return BoundKey(name.decode("utf-8", "surrogateescape"), number, kind == _BOUNDS[0])


ROCKSDB_UNIT_DTYPE: Final = unit_dtype(ROCKSDB_QUEUE_UNIT)

_BOUND_DTYPE: Final = unit_dtype(ROCKSDB_QUEUE_BOUND)
_OFFSET_TYPE: Final = unit_dtype(ROCKSDB_QUEUE_PLACE)["queue_offset"]
_UNITS: Final = "default"
_OFFSETS: Final = "offset"
_LAST_OFFSET: Final = 2**63 - 2
_LAST_QUEUE_ID: Final = 2**31 - 1


def light_queue_database(root: Path, file_system: FileSystem) -> Path | None:
    """Return the directory of the RocksDB that alone has the light queues, if no such queue has a directory of files.

    A broker with ``combineCQUseRocksdbForLmq`` leaves them so beside other queues that are files.
    """
    databases = queue_databases(root, file_system)
    names = names_in(root / CONSUME_QUEUE, file_system) if databases else ()
    return None if any(map(is_light, names)) else next(iter(databases), None)


class StoredUnits(NamedTuple):
    """Units of one queue, in order."""

    offsets: npt.NDArray[np.int64]  # int64, shape (n,): queue offsets
    units: npt.NDArray[np.void]  # of `ROCKSDB_UNIT_DTYPE`, shape (n,)


class RocksdbQueues:
    """The queues in a RocksDB (RocketMQ: ``RocksDBConsumeQueueStore``).

    A queue ends after the unit that the column family ``offset`` names as its last; units after it are left from before
    a truncation. It may begin with units of records that retention has deleted from the log. Units are written without
    RocksDB's own log, so a crash, or a reader beside a broker, loses those after the last flush: the records from
    `dispatched_offset` on are to be taken from the log.

    * `dispatched_offset`: Physical offset up to which records have their units; -1 if that is not known.
    """

    def __init__(self, reader: RocksdbReader) -> None:
        self._reader = reader
        self.dispatched_offset = -1
        self._ends: dict[tuple[str, int], int] = {}
        for piece in reader.entries(_OFFSETS):
            for key, value in piece.items():
                self._take_bound(key, value)

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Open the queues in a database; errors are those of `RocksdbReader.open`."""
        reader = RocksdbReader.open(directory)
        try:
            return cls(reader)
        except BaseException:
            reader.close()
            raise

    def close(self) -> None:
        """Close the database."""
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take_bound(self, key: bytes, value: bytes) -> None:
        parsed = parse_bound_key(key)
        if parsed is None or not 0 <= parsed.queue_id <= _LAST_QUEUE_ID:
            raise self._wrong(_OFFSETS, key, "a topic, `max` or `min`, and a queue id as key", key.hex(" "))
        if parsed.topic == CHECKPOINT_TOPIC:
            if len(value) != _BOUND_DTYPE["physical_offset"].itemsize:
                raise self._wrong(_OFFSETS, key, "8 bytes", f"{len(value)}")
            self.dispatched_offset = int.from_bytes(value, "big", signed=True)
        elif parsed.is_max:
            self._ends[parsed.topic, parsed.queue_id] = self._last_offset(key, value) + 1

    def _last_offset(self, key: bytes, value: bytes) -> int:
        if len(value) != _BOUND_DTYPE.itemsize:
            raise self._wrong(_OFFSETS, key, f"{_BOUND_DTYPE.itemsize} bytes", f"{len(value)}")
        offset = int(np.frombuffer(value, _BOUND_DTYPE)["queue_offset"][0])
        if not 0 <= offset <= _LAST_OFFSET:
            raise self._wrong(_OFFSETS, key, "a queue offset of 0 or more", f"{offset}")
        return offset

    def _wrong(self, family: str, key: bytes, expected: str, found: str) -> CorruptDatabaseError:
        return CorruptDatabaseError(
            f"the RocksDB {self._reader.directory} is not one of consume queues: key {key[:300].hex()} of column "
            f"family {family!r}: expected {expected}, found {found[:300]}. Nothing was changed. Queues can be made "
            f"from the log: commitlog rebuild queues STORE --output DIRECTORY"
        )

    # ---- queues

    @property
    def names(self) -> list[tuple[str, int]]:
        """Topic and id of the queues, sorted."""
        return sorted(self._ends)

    def __contains__(self, name: tuple[str, int]) -> bool:
        """Return whether there is a queue of a topic and id."""
        return name in self._ends

    def end_of(self, topic: str, queue_id: int) -> int:
        """Return the queue offset after a queue's last unit; 0 for an unknown queue."""
        return self._ends.get((topic, queue_id), 0)

    def start_of(self, topic: str, queue_id: int, log_start: int = 0) -> int:
        """Return the queue offset of a queue's first unit whose record the log still has; its end if there is none.

        * `log_start`: Physical offset at which the log starts.
        """
        end = self.end_of(topic, queue_id)
        first = next((some for some in self.units(topic, queue_id, 0, end, limit=1)), None)
        if first is None:
            return end
        begin = int(first.offsets[0])
        if int(first.units["physical_offset"][0]) >= log_start:
            return begin
        return self.first_at(topic, queue_id, log_start, begin)

    def first_at(self, topic: str, queue_id: int, position: int, begin: int = 0) -> int:
        """Return the offset of a queue's first unit of a record at or after a position in the log; else its end."""
        end = self.end_of(topic, queue_id)

        def position_of(offset: int) -> int:
            unit = self.unit_from(topic, queue_id, offset)
            return _LAST_OFFSET if unit is None else int(unit.units["physical_offset"][0])

        return bisect_left(range(end), position, begin, end, key=position_of)

    # ---- units

    def unit_from(self, topic: str, queue_id: int, queue_offset: int) -> StoredUnits | None:
        """Return a queue's first unit at or after a queue offset; None if there is none."""
        return next(self.units(topic, queue_id, queue_offset, limit=1), None)

    def units(
        self, topic: str, queue_id: int, begin: int = 0, end: int | None = None, *, limit: int = 2**31
    ) -> Iterator[StoredUnits]:
        """Yield a queue's units, some thousands at a time.

        * `begin`, `end`: Queue offsets; the end is exclusive.
        """
        stop = min(self.end_of(topic, queue_id), _LAST_OFFSET if end is None else end)
        if begin >= stop:
            return
        lower, upper = (unit_key(topic, queue_id, offset) for offset in (max(begin, 0), stop))
        for found in self._reader.entries(_UNITS, lower, upper, limit):
            yield self._parsed(found, len(lower))

    def _parsed(self, found: Entries, key_size: int) -> StoredUnits:
        is_sound = (found.key_sizes == key_size) & (found.value_sizes == ROCKSDB_UNIT_DTYPE.itemsize)
        if not is_sound.all():
            key, value = list(found.items())[int(is_sound.argmin())]
            expected = f"a key of {key_size} bytes and a unit of {ROCKSDB_UNIT_DTYPE.itemsize}"
            raise self._wrong(_UNITS, key, expected, f"{len(key)} and {len(value)}")
        keys = np.frombuffer(found.keys, np.uint8).reshape(-1, key_size)
        offsets = np.ascontiguousarray(keys[:, -_OFFSET_TYPE.itemsize :]).view(_OFFSET_TYPE)[:, 0].astype(np.int64)
        return StoredUnits(offsets, np.frombuffer(found.values, ROCKSDB_UNIT_DTYPE))
