# SPDX-License-Identifier: Apache-2.0
"""One segment file, opened for reading by `pread`; one that is compressed is expanded once into a temporary file."""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import repeat
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from threading import Lock
from typing import IO, TYPE_CHECKING, Final, Protocol, Self

import numpy as np
import pyarrow as pa

from store_core.errors import (
    WITHOUT_SEGMENT,
    SegmentLayoutError,
    SegmentVanishedError,
    StoreAccessError,
    StoreNotFoundError,
)
from store_core.files.access import explained_access
from store_core.files.remote_bytes import RemoteBytes, RemoteFile
from store_core.files.url_path import remote_file_of
from store_core.format.record.scan import Framing
from store_core.format.segment_view import ByteSource, SegmentView

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from store_core.format.columnar.spans import EntryLog


class LocalBytes:
    """An open file that is read window by window, into memory that is used again.

    Unlike a mapping, it can't kill the process (SIGBUS) when something truncates the file, or the disk fails: a read
    that gets less than there was is an error with a name. And what a window has stays as it is, so that what was
    checked is what is decoded, whatever is written to the file meanwhile.

    * `file`: Closed by `__exit__`.
    * `size`: Bytes that it had when it was listed.
    * `begin`: Where in the file they begin, as those of one file in an archive.
    """

    def __init__(self, path: str, file: IO[bytes], size: int, begin: int = 0) -> None:
        self.path, self.file, self.size, self._begin = path, file, size, begin
        self._window = np.empty(0, np.uint8)

    @property
    def descriptor(self) -> int:
        """The system's number of the open file."""
        return self.file.fileno()

    def chunk(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        """Return the bytes of a range, in memory that the next call uses again."""
        size = end - begin
        if self._window.size < size:
            self._window = np.empty(size, np.uint8)
        found = self._window[:size]
        self.read_into(found.data, begin)
        return found

    def next_data(self, position: int) -> int:
        """Skip a hole of a sparse file; return `position` unchanged if the file system can't report holes.

        A segment is created at its full size, so its unwritten tail costs neither disk space nor time.
        """
        return self._seek(position, os.SEEK_DATA, position)

    def next_hole(self, position: int) -> int:
        """Find the end of the data of a sparse file; its size if the file system can't report holes."""
        return self._seek(position, os.SEEK_HOLE, self.size)

    def _seek(self, position: int, whence: int, otherwise: int) -> int:
        try:
            return min(os.lseek(self.descriptor, self._begin + position, whence) - self._begin, self.size)
        except OSError as error:
            return self.size if error.errno == errno.ENXIO else otherwise

    def check_size(self) -> None:
        """Refuse a file that has shrunk since it was listed."""
        if os.fstat(self.descriptor).st_size < self._begin + self.size:
            raise self.truncated()

    def truncated(self) -> SegmentVanishedError:
        """Return the error that says how short the file has become."""
        found = os.fstat(self.descriptor).st_size
        return SegmentVanishedError(
            f"{self.path} had {self._begin + self.size} bytes when it was opened, and has {found} now: something "
            f"truncated it while it was read, which no broker does. Read a copy, or read again when that is over"
        )

    def unreadable(self, error: OSError, position: int) -> StoreAccessError:
        """Return the error that says where the file can't be read, and why."""
        return StoreAccessError(
            f"{self.path}: expected to read byte {position}, found: {error.strerror}. Look at the disk, or at "
            f"the server that has the file, and read a copy"
        )

    def read_into(self, target: memoryview, begin: int) -> None:
        """Fill a buffer with the bytes from a position on."""
        at = 0
        while at < len(target):
            try:
                count = os.preadv(self.descriptor, [target[at:]], self._begin + begin + at)
            except OSError as error:
                raise self.unreadable(error, begin + at) from error
            if not count:
                raise self.truncated()
            at += count

    def packed(self, begins: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """Return the bytes of ranges, one after another, without what lies between them; errors as of `read_into`.

        A call of its own for each range takes 1.7 µs, of which Python takes little. Memory in which each range lay at
        its position would cost 12 µs: a page of it is provided and cleared for each.

        * `begins`, `sizes`: int64, shape (n,), n >= 1: positions in the file, ascending, of ranges that are inside of
          it.
        """
        firsts = np.append(0, np.flatnonzero(begins[1:] != begins[:-1] + sizes[:-1]) + 1)
        whole = (begins[firsts] + self._begin).tolist(), np.add.reduceat(sizes, firsts).tolist()
        try:
            pieces = list(map(os.pread, repeat(self.descriptor), whole[1], whole[0]))
        except OSError as error:
            raise self.unreadable(error, int(begins[0])) from error
        found = b"".join(pieces)
        if len(found) < int(sizes.sum()):
            found = b"".join(map(self._completed, pieces, *whole))
        self.check_size()  # a hole is also what is behind the end of a file
        return np.frombuffer(found, np.uint8)

    def _completed(self, piece: bytes, begin: int, size: int) -> bytes:
        """Return a range of which a call has read all, or only a part."""
        rest = bytearray(size - len(piece))
        self.read_into(memoryview(rest), begin - self._begin + len(piece))
        return piece + rest

    def check_unchanged(self) -> None:
        """Do nothing: an open file stays the same one, whatever takes its name."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()


LARGEST_SEGMENT: Final = 2**31 - 1
"""Bytes of the largest segment that RocketMQ can map (``MappedFile``: sizes are Java's int)."""

_CHUNK: Final = 256 << 10
"""Bytes that are expanded at once."""

_DISK_BLOCK: Final = 512


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment file of the log, as found when the directory was listed."""

    path: str  # absolute path; the URL of a file that is not on this machine
    start_offset: int  # physical offset of its first byte, taken from its name
    size: int  # bytes in the file when it was listed
    entries: EntryLog | None = None
    """The DLedger log that it belongs to, whose records lie in entries; None in an ordinary log."""
    remote: RemoteFile | None = None
    """The file in an object store or another file system; None on a disk of this machine."""
    codec: str | None = None
    """How the file is compressed, one of `store_core.files.names.CODECS`; `size` is then that of the segment in
    it. None for a plain file."""
    archive: str = ""  # path or URL of the tar archive that it is in; empty for a file of its own
    begin: int = 0  # where it begins in the archive, or in what that expands to
    archive_modified: int = 0  # when the archive was written last, ns since 1970, if it is on a disk of this machine

    @property
    def name(self) -> str:
        """The file's name."""
        return os.path.basename(self.path)  # noqa: PTH119 -- one string operation; listings are long

    @property
    def end_offset(self) -> int:
        """Physical offset one past its last byte."""
        return self.start_offset + self.size

    @property
    def file(self) -> str:
        """Path or URL of the file that has its bytes."""
        return self.archive or self.path

    @property
    def is_plain(self) -> bool:
        """Whether it is a file of its own, as RocketMQ writes it, on a disk of this machine."""
        return self.remote is None and self.codec is None and not self.archive

    @property
    def framing(self) -> Framing:
        """What the file is made of."""
        return Framing.RECORDS if self.entries is None else Framing.ENTRIES

    def view(self, opened: WalkedBytes) -> SegmentView:
        """Return the view of this segment that walks work on."""
        return SegmentView(opened, self.size, self.start_offset, opened.next_data, self.framing)

    def record(self, opened: WalkedBytes, offset: int) -> npt.NDArray[np.uint8]:
        """Return the bytes of the record at a physical offset, as of `SegmentView.frame`."""
        view = replace(self.view(opened), framing=Framing.RECORDS)
        return view.frame(offset - self.start_offset, with_body=True)


class WalkedBytes(ByteSource, Protocol):
    """An open segment: all that walks need."""

    def next_data(self, position: int) -> int:
        """Return the first position at or after `position` that may hold anything but zeros."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class SegmentBytes(WalkedBytes, Protocol):
    """An open segment: all that reading needs, and so all that another kind of storage has to provide."""

    def packed(self, begins: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """Return the bytes of ranges, one after another, without what lies between them: new memory.

        * `begins`, `sizes`: int64, shape (n,), n >= 1: positions, ascending.
        """

    def check_unchanged(self) -> None:
        """Refuse a file that was replaced since it was opened."""


class ExpandedStream:
    """The expanded bytes of a file from its beginning on, and how many were read."""

    def __init__(self, segment: Segment) -> None:
        self.path, self._codec = segment.file, segment.codec
        self.identity = _identity(segment)
        try:
            with explained_access(Path(self.path)):
                self._opened = pa.CompressedInputStream(_packed_stream(segment), self._codec)
        except FileNotFoundError:
            raise _vanished(segment, "it is gone") from None
        self.position = 0

    def read(self, most: int = _CHUNK) -> bytes:
        """Return the next bytes, in pieces of little memory; none at the end."""
        try:
            # Not `read`: when that fails, PyArrow keeps the memory which it took for the result for ever.
            data: bytes = self._opened.read_buffer(min(most, _CHUNK)).to_pybytes()
        except (pa.ArrowException, OSError) as error:
            raise SegmentLayoutError(
                f"{self.path} is not a whole {self._codec} file: {error}, after {self.position} bytes of what "
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


def _packed_stream(segment: Segment) -> pa.NativeFile:
    if segment.remote is None:
        return pa.OSFile(segment.file)
    place = segment.remote.path
    storage = place.storage.opened()
    return storage.file_system.open_input_stream(storage.path_of(place.relative), compression=None)


def _identity(segment: Segment) -> tuple[object, ...]:
    """Return what tells the file of a segment from another one, also one that takes its place."""
    if segment.remote is not None:
        return segment.codec, segment.remote
    try:
        status = Path(segment.file).stat()
    except OSError:
        return ()
    return segment.codec, segment.file, status.st_size, status.st_mtime_ns, status.st_ino


def expanded_size(segment: Segment) -> int:
    """Count the bytes that a compressed file expands to, in little memory."""
    with closing(ExpandedStream(segment)) as stream:
        while stream.read():
            if stream.position > LARGEST_SEGMENT:
                raise SegmentLayoutError(
                    f"{segment.file} expands to more than {LARGEST_SEGMENT} bytes: expected a segment. Move it "
                    f"elsewhere"
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

    def taken(self, segment: Segment) -> ExpandedStream | None:
        """Return the stream that leads to a segment, which is not kept any more; None if there is none."""
        with self._lock:
            stream = self._stream
            if stream is None or stream.position > segment.begin or stream.identity != _identity(segment):
                return None
            self._stream = None
        return stream


_KEPT: Final = _KeptStream()


class CompressedBytes(LocalBytes):
    """A compressed segment file, expanded once into an unnamed temporary file, as far as it is read.

    The temporary file has the bytes that the segment has to have, and takes disk for what is not zeros; it is read as
    any segment on a disk.
    """

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._position = 0
        self._stream = (_KEPT.taken(segment) if segment.archive else None) or ExpandedStream(segment)
        with self._writing():
            expanded = TemporaryFile("w+b", buffering=0)  # noqa: SIM115 -- closed by `__exit__`
            expanded.truncate(segment.size)
        super().__init__(segment.file, expanded, segment.size)

    def next_data(self, position: int) -> int:
        """Return `position`: where there are only zeros is not known before they are expanded."""
        return position

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        if self._segment.archive and not any(raised):
            _KEPT.keep(self._stream)
        else:
            self._stream.close()

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
        is_member = bool(self._segment.archive)  # which is followed by others
        if is_member:
            self._stream.pass_to(self._segment.begin + self._position)
        while self._position < end:
            self._put(self._stream.read(self.size - self._position + (not is_member)))
            if not is_member and self._position == self.size and self._stream.read(1):
                raise self._wrong_size("more")

    def _put(self, data: bytes) -> None:
        if not data:
            raise self._wrong_size(f"{self._position}")
        if self._position + len(data) > self.size:
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
                f"{self._segment.file}: could not expand it into a temporary file of {self._segment.size} bytes in "
                f"{gettempdir()}: {error.strerror}. Give a directory with room for it by TMPDIR"
            ) from None

    def _wrong_size(self, found: str) -> SegmentLayoutError:
        return SegmentLayoutError(
            f"{self.path} expands to {found} bytes: expected {self.size}, up to where the next segment "
            f"begins. Copy it again, or move it elsewhere"
        )


def segment_at(segments: Sequence[Segment], offset: int) -> Segment | None:
    """Return the segment that holds a physical offset, of some in order; None if none does."""
    follower = bisect_right(segments, offset, key=attrgetter("start_offset"))
    return segments[follower - 1] if follower and offset < segments[follower - 1].end_offset else None


def open_ahead(segment: Segment) -> SegmentBytes:
    """Open a segment that is read from its beginning on."""
    return open_segment(segment, segment.size)


def open_segment(segment: Segment, ahead_to: int = 0) -> SegmentBytes:
    """Open a segment of which parts are read.

    * `ahead_to`: Position up to which bytes may be requested before they are asked for, in bytes from its start.
    """
    if segment.codec is not None:
        return CompressedBytes(segment)
    if segment.remote is not None:
        return RemoteBytes(segment.remote, ahead_to, segment.begin, segment.size)
    return open_file(segment)


def file_at(path: Path) -> Segment:
    """Return any other file, such as one of the index, as a segment that starts at offset 0."""
    return Segment(str(path), 0, path.stat().st_size, remote=remote_file_of(path))


def open_file(segment: Segment) -> LocalBytes:
    """Open a file on this machine that is still as long as it was when it was listed; errors as of `open_segment`."""
    try:
        with explained_access(Path(segment.file)):
            file = open(segment.file, "rb")  # noqa: SIM115, PTH123 -- closed by whoever reads
    except FileNotFoundError as error:
        directory = Path(segment.file).parent
        if not directory.is_dir():  # a worker does not see the store: retention deletes segments, and leaves that
            raise unseen_error(directory, f"{segment.name} of it") from error
        raise _vanished(segment, "it is gone") from error
    found = os.fstat(file.fileno())
    if found.st_size < segment.begin + segment.size:
        file.close()
        raise _vanished(segment, f"it has {found.st_size} bytes now")
    if segment.archive and found.st_mtime_ns != segment.archive_modified:
        file.close()
        raise _vanished(segment, f"{segment.archive} was replaced")
    return LocalBytes(segment.path, file, segment.size, segment.begin)


def blocks_on_disk(file: Segment) -> int:
    """Return the bytes of disk blocks that a file takes; of one on another machine, its size."""
    return os.stat(file.path).st_blocks * _DISK_BLOCK if file.remote is None else file.size  # noqa: PTH116 -- text


def modified_ns(segment: Segment) -> int:
    """Return when a segment was written last, ns since 1970; 0 if its storage does not tell."""
    return os.stat(segment.file).st_mtime_ns if segment.remote is None else segment.remote.modified  # noqa: PTH116 -- text


def size_on_disk(segment: Segment) -> int:
    """Return the bytes that a segment takes on disk, without the hole after what is written; 0 if it is gone."""
    if not segment.is_plain:
        return segment.size
    try:
        return min(segment.size, os.stat(segment.path).st_blocks * _DISK_BLOCK)  # noqa: PTH116 -- a string is at hand
    except OSError:
        return 0


def unseen_error(directory: Path, what: str) -> StoreNotFoundError:
    """Return the error that a worker does not see a directory, from which it was to read something."""
    return StoreNotFoundError(
        f"{directory} was there when the read was planned, and does not exist on {os.uname().nodename}, which was to "
        f"read {what}. Every worker has to see the store under the path that was given: mount it there, or give the "
        f"URL of a store"
    )


def _vanished(segment: Segment, found: str) -> SegmentVanishedError:
    return SegmentVanishedError(
        f"segment {segment.path} (offset {segment.start_offset}, {segment.size} bytes) was there when the read was "
        f"planned, and {found}: a broker's retention deletes old segments"
    ).advised(WITHOUT_SEGMENT)
