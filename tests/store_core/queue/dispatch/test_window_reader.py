# SPDX-License-Identifier: Apache-2.0
"""Reading a segment window by window gives what one reader of all of its bytes gives."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.format.columnar import chain
from store_core.format.release import RELEASES, Release
from store_core.format.segment_view import Piece, SegmentView
from store_core.queue.dispatch import dispatch_reader
from store_core.queue.dispatch.dispatch_reader import DispatchReader, WindowReader
from store_core.queue.dispatch.rocketmq_check import Strictness
from store_core.queue.queue_path import QueueRules
from tests.builders import MAGIC_BLANK, Record
from tests.segment import windowed
from tests.store_core.queue.dispatch_logs import dispatch_logs, readings
from tests.strategies import Log, layouts, mutated

if TYPE_CHECKING:
    import numpy.typing as npt


@given(mutated(dispatch_logs()) | dispatch_logs() | layouts(), readings(), st.data())
def test_windows_give_what_all_bytes_give(
    log: Log, reading: tuple[QueueRules, Strictness], data: st.DataObject
) -> None:
    rules, checks = reading
    limit = data.draw(st.integers(0, len(log.data)) | st.just(len(log.data)))
    raw = np.frombuffer(log.data, np.uint8)
    whole = DispatchReader(Piece(raw, log.start_offset), 0, rules, checks)
    expected = [each for batch in whole for each in zip(batch.starts.tolist(), batch.requests(), strict=True)]
    found, few = [], data.draw(st.sampled_from([8, 200, 4096]))
    with patch.multiple(chain, _LEAST=150, _LARGEST=300), patch.multiple(dispatch_reader, _FEW_BYTES=few, _HEAD=120):
        reader = WindowReader(windowed(log.data, log.start_offset), 0, rules, checks, limit=limit)
        for batch, view in reader:
            first = view.start_offset - log.start_offset
            found += [
                (first + start, each) for start, each in zip(batch.starts.tolist(), batch.requests(), strict=True)
            ]

    is_at_limit = limit < len(log.data) and whole.position >= limit
    taken = [each for each in expected if each[0] < limit] if is_at_limit else expected
    assert taken == found
    assert is_at_limit == reader.is_at_limit
    if is_at_limit:
        assert next((start for start, _ in expected if start >= limit), whole.position) == reader.position
    else:
        assert (whole.position, whole.end) == (reader.position, reader.end)


@pytest.mark.parametrize("release", RELEASES)
def test_a_blank_record_is_not_read_however_far_it_reaches(release: Release) -> None:
    size, record = 1 << 30, Record(b"body").encode()
    source = MostlyBlank(record + struct.pack(">iI", size - len(record), MAGIC_BLANK))
    strictness = Strictness(check_crc=True, read_body=True)
    reader = WindowReader(SegmentView(source, size, 0), 0, QueueRules(release=release), strictness)

    assert [0] == [start for batch, _ in reader for start in batch.starts.tolist()]
    assert reader.end.is_blank
    assert source.asked < 4 << 20  # the first window is one of a MiB


class MostlyBlank:
    """Gives the bytes of a segment whose first ones are known, and counts those that are asked for."""

    def __init__(self, first: bytes) -> None:
        self.first = first
        self.asked = 0

    def chunk(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        """Return the bytes of a range."""
        self.asked += end - begin
        known = np.frombuffer(self.first[begin:end], np.uint8)
        return np.concatenate([known, np.zeros(end - begin - known.size, np.uint8)])
