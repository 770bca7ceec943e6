# SPDX-License-Identifier: Apache-2.0
"""The bytes of a segment and their place in the log: what every walk works on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self

import numpy as np

from store_core.format.layout import BLANK_SIZE, MAX_HEAD_SIZE, MIN_RECORD_SIZE, MagicCode
from store_core.format.record.scan import (
    Framing,
    RecordCheck,
    check_frame,
    frame_size,
    head_shape,
    reach_of,
    read_frame,
    read_sys_flag,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt


HEAD: Final = 4 << 10
"""Bytes in which a frame tells its size: more than its head, and most frames."""

_LITTLE: Final = 64 << 10
"""Bytes of a body that are read whether the lengths prove it or not: from elsewhere each request takes long."""

_PROPERTIES_LENGTH_SIZE: Final = 2


class ByteSource(Protocol):
    """What gives the bytes of a segment."""

    def chunk(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        """Return the bytes from one position up to another, inside of the segment; the next call overwrites them."""


class ArrayBytes:
    """Bytes that are in memory.

    * `raw`: uint8, shape (m,), contiguous.
    """

    def __init__(self, raw: npt.NDArray[np.uint8]) -> None:
        self.raw = raw

    def chunk(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        """Return the bytes of a range, as a view."""
        return self.raw[begin:end]


class Piece(NamedTuple):
    """Some bytes of a segment, which hold until the next ones are read, and the physical offset of the first."""

    raw: npt.NDArray[np.uint8]
    start_offset: int


def _no_holes(position: int) -> int:
    return position


@dataclass(frozen=True, slots=True, eq=False)
class SegmentView:
    """A segment, whose bytes are read where they are needed."""

    source: ByteSource
    size: int  # in bytes
    start_offset: int = 0  # physical offset of the first byte
    next_data: Callable[[int], int] = _no_holes
    """Returns the first position at or after another that may hold anything but zeros."""
    framing: Framing = Framing.RECORDS  # what it is made of
    file_size: int = 0  # bytes of the whole file, if the segment is to end before; else 0

    @classmethod
    def of(
        cls,
        raw: npt.NDArray[np.uint8],
        start_offset: int = 0,
        next_data: Callable[[int], int] = _no_holes,
        framing: Framing = Framing.RECORDS,
    ) -> Self:
        """Return a segment that is in memory."""
        return cls(ArrayBytes(raw), raw.size, start_offset, next_data, framing)

    def chunk(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        """Return the bytes from one position up to another, inside of the segment; the next call overwrites them."""
        return self.source.chunk(begin, end)

    def check(self, position: int, *, verify_crc: bool = False, previous: int = -1) -> RecordCheck:
        """Check for the frame at a position, as `check_frame` does; parts are positions in `frame`."""
        before = self.chunk(previous, position).copy() if self.continues(position, previous) else None
        raw = self.frame(position, with_body=verify_crc)
        beyond = self.size - position - raw.size
        if before is None:
            where = raw.data, 0, self.start_offset + position, self.framing
            return check_frame(*where, verify_crc=verify_crc, beyond=beyond)
        both = np.concatenate([before, raw]).data
        where = both, before.size, self.start_offset + previous, self.framing
        return check_frame(*where, verify_crc=verify_crc, previous=0, beyond=beyond)

    def frame(self, position: int, *, with_body: bool = False) -> npt.NDArray[np.uint8]:
        """Return the bytes of the frame at a position, or just the first ones if they show that none is there.

        A size that a damaged frame claims makes no more memory be taken than the head and the lengths of its parts
        need, nor is a large body read that nobody asks for: zeros stand for it.

        * `with_body`: Whether a large body is read, too, if the lengths add up.
        """
        head = self.chunk(position, min(position + HEAD, self.size)).copy()
        size = reach_of(head.data, self.framing, self.size - position - head.size)
        if size <= head.size:
            return head
        if with_body and (size <= _LITTLE or self.proven_size(position)):
            return self.chunk(position, position + size)
        found = np.zeros(size, np.uint8)
        found[: head.size] = head
        for at, length in self._measured(position)[0].items():
            if at + len(length) <= position + size:
                found[at - position :][: len(length)] = np.frombuffer(length, np.uint8)
        return found

    def continues(self, position: int, last: int) -> bool:
        """Return whether the frame at a position has to be compared with the sound one that ends there."""
        if last < 0 or self.framing is Framing.RECORDS:
            return False
        return last + frame_size(self.chunk(last, last + BLANK_SIZE).data, 0, self.framing) == position

    def proven_size(self, position: int) -> int:
        """Return the size of the frame at a position if the lengths of its record's parts add up to it; else 0."""
        begin, end = position + self.framing.lead, self.measured_end(position)
        if not begin < end <= self.size:
            return 0
        size = read_frame(self.chunk(begin, begin + BLANK_SIZE).data, 0)[0]
        return end - position if end == begin + size else 0

    def measured_end(self, position: int) -> int:
        """Return where the parts of the record of a frame end, by their lengths alone; 0 if no record is there."""
        return self._measured(position)[1]

    def _measured(self, position: int) -> tuple[dict[int, bytes], int]:
        """Return the lengths behind a record's body by where they are, and where its parts end."""
        begin = position + self.framing.lead
        if begin + MIN_RECORD_SIZE > self.size:
            return {}, 0
        head = self.chunk(begin, min(begin + MAX_HEAD_SIZE, self.size)).data
        shape, magic = head_shape(read_sys_flag(head, 0)), read_frame(head, 0)[1]
        if magic not in (MagicCode.MESSAGE_V1, MagicCode.MESSAGE_V2) or len(head) < shape.size:
            return {}, 0
        at = begin + shape.size + max(shape.read_body_length(head, 0)[0], 0)
        found: dict[int, bytes] = {}
        for width in (MagicCode(magic).topic_length_size, _PROPERTIES_LENGTH_SIZE):
            if at + width > self.size:
                return found, 0
            found[at] = self.chunk(at, at + width).tobytes()
            at += width + max(int.from_bytes(found[at], signed=True), 0)
        return found, at

    def up_to(self, end: int) -> Self:
        """Return the same segment without the bytes at and after a position."""
        return replace(self, size=max(min(end, self.size), 0), file_size=self.file_size or self.size)
