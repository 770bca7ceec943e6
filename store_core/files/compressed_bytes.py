# SPDX-License-Identifier: Apache-2.0
"""The bytes of a segment file that was compressed as a whole, expanded as far as they are read."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from store_core.errors import WITHOUT_SEGMENT, SegmentLayoutError, SegmentVanishedError
from store_core.files.access import explained_access
from store_core.files.filled_memory import FilledMemory

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    import numpy as np
    import numpy.typing as npt

    from store_core.files.remote.remote_file import RemoteFile

__all__ = [
    "LARGEST_SEGMENT",
    "CompressedBytes",
    "CompressedFile",
    "expanded_size",
    "read_piece",
]

LARGEST_SEGMENT: Final = 2**31 - 1
"""Bytes of the largest segment that RocketMQ can map (``MappedFile``: sizes are Java's int)."""

_CHUNK: Final = 256 << 10
"""Bytes that are expanded at once."""

_STEP: Final = 16 << 20
"""Bytes that a walk loads at once."""


class CompressedFile(NamedTuple):
    """A compressed segment file.

    Attributes
    ----------
    path : str
        Absolute path, or URL.
    codec : str
        One of `store_core.files.packed_name.CODECS`.
    remote : RemoteFile or None
        None on a disk of this machine.
    begin : int or None
        Where the segment begins in what the file expands to, if that is an archive; None if it is the segment.
    """

    path: str
    codec: str
    remote: RemoteFile | None = None
    begin: int | None = None

    def opened(self) -> pa.NativeFile:
        """Open the stream of its expanded bytes.

        Raises
        ------
        SegmentVanishedError
            If it is gone.
        StoreAccessError
            If it may not be read.
        """
        try:
            with explained_access(Path(self.path)):
                return pa.CompressedInputStream(self._stream(), self.codec)
        except FileNotFoundError:
            raise SegmentVanishedError(f"segment {self.path} was there when the read was planned, and is gone").advised(
                WITHOUT_SEGMENT
            ) from None

    def identity(self) -> tuple[int, ...]:
        """Return what tells the file at this path from another that takes its place; nothing if it is gone."""
        if self.remote is not None:
            return self.remote.size, self.remote.modified
        try:
            status = Path(self.path).stat()
        except OSError:
            return ()
        return status.st_size, status.st_mtime_ns, status.st_ino

    def _stream(self) -> pa.NativeFile:
        if self.remote is None:
            return pa.OSFile(self.path)
        storage = self.remote.path.storage.opened()
        return storage.file_system.open_input_stream(storage.path_of(self.remote.path.relative), compression=None)


def expanded_size(file: CompressedFile) -> int:
    """Count the bytes that a file expands to, in little memory.

    Raises
    ------
    SegmentLayoutError
        If it is not a whole file of its codec, or expands to more than any segment has.
    """
    size = 0
    with file.opened() as stream:
        while piece := read_piece(file, stream, size):
            size += len(piece)
            if size > LARGEST_SEGMENT:
                raise SegmentLayoutError(
                    f"{file.path} expands to more than {LARGEST_SEGMENT} bytes: expected a segment. Move it elsewhere"
                )
    return size


def read_piece(file: CompressedFile, stream: pa.NativeFile, position: int, most: int = _CHUNK) -> bytes:
    """Return the next bytes that a file expands to; none at its end.

    Parameters
    ----------
    file : CompressedFile
    stream : pyarrow.NativeFile
        The open file.
    position : int
        How many bytes it has expanded to, for errors.
    most : int
        Bytes that the caller has use for.

    Raises
    ------
    SegmentLayoutError
        If it is not a whole file of its codec.
    """
    try:
        # Not `read`: when that fails, PyArrow keeps the memory which it took for the result for ever.
        data: bytes = stream.read_buffer(min(most, _CHUNK)).to_pybytes()
    except (pa.ArrowException, OSError) as error:
        raise SegmentLayoutError(
            f"{file.path} is not a whole {file.codec} file: {error}, after {position} bytes of what is in it. Copy "
            f"it again, or move it elsewhere"
        ) from None
    return data


class _Stream:
    """The expanded bytes of a file, and how many were read."""

    def __init__(self, file: CompressedFile) -> None:
        self.file = file
        self.identity = file.identity()
        self._opened = file.opened()
        self.position = 0

    def read(self, most: int) -> bytes:
        """Return the next bytes; none at the end."""
        data = read_piece(self.file, self._opened, self.position, most)
        self.position += len(data)
        return data

    def pass_to(self, position: int) -> None:
        """Expand what precedes a position."""
        while self.position < position:
            if not self.read(position - self.position):
                return

    def close(self) -> None:
        """Close the file."""
        self._opened.close()


class _KeptStream:
    """The stream that the reader of a segment in an archive leaves to that of the next one.

    Without it each segment of an archive would be reached by expanding all before it.
    """

    def __init__(self) -> None:
        self._stream: _Stream | None = None
        self._lock = Lock()

    def keep(self, stream: _Stream) -> None:
        """Keep a stream, and close the one before."""
        with self._lock:
            before, self._stream = self._stream, stream
        if before is not None:
            before.close()

    def taken(self, file: CompressedFile) -> _Stream | None:
        """Return the stream that leads to a segment, which is not kept any more; None if there is none."""
        if file.begin is None:
            return None
        with self._lock:
            stream = self._stream
            if stream is None or stream.file._replace(begin=file.begin) != file or stream.position > file.begin:
                return None
            if stream.identity != file.identity():
                return None
            self._stream = None
        return stream


_KEPT: Final = _KeptStream()


class CompressedBytes:
    """A compressed segment file as an array of its expanded size, filled from its beginning as far as it is read.

    Reading backwards begins again, so readers go forwards.

    Parameters
    ----------
    file : CompressedFile
    size : int
        Bytes that it has to expand to.

    Attributes
    ----------
    raw : numpy.ndarray
        uint8, shape (size,), read-only.
    step : int
        See `store_core.format.segment_view.Pages`.

    Raises
    ------
    SegmentVanishedError, StoreAccessError
        As `CompressedFile.opened`.
    """

    step = _STEP

    def __init__(self, file: CompressedFile, size: int) -> None:
        self._file = file
        self._size = size
        self._memory = FilledMemory(size)
        self._memory.use_huge_pages()
        self.raw = self._memory.raw
        self._stream = _KEPT.taken(file) or _Stream(file)
        self._position = 0
        self._kept = 0
        """Where the bytes begin that are filled and not dropped."""

    def load(self, begin: int, end: int) -> None:
        """Make the bytes of a range available.

        Raises
        ------
        SegmentLayoutError
            If the file is not whole, or expands to another size.
        """
        end = min(end, self._size)
        if begin >= end:
            return
        if begin < self._kept:
            self._stream.close()
            self._stream, self._position, self._kept = _Stream(self._file), 0, 0
        if self._file.begin is not None:
            self._stream.pass_to(self._file.begin + self._position)
        while self._position < end:
            self._fill(self._stream.read(self._size - self._position + (self._file.begin is None)))
        if self._file.begin is None and self._position == self._size and self._stream.read(1):
            raise self._wrong_size("more")

    def chunk(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        """Return the bytes of a range; those before it are dropped."""
        self.drop(begin)
        self.load(begin, end)
        return self.raw[begin:end]

    def load_many(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Make the bytes of several ranges available."""
        for begin, end in sorted(ranges):
            self.load(begin, end)

    def load_all(self) -> None:
        """Make all bytes available."""
        self.load(0, self._size)

    def drop(self, end: int) -> None:
        """Return the memory of the bytes before a position to the system."""
        if end > self._kept:
            self._memory.free(self._kept, end)
            self._kept = end

    def next_data(self, position: int) -> int:
        """Return `position`: where there are only zeros is not known before they are expanded."""
        return position

    def next_hole(self, position: int) -> int:  # noqa: ARG002 -- the protocol's parameter
        """Return the size, as for `next_data`."""
        return self._size

    def check_size(self) -> None:
        """Do nothing: a read that gets too little is an error."""

    def check_unchanged(self) -> None:
        """Do nothing: the stream is of the file that was opened."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file.begin is None or error is not None:
            self._stream.close()
        else:
            _KEPT.keep(self._stream)

    def _fill(self, data: bytes) -> None:
        if not data:
            raise self._wrong_size(f"{self._position}")
        if self._position + len(data) > self._size:
            raise self._wrong_size("more")
        self._memory.fill(self._position, data)
        self._position += len(data)

    def _wrong_size(self, found: str) -> SegmentLayoutError:
        return SegmentLayoutError(
            f"{self._file.path} expands to {found} bytes: expected {self._size}, up to where the next segment begins. "
            f"Copy it again, or move it elsewhere"
        )
