# SPDX-License-Identifier: Apache-2.0
"""One segment file, opened for reading."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from store_core.errors import WITHOUT_SEGMENT, SegmentVanishedError, StoreNotFoundError
from store_core.files.access import explained_access
from store_core.files.compressed_bytes import CompressedBytes, CompressedFile
from store_core.files.local_bytes import LocalBytes
from store_core.files.remote_bytes import RemoteBytes, RemoteFile
from store_core.files.url_path import remote_file_of
from store_core.format.record.scan import Framing
from store_core.format.segment_view import ByteSource, SegmentView

if TYPE_CHECKING:
    from types import TracebackType

    import numpy as np
    import numpy.typing as npt

    from store_core.format.columnar.spans import EntryLog


_DISK_BLOCK = 512


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
    begin: int = 0  # where it begins in what a compressed archive expands to

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class SegmentBytes(WalkedBytes, Protocol):
    """An open segment: all that reading needs, and so all that another kind of storage has to provide."""

    def packed(self, begins: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """Return the bytes of ranges, one after another, without what lies between them: new memory.

        * `begins`, `sizes`: int64, shape (n,), n >= 1: positions, ascending.
        """

    def check_unchanged(self) -> None:
        """Refuse a file that was replaced since it was opened."""


def open_ahead(segment: Segment) -> SegmentBytes:
    """Open a segment that is read from its beginning on."""
    return open_segment(segment, segment.size)


def open_segment(segment: Segment, ahead_to: int = 0) -> SegmentBytes:
    """Open a segment of which parts are read.

    * `ahead_to`: Position up to which bytes may be requested before they are asked for, in bytes from its start.
    """
    if segment.is_plain:
        return open_file(segment)
    if segment.remote is not None and segment.codec is None:
        return RemoteBytes(segment.remote, ahead_to)
    path, begin = (segment.archive, segment.begin) if segment.archive else (segment.path, None)
    return CompressedBytes(CompressedFile(path, segment.codec or "", segment.remote, begin), segment.size)


def file_at(path: Path) -> Segment:
    """Return any other file, such as one of the index, as a segment that starts at offset 0."""
    return Segment(str(path), 0, path.stat().st_size, remote=remote_file_of(path))


def open_file(segment: Segment) -> LocalBytes:
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
    return LocalBytes(segment.path, file, segment.size)


def blocks_on_disk(file: Segment) -> int:
    """Return the bytes of disk blocks that a file takes; of one on another machine, its size."""
    return os.stat(file.path).st_blocks * _DISK_BLOCK if file.remote is None else file.size  # noqa: PTH116 -- text


def modified_ns(segment: Segment) -> int:
    """Return when a segment was written last, ns since 1970; 0 if its storage does not tell."""
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
