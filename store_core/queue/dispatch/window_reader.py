# SPDX-License-Identifier: Apache-2.0
"""The records of a segment that is read window by window, as `DispatchBatch` objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store_core.format.columnar.chain import Chain, Place
from store_core.format.record.record_head import read_frame
from store_core.format.segment_view import SegmentView
from store_core.queue.dispatch.dispatch_reader import DispatchReader
from store_core.queue.dispatch.dispatch_request import MessageCheck

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import numpy as np
    import numpy.typing as npt

    from store_core.queue.dispatch.dispatch_batch import DispatchBatch
    from store_core.queue.queue_rules import QueueRules

__all__ = ["WindowReader"]

_HEAD: Final = 4 << 10
_FRAME: Final = 8
"""Bytes of a record's size and magic code."""


class WindowReader:
    """Iterates over the batches of a segment, each with the bytes that its starts are positions in.

    Equal to a `DispatchReader` over all of its bytes: the chain leads to the windows, and where it ends the definition
    is asked for the one record there. A batch and its bytes are used before the next one is asked for.

    Attributes
    ----------
    position : int
        End of the last record; finally the place in the segment where no further record is.
    end : MessageCheck
        The check that ended the iteration.
    is_at_limit : bool
        Whether the iteration ended at `limit`; `end` is meaningless then.
    """

    def __init__(self, segment: SegmentView, position: int, rules: QueueRules, *, check_crc: bool, limit: int) -> None:
        self.position = position
        self.end = MessageCheck(is_success=False, size=-1)
        self.is_at_limit = False
        self._segment = segment
        self._rules = rules
        self._check_crc = check_crc
        self._limit = min(limit, segment.size)

    def __iter__(self) -> Iterator[tuple[DispatchBatch, SegmentView]]:
        while self.position < self._limit:
            if (yield from self._windows()):
                return
            if self.position < self._limit and (yield from self._one()):
                return
        if self._limit == self._segment.size:
            yield from self._one()
        else:
            self.is_at_limit = True

    def _windows(self) -> Generator[tuple[DispatchBatch, SegmentView], None, bool]:
        """Take the records of the chain; return whether one of them is not taken by the definition."""
        for window in Chain(self._segment).windows(Place(self.position), self._limit):
            run = window.run
            view = SegmentView(window.raw[: run.stop], self._segment.start_offset + window.base)
            reader = self._reader(view).along(Chain(view, (run,)))
            for batch in reader:
                yield batch, view
            self.position = window.base + reader.position
            if reader.position < run.stop:
                self.end = reader.end
                return True
        return False

    def _one(self) -> Generator[tuple[DispatchBatch, SegmentView], None, bool]:
        """Take one record by the definition, which need not be one of the chain; return whether there is none."""
        position, size = self.position, self._segment.size
        raw: npt.NDArray[np.uint8] = self._segment.chunk(position, min(position + _HEAD, size))
        claimed = read_frame(raw.data, 0)[0] if raw.size >= _FRAME else 0
        if raw.size < claimed <= size - position:
            raw = self._segment.chunk(position, position + claimed)
        view = SegmentView(raw, self._segment.start_offset + position)
        reader = self._reader(view, limit=1)
        for batch in reader:
            yield batch, view
        self.position += reader.position
        self.end = reader.end
        return not reader.position

    def _reader(self, view: SegmentView, limit: int | None = None) -> DispatchReader:
        crc = self._check_crc
        return DispatchReader(view.raw, view.start_offset, 0, self._rules, check_crc=crc, read_body=crc, limit=limit)
