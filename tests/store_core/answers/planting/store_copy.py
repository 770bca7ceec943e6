# SPDX-License-Identifier: Apache-2.0
"""A copy of a store, whose records, units and entries are picked by chance, and kinds of faults planted there."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core import read_messages
from store_core.format.layout import TRANSACTION_MASK, head_dtype
from store_core.queue.consume_queue_unit import CQ_STORE_UNIT_SIZE
from store_core.queue.index_format import INDEX_DTYPE, INDEX_HEADER_SIZE, SLOT_SIZE
from tests.builders import patch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from store_core.store.rebuild.findings import FindingKind


Unit = tuple[int, int, int]
"""Physical offset, size and tags code."""

_UNIT: Final = struct.Struct(">qiq")
_FILLER_SIZE: Final = 2**31 - 1
_ENTRIES_A_SLOT: Final = 4
"""In the golden stores."""

_FEWEST_UNITS: Final = 12
_SMALLEST_BODY: Final = 8
_SCHEDULE: Final = "SCHEDULE_TOPIC_XXXX"
_COLUMNS: Final = [
    "topic", "queue_id", "queue_offset", "physical_offset", "store_size", "sys_flag", "body", "properties",
    "segment",
]  # fmt: skip


class Record(NamedTuple):
    """A record of the log."""

    file: Path
    at: int
    offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    body_length: int
    properties: dict[str, str]
    sys_flag: int

    @property
    def body_at(self) -> int:
        return self.at + head_dtype(self.sys_flag).itemsize

    @property
    def topic_at(self) -> int:
        return self.body_at + self.body_length

    @property
    def properties_at(self) -> int:
        return self.topic_at + 1 + len(self.topic.encode()) + 2

    def field_at(self, name: str) -> int:
        """Return where a field of the head is in the file."""
        fields = head_dtype(self.sys_flag).fields
        assert fields is not None
        return self.at + int(fields[name][1])

    def put(self, name: str, code: str, value: int) -> None:
        """Overwrite a field of the head."""
        patch(self.file, self.field_at(name), struct.pack(f">{code}", value))

    @property
    def place(self) -> tuple[str, int]:
        return self.topic, self.queue_id


@dataclass
class QueueCopy:
    """A simple queue, whose units are numbered by their places."""

    directory: Path
    files: list[Path]
    first: int
    count: int

    @classmethod
    def of(cls, directory: Path) -> QueueCopy:
        files = sorted(path for path in directory.iterdir() if path.name.isdigit())
        units = [
            int(file.name) // CQ_STORE_UNIT_SIZE + number
            for file in files
            for number, (_, size, _) in enumerate(_UNIT.iter_unpack(file.read_bytes()))
            if 0 < size < _FILLER_SIZE
        ]
        return cls(directory, files, units[0] if units else 0, len(units))

    @property
    def place(self) -> tuple[str, int]:
        return self.directory.parent.name, int(self.directory.name)

    @property
    def size(self) -> int:
        return self.files[0].stat().st_size

    @property
    def stop(self) -> int:
        """The place after the last unit."""
        return self.first + self.count

    def at(self, place: int) -> tuple[Path, int]:
        """Return in which file, and where in it, a place is; the file is made if it is not there."""
        start = place * CQ_STORE_UNIT_SIZE // self.size * self.size
        file = self.directory / f"{start:020d}"
        if not file.exists():
            file.write_bytes(bytes(self.size))
        return file, place * CQ_STORE_UNIT_SIZE - start

    def unit(self, place: int) -> Unit:
        file, at = self.at(place)
        offset, size, code = _UNIT.unpack_from(file.read_bytes(), at)
        return offset, size, code

    def put(self, place: int, unit: Unit) -> None:
        file, at = self.at(place)
        patch(file, at, _UNIT.pack(*unit))

    def units(self) -> list[Unit]:
        return [self.unit(place) for place in range(self.first, self.stop)]

    def put_all(self, units: list[Unit]) -> None:
        """Put these units in place of all, with zeros up to the end of before."""
        for number, unit in enumerate(units + [(0, 0, 0)] * (self.count - len(units))):
            self.put(self.first + number, unit)

    def units_in(self, file: Path) -> int:
        return sum(0 < size < _FILLER_SIZE for _, size, _ in _UNIT.iter_unpack(file.read_bytes()))


class IndexCopy:
    """An index file of a store."""

    def __init__(self, file: Path) -> None:
        self.file = file
        data = file.read_bytes()
        self.count: int = struct.unpack_from(">i", data, INDEX_HEADER_SIZE - 4)[0]
        self.slots = (len(data) - INDEX_HEADER_SIZE) // (SLOT_SIZE + _ENTRIES_A_SLOT * INDEX_DTYPE.itemsize)

    def entry_at(self, number: int, name: str = "key_hash") -> int:
        """Return where a field of an entry is in the file."""
        fields = INDEX_DTYPE.fields
        assert fields is not None
        return INDEX_HEADER_SIZE + SLOT_SIZE * self.slots + number * INDEX_DTYPE.itemsize + int(fields[name][1])

    def slot_at(self, slot: int) -> int:
        return INDEX_HEADER_SIZE + SLOT_SIZE * slot

    @property
    def entries(self) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        return np.frombuffer(self.file.read_bytes(), INDEX_DTYPE, self.count, self.entry_at(0))

    @property
    def table(self) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        return np.frombuffer(self.file.read_bytes(), ">i4", self.slots, INDEX_HEADER_SIZE)

    def put(self, number: int, name: str, value: int) -> None:
        """Overwrite a field of an entry."""
        patch(self.file, self.entry_at(number, name), struct.pack(">q" if name == "physical_offset" else ">i", value))

    def linked(self) -> list[int]:
        """Return the numbers of entries that lead to another one."""
        numbers: list[int] = (np.flatnonzero(self.entries["previous_index"][1:] > 0) + 1).tolist()
        return numbers

    def used_slots(self) -> list[int]:
        slots: list[int] = np.flatnonzero(self.table).tolist()
        return slots


@dataclass
class StoreCopy:
    """A copy of a store, in which faults are planted; none where another one has been."""

    root: Path
    seed: int = 0
    release: str = "5.3"
    random: Random = field(init=False)
    taken: set[tuple[str, int]] = field(default_factory=set)
    """Topics and ids of queues that have a fault, or a record with one."""

    def __post_init__(self) -> None:
        self.random = Random(self.seed)  # noqa: S311 -- picks where a test plants its fault

    @property
    def segments(self) -> list[Path]:
        return sorted(path for path in (self.root / "commitlog").iterdir() if path.name.isdigit())

    @property
    def segment_size(self) -> int:
        return self.segments[0].stat().st_size

    def records(self) -> list[Record]:
        """Return all records that can be read, in the order of the log."""
        table = read_messages(self.root, columns=_COLUMNS, mode="DROPMALFORMED", release=self.release).read_all()
        return [
            Record(
                self.root / "commitlog" / row["segment"], row["physical_offset"] - int(row["segment"]),
                row["physical_offset"], row["store_size"], row["topic"], row["queue_id"], row["queue_offset"],
                len(row["body"] or b""), dict(row["properties"]), row["sys_flag"],
            )
            for row in table.to_pylist()
        ]  # fmt: skip

    def record(self, needs: str = "") -> Record:
        """Pick a record inside the log, of a queue of its own, in a place where one fault has one meaning."""
        logged = self.records()
        inside = [
            each
            for before, each, after in zip(logged, logged[1:], logged[2:], strict=False)
            if before.file == each.file == after.file
            and each.sys_flag & TRANSACTION_MASK == 0
            and each.body_length >= _SMALLEST_BODY
            and each.topic != _SCHEDULE
            and each.place not in self.taken
            and not any(name.startswith("INNER_") for name in each.properties)
            and (not needs or needs in each.properties)
        ]
        found = self.random.choice(inside)
        self.taken.add(found.place)
        return found

    def queues(self) -> list[QueueCopy]:
        directories = sorted(self.root.glob("consumequeue/*/*"))
        return [QueueCopy.of(path) for path in directories if path.is_dir() and path.name.isdigit()]

    def queue(self, files: int = 1) -> QueueCopy:
        """Pick a queue with some units, in at least so many files."""
        found = self.random.choice(
            [
                each
                for each in self.queues()
                if each.count >= _FEWEST_UNITS and len(each.files) >= files and each.place not in self.taken
            ]
        )
        self.taken.add(found.place)
        return found

    def place(self, queue: QueueCopy) -> int:
        """Pick a unit of a queue that is not at one of its ends."""
        return self.random.randrange(queue.first + 2, queue.stop - 3)

    def indexes(self) -> list[IndexCopy]:
        return [IndexCopy(path) for path in sorted((self.root / "index").iterdir())]

    def index(self) -> IndexCopy:
        """Pick an index file that has entries."""
        return self.random.choice([each for each in self.indexes() if each.count > _FEWEST_UNITS])

    @property
    def log_end(self) -> int:
        last = self.records()[-1]
        return last.offset + last.size


SOUND: Final = ("5.3.3/propcrc", "4.9.7/lmq", "5.5.0/tx")
"""Golden stores that RocketMQ closed, of three releases, with plain queues and an index."""


class Expected(NamedTuple):
    """A kind of findings that a fault causes: how many, and where the first is, as far as that is one place."""

    kind: FindingKind
    number: int = 1
    begin: int | None = None
    queue_offset: int | None = None
    place: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault.

    * `plant`: Plants one into a copy of a store, and returns what is to be found: nothing else may be.
    * `stores`: The golden stores that it can be planted into.
    * `name`: That of the function, if it has one.
    """

    plant: Callable[[StoreCopy], list[Expected]]
    stores: tuple[str, ...] = SOUND
    name: str = ""

    def __str__(self) -> str:
        return self.name or self.plant.__name__


def counts_of(expected: Iterable[Expected]) -> dict[str, int]:
    """Return how many findings of each kind there have to be."""
    counts: Counter[str] = Counter()
    for each in expected:
        counts[str(each.kind)] += each.number
    return dict(counts)
