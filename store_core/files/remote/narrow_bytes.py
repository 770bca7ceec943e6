# SPDX-License-Identifier: Apache-2.0
"""The bytes of a remote segment for readers that need no bodies: those are left out where that pays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.files.clock import SystemClock
from store_core.files.remote.narrow_forecast import Connection, is_faster_narrow, worthwhile_body
from store_core.files.remote.record_lanes import LANES, RecordLanes
from store_core.files.remote.remote_bytes import RemoteBytes
from store_core.format.columnar.lockstep import chain
from store_core.format.layout import MIN_RECORD_SIZE
from store_core.format.record.record_head import read_frame

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from store_core.files.clock import Clock
    from store_core.files.remote.remote_file import RemoteFile
    from store_core.format.segment_view import Frames

__all__ = ["ALWAYS_WHOLE", "NarrowBytes"]

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

_SMALL: Final = 512
"""Bytes of a small request: the end of a record, and the next head."""


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
        return _step_of(self._lanes.usual_size)

    def follow(self, begin: int, goal: int, size: int) -> Frames | None:
        """Follow records with what they have but their bodies; None if all bytes are to be loaded."""
        if not self._is_decided:
            self._decide(begin)
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

    def _decide(self, begin: int) -> None:
        least = self._worthwhile(begin) if self._least_body is None else self._least_body
        if least < ALWAYS_WHOLE:
            self._lanes = RecordLanes(self.raw, self._start_offset, self._load_piece, least)
        else:
            self._is_sparse = False
            self._memory.use_huge_pages()

    def _worthwhile(self, begin: int) -> int:
        """Measure from how many bytes on leaving a body out pays; by the burst, which costs more, only if it may."""
        rest = min(self._ahead_to or self._size, self._size) - begin
        if rest < _LEAST_MEASURED:
            return ALWAYS_WHOLE
        sample = min(max(rest // _SHARE, _LEAST_SAMPLE), _MOST_SAMPLE, rest)
        connection = self._sampled(begin, sample)
        record = self._usual_size(begin, begin + sample)
        if not record or not is_faster_narrow(self._steps(rest, record), record, connection):
            return ALWAYS_WHOLE
        self._burst(begin, sample, LANES)  # opens connections
        connection = connection._replace(burst=self._timed(lambda: self._burst(begin, sample, LANES)))
        pays = is_faster_narrow(self._steps(rest, record), record, connection)
        return min(worthwhile_body(connection), record // 2) if pays else ALWAYS_WHOLE

    def _sampled(self, begin: int, sample: int) -> Connection:
        """Load the sample; a burst is taken to last as long as one request, which is the least that it can."""
        self._burst(begin, sample, _SAMPLES)  # opens connections
        latency = self._timed(lambda: self._load_piece(begin, begin + _SMALL))
        cuts = [begin + sample * number // _SAMPLES for number in range(_SAMPLES + 1)]
        seconds = self._timed(lambda: list(self._pool_of_requests().map(self._load_piece, cuts, cuts[1:])))
        return Connection(latency, latency, sample / max(seconds - latency, seconds / _SAMPLES))

    def _burst(self, begin: int, length: int, count: int) -> None:
        """Make small requests in a range, all at once."""
        begins = [begin + length * number // count for number in range(count)]
        list(self._pool_of_requests().map(lambda at: self._load_piece(at, at + _SMALL), begins))

    def _timed(self, act: Callable[[], object]) -> float:
        """Return the seconds that something takes; never 0."""
        started = self._clock.monotonic()
        act()
        return max(self._clock.monotonic() - started, 1e-6)

    def _usual_size(self, begin: int, end: int) -> int:
        """Return the mean size of the records in a range; of the one that is longer; 0 if there is none."""
        found = chain(self.raw[:end], begin, start_offset=self._start_offset)
        if found.starts.size:
            return (found.stop - begin) // found.starts.size
        total, _ = read_frame(self.raw.data, begin)
        return total if MIN_RECORD_SIZE <= total <= self._size - begin else 0

    def _steps(self, length: int, record: int) -> list[int]:
        """Return in which steps a range is followed."""
        steps = [min(super().step, length)]
        while (left := length - sum(steps)) > 0:
            steps.append(min(_step_of(record), left))
        return steps

    def _has_blocks(self, begin: int, end: int) -> bool:
        """Return whether all bytes of a range are there, as they are after damage."""
        return bool(np.all(self._is_loaded[begin // self._block : -(-end // self._block)]))

    def _pool_of_requests(self) -> ThreadPoolExecutor:
        if self._requests is None:
            self._requests = ThreadPoolExecutor(LANES, "remote-lane")
        return self._requests


def _step_of(record: int) -> int:
    return _LONG_STEP if record >= _LONG else _STEP
