# SPDX-License-Identifier: Apache-2.0
"""Up to where the units of queues show a log's last segment to have records: the search for its end starts there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store_core.format.columnar.chain import Place
from store_core.format.record.dledger_entry import ENTRY_HEAD_SIZE
from store_core.format.record.framing import Framing, check_frame

if TYPE_CHECKING:
    from store_core.files.segment_source import Segment
    from store_core.store.read.lookup.queue_tiling import PathEnd, QueueTiling

__all__ = ["known_end"]

_NOWHERE: Final = (Place().position, Place().last_sound)


def known_end(tiling: QueueTiling, segment: Segment, *, verify_crc: bool) -> Place:
    """Return up to where the records of the log's last segment are known, and where the last of them starts.

    It is the segment's first byte if the units are not one path, and if the last of its records is not sound: a torn
    tail may begin before it.
    """
    name = "known end", *tiling.extent, segment.start_offset, verify_crc
    try:
        return Place(*tiling.proofs.fact(name, lambda: _known_end(tiling, segment, verify_crc=verify_crc)))
    except OSError:  # a queue file that is gone since it was listed: who reads its records will say so
        return Place(*_NOWHERE)


def _known_end(tiling: QueueTiling, segment: Segment, *, verify_crc: bool) -> tuple[int, int]:
    path = tiling.path_end(segment)
    if path is None:
        return _NOWHERE
    first, framing = segment.start_offset, segment.framing
    last, stop = path.last_start - first - framing.lead, path.offset - first
    previous = _entry_before(tiling, segment, path) if framing is Framing.ENTRIES else -1
    with tiling.opened.opened(segment) as opened:
        opened.load(last if previous < 0 else previous, stop)
        check = check_frame(opened.raw.data, last, first, framing, verify_crc=verify_crc, previous=previous)
    is_sound = check.reason is None and check.size == stop - last
    return (stop, last) if is_sound else _NOWHERE


def _entry_before(tiling: QueueTiling, segment: Segment, path: PathEnd) -> int:
    """Return the position of the entry before a path's last one; -1 if there is none.

    With it, the last one is checked as part of the sequence: one of an earlier term does not count.
    """
    last_of_each = [int(starts[-1]) for starts in tiling.starts_in(segment, path.last_start)]
    return max(last_of_each) - segment.start_offset - ENTRY_HEAD_SIZE if last_of_each else -1
