# SPDX-License-Identifier: Apache-2.0
"""Following a chain of records, with one kind of damage per case: what is still read, and why reading stops."""

from __future__ import annotations

import struct

import pytest

from store_core.format.layout import MIN_RECORD_SIZE
from store_core.format.record.scan import StopReason, check_record, follow_frames
from tests import builders
from tests.builders import BODY_AT, BODY_LENGTH_AT, CRC_AT, MAGIC_AT, PHYSICAL_OFFSET_AT, SIZE_AT, SYS_FLAG_AT, Record
from tests.segment import Segment


@pytest.fixture
def log() -> Segment:
    return Segment()


def test_an_empty_file_has_nothing_to_tell(log: Segment) -> None:
    assert log.bodies() == []
    assert log.stop_reason() is StopReason.LIMIT


@pytest.mark.parametrize("start_offset", [0, 1 << 30, (1 << 40) + 12345])
def test_records_are_found_in_order_wherever_the_segment_lies_in_the_log(start_offset: int) -> None:
    log = Segment(start_offset).append(b"one", b"two", b"three")

    assert log.bodies() == [b"one", b"two", b"three"]
    assert log.stop_reason() is StopReason.LIMIT


def test_a_body_of_no_bytes_is_a_record(log: Segment) -> None:
    log.append(b"", b"two")

    assert log.bodies(verify_crc=True) == [b"", b"two"]


def test_the_shortest_record_is_a_record(log: Segment) -> None:
    log.append(b"", topic="")

    assert len(log.data) == MIN_RECORD_SIZE
    assert log.bodies() == [b""]


@pytest.mark.parametrize(
    ("born", "store", "width"),
    [
        ("10.1.2.3", "127.0.0.1", 88),
        ("2001:db8::2", "127.0.0.1", 100),
        ("10.1.2.3", "fe80::1", 100),
        ("2001:db8::2", "fe80::1", 112),
    ],
)
def test_each_ipv6_host_widens_the_head_by_twelve_bytes(log: Segment, born: str, store: str, width: int) -> None:
    log.append(b"body", born_host=(born, 1), store_host=(store, 2), topic="topic")
    check = log.check()

    assert check.spans is not None
    assert check.spans.body_start == width
    assert check.spans.topic_start == width + 4 + 1


def test_v1_and_v2_records_with_topics_of_any_length_mix(log: Segment) -> None:
    log.append(b"one").append(b"two", version=2, topic="t").append(b"three", born_host=("::1", 3))
    log.append(b"long", topic="t" * 255, version=2).append(b"last")

    assert log.bodies() == [b"one", b"two", b"three", b"long", b"last"]


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


@pytest.mark.parametrize("kept", [6, 92])
def test_a_torn_record_is_left_out(log: Segment, kept: int) -> None:
    log.append(b"one", b"two")
    log.shrink(len(log.data) - log.starts[1] - kept)

    assert log.bodies() == [b"one"]
    assert log.stop_reason() is StopReason.TORN
    assert log.scan().stop == log.starts[1]


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


@pytest.mark.parametrize("change", [1, -1, 4])
def test_parts_that_do_not_add_up_are_damage(log: Segment, change: int) -> None:
    log.append(b"one", b"two", b"three")
    start, stop = log.starts[1], log.starts[2]
    struct.pack_into(">i", log.data, start, stop - start + change)

    assert log.bodies() == [b"one"]
    assert log.stop_reason() is StopReason.SIZE_MISMATCH


def test_a_v1_topic_length_of_128_reads_as_negative_as_in_java(log: Segment) -> None:
    log.append(b"one").append(b"two", topic="t" * 127).put(TOPIC_AT, ">B", 128)

    assert log.bodies() == [b"one"]
    assert log.stop_reason() is StopReason.SIZE_MISMATCH


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


def test_a_v2_topic_past_its_record_is_damage(log: Segment) -> None:
    log.append(b"one").append(b"two", topic="topic", version=2).put(TOPIC_AT, ">h", 0x7FFF)

    assert log.stop_reason() is StopReason.SIZE_MISMATCH


def test_a_negative_properties_length_stands_for_no_properties_as_in_java(log: Segment) -> None:
    log.append(b"one").append(b"two", topic="topic").put(PROPERTIES_AT, ">h", -1)

    assert log.bodies() == [b"one", b"two"]


@pytest.mark.parametrize("sys_flag", [0x10, 0x20, 0x30])
def test_a_head_wider_than_its_record_is_damage(log: Segment, sys_flag: int) -> None:
    log.append(b"one").append(b"", topic="").put(SYS_FLAG_AT, ">i", sys_flag)

    assert log.bodies() == [b"one"]
    assert log.stop_reason() is StopReason.SIZE_MISMATCH


def test_a_record_that_belongs_elsewhere_passes_where_nobody_asks_as_in_java(log: Segment) -> None:
    log.append(b"one", b"two").put(PHYSICAL_OFFSET_AT, ">q", 0)
    found = follow_frames(memoryview(log.data), start_offset=None)

    assert found.starts.tolist() == log.starts


def test_a_body_that_does_not_match_its_checksum_is_damage(log: Segment) -> None:
    log.append(b"one", b"two").put(BODY_AT, ">B", 0xFF)

    assert log.bodies(verify_crc=True) == [b"one"]
    assert log.stop_reason(verify_crc=True) is StopReason.BAD_CRC


def test_a_checksum_is_not_looked_at_unless_asked(log: Segment) -> None:
    log.append(b"one", b"two").put(CRC_AT, ">i", 1)

    assert log.bodies() == [b"one", b"two"]


def test_the_checksum_of_no_bytes_is_never_looked_at_as_in_java(log: Segment) -> None:
    log.append(b"", b"two").append(b"").put(CRC_AT, ">i", 77)

    assert log.bodies(verify_crc=True) == [b"", b"two", b""]


def test_a_topic_that_is_not_utf8_does_not_end_the_chain(log: Segment) -> None:
    log.append(b"one").append(b"two", topic=b"\xff\xfe").append(b"three")

    assert log.scan().starts.tolist() == log.starts


def test_a_body_that_holds_records_is_one_record(log: Segment) -> None:
    inside = Segment(start_offset=BODY_AT).append(b"decoy", b"decoy")
    log.append(bytes(inside.data), b"two")

    assert log.bodies() == [bytes(inside.data), b"two"]


# --- ranges ---


def test_reading_ends_with_the_last_record_that_starts_before_the_end(log: Segment) -> None:
    log.append(b"one", b"two", b"three")
    data = memoryview(log.data)
    _, two, three = log.starts

    assert follow_frames(data, 0, two).starts.tolist() == [0]
    assert follow_frames(data, 0, two + 1).starts.tolist() == [0, two]
    assert follow_frames(data, 0, two + 1).stop == three
    assert follow_frames(data, 0, two + 1).reason is StopReason.LIMIT


def test_reading_begins_where_it_is_told(log: Segment) -> None:
    log.append(b"one", b"two", b"three")

    assert follow_frames(memoryview(log.data), log.starts[1]).starts.tolist() == log.starts[1:]


def test_nothing_is_read_of_an_empty_range(log: Segment) -> None:
    log.append(b"one")
    found = follow_frames(memoryview(log.data), 0, 0)

    assert (found.starts.tolist(), found.stop, found.reason) == ([], 0, StopReason.LIMIT)


# --- what a check reports ---


def test_damage_says_what_was_expected_and_found(log: Segment) -> None:
    log.append(b"one").put(MAGIC_AT, ">I", 0x12345678)
    check = log.check()

    assert (check.expected, check.found) == ("0xdaa320a7 or 0xdaa320ab", "0x12345678")


@pytest.mark.parametrize("reason", StopReason)
def test_only_limit_blank_and_zeros_are_no_damage(reason: StopReason) -> None:
    assert reason.is_damage is (reason.name not in {"LIMIT", "END_OF_FILE", "UNWRITTEN"})


def test_the_size_of_a_damaged_record_is_told_when_it_lies_within_the_file(log: Segment) -> None:
    log.append(b"one").put(PHYSICAL_OFFSET_AT, ">q", 5)

    assert log.check().size == len(log.data)


def test_nothing_is_read_behind_the_end_of_a_file() -> None:
    for position in (0, 1, 100):
        assert check_record(memoryview(b""), position).reason is StopReason.LIMIT
