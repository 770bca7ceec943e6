# SPDX-License-Identifier: Apache-2.0
"""One segment in memory: methods to break it and to read it, and one of which there is only one chunk at a time."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from store_core.format.columnar.chain import scan
from store_core.format.record.decode import decode_message
from store_core.format.record.scan import Framing, Scan, StopReason, follow_frames
from store_core.format.segment_view import SegmentView
from tests.builders import Record

if TYPE_CHECKING:
    import numpy.typing as npt


class Segment:
    """The bytes of one segment file; they end with the last record, unless zeros or a blank record are appended."""

    def __init__(self, start_offset: int = 0) -> None:
        self.start_offset = start_offset
        self.data = bytearray()
        self.starts: list[int] = []

    def append(self, *bodies: bytes, **fields: Any) -> Self:  # noqa: ANN401 -- the fields of Record
        """Append one record per body."""
        for body in bodies:
            self.starts.append(len(self.data))
            offset = self.start_offset + len(self.data)
            self.data += Record(**{"body": body, "physical_offset": offset, **fields}).encode()
        return self

    def append_raw(self, data: bytes) -> Self:
        """Append bytes that are not a record."""
        self.data += data
        return self

    def put(self, at: int, layout: str, *values: int) -> Self:
        """Overwrite bytes of the last record, counted from its start."""
        struct.pack_into(layout, self.data, self.starts[-1] + at, *values)
        return self

    def shrink(self, count: int) -> Self:
        """Cut bytes off the end."""
        del self.data[len(self.data) - count :]
        return self

    def scan(self, *, verify_crc: bool = False) -> Scan:
        """Follow the chain; without checksums, check that the vectorised walk agrees."""
        data = memoryview(bytes(self.data))
        followed = follow_frames(data, start_offset=self.start_offset, verify_crc=verify_crc)
        if not verify_crc:
            assert_same_scan(followed, scan(np.frombuffer(data, np.uint8), start_offset=self.start_offset))
        return followed

    def bodies(self, *, verify_crc: bool = False) -> list[bytes]:
        """Read the bodies of the records that the chain leads to."""
        data = memoryview(bytes(self.data))
        starts = self.scan(verify_crc=verify_crc).starts.tolist()
        return [decode_message(data, start, self.start_offset, verify_crc=False).body for start in starts]

    def stop_reason(self) -> StopReason:
        """Report why the chain ends."""
        return self.scan().reason


def assert_same_scan(expected: Scan, actual: Scan) -> None:
    """Compare two scans, arrays included."""
    assert (expected.starts.tolist(), expected.stop, expected.reason) == (
        actual.starts.tolist(),
        actual.stop,
        actual.reason,
    )


class OverwrittenBytes:
    """Gives chunks, each of which is overwritten when the next one is asked for."""

    def __init__(self, data: bytes) -> None:
        self._data = np.frombuffer(data, np.uint8)
        self._last = np.empty(0, np.uint8)

    def chunk(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        """Return the bytes of a range, and make those of the last one others."""
        assert 0 <= begin <= end <= self._data.size
        self._last[:] = 0xEE
        self._last = self._data[begin:end].copy()
        return self._last


def windowed(data: bytes, start_offset: int, framing: Framing = Framing.RECORDS) -> SegmentView:
    """Return a segment of which there is only the chunk that was asked for last."""
    return SegmentView(OverwrittenBytes(data), len(data), start_offset, framing=framing)
