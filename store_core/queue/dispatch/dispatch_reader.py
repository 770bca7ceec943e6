# SPDX-License-Identifier: Apache-2.0
"""Reads a file of the log for those who index it: batches of requests, and how the file ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

import numpy as np

from store_core.format.columnar.chain import Chain
from store_core.format.columnar.checksums import body_crcs
from store_core.format.layout import MagicCode
from store_core.format.segment_view import SegmentView
from store_core.format.sys_flag import MessageSysFlag
from store_core.queue.dispatch.dispatch_batch import DispatchBatch, RequestBatch
from store_core.queue.dispatch.dispatch_request import MessageCheck
from store_core.queue.dispatch.rocketmq_check import check_message_and_return_size
from store_core.queue.dispatch.stored_batch import StoredBatch, StoredFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.queue.dispatch.dispatch_request import DispatchRequest
    from store_core.queue.queue_rules import QueueRules

__all__ = ["DispatchReader"]

_BATCH_ROWS: Final = 1 << 14
"""Arrays of so many rows stay in cache, and below the size at which allocating them costs a system call."""

_BATCH_BYTES: Final = 64 << 20
"""Most bytes of the file that a batch covers, but for one record."""

_WINDOW: Final = 256 << 20
"""Bytes walked in one go: the starts in them are all that is held, 8 bytes a record."""

_FEW_BYTES: Final = 4 << 10
"""Up to this many bytes are read record by record: quicker, and what a writer leaves for its reader each time."""

_V6_FLAGS: Final = int(MessageSysFlag.BORNHOST_V6_FLAG | MessageSysFlag.STOREHOSTADDRESS_V6_FLAG)


class DispatchReader:
    """Iterates over the records of one file: `DispatchBatch` by `DispatchBatch`, each of one record at least.

    Equal to asking `check_message_and_return_size` of one record after the other until there is none.

    Parameters
    ----------
    raw : numpy.ndarray
        uint8, shape (m,), contiguous: the file up to the end of what can be read.
    start_offset : int
        Physical offset of its first byte, bytes. Records need not agree with it.
    position : int
        Where in the file to begin, bytes.
    rules : QueueRules
        Whose rules.
    check_crc, read_body, check_dup_info : bool
        As of `check_message_and_return_size`.
    batch_rows : int
        Most records of a batch.
    limit : int, optional
        Where in the file others go on, bytes: records that start at it or behind it are not looked at.

    Attributes
    ----------
    position : int
        Behind the last record that was given; in the end where there is no further one.
    end : MessageCheck
        What is there: the check that ended the iteration.
    is_at_limit : bool
        Whether the iteration ended at `limit`, so that `end` says nothing.
    """

    def __init__(  # noqa: PLR0913 -- the bytes, where to begin, and how to check them
        self,
        raw: npt.NDArray[np.uint8],
        start_offset: int,
        position: int,
        rules: QueueRules,
        *,
        check_crc: bool,
        read_body: bool,
        check_dup_info: bool = False,
        batch_rows: int = _BATCH_ROWS,
        limit: int | None = None,
    ) -> None:
        self.position = position
        self.is_at_limit = False
        self.end = MessageCheck(is_success=False, size=-1)
        self._raw = raw
        self._start_offset = start_offset
        self._rules = rules
        self._check_crc = check_crc
        self._read_body = read_body
        self._check_dup_info = check_dup_info
        self._batch_rows = batch_rows
        self._chain = Chain(SegmentView(raw, start_offset))
        self._limit = limit if limit is not None and limit < raw.size else None
        self._is_over = False
        features = rules.features
        checks_property_crc = features.has_property_crc and check_crc and rules.verify_property_crc
        self._is_scalar = checks_property_crc or (features.checks_dup_info and check_dup_info)
        self._file = StoredFile(raw, start_offset, rules)

    def along(self, chain: Chain) -> Self:
        """Take records from a chain of the same bytes that was followed before, and return the reader."""
        self._chain = chain
        return self

    def check(self, position: int) -> MessageCheck:
        """Ask the definition what is at a position of the file."""
        return check_message_and_return_size(
            self._raw.data,
            position,
            self._raw.size,
            self._rules,
            check_crc=self._check_crc,
            read_body=self._read_body,
            check_dup_info=self._check_dup_info,
        )

    def __iter__(self) -> Iterator[DispatchBatch]:
        stop = self._raw.size if self._limit is None else self._limit
        while not self._is_over and not self.is_at_limit:
            if self._is_scalar or stop - self.position <= _FEW_BYTES:
                yield from self._one_by_one(self._limit)
            else:
                yield from self._window(stop)
            self.is_at_limit = self._has_reached_limit()

    def _has_reached_limit(self) -> bool:
        return self._limit is not None and not self._is_over and self.position >= self._limit

    def _one_by_one(self, until: int | None = None) -> Iterator[DispatchBatch]:
        """Ask the definition of every record, to the end or up to a position."""
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

    def _window(self, stop: int) -> Iterator[DispatchBatch]:
        """Follow the chain of lengths as far as a window goes, and prove what it leads to."""
        limit = min(self.position + _WINDOW, stop)
        run = next(self._chain.runs(self.position, limit), None)
        starts = np.empty(0, np.int64) if run is None else run.starts
        first = 0
        while first < starts.size and not self._is_over:
            fitting = int(np.searchsorted(starts, starts[first] + _BATCH_BYTES)) - first
            count = max(min(self._batch_rows, fitting), 1)
            yield from self._proven(starts[first : first + count])
            first += count
        if self.position < limit:
            yield from self._one_by_one(self.position + 1)

    def _proven(self, starts: npt.NDArray[np.int64]) -> Iterator[DispatchBatch]:
        """Yield the records that a chain leads to, up to the first that is none; from a doubtful one on, one by one."""
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
            doubtful |= (batch.sys_flag & _V6_FLAGS) != 0
        if not self._rules.features.has_message_version_2:
            doubtful |= batch.heads.leading("magic_code") != MagicCode.MESSAGE_V1
        return doubtful

    def _first_failure(self, batch: StoredBatch) -> int:
        """Find the first record whose content makes it none; their number if all are well."""
        suspects = [batch.delayed.illegal_rows, batch.inner_candidates]
        if self._check_crc and self._read_body:
            suspects.append(_wrong_bodies(self._raw, batch))
        rows: list[int] = np.unique(np.concatenate(suspects)).tolist()
        for row in rows:
            request = self.check(int(batch.starts[row])).request
            if request is None:
                return row
            batch.inner_batches[row] = request
        return len(batch)


def _wrong_bodies(raw: npt.NDArray[np.uint8], batch: StoredBatch) -> npt.NDArray[np.int64]:
    """Find the rows whose body does not match its checksum; bodies of no bytes are not checked."""
    starts, stops = batch.spans.body_start, batch.spans.body_stop
    found = body_crcs(raw, starts, stops)
    return np.flatnonzero((found != batch.heads.leading("body_crc")) & (stops > starts))
