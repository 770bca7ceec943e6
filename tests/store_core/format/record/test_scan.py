# SPDX-License-Identifier: Apache-2.0
"""Following a chain of records, with one kind of damage per case: what is still read, and why reading stops."""

from __future__ import annotations

import struct

import pytest

from store_core.format.layout import MIN_RECORD_SIZE
from store_core.format.record.scan import StopReason, follow_frames
from tests import builders
from tests.builders import BODY_AT, BODY_LENGTH_AT, CRC_AT, MAGIC_AT, PHYSICAL_OFFSET_AT, SIZE_AT, Record
from tests.segment import Segment


@pytest.fixture
def log() -> Segment:
    return Segment()


def test_the_shortest_record_is_a_record(log: Segment) -> None:
    log.append(b"", topic="")

    assert len(log.data) == MIN_RECORD_SIZE
    assert log.bodies() == [b""]


# --- what lies behind a record ---

STALE = Record(b"stale", physical_offset=0).encode()
BEHIND = {
    "zeros": (bytes(100), StopReason.UNWRITTEN),
    **{f"{count} zeros": (bytes(count), StopReason.UNWRITTEN) for count in range(1, 8)},
    **{
        f"a blank record of {room} bytes": (builders.blank_record(room), StopReason.END_OF_FILE) for room in (8, 9, 100)
    },
    **{
        f"a blank record that says {size}": (
            struct.pack(">iI", size, builders.MAGIC_BLANK) + bytes(20),
            StopReason.END_OF_FILE,
        )
        for size in (0, -1, 7, 1 << 30, -(1 << 31))
    },
    "data in a blank record": (
        struct.pack(">iI", 8 + len(STALE), builders.MAGIC_BLANK) + STALE,
        StopReason.END_OF_FILE,
    ),
    "a blank record cut short": (builders.blank_record(8)[:5], StopReason.TORN),
    "a size of 0 and garbage": (bytes(4) + b"garbage!", StopReason.BAD_MAGIC),
}


@pytest.mark.parametrize(("rest", "reason"), BEHIND.values(), ids=BEHIND)
def test_what_is_no_record_ends_the_log(log: Segment, rest: bytes, reason: StopReason) -> None:
    log.append(b"one").append_raw(rest)

    assert log.bodies() == [b"one"]
    assert log.stop_reason() is reason


@pytest.mark.parametrize(
    ("end", "reason"), [(builders.blank_record(8), StopReason.END_OF_FILE), (bytes(8), StopReason.UNWRITTEN)]
)
def test_complete_stale_records_with_right_offsets_behind_the_end_are_not_data(
    log: Segment, end: bytes, reason: StopReason
) -> None:
    log.append(b"one").append_raw(end).append(b"stale", b"stale")

    assert log.bodies() == [b"one"]
    assert log.stop_reason() is reason


# --- damage of one field ---

TOPIC_AT = BODY_AT + 3
PROPERTIES_AT = TOPIC_AT + 1 + len("topic")


@pytest.mark.parametrize(
    ("at", "layout", "values", "reason"),
    [
        (SIZE_AT, ">i", [0x7FFFFFFF], StopReason.TORN),
        (SIZE_AT, ">i", [0, -1, -(1 << 31), 1, MIN_RECORD_SIZE - 1], StopReason.BAD_SIZE),
        (MAGIC_AT, ">I", [0, 1, 0xDAA320A8, 0xA720A3DA, 0xFFFFFFFF], StopReason.BAD_MAGIC),
        (BODY_LENGTH_AT, ">i", [4, 1000, 0x7FFFFFFF, -3], StopReason.SIZE_MISMATCH),
        (TOPIC_AT, ">b", [7, 127, -1], StopReason.SIZE_MISMATCH),
        (PROPERTIES_AT, ">h", [1, 0x7FFF], StopReason.SIZE_MISMATCH),
        (PHYSICAL_OFFSET_AT, ">q", [0], StopReason.WRONG_OFFSET),
    ],
    ids=["torn", "size", "magic code", "body", "topic", "properties", "offset"],
)
def test_a_field_that_can_not_be_is_damage(at: int, layout: str, values: list[int], reason: StopReason) -> None:
    for value in values:
        log = Segment().append(b"one").append(b"two", topic="topic").put(at, layout, value)

        assert log.bodies() == [b"one"], value
        assert log.stop_reason() is reason, value


@pytest.mark.parametrize("length", [-1, -(1 << 31)])
def test_a_negative_body_length_stands_for_no_body_as_in_java(log: Segment, length: int) -> None:
    log.append(b"").put(BODY_LENGTH_AT, ">i", length)

    assert log.bodies() == [b""]


def test_a_negative_topic_length_is_damage_even_where_lengths_add_up_backwards(log: Segment) -> None:
    """The body's last two bytes would be the length of properties that reach to the end of the record."""
    behind_body = 1 + 5 + 2
    log.append(b"one").append(b"ab" + struct.pack(">h", behind_body), topic="topic").put(BODY_AT + 4, ">b", -3)

    assert log.bodies() == [b"one"]
    assert log.stop_reason() is StopReason.SIZE_MISMATCH


def test_a_negative_properties_length_stands_for_no_properties_as_in_java(log: Segment) -> None:
    log.append(b"one").append(b"two", topic="topic").put(PROPERTIES_AT, ">h", -1)

    assert log.bodies() == [b"one", b"two"]


def test_a_record_that_belongs_elsewhere_passes_where_nobody_asks_as_in_java(log: Segment) -> None:
    log.append(b"one", b"two").put(PHYSICAL_OFFSET_AT, ">q", 0)
    found = follow_frames(memoryview(log.data), start_offset=None)

    assert found.starts.tolist() == log.starts


def test_the_checksum_of_no_bytes_is_never_looked_at_as_in_java(log: Segment) -> None:
    log.append(b"", b"two").append(b"").put(CRC_AT, ">i", 77)

    assert log.bodies(verify_crc=True) == [b"", b"two", b""]


# --- ranges ---


def test_reading_ends_with_the_last_record_that_starts_before_the_end(log: Segment) -> None:
    log.append(b"one", b"two", b"three")
    data = memoryview(log.data)
    _, two, three = log.starts

    assert follow_frames(data, 0, two).starts.tolist() == [0]
    assert follow_frames(data, 0, two + 1).starts.tolist() == [0, two]
    assert follow_frames(data, 0, two + 1).stop == three
    assert follow_frames(data, 0, two + 1).reason is StopReason.LIMIT
