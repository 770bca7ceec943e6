# SPDX-License-Identifier: Apache-2.0
"""Jobs that read a few columns of all messages of a log, range by range, whatever is damaged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, Generic, Protocol, Self, TypeVar

import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from store_core.files.segment_source import Segment
    from store_core.snapshot.store import Store
    from store_core.store.read.ranges import ReadRange
    from store_core.store.read.read_options import ReadOptions


PART_BYTES: Final = 512 << 20
"""Bytes of a range, on any engine, so that all engines leave the same groups out of a table."""

_SOUND: Final = "magic_code"
"""A column that each message has, and that rows of damaged ranges lack."""

_COUNTED: Final = ("physical_offset", "store_size", _SOUND)


class Gathered(Protocol):
    """Facts about the messages of some ranges: picklable, and of bounded size."""

    def add(self, batch: pa.RecordBatch, segment: Segment) -> None:
        """Add messages, which are in a segment, in log order."""
        ...

    def absorb(self, other: Self, /) -> None:
        """Add what was gathered of later ranges."""
        ...


Found = TypeVar("Found", bound=Gathered)


@dataclass(frozen=True, slots=True)
class ScanCounts:
    """How much was read.

    * `messages`, `bytes`: Messages, and bytes of their records.
    * `damaged_ranges`, `damaged_bytes`: What is no message within the log, in pieces of 16 MiB at most, and what is
      missing between segments, one for each place; a torn tail after the log's end is not counted.
    """

    messages: int = 0
    bytes: int = 0
    damaged_ranges: int = 0
    damaged_bytes: int = 0

    def __add__(self, other: ScanCounts) -> ScanCounts:
        return ScanCounts(
            self.messages + other.messages,
            self.bytes + other.bytes,
            self.damaged_ranges + other.damaged_ranges,
            self.damaged_bytes + other.damaged_bytes,
        )

    @classmethod
    def of(cls, messages: pa.RecordBatch, damage: pa.RecordBatch) -> Self:
        """Count messages and damaged ranges."""
        sizes = (pc.sum(each["store_size"], min_count=0).as_py() for each in (messages, damage))
        return cls(messages.num_rows, next(sizes), damage.num_rows, next(sizes))


@dataclass(frozen=True, slots=True)
class Scanned(Generic[Found]):
    """The result of one range."""

    found: Found
    counts: ScanCounts


class MessageScan(ABC, Generic[Found]):
    """A job that gathers something of each message, and counts them; see `store_core.store.parts.Job`.

    Damage ends nothing: what is no message is counted. Bodies are read, and checked, only if a column needs them,
    except those of the last records, which tell where the log ends.

    * `options`: Which messages; columns, mode and parts are set here.

    * `store`: The store's root.
    * `notes`: What planning found.
    * `missing`: What is missing between segments, as damage.
    """

    COLUMNS: ClassVar[tuple[str, ...]]  # columns of the batches, which may have others, too

    def __init__(self, store: Store, options: ReadOptions | None = None) -> None:
        from store_core.files.store_path import store_roots
        from store_core.store.read.option_values import ReadMode
        from store_core.store.read.read_options import ReadOptions
        from store_core.store.read.read_plan import plan_ranges

        columns = tuple(dict.fromkeys([*self.COLUMNS, *_COUNTED]))
        self.options = replace(
            options or ReadOptions(verify_crc=False),
            columns=columns,
            mode=ReadMode.PERMISSIVE,
            max_partition_bytes=PART_BYTES,
            fail_on_data_loss=False,
            nearest_times=True,
        )
        plan = plan_ranges(store, replace(self.options, verify_crc=True))  # where the log ends
        self.store = str(store_roots(store.paths)[0])
        self.ranges, self.notes = plan.ranges, plan.notes
        missing = sum(end - begin for begin, end in plan.missing)
        self.missing = ScanCounts(damaged_ranges=len(plan.missing), damaged_bytes=missing)

    @abstractmethod
    def nothing(self) -> Found:
        """Return what is gathered of no message."""

    def plan(self) -> Sequence[ReadRange]:
        """Return the ranges."""
        return self.ranges

    def run(self, part: ReadRange) -> Scanned[Found]:
        """Read a range."""
        from store_core.store.read.message_reader import read_range

        found, counts = self.nothing(), ScanCounts()
        for batch in read_range(part, self.options):
            messages, damage = messages_and_damage(batch, part)
            counts += ScanCounts.of(messages, damage)
            if messages.num_rows:
                found.add(messages, part.segment)
        return Scanned(found, counts)

    def merge(self, scanned: Iterable[Scanned[Found]]) -> tuple[Found, ScanCounts]:
        """Merge the results of all ranges."""
        found, counts = self.nothing(), self.missing
        for each in scanned:
            found.absorb(each.found)
            counts += each.counts
        return found, counts


def messages_and_damage(batch: pa.RecordBatch, part: ReadRange) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return messages and damaged ranges, without the torn tail."""
    if not batch.column(_SOUND).null_count:
        return batch, batch.slice(0, 0)
    is_damage = pc.is_null(batch.column(_SOUND))
    is_inside = pc.less(batch.column("physical_offset"), part.data_end)
    return batch.filter(pc.invert(is_damage)), batch.filter(pc.and_(is_damage, is_inside))
