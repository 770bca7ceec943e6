# SPDX-License-Identifier: Apache-2.0
"""Every golden store must read as RocketMQ read it, field by field, on every way there is to read it."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from store_core.format.decode import decode_message
from store_core.format.properties import PropertyParser
from store_core.format.scan import follow_chain
from tests.golden_rows import message_rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.golden_stores import Row, UnpackedStore


def scalar_rows(segment: Path, parser: PropertyParser) -> list[Row]:
    """Read a segment record by record."""
    data, start_offset = memoryview(segment.read_bytes()), int(segment.name)
    starts = follow_chain(data, start_offset=start_offset, verify_crc=True).starts.tolist()
    return message_rows((decode_message(data, start, start_offset, parser=parser) for start in starts), segment.name)


def test_record_by_record_every_message_is_as_rocketmq_reads_it(golden_store: UnpackedStore) -> None:
    parser = PropertyParser.of_release(golden_store.golden.release)
    actual = chain.from_iterable(scalar_rows(segment, parser) for segment in golden_store.segments)

    assert_same_rows(golden_store.expected(), list(actual))


def assert_same_rows(expected: list[Row], actual: list[Row]) -> None:
    """Compare row by row first: the difference of two rows can be read, that of two thousand can't."""
    for row, other in zip(expected, actual, strict=False):
        assert row == other
    assert len(expected) == len(actual)
