# SPDX-License-Identifier: Apache-2.0
"""The bytes of a file that a look-up reads forwards, and here and there, on this machine or another."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from store_core.files.file_system import OsFileSystem
from store_core.files.remote.picked_bytes import PickedBytes
from store_core.files.remote.remote_bytes import RemoteBytes
from store_core.files.remote.url_path import remote_file_of
from store_core.store.read.lookup.file_state import FileState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from store_core.files.remote.remote_file import RemoteFile

__all__ = ["FileBytes", "open_bytes"]

_SMALL: Final = 1 << 20
"""Bytes up to which a file on another machine is read at once."""


class FileBytes(Protocol):
    """The bytes of an open file.

    Attributes
    ----------
    state : FileState or None
        Of the file that is open; None on another machine, of which nothing is kept.
    is_far : bool
        Whether it takes long to get any of them, and many can be got at once.
    """

    state: FileState | None
    is_far: bool

    def fill(self, memory: npt.NDArray[np.uint8], position: int) -> bool:
        """Put the bytes from a position on into memory; return whether there are as many."""

    def load_many(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Get the bytes of some ranges, which will be read, at once."""

    def forwards(self, begin: int, end: int) -> AbstractContextManager[FileBytes]:
        """Return the same bytes for a reader that begins at one position, goes forwards, and ends at another."""


def open_bytes(path: Path) -> FileBytes:
    """Open a file.

    Raises
    ------
    OSError
        As raised by the system.
    SegmentVanishedError, StoreAccessError
        As of `RemoteReader`.
    """
    remote = remote_file_of(path)
    return _LocalBytes(path) if remote is None else _RemoteBytes(remote)


class _LocalBytes:
    is_far = False

    def __init__(self, path: Path) -> None:
        self._opened = OsFileSystem().open(path, writable=False)
        self.state: FileState | None = FileState.of(os.fstat(self._opened.fileno()))

    def fill(self, memory: npt.NDArray[np.uint8], position: int) -> bool:
        return os.preadv(self._opened.fileno(), [memory.data], position) == memory.size

    def load_many(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Do nothing: the system reads ahead."""

    @contextmanager
    def forwards(self, begin: int, end: int) -> Iterator[_LocalBytes]:  # noqa: ARG002 -- the protocol's
        yield self


class _RemoteBytes:
    is_far = True

    def __init__(self, file: RemoteFile) -> None:
        self.state: FileState | None = None
        self._file = file
        self._pages = PickedBytes(file)
        self._is_small = file.size <= _SMALL
        if self._is_small:
            self._pages.load(0, file.size)

    def fill(self, memory: npt.NDArray[np.uint8], position: int) -> bool:
        return _fill(self._pages, memory, position)

    def load_many(self, ranges: Sequence[tuple[int, int]]) -> None:
        self._pages.load_many(ranges)

    @contextmanager
    def forwards(self, begin: int, end: int) -> Iterator[_RemoteBytes | _Forwards]:
        if self._is_small or end - begin <= _SMALL:
            self._pages.load(begin, end)
            yield self
            return
        with RemoteBytes(self._file, min(end, self._file.size)) as pages:
            yield _Forwards(pages)


class _Forwards:
    """A reader that goes forwards, for which bytes are requested ahead, and given back behind it."""

    is_far = True

    def __init__(self, pages: RemoteBytes) -> None:
        self.state: FileState | None = None
        self._pages = pages

    def fill(self, memory: npt.NDArray[np.uint8], position: int) -> bool:
        self._pages.drop(position)
        return _fill(self._pages, memory, position)

    def load_many(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Do nothing: they are on their way."""

    @contextmanager
    def forwards(self, begin: int, end: int) -> Iterator[_Forwards]:  # noqa: ARG002 -- the protocol's
        yield self


def _fill(pages: RemoteBytes, memory: npt.NDArray[np.uint8], position: int) -> bool:
    pages.load(position, position + memory.size)
    found = pages.raw[position : position + memory.size]
    memory[: found.size] = found
    return found.size == memory.size
