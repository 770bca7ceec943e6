# SPDX-License-Identifier: Apache-2.0
"""The bytes of a remote segment for readers that need no bodies: those are left out where that pays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.files.clock import SystemClock
from store_core.files.remote.record_lanes import LANES, RecordLanes
from store_core.files.remote.remote_bytes import RemoteBytes
from store_core.format.columnar.lockstep import chain
from store_core.format.layout import MIN_HEAD_SIZE

if TYPE_CHECKING:
    from types import TracebackType

    from store_core.files.clock import Clock
    from store_core.files.remote.remote_file import RemoteFile
    from store_core.format.segment_view import Frames

__all__ = ["ALWAYS_WHOLE", "NarrowBytes", "worthwhile_body"]

ALWAYS_WHOLE: Final = 1 << 31
"""A least body that no record has."""

_PIECE: Final = 1 << 20
"""Bytes from which on a range is requested in blocks."""

_STEP: Final = 64 << 20
"""Bytes that a walk without bodies follows at once, where the memory of all its pages may be needed."""

_LONG_STEP: Final = 256 << 20
_LONG: Final = 128 << 10
"""Size of records from which on few pages are touched, so that the step can be longer."""

_SAMPLES: Final = 8
"""Requests that measure the rate at which bytes come."""

_SHARE: Final = 32
"""The sample is at most this part of a segment."""

_LEAST_MEASURED: Final = 16 << 20
"""Bytes up to which a segment is downloaded whole rather than measured."""

_MOST_SAMPLE: Final = 8 << 20
_LEAST_SAMPLE: Final = 256 << 10

_WORK: Final = 0.001
"""Seconds of one small request besides waiting, which can't be overlapped with others: 0.4 ms of processor time were
measured here, and a server has to work, too."""

_GAIN: Final = 2
"""How much faster leaving bodies out has to be: a measurement of a moment is not exact, and requests cost money."""


def worthwhile_body(latency: float, rate: float) -> int:
    """Return the bytes from which on it is surely faster to leave a body out than to download it.

    Parameters
    ----------
    latency : float
        Seconds of a small request; `LANES` of them are under way at a time.
    rate : float
        Bytes a second of large requests, all together.
    """
    return int(_GAIN * max(latency / LANES, _WORK) * rate)


class NarrowBytes(RemoteBytes):
    """A remote segment without the bodies of its records; if these are small, with all of its bytes.

    Parameters
    ----------
    file : RemoteFile
    start_offset : int
        Physical offset of the segment's first byte.
    ahead_to : int
        As of `RemoteBytes`.
    least_body : int or None
        Bytes from which on a body is left out; None to measure what pays with this storage.
    clock : Clock, optional
        Measures.
    """

    def __init__(
        self,
        file: RemoteFile,
        start_offset: int,
        ahead_to: int,
        least_body: int | None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(file, ahead_to, is_sparse=True)
        self._start_offset = start_offset
        self._least_body = least_body
        self._clock = clock or SystemClock()
        self._lanes: RecordLanes | None = None
        self._is_decided = False
        self._requests: ThreadPoolExecutor | None = None
        self._dropped = 0

    @property
    def step(self) -> int:
        """See `store_core.format.segment_view.Pages`."""
        if self._lanes is None:
            return super().step
        return _LONG_STEP if self._lanes.usual_size >= _LONG else _STEP

    def follow(self, begin: int, goal: int, size: int) -> Frames | None:
        """Follow records with what they have but their bodies; None if all bytes are to be loaded."""
        if not self._is_decided:
            self._decide(begin, goal)
            self._is_decided = True
        if self._lanes is None or self._has_blocks(begin, goal):
            return None
        return self._lanes.follow(begin, goal, size, self._pool_of_requests().map)

    def load(self, begin: int, end: int) -> None:
        """Make the bytes of a range available: just these if they are few and bodies are left out."""
        if self._lanes is None or end - begin > _PIECE:
            super().load(begin, end)
        else:
            self._load_piece(begin, end)

    def drop(self, end: int) -> None:
        """Return the memory before a position to the system."""
        super().drop(end)
        whole = max(end, 0) // self._block * self._block
        if self._lanes is not None and whole > self._dropped:
            self._memory.free(self._dropped, whole)
            self._dropped = whole

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._requests is not None:
            self._requests.shutdown(wait=True, cancel_futures=True)
        super().__exit__(kind, error, trace)

    def _load_piece(self, begin: int, end: int) -> None:
        """Load a range, as one request unless it is long; several threads do so."""
        end = min(end, self._size)
        for at in range(begin, end, _PIECE):
            self._fetch(at, min(at + _PIECE, end))

    def _decide(self, begin: int, goal: int) -> None:
        least = self._least_body
        if least is None and self._size - begin < _LEAST_MEASURED:
            least = ALWAYS_WHOLE
        if least is None:
            least, usual = self._measured(begin, goal)
            least = least if usual >= least else ALWAYS_WHOLE
        if least < ALWAYS_WHOLE:
            self._lanes = RecordLanes(self.raw, self._start_offset, self._load_piece, least)
        else:
            self._memory.use_huge_pages()

    def _measured(self, begin: int, goal: int) -> tuple[int, int]:
        """Return from how many bytes on leaving a body out pays, and the usual size of a record."""
        sample = min(max((goal - begin) // _SHARE, _LEAST_SAMPLE), _MOST_SAMPLE, self._size - begin)
        started = self._clock.monotonic()
        self._load_piece(begin, begin + MIN_HEAD_SIZE)
        answered = self._clock.monotonic()
        cuts = [begin + sample * number // _SAMPLES for number in range(_SAMPLES + 1)]
        list(self._pool_of_requests().map(self._load_piece, cuts, cuts[1:]))
        seconds = max(self._clock.monotonic() - answered, 1e-6)
        found = chain(self.raw[: begin + sample], begin, start_offset=self._start_offset)
        usual = (found.stop - begin) // max(found.starts.size, 1)
        return worthwhile_body(answered - started, sample / seconds), usual

    def _has_blocks(self, begin: int, end: int) -> bool:
        """Return whether all bytes of a range are there, as they are after damage."""
        return bool(np.all(self._is_loaded[begin // self._block : -(-end // self._block)]))

    def _pool_of_requests(self) -> ThreadPoolExecutor:
        if self._requests is None:
            self._requests = ThreadPoolExecutor(LANES, "remote-lane")
        return self._requests
