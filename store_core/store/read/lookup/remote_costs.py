# SPDX-License-Identifier: Apache-2.0
"""What reading from another storage takes: bytes, and requests, each of which costs as much as some bytes.

A look-up is used if what it moves, for its proof and for its answer, costs less than a share of the scan. A request
counts as `LookUpCosts.per_request` bytes. What is not known beforehand is bounded: a unit has 20 bytes, and the record
it leads to at least 91, so units are never more than a fifth of the log that they describe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.files.remote.remote_bytes import NEAR
from store_core.files.remote.traffic import Moved
from store_core.files.remote.url_path import UrlPath
from store_core.files.segment_source import size_on_disk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from store_core.files.segment_source import Segment
    from store_core.files.store_path import StorePaths
    from store_core.store.read.lookup.costs import LookUpCosts
    from store_core.store.read.picks import Picks
    from store_core.store.read.ranges import ReadRange

__all__ = ["OPENING", "TrafficOf", "is_far", "moved_by", "price_of_picks"]

OPENING: Final = 2
"""Requests that opening a file takes; as many see at the end whether it is still the same."""

_BLOCK: Final = 4 << 20
"""Bytes of the largest requests."""


def is_far(segments: Iterable[Segment]) -> bool:
    """Return whether segments are not on this machine."""
    return any(segment.remote is not None for segment in segments)


def price_of_picks(pieces: Sequence[Picks], segments: Sequence[Segment], costs: LookUpCosts) -> int:
    """Return what it costs to read records, in bytes of a scan; from elsewhere they are read to plan, and again."""
    if not is_far(segments):
        return sum(len(piece) * costs.per_record + piece.size for piece in pieces)
    bounds = [np.stack([piece.starts, piece.starts + piece.sizes]) for piece in pieces]
    moved = _moved(np.concatenate([np.empty((2, 0), np.int64), *bounds], axis=1))
    return 2 * (moved.bytes + moved.requests * costs.per_request)


def moved_by(ranges: Sequence[ReadRange]) -> Moved:
    """Return what reading some ranges moves, about, if nothing is kept of what planning moved, and nothing fails."""
    moved = Moved()
    for part in ranges:
        if part.segment.remote is None:
            continue
        if part.picks is not None:
            found = _moved(np.stack([part.picks.starts, part.picks.starts + part.picks.sizes]))
        else:
            size = size_on_disk(part.segment) if part.segment.codec else part.data_end - part.segment.start_offset
            found = Moved(-(-size // _BLOCK), size)
        moved = moved.and_also(found).and_also(Moved(2 * OPENING))
    return moved


def _moved(bounds: npt.NDArray[np.int64]) -> Moved:
    """Return the requests for ranges, of which near ones are one."""
    if not bounds.size:
        return Moved()
    starts, ends = bounds[:, np.argsort(bounds[0])]
    ends = np.maximum.accumulate(ends)
    gaps = starts[1:] - ends[:-1]
    size = int(ends[-1] - starts[0]) - int(gaps[gaps > NEAR].sum())
    return Moved(max(int((gaps > NEAR).sum()) + 1, -(-size // _BLOCK)), size)


class TrafficOf:
    """What is moved for some paths from when this is made.

    Parameters
    ----------
    paths : path or sequence of paths
        As of `store_core.files.store_path.located`.
    """

    def __init__(self, paths: StorePaths) -> None:
        given = paths if isinstance(paths, list) else [paths]
        found = {path.place.storage.traffic for path in given if isinstance(path, UrlPath)}
        self._before = [(each, each.moved) for each in found]

    @property
    def moved(self) -> Moved:
        """Until now."""
        total = Moved()
        for traffic, before in self._before:
            total = total.and_also(traffic.moved.since(before))
        return total
