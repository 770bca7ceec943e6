# SPDX-License-Identifier: Apache-2.0
"""A file of a storage, opened for reading ranges of it, with retries and a check that it stays the same."""

from __future__ import annotations

from secrets import token_bytes
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.errors import WITHOUT_SEGMENT, SegmentVanishedError
from store_core.files.clock import SystemClock
from store_core.files.remote.storage import Attempts

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    import numpy.typing as npt
    import pyarrow as pa

    from store_core.files.clock import Clock
    from store_core.files.remote.storage import RemotePath

    _T = TypeVar("_T")

__all__ = ["RemoteFile", "RemoteReader"]

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
    begin: int = 0  # where in the file the bytes begin that are read, as of one file in an archive
    whole: int | None = None  # size of the whole file; None if that is `size`


class RemoteReader:
    """Reads ranges of a file; several threads may do so at once.

    * `clock`: Pauses between attempts.
    """

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
        return self._tried(f"read {end - begin} bytes at position {begin}", lambda: self._range(begin, end))

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
        size = self._file.size if self._file.whole is None else self._file.whole
        if found.size != size:
            raise self._replaced(f"it has {found.size} bytes, not {size}")
        if self._file.modified and found.mtime_ns != self._file.modified:
            raise self._replaced(f"it was written at {found.mtime}, after the plan was made")
        return self._storage.file_system.open_input_file(self._path)

    def _range(self, begin: int, end: int) -> bytes:
        if self._is_of_python():
            return self._range_of_python(begin, end)
        target = np.empty(end - begin, np.uint8)
        self._range_into(begin, target)
        return target.tobytes()

    def _range_of_python(self, begin: int, end: int) -> bytes:
        if self._is_closed:  # whoever still holds the bytes reads on, as from a mapping
            self._open, self._is_closed = self._opened(), False
        data: bytes = self._open.read_at(end - begin, self._file.begin + begin)
        if len(data) != end - begin:
            raise OSError(f"expected {end - begin} bytes, found {len(data)}")
        self._file.path.storage.traffic.count(1, len(data))
        return data

    def _range_into(self, begin: int, target: npt.NDArray[np.uint8]) -> None:
        if self._is_of_python():
            target[:] = np.frombuffer(self._range_of_python(begin, begin + target.size), np.uint8)
            return
        try:
            stream = self._idle.pop()
        except IndexError:
            stream = self._another()
        try:
            requests = _fill(stream, self._file.begin + begin, target)
        finally:
            self._idle.append(stream)
        self._file.path.storage.traffic.count(requests, target.size)

    def _is_of_python(self) -> bool:
        is_python: bool = self._storage.file_system.type_name.startswith(_OF_PYTHON)
        return is_python

    def _another(self) -> pa.NativeFile:
        """Open the file once more, and refuse another file than the one that was opened first."""
        self._file.path.storage.traffic.count(1)
        stream = self._storage.file_system.open_input_file(self._path)
        size = self._file.size if self._file.whole is None else self._file.whole
        if stream.size() != size:
            raise self._replaced(f"it has {stream.size()} bytes, not {size}")
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
