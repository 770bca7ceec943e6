# SPDX-License-Identifier: Apache-2.0
"""The scalar encoder: its bytes equal those of released RocketMQ jars, and its limits hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from store_core.errors import InvalidOptionError
from store_core.format.message import AppendMessageStatus, Message, PutMessageStatus
from store_core.format.record.decode import client_batch, decode_items
from store_core.format.record.encode import (
    EncodedRecords,
    EncodeRules,
    Refusal,
    do_append,
    encode_members,
    encode_message,
    pack_host,
)
from tests.store_core.format.record.test_decode import INNER_BATCH, PLAIN, PROPERTY_CRC

BORN = 1_700_000_000_000
BROKER = ("127.0.0.1", 10911)
PRODUCER = ("10.1.2.3", 5555)
RULES = EncodeRules()

ORDER = Message("TopicA", b"body0", queue_id=1, tags="TagA", keys=["k1", "k2"], born_timestamp=BORN, born_host=PRODUCER)
SMALL = Message("T", b"\x01\x02\x03", tags="A", keys="k", born_timestamp=BORN, born_host=PRODUCER)


def encoded(message: Message, rules: EncodeRules = RULES) -> EncodedRecords:
    result = encode_message(message, rules, BROKER)
    assert isinstance(result, EncodedRecords)
    return result


def refused(message: Message, rules: EncodeRules = RULES) -> Refusal:
    result = encode_message(message, rules, BROKER)
    assert isinstance(result, Refusal)
    return result


def append(
    records: EncodedRecords, at: int, time: int, index: int = 0, *, crc: bool = False, queued: bool = True
) -> tuple[bytes, str]:
    view = bytearray(len(records.data) + 8)
    result = do_append(
        records,
        memoryview(view),
        at,
        queue_offset=index,
        store_timestamp=time,
        append_property_crc=crc,
        is_queued=queued,
    )
    assert AppendMessageStatus.PUT_OK is result.status
    return bytes(view[: result.wrote_bytes]), result.msg_id


def test_version_1_record_is_that_of_rocketmq_5() -> None:
    data, msg_id = append(encoded(ORDER), 0, 0x1A1FD5F5477)

    assert PLAIN == data
    assert msg_id == "7F00000100002A9F0000000000000000"


def test_property_crc_covers_the_whole_record() -> None:
    rules = EncodeRules(append_property_crc=True)
    data, _ = append(encoded(SMALL, rules), 0, 0x1A1FD63DC86, crc=True)

    assert PROPERTY_CRC == data


def test_property_crc_of_the_producer_is_replaced() -> None:
    rules = EncodeRules(append_property_crc=True)
    sent = replace(
        SMALL, tags=None, keys=None, properties_string="KEYS\x01k\x02__CRC32#\x010000000000\x02TAGS\x01A\x02"
    )
    data, _ = append(encoded(sent, rules), 0, 0x1A1FD63DC86, crc=True)

    assert PROPERTY_CRC == data


def test_inner_batch_is_one_record() -> None:
    items = [Message("BQ", body, tags="A", properties={"WAIT": "true"}) for body in (b"b0", b"b1")]
    batch = replace(
        client_batch(items),
        sys_flag=0xC0,
        born_timestamp=BORN,
        born_host=("127.0.0.1", 1),
        store_host=("127.0.0.1", 2),
        properties={"INNER_NUM": "2", "INNER_BASE": "1"},
    )
    data, _ = append(encoded(batch), 159, 0x1A1FD68E053, 1)

    assert INNER_BATCH == data


@pytest.mark.parametrize("release", ["4.3", "4.9", "5.3"])
def test_blank_record_closes_the_file_when_eight_bytes_would_not_be_left(release: str) -> None:
    records = encoded(ORDER, EncodeRules(release))
    for missing in range(1, 9):
        view = bytearray(len(records.data) + 8 - missing)
        result = do_append(records, memoryview(view), 4096, queue_offset=5, store_timestamp=77)

        assert AppendMessageStatus.END_OF_FILE is result.status
        assert (4096, len(view), 77, 5) == (
            result.wrote_offset, result.wrote_bytes, result.store_timestamp, result.logics_offset
        )  # fmt: skip
        assert len(view).to_bytes(4) + bytes.fromhex("cbd43194") + bytes(len(view) - 8) == view


@pytest.mark.parametrize(("release", "room"), [("4.3", 0), ("4.9", 0), ("5.3", 0), ("5.3", 20)])
def test_properties_of_32767_bytes_are_the_longest(release: str, room: int) -> None:
    rules = EncodeRules(release, append_property_crc=room > 0)
    longest = replace(SMALL, tags=None, keys=None, properties_string="a\x01".ljust(32766 - room, "v") + "\x02")
    longer = replace(longest, properties_string="a\x01".ljust(32767 - room, "v") + "\x02")

    assert isinstance(encode_message(longest, rules, BROKER), EncodedRecords)
    refusal = refused(longer, rules)
    if release == "4.3":
        assert PutMessageStatus.MESSAGE_ILLEGAL is refusal.status
        assert AppendMessageStatus.PROPERTIES_SIZE_EXCEEDED is refusal.append_status
    else:
        assert PutMessageStatus.PROPERTIES_SIZE_EXCEEDED is refusal.status
        assert refusal.append_status is None


def test_release_4_3_limits_the_record() -> None:
    rules = EncodeRules("4.3", max_message_size=122)

    assert len(encoded(replace(ORDER, body=b"body"), rules).data) == 122
    refusal = refused(ORDER, rules)
    assert PutMessageStatus.MESSAGE_ILLEGAL is refusal.status
    assert AppendMessageStatus.MESSAGE_SIZE_EXCEEDED is refusal.append_status


def test_record_may_exceed_the_limit_of_bodies_by_64_kib() -> None:
    rules = EncodeRules(max_message_size=10)
    wide = replace(SMALL, tags=None, keys=None, topic="t" * 32767, properties_string="p" * 32677)

    assert len(encoded(replace(wide, body=b"0123456789"), rules).data) == 65536 + 10
    assert PutMessageStatus.MESSAGE_ILLEGAL is refused(replace(wide, properties_string="p" * 32767), rules).status


def test_release_4_3_keeps_four_bytes_of_an_address() -> None:
    assert bytes.fromhex("20010db80000004d") == pack_host("2001:db8::2", 77, "4.3")


@pytest.mark.parametrize("ip", ["::ffff:10.1.2.3", "10.1.2.3"])
def test_mapped_addresses_are_ipv4(ip: str) -> None:
    assert bytes.fromhex("0a010203000015b3") == pack_host(ip, 5555)


@pytest.mark.parametrize("host", [("localhost", 1), ("10.0.0.1", 65536), ("10.0.0.1", -1)])
def test_host_that_is_none_is_named(host: tuple[str, int]) -> None:
    with pytest.raises(InvalidOptionError, match=r"a host needs"):
        pack_host(*host)


def test_integer_out_of_range_is_named() -> None:
    with pytest.raises(InvalidOptionError, match="message to 'T' has an integer out of range"):
        encode_message(replace(SMALL, queue_id=2**31), EncodeRules(), BROKER)


def test_null_values_are_written_by_release_4_3_only() -> None:
    message = replace(SMALL, tags=None, keys=None, properties={"a": None, "b": "c"})

    assert encoded(message, EncodeRules("4.3")).data.endswith(b"\x0ba\x01null\x02b\x01c\x02")
    assert encoded(message, EncodeRules("4.9")).data.endswith(b"\x03b\x01c")
    assert encoded(message).data.endswith(b"\x04b\x01c\x02")


def members(batch: Message, rules: EncodeRules = RULES) -> list[bytes]:
    result = encode_members(batch, decode_items(batch.body or b""), rules, BROKER)
    assert isinstance(result, EncodedRecords)
    return [bytes(result.data[a:b]) for a, b in zip(result.starts, [*result.starts[1:], None], strict=True)]


@pytest.mark.parametrize("release", ["4.3", "4.9", "5.3"])
def test_members_of_a_batch_are_ordinary_records(release: str) -> None:
    rules = EncodeRules(release)
    each = [replace(ORDER, body=bytes([65 + n]) * n, flag=n, tags=None if n == 2 else "x") for n in range(4)]
    batch = replace(client_batch(each, release), born_timestamp=BORN)

    assert [bytes(encoded(message, rules).data) for message in each] == members(batch, rules)


def test_properties_of_the_batch_follow_those_of_its_members() -> None:
    batch = replace(
        client_batch([replace(SMALL, tags=None, keys=None, properties_string="a\x01b")]), properties={"C": "d"}
    )

    assert members(batch)[0].endswith(b"\x00\x03a\x01b")
    assert members(batch, EncodeRules("5.3"))[0].endswith(b"\x00\x08a\x01b\x02C\x01d\x02")
    assert members(batch, EncodeRules("4.9"))[0].endswith(b"\x00\x07a\x01b\x02C\x01d")
    assert members(batch, EncodeRules("4.3"))[0].endswith(b"\x00\x03a\x01b")


def test_member_whose_properties_grow_too_long_is_refused() -> None:
    batch = client_batch([replace(SMALL, tags=None, keys=None, properties_string="a\x01".ljust(32767, "v"))])

    result = encode_members(
        replace(batch, properties={"C": "d"}), decode_items(batch.body or b""), EncodeRules("5.3"), BROKER
    )
    assert isinstance(result, Refusal)
    assert PutMessageStatus.MESSAGE_ILLEGAL is result.status


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (slice(0, 19), "19 bytes into an item's head"),
        (slice(0, 23), "claims a body of 3"),
        (slice(0, 30), "claims properties of 14 bytes"),
    ],
)
def test_batch_that_ends_inside_an_item_is_named(damage: slice, problem: str) -> None:
    body = (client_batch([SMALL]).body or b"")[damage]

    with pytest.raises(ValueError, match=problem):
        list(decode_items(body))


@pytest.mark.parametrize(("position", "problem"), [(16, "claims a body of -"), (23, "claims properties of -")])
def test_batch_with_a_negative_length_is_named(position: int, problem: str) -> None:
    body = bytearray(client_batch([SMALL]).body or b"")
    body[position] = 0xFF

    with pytest.raises(ValueError, match=problem):
        list(decode_items(bytes(body)))


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [SMALL, ORDER],
        [SMALL, replace(SMALL, wait_store_msg_ok=False)],
        [replace(SMALL, delay_level=3)],
        [replace(SMALL, body=None)],
        [replace(SMALL, properties_string="v" * 32768)],
    ],
)
def test_batch_that_no_client_would_make_is_refused(messages: list[Message]) -> None:
    with pytest.raises(InvalidOptionError, match="batch"):
        client_batch(messages)
