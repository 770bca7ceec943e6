# SPDX-License-Identifier: Apache-2.0
"""Reads what queues and index need from segments."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from store_core.format.columnar.chain import Chain, Place, Run, chain
from store_core.format.columnar.spans import wrong_bodies
from store_core.format.layout import BLANK_SIZE, MAX_HEAD_SIZE, V6_BITS, MagicCode
from store_core.format.record.scan import head_shape, read_frame, read_sys_flag
from store_core.format.segment_view import Piece, SegmentView
from store_core.queue.dispatch.dispatch_batch import DispatchBatch, DispatchRequest, MessageCheck, RequestBatch
from store_core.queue.dispatch.rocketmq_check import REPUT, Strictness, check_message_and_return_size
from store_core.queue.dispatch.stored_batch import QueueNumbers, StoredBatch, StoredFile

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import numpy.typing as npt

    from store_core.queue.queue_path import QueueRules


_BATCH_ROWS: Final = 1 << 14
"""Arrays of this many rows stay in cache, and below the size at which allocating them costs a system call."""

_FEW_BYTES: Final = 4 << 10
"""Up to this many bytes are read record by record, which is quicker; a reader right after a writer has as few."""


class DispatchReader:
    """Iterator over the records of one file: `DispatchBatch` by `DispatchBatch`, each of at least one record.

    Equivalent to calling `check_message_and_return_size` for one record after the other until there is none.

    * `piece`: Bytes of the file, which are read at once. Records need not agree with its physical offset.
    * `position`: Where in the file to begin, bytes.
    * `rules`, `strictness`: As for `check_message_and_return_size`.
    * `batch_rows`: Most records per batch.

    * `position`: End of the last record that was yielded; finally the place where no further record is.
    * `end`: The check that ended the iteration.
    """

    def __init__(
        self,
        piece: Piece,
        position: int,
        rules: QueueRules,
        strictness: Strictness = REPUT,
        batch_rows: int = _BATCH_ROWS,
    ) -> None:
        self.position = position
        self.end = MessageCheck(is_success=False, size=-1)
        self._raw, self._start_offset = piece
        self._rules = rules
        self._strictness = strictness
        self._batch_rows = batch_rows
        self._run: Run | None = None
        self._is_over = False
        features = rules.features
        checks_property_crc = features.has_property_crc and strictness.check_crc and rules.verify_property_crc
        self._is_scalar = checks_property_crc or (features.checks_dup_info and strictness.check_dup_info)
        self._file = StoredFile(*piece, rules)

    def along(self, run: Run, numbers: QueueNumbers) -> Self:
        """Take starts from a run of the chain through the same bytes, and queues found before; return the reader."""
        self._run, self._file.numbers = run, numbers
        return self

    def check(self, position: int) -> MessageCheck:
        """Run the definition's check at a position of the file."""
        return check_message_and_return_size(self._raw.data, position, self._raw.size, self._rules, self._strictness)

    def __iter__(self) -> Iterator[DispatchBatch]:
        while not self._is_over:
            if self._is_scalar or self._raw.size - self.position <= _FEW_BYTES:
                yield from self._one_by_one()
            else:
                yield from self._chained()

    def _one_by_one(self, until: int | None = None) -> Iterator[DispatchBatch]:
        """Run the definition's check for every record, to the end or up to a position."""
        while not self._is_over and (until is None or self.position < until):
            starts: list[int] = []
            requests: list[DispatchRequest] = []
            position = self.position
            while len(starts) < self._batch_rows and (until is None or position < until):
                check = self.check(position)
                if check.request is None:
                    self._finish(check)
                    break
                starts.append(position)
                requests.append(check.request)
                position += check.size
            self.position = position
            if starts:
                yield RequestBatch(requests, starts)

    def _finish(self, check: MessageCheck) -> None:
        self.end = check
        self._is_over = True

    def _chained(self) -> Iterator[DispatchBatch]:
        """Follow the chain of lengths to its end, and prove the records that it finds."""
        starts = self._starts()
        for first in range(0, starts.size, self._batch_rows):
            yield from self._proven(starts[first : first + self._batch_rows])
            if self._is_over:
                return
        if self.position < self._raw.size:
            yield from self._one_by_one(self.position + 1)

    def _starts(self) -> npt.NDArray[np.int64]:
        """Follow the chain from the position on, unless it is known."""
        part = None if self._run is None else self._run.between(self.position, self._raw.size)
        if part is not None and part.starts[0] == self.position:
            return part.starts
        return chain(self._raw, self.position, self._raw.size, self._start_offset).starts

    def _proven(self, starts: npt.NDArray[np.int64]) -> Iterator[DispatchBatch]:
        """Yield the records of a chain up to the first that is not one; from a doubtful one on, one by one."""
        batch = StoredBatch(self._file, starts)
        doubtful = np.flatnonzero(self._doubtful(batch))
        batch = batch.first(int(doubtful[0]) if doubtful.size else starts.size)
        failed = self._first_failure(batch)
        batch = batch.first(failed)
        if failed:
            self.position = int(batch.spans.stops[-1])
            yield batch
        yield from self._one_by_one(int(starts[-1]) + 1)

    def _doubtful(self, batch: StoredBatch) -> npt.NDArray[np.bool_]:
        """Report which records `columnar.spans.measure` reads differently, or not at all."""
        doubtful = ~batch.spans.sound
        if not self._rules.features.stores_ipv6_hosts:
            doubtful |= (batch.sys_flag & V6_BITS) != 0
        if not self._rules.features.has_message_version_2:
            doubtful |= batch.heads.leading("magic_code") != MagicCode.MESSAGE_V1
        return doubtful

    def _first_failure(self, batch: StoredBatch) -> int:
        """Return the first row whose content makes it invalid; the number of rows if all are valid."""
        suspects = [batch.delayed.illegal_rows, batch.inner_candidates]
        if self._strictness.check_crc and self._strictness.read_body:
            suspects.append(np.flatnonzero(wrong_bodies(batch.heads, batch.spans)))
        rows: list[int] = np.unique(np.concatenate(suspects)).tolist()
        for row in rows:
            request = self.check(int(batch.starts[row])).request
            if request is None:
                return row
            batch.inner_batches[row] = request
        return len(batch)


_HEAD: Final = 4 << 10
_MOST_QUEUES: Final = 1 << 17
"""Queues that are remembered from window to window; a damaged log may name one in every record."""

_PROPERTIES_LENGTH_SIZE: Final = 2
_MAGIC_CODES: Final = tuple(MagicCode)


class WindowReader:
    """Iterates over the batches of a segment, each with the bytes that its starts are positions in.

    Equal to a `DispatchReader` over all of its bytes: the chain leads to the windows, and where it ends the definition
    is asked for the one record there. A batch and its bytes are used before the next one is asked for.

    * `rules`, `strictness`: As for `DispatchReader`.
    * `limit`: Position at which other readers continue; by default there are none.

    * `position`: End of the last record; finally the place in the segment where no further record is.
    * `end`: The check that ended the iteration.
    * `is_at_limit`: Whether the iteration ended at `limit`; `end` is meaningless then.
    """

    def __init__(
        self,
        segment: SegmentView,
        position: int,
        rules: QueueRules,
        strictness: Strictness = REPUT,
        limit: int | None = None,
    ) -> None:
        self.position = position
        self.end = MessageCheck(is_success=False, size=-1)
        self.is_at_limit = False
        self._segment = segment
        self._rules = rules
        self._strictness = strictness
        self._limit = segment.size if limit is None else min(limit, segment.size)
        self._numbers = QueueNumbers()

    def __iter__(self) -> Iterator[tuple[DispatchBatch, Piece]]:
        is_whole = self._limit == self._segment.size
        while self._limit - self.position > (_FEW_BYTES if is_whole else 0):
            yield from self._windows()
            if self.position < self._limit and (yield from self._some(_HEAD, most=1)):
                return
        if is_whole:
            yield from self._some(_FEW_BYTES)
        else:
            self.is_at_limit = True

    def _windows(self) -> Iterator[tuple[DispatchBatch, Piece]]:
        """Take the records of the chain up to its end, or to one that may be none by the definition."""
        for window in Chain(self._segment).windows(Place(self.position), self._limit, _BATCH_ROWS):
            run = window.run
            view = Piece(window.raw[: run.stop], self._segment.start_offset + window.base)
            if len(self._numbers.queues) > _MOST_QUEUES:
                self._numbers = QueueNumbers()
            reader = self._reader(view).along(run, self._numbers)
            for batch in reader:
                yield batch, view
            self.position = window.base + reader.position
            if reader.position < run.stop:
                return

    def _some(self, size: int, most: int | None = None) -> Generator[tuple[DispatchBatch, Piece], None, bool]:
        """Take records by the definition, which need not be of the chain; return whether there is none.

        * `size`: Bytes to read, or more if the first record has more.
        * `most`: Most records to take; by default, all in these bytes.
        """
        position, room = self.position, self._segment.size - self.position
        frame = self._segment.chunk(position, position + min(BLANK_SIZE, room)).data
        if len(frame) == BLANK_SIZE and read_frame(frame, 0)[1] == MagicCode.BLANK:  # nothing more of it is read
            self.end = check_message_and_return_size(frame, 0, room, self._rules)
            return True
        end = max(position + size, self._end_of_parts(position))
        raw = self._segment.chunk(position, min(end, self._segment.size))
        view = Piece(raw, self._segment.start_offset + position)
        reader = self._reader(view, most or _BATCH_ROWS)
        for batch in islice(reader, most):
            yield batch, view
        self.position += reader.position
        self.end = reader.end
        return not reader.position

    def _end_of_parts(self, position: int) -> int:
        """Return up to where the definition looks at a presumed record: it goes by its size, and those of its parts.

        What reaches past the file is no record, whatever its parts are.
        """
        segment = self._segment
        if segment.size - position < MAX_HEAD_SIZE:
            return segment.size
        head = segment.chunk(position, position + MAX_HEAD_SIZE).data
        flags = read_sys_flag(head, 0) if self._rules.features.stores_ipv6_hosts else 0
        shape, (size, magic) = head_shape(flags), read_frame(head, 0)
        length = max(int(shape.read_body_length(head, 0)[0]), 0)
        if magic not in _MAGIC_CODES:
            return position
        ends = [position + size]
        if not (self._strictness.read_body and length > size):
            at = position + shape.size + length
            for width in (MagicCode(magic).topic_length_size, _PROPERTIES_LENGTH_SIZE):
                if at + width > segment.size:
                    return position
                at += width + max(int.from_bytes(segment.chunk(at, at + width).tobytes(), signed=True), 0)
            ends.append(at)
        return max((end for end in ends if end <= segment.size), default=position)

    def _reader(self, view: Piece, batch_rows: int = 2 * _BATCH_ROWS) -> DispatchReader:
        return DispatchReader(view, 0, self._rules, self._strictness, batch_rows)
