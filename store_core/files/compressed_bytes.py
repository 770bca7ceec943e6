# SPDX-License-Identifier: Apache-2.0
"""The bytes of a segment file that was compressed as a whole, expanded once into a temporary file."""

from __future__ import annotations

import os
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from store_core.errors import WITHOUT_SEGMENT, SegmentLayoutError, SegmentVanishedError, StoreAccessError
from store_core.files.access import explained_access
from store_core.files.local_bytes import LocalBytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    import numpy as np
    import numpy.typing as npt

    from store_core.files.remote_bytes import RemoteFile


LARGEST_SEGMENT: Final = 2**31 - 1
"""Bytes of the largest segment that RocketMQ can map (``MappedFile``: sizes are Java's int)."""

_CHUNK: Final = 256 << 10
"""Bytes that are expanded at once."""


class CompressedFile(NamedTuple):
    """A compressed segment file."""

    path: str  # absolute path, or URL
    codec: str  # one of `store_core.files.names.CODECS`
    remote: RemoteFile | None = None  # None on a disk of this machine
    begin: int | None = None
    """Where the segment begins in what the file expands to, if that is an archive; None if it is the segment."""

    def opened(self) -> pa.NativeFile:
        """Open the stream of its expanded bytes."""
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


class ExpandedStream:
    """The expanded bytes of a file from its beginning on, and how many were read."""

    def __init__(self, file: CompressedFile) -> None:
        self.file = file
        self.identity = file.identity()
        self._opened = file.opened()
        self.position = 0

    def read(self, most: int = _CHUNK) -> bytes:
        """Return the next bytes, in pieces of little memory; none at the end."""
        try:
            # Not `read`: when that fails, PyArrow keeps the memory which it took for the result for ever.
            data: bytes = self._opened.read_buffer(min(most, _CHUNK)).to_pybytes()
        except (pa.ArrowException, OSError) as error:
            raise SegmentLayoutError(
                f"{self.file.path} is not a whole {self.file.codec} file: {error}, after {self.position} bytes of what "
                f"is in it. Copy it again, or move it elsewhere"
            ) from None
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


def expanded_size(file: CompressedFile) -> int:
    """Count the bytes that a file expands to, in little memory."""
    with closing(ExpandedStream(file)) as stream:
        while stream.read():
            if stream.position > LARGEST_SEGMENT:
                raise SegmentLayoutError(
                    f"{file.path} expands to more than {LARGEST_SEGMENT} bytes: expected a segment. Move it elsewhere"
                )
        return stream.position


class _KeptStream:
    """The stream that the reader of a segment in an archive leaves to that of the next one.

    Without it each segment of an archive would be reached by expanding all before it.
    """

    def __init__(self) -> None:
        self._stream: ExpandedStream | None = None
        self._lock = Lock()

    def keep(self, stream: ExpandedStream) -> None:
        """Keep a stream, and close the one before."""
        with self._lock:
            before, self._stream = self._stream, stream
        if before is not None:
            before.close()

    def taken(self, file: CompressedFile) -> ExpandedStream | None:
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


class CompressedBytes(LocalBytes):
    """A compressed segment file, expanded once into an unnamed temporary file, as far as it is read.

    The temporary file has the bytes that the segment has to have, and takes disk for what is not zeros; it is read as
    any segment on a disk.

    * `size`: Bytes that it has to expand to.
    """

    def __init__(self, file: CompressedFile, size: int) -> None:
        self._packed = file
        self._size = size
        self._position = 0
        self._stream = _KEPT.taken(file) or ExpandedStream(file)
        with self._writing():
            expanded = TemporaryFile("w+b", buffering=0)  # noqa: SIM115 -- closed by `__exit__`
            expanded.truncate(size)
        super().__init__(file.path, expanded, size)

    def next_data(self, position: int) -> int:
        """Return `position`: where there are only zeros is not known before they are expanded."""
        return position

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._packed.begin is None or error is not None:
            self._stream.close()
        else:
            _KEPT.keep(self._stream)

    def packed(self, begins: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """Return the bytes of ranges, one after another; parameters as of `LocalBytes.packed`."""
        self._expand(int((begins + sizes).max()))
        return super().packed(begins, sizes)

    def read_into(self, target: memoryview, begin: int) -> None:
        """Fill a buffer with the bytes from a position on."""
        self._expand(begin + len(target))
        super().read_into(target, begin)

    def _expand(self, end: int) -> None:
        """Expand the file up to a position."""
        if self._packed.begin is not None:
            self._stream.pass_to(self._packed.begin + self._position)
        while self._position < end:
            self._put(self._stream.read(self._size - self._position + (self._packed.begin is None)))
            if self._packed.begin is None and self._position == self._size and self._stream.read(1):
                raise self._wrong_size("more")

    def _put(self, data: bytes) -> None:
        if not data:
            raise self._wrong_size(f"{self._position}")
        if self._position + len(data) > self._size:
            raise self._wrong_size("more")
        if data.strip(b"\0"):
            with self._writing():
                at = 0
                while at < len(data):
                    at += os.pwrite(self.descriptor, data[at:], self._position + at)
        self._position += len(data)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreAccessError(
                f"{self._packed.path}: could not expand it into a temporary file of {self._size} bytes in "
                f"{gettempdir()}: {error.strerror}. Give a directory with room for it by TMPDIR"
            ) from None

    def _wrong_size(self, found: str) -> SegmentLayoutError:
        return SegmentLayoutError(
            f"{self._packed.path} expands to {found} bytes: expected {self._size}, up to where the next segment "
            f"begins. Copy it again, or move it elsewhere"
        )
