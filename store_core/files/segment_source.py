# SPDX-License-Identifier: Apache-2.0
"""One segment file, opened for reading."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from store_core.errors import WITHOUT_SEGMENT, SegmentVanishedError, StoreNotFoundError
from store_core.files.access import explained_access
from store_core.files.compressed_bytes import CompressedBytes, CompressedFile
from store_core.files.local_file import LocalBytes, LocalFile
from store_core.files.read_bytes import ReadBytes
from store_core.files.remote.picked_bytes import PickedBytes
from store_core.files.remote.remote_bytes import RemoteBytes
from store_core.files.remote.url_path import remote_file_of
from store_core.format.record.framing import Framing
from store_core.format.segment_view import ALL_THERE, AllThere, SegmentView

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    import numpy.typing as npt

    from store_core.files.remote.remote_file import RemoteFile
    from store_core.format.columnar.entries import EntryLog
    from store_core.format.segment_view import Pages

__all__ = [
    "MappedSegment",
    "PagedBytes",
    "Segment",
    "SegmentBytes",
    "SparseBytes",
    "blocks_on_disk",
    "file_at",
    "load_record",
    "modified_ns",
    "open_file",
    "open_pages",
    "open_picks",
    "open_segment",
    "size_on_disk",
]

_HEAD = 4 << 10
"""Bytes of a record that are loaded first: more than its head, and most records."""

_DISK_BLOCK = 512
_LITTLE_DATA = 64 << 10
"""Bytes before a hole up to which a file is read page by page, as the queues of most topics are."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment file of the log, as found when the directory was listed.

    Attributes
    ----------
    path : str
        Absolute path; the URL of a file that is not on this machine.
    start_offset : int
        Physical offset of its first byte, taken from its name.
    size : int
        Bytes in the file when it was listed.
    entries : EntryLog or None
        The DLedger log that it belongs to, whose records lie in entries; None in an ordinary log.
    remote : RemoteFile or None
        The file in an object store or another file system; None on a disk of this machine.
    codec : str or None
        How the file is compressed, one of `store_core.files.packed_name.CODECS`; `size` is then that of the
        segment in it. None for a plain file.
    archive : str
        Path or URL of the tar archive that it is in; empty for a file of its own.
    begin : int
        Where it begins in what a compressed archive expands to.
    """

    path: str
    start_offset: int
    size: int
    entries: EntryLog | None = None
    remote: RemoteFile | None = None
    codec: str | None = None
    archive: str = ""
    begin: int = 0

    @property
    def name(self) -> str:
        """The file's name."""
        return os.path.basename(self.path)  # noqa: PTH119 -- one string operation; listings are long

    @property
    def end_offset(self) -> int:
        """Physical offset one past its last byte."""
        return self.start_offset + self.size

    @property
    def is_plain(self) -> bool:
        """Whether the file's bytes are those of the segment, on a disk of this machine."""
        return self.remote is None and self.codec is None

    @property
    def framing(self) -> Framing:
        """What the file is made of."""
        return Framing.RECORDS if self.entries is None else Framing.ENTRIES

    def view(self, opened: SegmentBytes) -> SegmentView:
        """Return the view of this segment that walks work on; with pages if the file is not mapped."""
        pages: Pages = opened if isinstance(opened, RemoteBytes | CompressedBytes | ReadBytes) else ALL_THERE
        return SegmentView(opened.raw, self.start_offset, opened.next_data, self.framing, pages)


class SegmentBytes(Protocol):
    """An open segment: all that reading needs, and so all that another kind of storage has to provide."""

    @property
    def raw(self) -> npt.NDArray[np.uint8]:
        """The segment's bytes, shape (size,); read-only."""

    def next_data(self, position: int) -> int:
        """Return the first position at or after `position` that may hold anything but zeros."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class SparseBytes(SegmentBytes, Protocol):
    """The bytes of an open file that also tells where it has none."""

    def next_hole(self, position: int) -> int:
        """Return the first position at or after `position` where a hole begins, which has only zeros; else its size."""


class PagedBytes(SparseBytes, Protocol):
    """The bytes of an open segment that are there when they are loaded: its pages (`Pages`), too."""

    @property
    def step(self) -> int:
        """Most bytes that a walk loads at once."""

    def chunk(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        """Return the bytes from one position up to another, inside of the segment; the next call overwrites them."""

    def load(self, begin: int, end: int) -> None:
        """Make the bytes from one position up to another available."""

    def load_many(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Make the bytes of several ranges available, from elsewhere by few requests."""

    def drop(self, end: int) -> None:
        """Take note that the bytes before a position are not read again."""

    def check_size(self) -> None:
        """Refuse a file on this machine that is shorter than it was when it was opened."""

    def check_unchanged(self) -> None:
        """Refuse a file that was replaced since it was opened."""


class MappedSegment(LocalBytes, AllThere):
    """A segment file on a local disk, mapped into memory.

    The mapping lives as long as any array that views it. If another process *truncates* the file while it is mapped,
    the operating system kills a process that reads what is gone (SIGBUS). Brokers never truncate segments: they delete
    them, and a deleted file stays readable. `check_size` finds a truncation that is over; readers call it before each
    batch (ADR 0042).

    Raises
    ------
    SegmentVanishedError
        If the file is gone, or shorter than it was when it was listed.
    StoreNotFoundError
        If its directory does not exist, either.
    StoreAccessError
        If the file may not be read.
    """

    def __init__(self, segment: Segment) -> None:
        self._file = open_file(segment)
        try:
            self.raw = self._map(segment)
        except BaseException:
            self._file.file.close()
            raise

    def _map(self, segment: Segment) -> npt.NDArray[np.uint8]:
        if not segment.size:
            return np.empty(0, np.uint8)
        mapping = mmap.mmap(self._file.descriptor, segment.size, access=mmap.ACCESS_READ)
        if self._file.next_hole(0) <= _LITTLE_DATA < segment.size:
            mapping.madvise(mmap.MADV_RANDOM)  # reading ahead would fill the page cache with a hole
        return np.frombuffer(mapping, np.uint8)


def open_segment(segment: Segment) -> SparseBytes:
    """Open a segment for reading, with all of its bytes, from whatever storage it is on.

    Raises
    ------
    SegmentVanishedError
        If the file is gone, or shorter than it was when it was listed.
    StoreAccessError
        If the file may not be read.
    """
    if segment.is_plain:
        return MappedSegment(segment)
    opened = _unmapped(segment, segment.size)
    try:
        opened.load_all()
    except BaseException:
        opened.__exit__(None, None, None)
        raise
    return opened


def open_pages(segment: Segment, ahead_to: int = 0) -> PagedBytes:
    """Open a segment of which parts are read; what is read has to be loaded before.

    Parameters
    ----------
    segment : Segment
    ahead_to : int
        Position up to which bytes may be requested before they are loaded, in bytes from the segment's start.

    Raises
    ------
    SegmentVanishedError, StoreAccessError
        As `open_segment`.
    """
    return _unmapped(segment, ahead_to)


def open_picks(segment: Segment) -> PagedBytes:
    """Open a segment of which single records are read, here and there; they have to be loaded before.

    Raises
    ------
    SegmentVanishedError, StoreAccessError
        As `open_segment`.
    """
    if segment.remote is not None and segment.codec is None:
        return PickedBytes(segment.remote)
    return open_pages(segment)


def load_record(opened: PagedBytes, position: int) -> None:
    """Load the record at a position, by the length that it begins with."""
    opened.load(position, position + _HEAD)
    size = int.from_bytes(opened.raw[position : position + 4].tobytes(), "big", signed=True)
    if size > _HEAD:
        opened.load(position + _HEAD, position + size)


def file_at(path: Path) -> Segment:
    """Return a file that is no segment, such as one of the index, as one that starts at 0.

    Raises
    ------
    FileNotFoundError
        If it is not there.
    """
    return Segment(str(path), 0, path.stat().st_size, remote=remote_file_of(path))


def open_file(segment: Segment) -> LocalFile:
    """Open a file on this machine that is still as long as it was when it was listed; errors as of `open_segment`."""
    try:
        with explained_access(Path(segment.path)):
            file = open(segment.path, "rb")  # noqa: SIM115, PTH123 -- closed by whoever reads
    except FileNotFoundError as error:
        _check_directory(segment)
        raise _vanished(segment, "it is gone") from error
    found = os.fstat(file.fileno()).st_size
    if found < segment.size:
        file.close()
        raise _vanished(segment, f"it has {found} bytes now")
    return LocalFile(segment.path, file, segment.size)


def _unmapped(segment: Segment, ahead_to: int) -> RemoteBytes | CompressedBytes | ReadBytes:
    if segment.is_plain:
        return ReadBytes(open_file(segment))
    if segment.remote is not None and segment.codec is None:
        return RemoteBytes(segment.remote, ahead_to)
    path, begin = (segment.archive, segment.begin) if segment.archive else (segment.path, None)
    return CompressedBytes(CompressedFile(path, segment.codec or "", segment.remote, begin), segment.size)


def blocks_on_disk(file: Segment) -> int:
    """Return the bytes of disk blocks that a file takes; of one on another machine, its size.

    Raises
    ------
    OSError
        If it is gone.
    """
    return os.stat(file.path).st_blocks * _DISK_BLOCK if file.remote is None else file.size  # noqa: PTH116 -- text


def modified_ns(segment: Segment) -> int:
    """Return when a segment was written last, ns since 1970; 0 if its storage does not tell.

    Raises
    ------
    OSError
        If it is gone.
    """
    return os.stat(segment.path).st_mtime_ns if segment.remote is None else segment.remote.modified  # noqa: PTH116 -- text


def size_on_disk(segment: Segment) -> int:
    """Return the bytes that a segment takes on disk, without the hole after what is written; 0 if it is gone."""
    if not segment.is_plain:
        return segment.size
    try:
        return min(segment.size, os.stat(segment.path).st_blocks * _DISK_BLOCK)  # noqa: PTH116 -- a string is at hand
    except OSError:
        return 0


def _check_directory(segment: Segment) -> None:
    """Tell a worker that does not see the store from a segment that retention has deleted: that leaves a directory."""
    directory = Path(segment.path).parent
    if not directory.is_dir():
        raise StoreNotFoundError(
            f"{directory} was there when the read was planned, and does not exist on {os.uname().nodename}, which was "
            f"to read {segment.name} of it. Every worker has to see the store under the path that was given: mount it "
            f"there, or give the URL of a store"
        )


def _vanished(segment: Segment, found: str) -> SegmentVanishedError:
    return SegmentVanishedError(
        f"segment {segment.path} (offset {segment.start_offset}, {segment.size} bytes) was there when the read was "
        f"planned, and {found}: a broker's retention deletes old segments"
    ).advised(WITHOUT_SEGMENT)
