# SPDX-License-Identifier: Apache-2.0
"""The bytes of a remote file: blocks that are requested ahead of a walk, and ranges that are read here and there."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.files.filled_memory import FilledMemory
from store_core.files.remote.remote_file import RemoteReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from concurrent.futures import Future
    from types import TracebackType
    from typing import Self

    import numpy.typing as npt

    from store_core.files.remote.remote_file import RemoteFile

__all__ = ["NEAR", "RemoteBytes", "coalesced"]

NEAR: Final = 256 << 10
"""Bytes between two ranges up to which they are one request: as many are moved in the time that a request takes, with
16 at a time of 40 ms and 100 MB a second."""

_BLOCK: Final = 4 << 20
"""Most bytes of one request."""

_REQUESTS: Final = 16
"""Requests at a time: pyarrow's S3 client has 25 connections."""

_AHEAD: Final = 8 * _BLOCK
"""Bytes that are requested ahead of what a walk reads."""

_STEP: Final = 8 << 20
"""Bytes that a walk loads at once."""

Range = tuple[int, int]


def coalesced(ranges: Iterable[Range], near: int) -> list[Range]:
    """Return the ranges to request for some others, ascending: those that lie near one another are one.

    >>> coalesced([(500, 600), (0, 100), (120, 130)], near=20)
    [(0, 130), (500, 600)]
    """
    found: list[Range] = []
    for begin, end in sorted(ranges):
        if found and begin - found[-1][1] <= near:
            found[-1] = found[-1][0], max(found[-1][1], end)
        elif begin < end:
            found.append((begin, end))
    return found


class RemoteBytes:
    """A remote file whose bytes are there once they are loaded, and zeros otherwise.

    What was loaded stays until it is dropped, whether the file is closed or not: a reader that comes later opens it
    again only for what is missing.

    * `ahead_to`: Position up to which blocks after those that a walk reads are requested in advance; 0 for none.

    * `raw`: uint8, shape (size,), read-only.
    * `step`: See `store_core.format.segment_view.Pages`.
    """

    step = _STEP

    def __init__(self, file: RemoteFile, ahead_to: int = 0) -> None:
        self._size = file.size
        self._ahead_to = min(ahead_to, file.size)
        self._reader = RemoteReader(file)
        self._memory = FilledMemory(file.size)
        self.raw = self._memory.raw
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._blocks: dict[int, Future[npt.NDArray[np.uint8]]] = {}
        self._window = np.empty(0, np.uint8)
        self._pool: ThreadPoolExecutor | None = None

    @property
    def kept(self) -> int:
        """Bytes that are loaded."""
        return sum(self._ends) - sum(self._begins)

    def has(self, begin: int, end: int) -> bool:
        """Return whether the bytes of a range are loaded."""
        at = bisect_right(self._ends, begin)
        return begin >= end or (at < len(self._begins) and self._begins[at] <= begin and end <= self._ends[at])

    def chunk(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        """Return the bytes of a range, in memory that the next call uses again, and request the blocks after it."""
        if not self._ahead_to or self.has(begin, end):
            self.load(begin, end)
            return self.raw[begin:end]
        if self._window.size < end - begin:
            self._window = np.empty(end - begin, np.uint8)
        found = self._window[: end - begin]
        blocks = range(begin // _BLOCK, -(-end // _BLOCK))
        for block in [block for block in self._blocks if block < blocks.start]:
            self._blocks.pop(block).cancel()
        for block in range(blocks.start, max(blocks.stop, -(-min(end + _AHEAD, self._ahead_to) // _BLOCK))):
            if block not in self._blocks:
                self._blocks[block] = self._requests.submit(self._block, block)
        for block in blocks:
            first, data = block * _BLOCK, self._blocks[block].result()
            low, high = max(begin, first), min(end, first + data.size)
            found[low - begin : high - begin] = data[low - first : high - first]
        return found

    def load(self, begin: int, end: int) -> None:
        """Make the bytes of a range available; for a walk whole blocks, as they came for `chunk` if they did."""
        begin, end = max(begin, 0), min(end, self._size)
        if self._ahead_to and not self.has(begin, end):
            begin, end = begin // _BLOCK * _BLOCK, min(-(-end // _BLOCK) * _BLOCK, self._size)
            for block in range(begin // _BLOCK, -(-end // _BLOCK)):
                if block in self._blocks:
                    self._take(block)
        self.load_many([(begin, end)])

    def load_many(self, ranges: Sequence[Range]) -> None:
        """Make the bytes of several ranges available, by few requests at once."""
        wanted = ((max(begin, 0), min(end, self._size)) for begin, end in ranges)
        missing = coalesced((gap for begin, end in wanted if begin < end for gap in self._missing(begin, end)), NEAR)
        pieces = [(at, min(at + _BLOCK, end)) for begin, end in missing for at in range(begin, end, _BLOCK)]
        if len(pieces) == 1:
            self._fetch(*pieces[0])
        elif pieces:
            list(self._requests.map(self._fetch, *zip(*pieces, strict=True)))
        for begin, end in missing:
            self._note(begin, end)

    def drop(self, end: int) -> None:
        """Return the memory before a position to the system; it can be loaded again."""
        count = bisect_left(self._begins, end)
        if not count:
            return
        first, last = self._begins[0], self._ends[count - 1]
        self._memory.free(first, min(last, end))
        self._begins[:count], self._ends[:count] = ([end], [last]) if last > end else ([], [])

    def next_data(self, position: int) -> int:
        """Return `position`: a storage does not tell where a file has only zeros."""
        return position

    def next_hole(self, position: int) -> int:  # noqa: ARG002 -- the protocol's parameter
        """Return the file's size, as for `next_data`."""
        return self._size

    def check_unchanged(self) -> None:
        """Refuse a file that was replaced while it was read."""
        self._reader.check_unchanged()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        self._blocks.clear()
        self._reader.close()

    @property
    def _requests(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_REQUESTS, "remote-read")
        return self._pool

    def _block(self, block: int) -> npt.NDArray[np.uint8]:
        begin = block * _BLOCK
        data = np.empty(min(_BLOCK, self._size - begin), np.uint8)
        self._reader.read_into(begin, data)
        return data

    def _take(self, block: int) -> None:
        """Note a block that came for `chunk` as loaded."""
        begin, data = block * _BLOCK, self._blocks[block].result()
        if not self.has(begin, begin + data.size):
            self._memory.fill(begin, data)
            self._note(begin, begin + data.size)

    def _fetch(self, begin: int, end: int) -> None:
        self._memory.fill(begin, self._reader.read(begin, end))

    def _missing(self, begin: int, end: int) -> Iterable[Range]:
        """Yield the parts of a range that are not loaded."""
        at = bisect_right(self._ends, begin)
        while begin < end:
            if at == len(self._begins) or self._begins[at] >= end:
                yield begin, end
                return
            if self._begins[at] > begin:
                yield begin, self._begins[at]
            begin, at = self._ends[at], at + 1

    def _note(self, begin: int, end: int) -> None:
        """Take note of a range that was loaded, part of which may have been there."""
        first, stop = bisect_left(self._ends, begin), bisect_right(self._begins, end)
        if first < stop:
            begin, end = min(begin, self._begins[first]), max(end, self._ends[stop - 1])
        self._begins[first:stop], self._ends[first:stop] = [begin], [end]
