# SPDX-License-Identifier: Apache-2.0
"""Positions after damage that may be records: found by their magic codes, and checked many at once.

A hostile body can be full of magic codes. So a block in which one is found is checked as a whole: numpy rejects what
does not claim its own position, or does not add up, without looking at each one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.format.columnar.spans import Heads, measure
from store_core.format.layout import MIN_RECORD_SIZE, field_position, head_dtype

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.format.segment_view import SegmentView

__all__ = ["CandidateFinder"]

_FIRST_CHUNK: Final = 64 << 10
_SEARCH_CHUNK: Final = 16 << 20
"""Bytes searched at once: few at first, since a log's end is mostly followed by a hole, which is skipped from where a
search begins; searching inside it takes time, and memory for its zeros."""

_BLOCK: Final = 1 << 20
_MAGIC: Final = re.compile(rb"\xda\xa3\x20[\xa7\xab]", re.DOTALL)
_MAGIC_LENGTH: Final = 4
_MAGIC_POSITION: Final = field_position(head_dtype(), "magic_code")


class CandidateFinder:
    """Finds what looks like a record: a magic code, a physical offset equal to its position, parts that add up.

    Parameters
    ----------
    segment : SegmentView
    """

    def __init__(self, segment: SegmentView) -> None:
        self._raw = segment.raw
        self._start_offset = segment.start_offset
        self._next_data = segment.next_data
        self._begin = self._end = 0
        self._found = np.empty(0, np.int64)

    def next(self, begin: int) -> int | None:
        """Return the first candidate at or after `begin`, None if there is none."""
        while True:
            if not self._begin <= begin < self._end:
                first = self._next_magic(begin)
                if first is None:
                    return None
                self._look_at(first)
                begin = first
            index = int(np.searchsorted(self._found, begin))
            if index < self._found.size:
                return int(self._found[index])
            begin = self._end

    def _next_magic(self, begin: int) -> int | None:
        """Return where the record of the next magic code would start; skips bytes without one quickly."""
        position, size, chunk = begin + _MAGIC_POSITION, self._raw.size, _FIRST_CHUNK
        while position < size:
            position = max(self._next_data(position), position)
            stop = min(position + chunk + _MAGIC_LENGTH - 1, size)
            match = _MAGIC.search(self._raw.data, position, stop)
            if match is not None:
                start = match.start() - _MAGIC_POSITION
                return start if start + MIN_RECORD_SIZE <= size else None
            position += chunk
            chunk = min(2 * chunk, _SEARCH_CHUNK)
        return None

    def _look_at(self, begin: int) -> None:
        """Find the candidates of the block that starts at `begin`."""
        self._begin, self._end = begin, min(begin + _BLOCK, self._raw.size - MIN_RECORD_SIZE + 1)
        starts = begin + np.flatnonzero(_magics(self._raw[begin + _MAGIC_POSITION : self._end + 2 * _MAGIC_LENGTH - 1]))
        heads = Heads(self._raw, starts)
        sizes = heads.leading("total_size")
        claims = heads.leading("physical_offset") - starts == self._start_offset
        fits = claims & (sizes >= MIN_RECORD_SIZE) & (sizes <= self._raw.size - starts)
        starts = starts[fits]
        self._found = starts[measure(Heads(self._raw, starts), self._start_offset).sound]


def _magics(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Return for each position of `data`, except the last three, whether a message's magic code is there."""
    is_magic: npt.NDArray[np.bool_] = (data[:-3] == 0xDA) & (data[1:-2] == 0xA3)  # noqa: PLR2004 -- the bytes of 0xDAA320A7 and 0xDAA320AB
    is_magic &= data[2:-1] == 0x20  # noqa: PLR2004
    last = data[3:]
    is_magic &= (last == 0xA7) | (last == 0xAB)  # noqa: PLR2004
    return is_magic
