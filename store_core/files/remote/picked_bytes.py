# SPDX-License-Identifier: Apache-2.0
"""A remote file of which a few ranges are read, here and there: near ones by one request, the others beside them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from store_core.files.remote.remote_bytes import RemoteBytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from store_core.files.remote.remote_file import RemoteFile

__all__ = ["NEAR", "PickedBytes", "coalesced"]

NEAR: Final = 256 << 10
"""Bytes between two ranges up to which they are one request: as many are moved in the time that a request takes, with
16 at a time of 40 ms and 100 MB a second."""

_LARGEST: Final = 4 << 20
"""Bytes of one request."""

_REQUESTS: Final = 16
"""Requests at a time: pyarrow's S3 client has 25 connections."""

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


class PickedBytes(RemoteBytes):
    """A remote file as an array, of which what is asked for is there, and little else.

    What was loaded stays until it is dropped, whether the file is closed or not: a reader that comes later opens it
    again only for what is missing.

    Parameters
    ----------
    file : RemoteFile
    """

    def __init__(self, file: RemoteFile) -> None:
        super().__init__(file, is_sparse=True)
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._requests: ThreadPoolExecutor | None = None

    @property
    def kept(self) -> int:
        """Bytes that are there."""
        return sum(self._ends) - sum(self._begins)

    def has(self, begin: int, end: int) -> bool:
        """Return whether the bytes of a range are there."""
        at = bisect_right(self._ends, begin)
        return begin >= end or (at < len(self._begins) and self._begins[at] <= begin and end <= self._ends[at])

    def load(self, begin: int, end: int) -> None:
        """Make the bytes of a range available."""
        self.load_many([(begin, end)])

    def load_many(self, ranges: Sequence[Range]) -> None:
        """Make the bytes of several ranges available, by few requests at once."""
        wanted = ((max(begin, 0), min(end, self._size)) for begin, end in ranges)
        missing = coalesced((gap for begin, end in wanted if begin < end for gap in self._missing(begin, end)), NEAR)
        pieces = [(at, min(at + _LARGEST, end)) for begin, end in missing for at in range(begin, end, _LARGEST)]
        if len(pieces) == 1:
            self._fetch(*pieces[0])
        elif pieces:
            if self._requests is None:
                self._requests = ThreadPoolExecutor(_REQUESTS, "remote-pick")
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._requests is not None:
            self._requests.shutdown(wait=True, cancel_futures=True)
            self._requests = None
        super().__exit__(kind, error, trace)

    def _missing(self, begin: int, end: int) -> Iterable[Range]:
        """Yield the parts of a range that are not there."""
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
