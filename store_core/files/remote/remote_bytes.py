# SPDX-License-Identifier: Apache-2.0
"""The bytes of a remote file as one array, of which only the blocks that are being read take memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.files.filled_memory import FilledMemory
from store_core.files.remote.remote_file import RemoteReader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future
    from types import TracebackType
    from typing import Self

    import numpy.typing as npt

    from store_core.files.remote.remote_file import RemoteFile

__all__ = ["RemoteBytes"]

_BLOCK: Final = 4 << 20
"""Bytes of one request."""

_REQUESTS: Final = 8
"""Requests at a time."""

_AHEAD: Final = _BLOCK * _REQUESTS
"""Bytes that are requested ahead of what is read."""

_STEP: Final = 16 << 20
"""Bytes that a walk loads at once."""

_SPARE: Final = 8
"""Blocks behind the reader whose memory is kept for those ahead."""


class RemoteBytes:
    """A remote file as an array of its size, whose bytes are there once they are loaded, and zeros otherwise.

    Parameters
    ----------
    file : RemoteFile
    ahead_to : int
        Position up to which blocks after those that are loaded are requested in advance; 0 for none.
    is_sparse : bool
        Whether little of the file will be loaded, here and there.

    Attributes
    ----------
    raw : numpy.ndarray
        uint8, shape (size,), read-only.
    """

    def __init__(self, file: RemoteFile, ahead_to: int = 0, *, is_sparse: bool = False) -> None:
        self._size = file.size
        self._ahead_to = ahead_to
        self._reader = RemoteReader(file)
        self._memory = FilledMemory(file.size)
        self._is_sparse = is_sparse
        if not is_sparse:
            self._memory.use_huge_pages()
        self.raw = self._memory.raw
        self._is_loaded = np.zeros(-(-file.size // _BLOCK), np.bool_)
        self._coming: dict[int, Future[None]] = {}
        self._spare: list[int] = []
        self._pool: ThreadPoolExecutor | None = None

    @property
    def step(self) -> int:
        """See `store_core.format.segment_view.Pages`."""
        return _STEP

    @property
    def _block(self) -> int:
        return _BLOCK

    def load(self, begin: int, end: int) -> None:
        """Make the bytes of a range available, and request what comes after it."""
        end = min(end, self._size)
        if begin >= end:
            return
        blocks = range(begin // _BLOCK, -(-end // _BLOCK))
        ahead = range(blocks.stop, -(-min(end + _AHEAD, self._ahead_to, self._size) // _BLOCK))
        if not self._ahead_to and len(blocks) == 1 and not self._is_loaded[blocks[0]]:
            self._load_little(begin, end)
            return
        for block in (*blocks, *ahead):
            self._request(block)
        for block in blocks:
            self._receive(block)

    def chunk(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        """Return the bytes of a range; those before it are dropped."""
        self.drop(begin)
        self.load(begin, end)
        return self.raw[begin:end]

    def load_many(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Make the bytes of several ranges available."""
        for begin, end in ranges:
            self.load(begin, end)

    def load_all(self) -> None:
        """Make all bytes available."""
        for begin in range(0, self._size, _STEP):
            self.load(begin, begin + _STEP)

    def drop(self, end: int) -> None:
        """Take the memory of the blocks before a position for others, or return it; they can be loaded again."""
        blocks = np.flatnonzero(self._is_loaded[: max(end, 0) // _BLOCK])
        self._is_loaded[blocks] = False
        self._spare += blocks.tolist()
        most = 0 if self._is_sparse else _SPARE
        while len(self._spare) > most:
            block = self._spare.pop(0)
            self._memory.free(block * _BLOCK, block * _BLOCK + _BLOCK)

    def next_data(self, position: int) -> int:
        """Return `position`: a storage does not tell where a file has only zeros."""
        return position

    def next_hole(self, position: int) -> int:  # noqa: ARG002 -- the protocol's parameter
        """Return the file's size, as for `next_data`."""
        return self._size

    def check_size(self) -> None:
        """Do nothing: a read that gets too little is an error."""

    def check_unchanged(self) -> None:
        """Refuse a file that was replaced while it was read."""
        self._reader.check_unchanged()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        self._coming.clear()
        self._reader.close()

    def _load_little(self, begin: int, end: int) -> None:
        """Load less than a block, such as a segment's first record, without noting the block as loaded."""
        self._fetch(begin, end)

    def _request(self, block: int) -> None:
        if self._is_loaded[block] or block in self._coming:
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_REQUESTS, "remote-read")
        begin = block * _BLOCK
        end = min(begin + _BLOCK, self._size)
        if block in self._spare:
            self._spare.remove(block)
        elif self._spare and self._ahead_to and end - begin == _BLOCK:
            self._memory.move(self._spare.pop() * _BLOCK, begin, _BLOCK)
        self._coming[block] = self._pool.submit(self._fetch, begin, end)

    def _fetch(self, begin: int, end: int) -> None:
        """Put a range into its place: of a sparse file through a stream that is shared, since it is little."""
        if self._is_sparse:
            self._memory.fill(begin, self._reader.read(begin, end))
        else:
            self._memory.fill_by(begin, end, lambda target: self._reader.read_into(begin, target))

    def _receive(self, block: int) -> None:
        coming = self._coming.pop(block, None)
        if coming is None:
            return
        coming.result()
        self._is_loaded[block] = True
