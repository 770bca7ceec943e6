# SPDX-License-Identifier: Apache-2.0
"""A file of a storage: ranges of it, blocks that are requested ahead of a walk, and a check that it stays the same."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from secrets import token_bytes
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar

import numpy as np

from store_core.errors import WITHOUT_SEGMENT, SegmentVanishedError
from store_core.files.machine import Clock, SystemClock
from store_core.files.storage import Attempts, RemotePath

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    _T = TypeVar("_T")


NEAR: Final = 256 << 10
"""Bytes between two ranges up to which they are one request: as many are moved in the time that a request takes, with
16 at a time of 40 ms and 100 MB a second."""

_BLOCK: Final = 4 << 20
"""Most bytes of one request."""

_REQUESTS: Final = 16
"""Requests at a time: pyarrow's S3 client has 25 connections."""

_AHEAD: Final = 8 * _BLOCK
"""Bytes that are requested ahead of what a walk reads."""

_BEHIND: Final = 2
"""Blocks before a range that are kept: where a walk is damaged, it looks back."""

_MOST_KEPT: Final = 8 << 20
"""Bytes of the ranges that are kept."""

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
    """A remote file: blocks of it that are requested ahead of a walk, or just the ranges that are asked for.

    The last ranges stay, whether the file is closed or not: a reader that comes later opens it again only for others.

    * `ahead_to`: Position up to which blocks after those that a walk reads are requested in advance; 0 for none.
    * `begin`, `size`: Of the bytes that are read, as those of one file in an archive; by default all.
    """

    def __init__(self, file: RemoteFile, ahead_to: int = 0, begin: int = 0, size: int | None = None) -> None:
        self._begin, self._size = begin, file.size if size is None else size
        self._ahead_to = min(ahead_to, self._size)
        self._reader = RemoteReader(file)
        self._kept: deque[tuple[int, npt.NDArray[np.uint8]]] = deque()
        self._blocks: dict[int, Future[npt.NDArray[np.uint8]]] = {}
        self._window = np.empty(0, np.uint8)
        self._pool: ThreadPoolExecutor | None = None

    def chunk(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        """Return the bytes of a range, in memory that the next call may use again, and request the blocks after it."""
        if self._ahead_to:
            return self._of_blocks(begin, end)
        kept = self._found(begin, end)
        return self._fetched([(begin, end)])[0][1] if kept is None else kept

    def packed(self, begins: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """Return the bytes of ranges, one after another, by few requests at once."""
        ranges = list(zip(begins.tolist(), (begins + sizes).tolist(), strict=True))
        found = {each: self._found(*each) for each in ranges}
        fetched = self._fetched(coalesced((each for each, kept in found.items() if kept is None), NEAR))
        firsts = [first for first, _ in fetched]
        for (begin, end), kept in found.items():
            if kept is None:
                first, data = fetched[bisect_right(firsts, begin) - 1]
                found[begin, end] = data[begin - first : end - first]
        return np.concatenate([found[each] for each in ranges])

    def next_data(self, position: int) -> int:
        """Return `position`: a storage does not tell where a file has only zeros."""
        return position

    def check_unchanged(self) -> None:
        """Refuse a file that was replaced while it was read."""
        self._reader.check_unchanged()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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

    def _of_blocks(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        if self._window.size < end - begin:
            self._window = np.empty(end - begin, np.uint8)
        found = self._window[: end - begin]
        blocks = range(begin // _BLOCK, -(-end // _BLOCK))
        for block in [block for block in self._blocks if block < blocks.start - _BEHIND]:
            self._blocks.pop(block).cancel()
        for block in range(blocks.start, max(blocks.stop, -(-min(end + _AHEAD, self._ahead_to) // _BLOCK))):
            if block not in self._blocks:
                self._blocks[block] = self._requests.submit(self._block, block)
        for block in blocks:
            first, data = block * _BLOCK, self._blocks[block].result()
            low, high = max(begin, first), min(end, first + data.size)
            found[low - begin : high - begin] = data[low - first : high - first]
        return found

    def _block(self, block: int) -> npt.NDArray[np.uint8]:
        begin = block * _BLOCK
        data = np.empty(min(_BLOCK, self._size - begin), np.uint8)
        self._read_into(begin, data)
        return data

    def _read_into(self, begin: int, target: npt.NDArray[np.uint8]) -> None:
        self._reader.read_into(self._begin + begin, target)

    def _found(self, begin: int, end: int) -> npt.NDArray[np.uint8] | None:
        """Return the bytes of a range if they are kept."""
        for first, data in self._kept:
            if first <= begin and end <= first + data.size:
                return data[begin - first : end - first]
        return None

    def _fetched(self, ranges: Sequence[Range]) -> list[tuple[int, npt.NDArray[np.uint8]]]:
        """Request ranges, and keep the last of them."""
        found = [(begin, np.empty(end - begin, np.uint8)) for begin, end in ranges]
        pieces = [(begin + at, data[at : at + _BLOCK]) for begin, data in found for at in range(0, data.size, _BLOCK)]
        if len(pieces) == 1:
            self._read_into(*pieces[0])
        elif pieces:
            list(self._requests.map(self._read_into, *zip(*pieces, strict=True)))
        self._kept.extend(found)
        while sum(data.size for _, data in self._kept) > _MOST_KEPT:
            self._kept.popleft()
        return found


_MARKS: Final = ("ETag", "generation")
"""What S3 and Azure, and Google's store, call it; the second changes with each object that is written."""

_OF_PYTHON: Final = "py::"
"""What the names of pyarrow's file systems begin with that are written in Python."""

_MARKED: Final = 16
"""Bytes at the end of a range that show whether an answer reached it."""

_OTHER_MARK: Final = "its content is marked as another (ETag) than when it was opened"


class RemoteFile(NamedTuple):
    """A file as it was listed."""

    path: RemotePath
    size: int  # in bytes
    modified: int  # when it was written last, in ns since 1970; 0 if the storage does not tell


class RemoteReader:
    """Reads ranges of a file; several threads may do so at once."""

    def __init__(self, file: RemoteFile, clock: Clock | None = None) -> None:
        self._file = file
        place = file.path
        self._attempts = Attempts(place.url, place.storage.settings, clock or SystemClock())
        self._storage = file.path.storage.opened()
        self._path = self._storage.path_of(file.path.relative)
        self._is_closed = False
        self._open: pa.NativeFile = self._tried("open it", self._opened)
        self._mark = self._tried("read its metadata", lambda: _mark(self._open))
        self._idle = [self._open]

    def read(self, begin: int, end: int) -> bytes:
        """Return the bytes of a range that lies in the file."""
        target = np.empty(end - begin, np.uint8)
        self.read_into(begin, target)
        return target.tobytes()

    def read_into(self, begin: int, target: npt.NDArray[np.uint8]) -> None:
        """Put the bytes from a position on into an array of as many.

        Each thread has a stream of its own, since a stream has one position; each but the first asks for the file's
        metadata. Not with a file system written in Python, as fsspec's: files that it opens may share a position.
        """
        self._tried(f"read {target.size} bytes at position {begin}", lambda: self._range_into(begin, target))

    def check_unchanged(self) -> None:
        """Refuse a file that was replaced while it was read: by its size, time, and mark of its content (ETag)."""
        with self._tried("open it again", self._opened) as again:
            if self._tried("read its metadata", lambda: _mark(again)) != self._mark:
                raise self._replaced(_OTHER_MARK)

    def close(self) -> None:
        """Close the connections; the next read opens one again."""
        self._open.close()
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    def _opened(self) -> pa.NativeFile:
        self._file.path.storage.traffic.count(2)
        found = self._storage.file_system.get_file_info(self._path)
        if not found.is_file:
            raise FileNotFoundError(self._path)
        if found.size != self._file.size:
            raise self._replaced(f"it has {found.size} bytes, not {self._file.size}")
        if self._file.modified and found.mtime_ns != self._file.modified:
            raise self._replaced(f"it was written at {found.mtime}, after the plan was made")
        return self._storage.file_system.open_input_file(self._path)

    def _range_of_python(self, begin: int, target: npt.NDArray[np.uint8]) -> None:
        if self._is_closed:  # whoever still holds the bytes reads on, as from a mapping
            self._open, self._is_closed = self._opened(), False
        data: bytes = self._open.read_at(target.size, begin)
        if len(data) != target.size:
            raise OSError(f"expected {target.size} bytes, found {len(data)}")
        self._file.path.storage.traffic.count(1, len(data))
        target[:] = np.frombuffer(data, np.uint8)

    def _range_into(self, begin: int, target: npt.NDArray[np.uint8]) -> None:
        if self._storage.file_system.type_name.startswith(_OF_PYTHON):
            self._range_of_python(begin, target)
            return
        try:
            stream = self._idle.pop()
        except IndexError:
            stream = self._another()
        try:
            requests = _fill(stream, begin, target)
        finally:
            self._idle.append(stream)
        self._file.path.storage.traffic.count(requests, target.size)

    def _another(self) -> pa.NativeFile:
        """Open the file once more, and refuse another file than the one that was opened first."""
        self._file.path.storage.traffic.count(1)
        stream = self._storage.file_system.open_input_file(self._path)
        if stream.size() != self._file.size:
            raise self._replaced(f"it has {stream.size()} bytes, not {self._file.size}")
        if _mark(stream) != self._mark:
            raise self._replaced(_OTHER_MARK)
        return stream

    def _tried(self, what: str, act: Callable[[], _T]) -> _T:
        """Do something, with a few attempts and longer pauses each time."""
        try:
            return self._attempts.make(what, act)
        except SegmentVanishedError:
            raise
        except FileNotFoundError:
            raise self._vanished() from None

    def _vanished(self) -> SegmentVanishedError:
        return SegmentVanishedError(
            f"segment {self._file.path.url} ({self._file.size} bytes) was there when the read was planned, and is gone"
        ).advised(WITHOUT_SEGMENT)

    def _replaced(self, found: str) -> SegmentVanishedError:
        return SegmentVanishedError(
            f"segment {self._file.path.url} ({self._file.size} bytes) was replaced since the read was planned: "
            f"{found}. Read again; a store that is being copied is read when the copy is complete"
        )


def _fill(stream: pa.NativeFile, position: int, target: npt.NDArray[np.uint8]) -> int:
    """Fill an array from a position on, refuse an answer that is too short, and return the number of requests.

    Of S3, pyarrow takes an answer for whole that ends early and says so by its length: the rest of the array stays as
    it was. So there are random bytes at the array's end before. If the last one is there afterwards, which happens by
    chance, too, the end is read once more, over other bytes.
    """
    tail = target[-_MARKED:]
    mark = np.frombuffer(token_bytes(tail.size), np.uint8)
    found = _filled(stream, position, target, mark)
    is_short, requests = found != target.size, 1
    if not is_short and target.size and tail[-1] == mark[-1]:
        requests = 2
        again = np.empty_like(tail)
        end = position + target.size - tail.size
        is_short = _filled(stream, end, again, ~mark) != tail.size or not np.array_equal(again, tail)
    if is_short:
        raise OSError(f"expected {target.size} bytes, found {min(found, target.size - 1)} or fewer")
    return requests


def _filled(stream: pa.NativeFile, position: int, target: npt.NDArray[np.uint8], mark: npt.NDArray[np.uint8]) -> int:
    target[target.size - mark.size :] = mark
    stream.seek(position)
    count: int = stream.readinto(target)
    return count


def _mark(file: pa.NativeFile) -> bytes:
    """Return what the storage marks a file's content with; empty where it has no such thing."""
    metadata = file.metadata() or {}
    return next((bytes(metadata[name]) for name in _MARKS if name in metadata), b"")
