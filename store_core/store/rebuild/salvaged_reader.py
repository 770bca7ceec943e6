# SPDX-License-Identifier: Apache-2.0
"""Reading a segment of the log for dispatch, continuing after damage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.format.columnar.chain import Run
from store_core.format.damage.salvage import Salvage, store_timestamps
from store_core.format.record.scan import StopReason, check_record
from store_core.queue.dispatch.dispatch_batch import RequestBatch
from store_core.queue.dispatch.dispatch_reader import DispatchReader
from store_core.store.rebuild.lost_ranges import LostRanges
from store_core.store.rebuild.proof import NO_STORE_TIME, WRONG_RECORD_CRC, wrong_record_crcs

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.format.segment_view import SegmentView
    from store_core.queue.dispatch.dispatch_batch import DispatchBatch
    from store_core.queue.dispatch.dispatch_request import DispatchRequest
    from store_core.queue.queue_rules import QueueRules

__all__ = ["SalvagedReader"]

_RETRIES: Final = 16
"""Records of a run that may fail to dispatch before the rest of it is tried one by one."""

_BATCH_ROWS: Final = 1 << 14
_BAD_BODY: Final = StopReason.BAD_CRC.value


class SalvagedReader:
    """Iterates over the records of one segment that prove themselves, as `DispatchBatch` objects.

    These are the records that reading in mode DROPMALFORMED finds (`store_core.format.damage.salvage.Salvage`), except
    those that the release can't dispatch, such as a V2 record before 5.x. As in a broker, names need not be UTF-8.

    Parameters
    ----------
    segment : SegmentView
        The segment up to the log's end.
    rules : QueueRules
    check_crc : bool
        Whether to leave out records whose bodies do not match their checksums.
    is_last : bool
        Whether the log ends in this segment, so that it may hold older bytes.
    is_proven : bool
        Whether to leave out records that do not match their checksum over the whole record.

    Attributes
    ----------
    position : int
        After the iteration: where the segment's records end.
    is_continued : bool
        After the iteration: whether a blank record leads to the next segment.
    lost : LostRanges
        Ranges without a record before `position`.
    """

    def __init__(
        self, segment: SegmentView, rules: QueueRules, *, check_crc: bool, is_last: bool, is_proven: bool = False
    ) -> None:
        self.position = 0
        self.is_continued = False
        self.lost = LostRanges()
        self._raw = segment.raw
        self._start_offset = segment.start_offset
        self._rules = rules
        self._check_crc = check_crc
        self._is_proven = is_proven
        self._salvage = Salvage(segment, only_newer=is_last)

    def __iter__(self) -> Iterator[DispatchBatch]:
        for part in self._salvage.parts():
            if isinstance(part, Run):
                for run in self._proven(part) if self._is_proven else (part,):
                    yield from self._dispatched(run)
            else:
                self._lose(part.begin, part.end, part.check.reason or StopReason.BAD_MAGIC)
        self.position = self._salvage.stop
        self.is_continued = self._salvage.reason is StopReason.END_OF_FILE

    def _lose(self, begin: int, end: int, reason: StopReason | str) -> None:
        text = reason.value if isinstance(reason, StopReason) else reason
        self.lost.add(self._start_offset + begin, self._start_offset + end, text)

    def _reader(self, position: int, stop: int) -> DispatchReader:
        crc = self._check_crc
        return DispatchReader(self._raw[:stop], self._start_offset, position, self._rules, check_crc=crc, read_body=crc)

    def _proven(self, run: Run) -> Iterator[Run]:
        """Yield the stretches between records that do not match their checksum, or have no store time."""
        bounds = np.append(run.starts, run.stop)
        timeless = np.flatnonzero(store_timestamps(self._raw, run.starts) <= 0)
        wrong = wrong_record_crcs(self._raw, run.starts, bounds[1:], self._rules)
        first = 0
        for row in np.union1d(timeless, wrong).tolist():
            if first < row:
                yield Run(run.starts[first:row], int(bounds[row]))
            why = WRONG_RECORD_CRC if row in wrong else NO_STORE_TIME
            is_body = self._has_bad_body(int(bounds[row]))
            self._lose(int(bounds[row]), int(bounds[row + 1]), _BAD_BODY if is_body else why)
            first = row + 1
        if first < run.starts.size:
            yield Run(run.starts[first:], run.stop)

    def _dispatched(self, run: Run) -> Iterator[DispatchBatch]:
        """Yield the records of a run, except those that can't be dispatched."""
        starts = run.starts
        for _ in range(_RETRIES):
            reader = self._reader(int(starts[0]), run.stop)
            yield from reader
            if reader.position >= run.stop:
                return
            starts = starts[int(np.searchsorted(starts, reader.position)) :]
            self._lose_record(int(starts[0]), int(starts[1]) if starts.size > 1 else run.stop)
            starts = starts[1:]
            if not starts.size:
                return
        yield from self._one_by_one(starts, run.stop)

    def _one_by_one(self, starts: npt.NDArray[np.int64], stop: int) -> Iterator[DispatchBatch]:
        reader = self._reader(int(starts[0]), stop)
        bounds = np.append(starts, stop)
        for first in range(0, starts.size, _BATCH_ROWS):
            kept: list[int] = []
            requests: list[DispatchRequest] = []
            for at in range(first, min(first + _BATCH_ROWS, starts.size)):
                request = reader.check(int(starts[at])).request
                if request is None:
                    self._lose_record(int(bounds[at]), int(bounds[at + 1]))
                else:
                    kept.append(int(starts[at]))
                    requests.append(request)
            if kept:
                yield RequestBatch(requests, kept)

    def _lose_record(self, begin: int, end: int) -> None:
        """Add a whole record that is not dispatched, with the reason, to the lost ranges."""
        considered = f"a broker of release {self._rules.release} considers the record damaged"
        self._lose(begin, end, _BAD_BODY if self._has_bad_body(begin) else considered)

    def _has_bad_body(self, begin: int) -> bool:
        return self._check_crc and check_record(self._raw.data, begin, None, verify_crc=True).reason is not None
