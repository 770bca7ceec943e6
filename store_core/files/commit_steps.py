# SPDX-License-Identifier: Apache-2.0
"""Divides a write of many records, so that a process killed in it leaves whole records and nothing after them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store_core.format.layout import head_dtype

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["OS_PAGE_SIZE", "RECORD_SEAL", "commit_steps"]

OS_PAGE_SIZE: Final = 4096
"""Unit of the page rules, in bytes, whatever the machine's page size (RocketMQ: ``MappedFile.OS_PAGE_SIZE``)."""

RECORD_SEAL: Final = head_dtype()["total_size"].itemsize
"""Bytes of a record's size field: while it is 0, the log ends before the record."""


def commit_steps(records: memoryview, position: int) -> Iterator[tuple[slice, int]]:
    """Yield the writes to do, in order, each with its seal, see `store_core.files.segment_file.SegmentFile.write`.

    A kill makes Linux end a ``pwrite`` between two pages, never inside of one. So records that lie in one page are
    written together, and one that is in several pages alone. A single one has its size written last. (If the size of
    the first were written last of all, a kill would leave records after a gap, which looks like damage: they are newer
    than what is before it, and of several times.)

    Parameters
    ----------
    records : memoryview
        Whole records. What is not, is one write, to the end.
    position : int
        Of the first, in bytes from the start of the file.

    Yields
    ------
    tuple of slice and int
        Part of `records`, and the bytes of it to write last.
    """
    begin = last = end = 0
    while end < len(records):
        size = int.from_bytes(records[end : end + RECORD_SEAL], "big")
        after = end + size if RECORD_SEAL <= size <= len(records) - end else len(records)
        if begin < end and (position + begin) // OS_PAGE_SIZE != (position + after - 1) // OS_PAGE_SIZE:
            yield slice(begin, end), RECORD_SEAL if begin == last else 0
            begin = end
        last, end = end, after
    if begin < end:
        yield slice(begin, end), RECORD_SEAL if begin == last else 0
