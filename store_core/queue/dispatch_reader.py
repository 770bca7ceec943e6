# SPDX-License-Identifier: Apache-2.0
"""Reads a file of the log for those who index it: batches of requests, and how the file ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store_core.queue.dispatch_batch import DispatchBatch, RequestBatch
from store_core.queue.dispatch_request import MessageCheck
from store_core.queue.message_check import check_message_and_return_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from store_core.queue.dispatch_request import DispatchRequest
    from store_core.queue.queue_rules import QueueRules

__all__ = ["DispatchReader"]

_BATCH_ROWS: Final = 1 << 16


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

    Attributes
    ----------
    position : int
        Behind the last record that was given; in the end where there is no further one.
    end : MessageCheck
        What is there: the check that ended the iteration.
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
    ) -> None:
        self.position = position
        self.end = MessageCheck(is_success=False, size=-1)
        self._raw = raw
        self._start_offset = start_offset
        self._rules = rules
        self._check_crc = check_crc
        self._read_body = read_body
        self._check_dup_info = check_dup_info
        self._batch_rows = batch_rows

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
        starts: list[int] = []
        requests: list[DispatchRequest] = []
        position = self.position
        while (check := self.check(position)).request is not None:
            starts.append(position)
            requests.append(check.request)
            position += check.size
            if len(starts) == self._batch_rows:
                self.position = position
                yield RequestBatch(requests, starts)
                starts, requests = [], []
        self.position, self.end = position, check
        if starts:
            yield RequestBatch(requests, starts)
