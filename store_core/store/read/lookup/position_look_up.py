# SPDX-License-Identifier: Apache-2.0
"""Reading one record at its physical offset without walking to it from its segment's start."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.errors import CorruptDatabaseError, UnsupportedStoreError
from store_core.files.file_system import OsFileSystem, names_in
from store_core.files.segment_names import LAST_OFFSET
from store_core.files.segment_source import size_on_disk
from store_core.files.store_kind import has_queues, queue_database
from store_core.files.store_path import store_roots
from store_core.format.columnar.chain import Place
from store_core.format.record.framing import check_frame
from store_core.format.record.record_head import head_reader
from store_core.queue.queue_path import CONSUME_QUEUE, refusal_of
from store_core.queue.units.consume_queue_unit import CQ_STORE_UNIT_SIZE, units_of
from store_core.store.read.lookup.filed_proofs import FiledProofs, proofs_of
from store_core.store.read.lookup.known_end import known_end
from store_core.store.read.lookup.opened_segments import OpenedSegments
from store_core.store.read.lookup.queue_tiling import whole_tiling
from store_core.store.read.lookup.store_queues import StoreQueues, open_database
from store_core.store.read.picks import Picks
from store_core.store.read.segment_start import load_frame

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import ExitStack
    from pathlib import Path

    from store_core.files.segment_source import Segment
    from store_core.files.store_path import StorePaths
    from store_core.format.columnar.chain import Chain
    from store_core.queue.rocksdb.rocksdb_queues import RocksdbQueues
    from store_core.store.read.lookup.costs import LookUpCosts
    from store_core.store.read.lookup.queue_tiling import QueueTiling
    from store_core.store.read.ranges import ReadRange
    from store_core.store.read.read_options import ReadOptions

__all__ = ["PositionLookUp", "plan_position_look_up"]

_read_place: Final = head_reader("queue_id", "queue_offset")
_MOST_UNITS: Final = LAST_OFFSET // CQ_STORE_UNIT_SIZE
"""Of a queue: the queue offset in a record is part of no checksum, and may be any number."""

_PROVEN: Final = "the position is given, and the queue that the record names has a unit for it"
_WALKED: Final = "the position is given; its segment is walked to it, because no unit of a queue proves the record"


@dataclass(slots=True)
class PositionLookUp:
    """One record, proven by the unit of the queue that it names itself.

    Attributes
    ----------
    picked : Picks or None
        The record; None if it is not proven.
    tiling : QueueTiling or None
        The units of all queues in the log's last segment, if the record is there, to find the log's end.
    proofs : FiledProofs or None
        What is known of the store; None if nothing of all its files was needed.
    units : int
        Number of units that were read.
    notes : list of str
    opened : OpenedSegments
        What was opened to read the record.
    """

    picked: Picks | None = None
    tiling: QueueTiling | None = None
    proofs: FiledProofs | None = None
    units: int = 0
    notes: list[str] = field(default_factory=list)
    opened: OpenedSegments = field(default_factory=OpenedSegments)

    @property
    def mapped(self) -> dict[Segment, Chain]:
        """The segment from elsewhere whose pages have the record; one on this machine need not stay mapped."""
        return self.opened.chains

    def close(self) -> None:
        """Close what was opened."""
        self.opened.close()
        if self.tiling is not None:
            self.tiling.opened.close()

    @property
    def plan(self) -> str:
        """Name of the plan."""
        return "position"

    @property
    def why(self) -> str:
        """Why it was chosen."""
        return _WALKED if self.picked is None else _PROVEN

    def known_end(self, segment: Segment, *, verify_crc: bool) -> Place:
        """Return up to where the last segment's records are known, as `QueueLookUp.known_end` does."""
        return Place() if self.tiling is None else known_end(self.tiling, segment, verify_crc=verify_crc)

    def narrowed(self, whole: Sequence[ReadRange], parts: Sequence[ReadRange]) -> list[ReadRange]:
        """Replace the range of the one position by the record there, if it is proven."""
        del whole
        if self.picked is None:
            return list(parts)
        return [replace(part, picks=self.picked.between(part.begin, part.end)) for part in parts]


def plan_position_look_up(
    paths: StorePaths, segments: Sequence[Segment], options: ReadOptions, costs: LookUpCosts, resources: ExitStack
) -> PositionLookUp:
    """Look for the unit that proves the record at a physical offset.

    Parameters
    ----------
    paths : path or sequence of paths
        As given to the read.
    segments : sequence of Segment
        All of the log, in order.
    options : ReadOptions
        They name a position.
    costs : LookUpCosts
    resources : ExitStack
        Closes what the look-up reads from.
    """
    position = -1 if options.position is None else options.position
    home = next((each for each in segments if each.start_offset <= position < each.end_offset), None)
    roots = [root for root in store_roots(paths) if has_queues(root)]
    if home is None or len(roots) != 1:
        return PositionLookUp()
    try:
        room = int(costs.most_share * size_on_disk(home))
        proofs = proofs_of(roots[0], options, segments) if home is segments[-1] else FiledProofs(roots[0], None)
        stored = _database(roots[0], costs, room, resources, proofs)
        opened = OpenedSegments()
        picked = _proven(home, position, _FileUnits(roots[0]) if stored is None else _StoredUnits(stored), opened)
        if picked is None or home is not segments[-1]:
            return PositionLookUp(picked, units=int(picked is not None), opened=opened)
        all_room = int(costs.most_share * sum(map(size_on_disk, segments)))
        if stored is not None:
            queues = StoreQueues.stored_in(stored, costs, all_room)
        else:
            queues = StoreQueues.open(roots[0], costs, all_room, resources, proofs)
        if isinstance(queues, str):
            return PositionLookUp(picked, units=1, opened=opened)
        tiling, summary = whole_tiling(queues, [home], costs, proofs)
    except (OSError, CorruptDatabaseError, UnsupportedStoreError):
        return PositionLookUp()
    return PositionLookUp(picked, tiling, proofs, units=summary.units, opened=opened)


def _database(
    root: Path, costs: LookUpCosts, room: int, resources: ExitStack, proofs: FiledProofs
) -> RocksdbQueues | None:
    """Open the RocksDB that has the queues; None if they are files, or it would cost too much."""
    if not proofs.fact("has database", lambda: queue_database(root, OsFileSystem()) is not None):
        return None
    found = open_database(root, costs, room, resources)
    return None if isinstance(found, str) else found


def _proven(
    segment: Segment, position: int, units: _FileUnits | _StoredUnits, segments: OpenedSegments
) -> Picks | None:
    """Return the sound record at a position if the queue that it names has a unit that points back to it."""
    at, framing = position - segment.start_offset, segment.framing
    if at < framing.lead:
        return None
    with segments.opened(segment) as opened:
        load_frame(segment, opened, at - framing.lead)
        check = check_frame(opened.raw.data, at - framing.lead, segment.start_offset, framing)
        if check.spans is None:
            return None
        queue_id, queue_offset = _read_place(opened.raw.data, at)
        name = opened.raw[check.spans.topic_start : check.spans.topic_stop].tobytes()
        if not segment.is_mapped:
            segments.keep(segment, opened)
    topic = name.decode("utf-8", "surrogateescape")
    if refusal_of(topic, queue_id) is not None:
        return None
    record_size = check.size - framing.lead
    if units.at(topic, queue_id, queue_offset) != (position, record_size):
        return None
    start, size, offset = (np.array([value], np.int64) for value in (position, record_size, queue_offset))
    return Picks(start, size, np.zeros(1, np.int32), offset, ((topic, queue_id),))


@dataclass(frozen=True, slots=True)
class _FileUnits:
    """Single units of queues in files."""

    root: Path

    def at(self, topic: str, queue_id: int, index: int) -> tuple[int, int] | None:
        """Return the position and size in the unit of a queue offset; None if the queue has no such unit."""
        if not 0 <= index < _MOST_UNITS:
            return None
        files, directory = OsFileSystem(), self.root / CONSUME_QUEUE / topic / str(queue_id)
        byte = index * CQ_STORE_UNIT_SIZE
        starts = [int(name) for name in names_in(directory, files) if name.isascii() and name.isdigit()]
        start = max((each for each in starts if each <= byte), default=-1)
        if start < 0:
            return None
        stored = files.open(directory / f"{start:020d}", writable=False).read(CQ_STORE_UNIT_SIZE, byte - start)
        units = units_of(memoryview(stored))
        return (int(units["physical_offset"][0]), int(units["store_size"][0])) if len(units) else None


@dataclass(frozen=True, slots=True)
class _StoredUnits:
    """Single units of queues in a RocksDB."""

    stored: RocksdbQueues

    def at(self, topic: str, queue_id: int, index: int) -> tuple[int, int] | None:
        """Return the position and size in the unit of a queue offset; None if the queue has no such unit."""
        found = self.stored.unit_from(topic, queue_id, index)
        if found is None or found.offsets[0] != index:
            return None
        unit = found.units[0]
        return int(unit["physical_offset"]), int(unit["store_size"])
