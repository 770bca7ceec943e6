# SPDX-License-Identifier: Apache-2.0
"""A file of a storage, opened for reading ranges of it, with retries and a check that it stays the same."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from store_core.errors import SegmentVanishedError, StoreAccessError
from store_core.files.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from store_core.files.clock import Clock
    from store_core.files.remote.storage import RemotePath

    _T = TypeVar("_T")

__all__ = ["RemoteFile", "RemoteReader"]

_log: Final = logging.getLogger("store_core")

_ATTEMPTS: Final = 5
_FIRST_PAUSE: Final = 0.2
"""Seconds before the second attempt, doubled each time. The client of an object store has tried before, too."""

_DATA_LOSS_ADVICE: Final = "To continue without it: fail_on_data_loss=false (failOnDataLoss in Spark)."


class RemoteFile(NamedTuple):
    """A file as it was listed.

    Attributes
    ----------
    path : RemotePath
    size : int
        In bytes.
    modified : int
        When it was written last, in ns since 1970; 0 if the storage does not tell.
    begin : int
        Where in the file the bytes begin that are read, as of one file in an archive.
    whole : int or None
        Size of the whole file; None if that is `size`.
    """

    path: RemotePath
    size: int
    modified: int
    begin: int = 0
    whole: int | None = None


class RemoteReader:
    """Reads ranges of a file; several threads may do so at once.

    Parameters
    ----------
    file : RemoteFile
    clock : Clock, optional
        Pauses between attempts.

    Raises
    ------
    SegmentVanishedError
        If the file is gone, or is not the one that was listed.
    StoreAccessError
        If it can't be read, after some attempts.
    """

    def __init__(self, file: RemoteFile, clock: Clock | None = None) -> None:
        self._file = file
        self._clock = clock or SystemClock()
        self._storage = file.path.storage.opened()
        self._path = self._storage.path_of(file.path.relative)
        self._mark = b""
        self._is_closed = False
        self._open: pa.NativeFile = self._tried("open it", self._opened)
        self._mark = self._tried("read its metadata", lambda: _mark(self._open))

    def read(self, begin: int, end: int) -> bytes:
        """Return the bytes of a range that lies in the file."""
        return self._tried(f"read {end - begin} bytes at position {begin}", lambda: self._range(begin, end))

    def check_unchanged(self) -> None:
        """Refuse a file that was replaced while it was read: by its size, time, and mark of its content (ETag).

        Raises
        ------
        SegmentVanishedError
            With what differs.
        """
        with self._tried("open it again", self._opened) as again:
            if self._tried("read its metadata", lambda: _mark(again)) != self._mark:
                raise self._replaced("its content is marked as another (ETag) than when it was opened")

    def close(self) -> None:
        """Close the connection; the next read opens it again."""
        self._open.close()
        self._is_closed = True

    def _opened(self) -> pa.NativeFile:
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
        if self._is_closed:  # whoever still holds the bytes reads on, as from a mapping
            self._open, self._is_closed = self._opened(), False
        data: bytes = self._open.read_at(end - begin, self._file.begin + begin)
        if len(data) != end - begin:
            raise OSError(f"expected {end - begin} bytes, found {len(data)}")
        return data

    def _tried(self, what: str, act: Callable[[], _T]) -> _T:
        """Do something, with a few attempts and longer pauses each time."""
        pause = _FIRST_PAUSE
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return act()
            except (SegmentVanishedError, PermissionError):
                raise
            except FileNotFoundError:
                raise self._vanished() from None
            except (OSError, pa.ArrowException) as error:
                text = self._file.path.storage.settings.hidden_in(str(error))
                if attempt == _ATTEMPTS:
                    raise StoreAccessError(
                        f"{self._file.path.url}: could not {what}, after {_ATTEMPTS} attempts: {text}. Nothing was "
                        f"changed; try again when the storage answers, or copy the store to a local disk"
                    ) from None
                _log.warning("%s: could not %s: %s; attempt %d follows", self._file.path.url, what, text, attempt + 1)
                self._clock.sleep(pause)
                pause *= 2
        raise AssertionError("unreachable")

    def _vanished(self) -> SegmentVanishedError:
        return SegmentVanishedError(
            f"segment {self._file.path.url} ({self._file.size} bytes) was there when the read was planned, and is "
            f"gone. {_DATA_LOSS_ADVICE}"
        )

    def _replaced(self, found: str) -> SegmentVanishedError:
        return SegmentVanishedError(
            f"segment {self._file.path.url} ({self._file.size} bytes) was replaced since the read was planned: "
            f"{found}. Read again; a store that is being copied is read when the copy is complete"
        )


def _mark(file: pa.NativeFile) -> bytes:
    """Return what the storage marks a file's content with; empty where it has no such thing."""
    return bytes((file.metadata() or {}).get("ETag", b""))
