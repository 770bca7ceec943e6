# SPDX-License-Identifier: Apache-2.0
"""The check of one record, rule by rule, as three releases of RocketMQ decide."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.format.java import hash_code
from store_core.format.release import Release, rules_of
from store_core.queue.dispatch.dispatch_batch import DispatchRequest, MessageCheck
from store_core.queue.dispatch.rocketmq_check import Strictness, check_message_and_return_size
from store_core.queue.queue_path import QueueRules
from tests.builders import BODY_LENGTH_AT, MAGIC_AT, SIZE_AT, SYS_FLAG_AT, Record, blank_record
from tests.store_core.queue.dispatch_logs import DELAYS, RELEASES, dispatch_logs, readings, with_property_crc
from tests.strategies import Log, mutated

if TYPE_CHECKING:
    from collections.abc import Mapping

OLD: Final[tuple[Release, ...]] = ("4.3", "4.9")
UNREADABLE: Final = MessageCheck(is_success=False, size=-1)
SCHEDULE: Final = "SCHEDULE_TOPIC_XXXX"
every_release = pytest.mark.parametrize("release", RELEASES)


def check(
    data: bytes | bytearray | Record,
    release: Release = "5.3",
    *,
    position: int = 0,
    check_crc: bool = True,
    read_body: bool = True,
    check_dup_info: bool = False,
    **rules: object,
) -> MessageCheck:
    stored = data.encode() if isinstance(data, Record) else bytes(data)
    return check_message_and_return_size(
        memoryview(stored),
        position,
        len(stored),
        replace(QueueRules(release=release, delay_levels=DELAYS), **rules),  # type: ignore[arg-type]
        Strictness(check_crc, read_body, check_dup_info),
    )


def request(data: bytes | Record, release: Release = "5.3", **rules: object) -> DispatchRequest:
    found = check(data, release, **rules).request  # type: ignore[arg-type]
    if found is None:
        pytest.fail("no record")
    return found


def put(record: Record, at: int, layout: str, value: int) -> bytearray:
    data = bytearray(record.encode())
    struct.pack_into(layout, data, at, value)
    return data


# --- what is not a record ---


UNREADABLE_BYTES: Final = {
    **{f"{room} bytes": blank_record(8)[:room] for room in range(8)},
    **{f"magic {magic:x}": put(Record(b"x"), MAGIC_AT, ">I", magic) for magic in (0, 1, 0xDAA320A8, 0xAABBCCDD)},
    **{f"size {size}": put(Record(), SIZE_AT, ">i", size) for size in (0, 5, 7, -5)},
    **{f"cut by {cut}": Record(b"body", properties={"TAGS": "a"}).encode()[:-cut] for cut in (1, 5, 20, 60)},
    "negative topic length": Record(topic="").encode()[:-3] + b"\xff\0\0",
}


@every_release
@pytest.mark.parametrize("data", UNREADABLE_BYTES.values(), ids=UNREADABLE_BYTES)
def test_what_has_no_head_no_magic_code_or_too_few_bytes_for_its_parts_is_no_record(
    release: Release, data: bytes
) -> None:
    assert check(data, release) == UNREADABLE


@every_release
def test_v2_is_known_from_5_x_on(release: Release) -> None:
    assert check(Record(b"x", version=2), release).is_record == rules_of(release).has_message_version_2


@pytest.mark.parametrize("size", [0, 7, 8, -1, -(1 << 31) + 4, 200])
def test_before_5_3_2_a_blank_record_ends_the_file_whatever_its_size(size: int) -> None:
    data = struct.pack(">i", size) + blank_record(50)[4:]

    assert {(True, 0)} == {(found.is_success, found.size) for found in (check(data, release) for release in OLD)}


@pytest.mark.parametrize(
    ("size", "ends"), [(0, True), (-1, True), (8, True), (50, True), (51, False), (-(1 << 31), False)]
)
def test_from_5_3_2_on_a_blank_record_must_fit_the_file(size: int, ends: bool) -> None:
    data = struct.pack(">i", size) + blank_record(50)[4:]

    assert check(data).is_blank == ends


@pytest.mark.parametrize("size", [-1, -2_000_000_000])
def test_from_5_5_1_on_a_blank_record_has_no_negative_size(size: int) -> None:
    data = struct.pack(">i", size) + blank_record(50)[4:]

    assert check(data, "5.5").is_blank
    assert check(data, "5.5.1") == UNREADABLE


@pytest.mark.parametrize("more", [1, 1000, (1 << 31) - 1 - 98])
def test_a_record_longer_than_the_bytes_is_a_half_message_before_5_3_2_only(more: int) -> None:
    record = Record(b"x", topic="orders")
    data = put(record, SIZE_AT, ">i", record.size + more)

    assert check(data) == UNREADABLE
    assert {(False, record.size + more, record.size)} == {
        (found.is_success, found.size, found.parsed) for found in (check(data, release) for release in OLD)
    }


@every_release
@pytest.mark.parametrize("length", [-1, -(1 << 31)])
def test_negative_lengths_of_body_and_properties_stand_for_none(release: Release, length: int) -> None:
    data = put(Record(topic="t"), BODY_LENGTH_AT, ">i", length)
    data[-2:] = b"\xff\xfe"
    found = check(data, release)

    assert found.is_record
    assert found.request is not None
    assert ("", None) == (found.request.keys, found.request.unique_key)


@every_release
def test_a_body_longer_than_the_record_is_unreadable_only_where_it_is_read(release: Release) -> None:
    record = Record(b"x" * 50, topic="t")
    data = put(record, SIZE_AT, ">i", 40)

    assert check(data, release) == UNREADABLE
    assert (False, 40) == (
        check(data, release, read_body=False).is_success,
        check(data, release, read_body=False).size,
    )


@every_release
def test_4_3_does_not_know_ipv6(release: Release) -> None:
    record = Record(b"", topic="t", born_host=("::1", 1))

    assert check(record, release).is_record == (release != "4.3")
    assert check(put(Record(b"x"), SYS_FLAG_AT, ">i", 0x30), release).is_record == (release == "4.3")


# --- checksums ---


def test_the_property_crc_takes_the_place_of_the_bodys() -> None:
    record = with_property_crc(Record(b"body", topic="T", properties={"KEYS": "k"}, crc=5))

    assert check(record, verify_property_crc=True).is_record
    assert check(record, "4.9", verify_property_crc=True) == UNREADABLE
    assert check(record) == UNREADABLE


@pytest.mark.parametrize("at", [9, 50, 93, 98])
def test_a_changed_byte_fails_the_property_crc_and_passes_where_it_is_not_checked(at: int) -> None:
    data = bytearray(with_property_crc(Record(b"", topic="T", properties={"KEYS": "key"})).encode())
    data[at] ^= 1

    assert check(data, verify_property_crc=True) == UNREADABLE
    assert check(data, verify_property_crc=True, check_crc=False).is_record
    assert check(data).is_record


# --- properties ---


@every_release
@pytest.mark.parametrize(
    ("text", "is_well"),
    [(None, False), ("a", False), ("a_b", True), ("_b", True), ("a_", False), ("a_b__", True), ("a__b", False)],
)
def test_a_replicated_message_says_where_from_in_two_parts(release: Release, text: str | None, is_well: bool) -> None:
    record = Record(b"x", properties={"W": "1"} | ({} if text is None else {"DUP_INFO": text}))

    assert check(record, release, check_dup_info=True).is_record == (is_well or not rules_of(release).checks_dup_info)
    assert check(record, release).is_record
    assert check(Record(b"x"), release, check_dup_info=True).is_record


@every_release
@pytest.mark.parametrize(
    ("level", "delay"),
    [("1", 1000), ("+2", 5000), ("3", 10_000), ("4", 10_000), ("2147483647", 10_000), ("\u0661", 1000)],
)
def test_the_tags_code_of_a_delayed_record_is_when_it_is_due(release: Release, level: str, delay: int) -> None:
    record = Record(topic=SCHEDULE, store_timestamp=50, properties={"DELAY": level, "TAGS": "a"})

    assert request(record, release).tags_code == 50 + delay
    assert request(record, release, delay_levels=()).tags_code == hash_code("a")
    assert request(replace(record, topic="orders"), release).tags_code == hash_code("a")


@every_release
@pytest.mark.parametrize("level", ["x", "1 ", "2147483648", "-2147483649", "1.0", "\U0001d7cf", "9" * 5000])
@pytest.mark.parametrize("delays", [(), DELAYS])
def test_a_level_that_is_no_integer_makes_the_record_unreadable(
    release: Release, level: str, delays: tuple[int, ...]
) -> None:
    record = Record(topic=SCHEDULE, properties={"DELAY": level})

    assert check(record, release, delay_levels=delays) == UNREADABLE
    assert check(replace(record, topic="orders"), release).is_record


INNER: Final = {"INNER_BASE": "9223372036854775807", "INNER_NUM": "32767"}


def test_an_inner_batch_has_its_base_and_size_in_5_x() -> None:
    record = Record(queue_offset=3, properties=INNER)
    found = {
        release: (made.message_base_offset, made.batch_size)
        for release, made in ((release, request(record, release)) for release in RELEASES)
    }

    before = ("4.3", "4.9")
    assert {name: (3, 1) if name in before else ((1 << 63) - 1, 32767) for name in RELEASES} == found


@pytest.mark.parametrize("name", INNER)
@pytest.mark.parametrize("text", ["x", "9223372036854775808", "1_0", " 1"])
def test_numbers_of_an_inner_batch_must_be_numbers_if_both_are_there(name: str, text: str) -> None:
    properties: Mapping[str, str] = INNER | {name: text}

    assert check(Record(properties=properties)) == UNREADABLE
    assert check(Record(properties={name: text})).is_record


def test_the_size_of_an_inner_batch_has_16_bits() -> None:
    assert check(Record(properties=INNER | {"INNER_NUM": "32768"})) == UNREADABLE


@every_release
def test_releases_read_odd_properties_each_in_its_way(release: Release) -> None:
    made = request(Record(properties=b"TAGS\x01a\x01\x02KEYS\x01x\x01y\x02UNIQ_KEY\x01"), release)
    expected = ("a", None, None) if release == "4.3" else ("a\x01", "x\x01y", None)

    assert (hash_code(expected[0]), *expected[1:]) == (made.tags_code, made.keys, made.unique_key)


@every_release
def test_malformed_names_and_values_are_read_as_java_does(release: Release) -> None:
    made = request(Record(topic=b"t\xff", properties=b"KEYS\x01\xed\xa0\x80\x02TAGS\x01\xe4\xb8\x02"), release)

    assert ("t\ufffd", "\ufffd", hash_code("\ufffd")) == (made.topic, made.keys, made.tags_code)


@given(mutated(dispatch_logs()), readings(), st.integers(0, 1 << 12))
def test_any_bytes_anywhere_are_judged_without_an_error(
    log: Log, reading: tuple[QueueRules, Strictness], position: int
) -> None:
    rules, checks = reading
    for at in (*log.starts, position):
        found = check_message_and_return_size(memoryview(log.data), at, len(log.data), rules, checks)

        assert found.is_record == (found.request is not None)
        assert not found.is_record or found.parsed == found.size
