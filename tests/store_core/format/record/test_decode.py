# SPDX-License-Identifier: Apache-2.0
"""Reading one record, a field of its head, or a batch: what RocketMQ wrote, and errors that say where and what."""

from __future__ import annotations

import base64
import json
import re
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import read_messages, unwrap_inner_batch
from store_core.errors import CorruptRecordError
from store_core.format.layout import (
    MESSAGE_HEAD,
    MessageSysFlag,
    TransactionType,
    head_dtype,
    head_size,
)
from store_core.format.properties import parse_properties
from store_core.format.record.decode import decode_message
from store_core.format.record.scan import (
    encode_host,
    format_host,
    head_reader,
    head_shape,
    read_frame,
    read_sys_flag,
    store_timestamp,
)
from tests import builders
from tests.builders import BODY_AT, MAGIC_AT, SYS_FLAG_AT
from tests.golden_stores import find_golden_store, unpack
from tests.segment import Segment
from tests.strategies import Log, logs, mutated

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.format.message import MessageExt


# Written by RocketMQ 5.3.3, but for the second one, by 4.9.4.
PLAIN = bytes.fromhex("""
0000007bdaa320a7516fa58a000000010000000000000000000000000000000000000000000000000000018bcfe568000a010203000015b3
000001a1fd5f54777f00000100002a9f00000000000000000000000000000005626f64793006546f7069634100154b455953016b31206b32
0254414753015461674102""")
PROPERTY_CRC = bytes.fromhex("""
00000081daa320a755bc801d000000000000000000000000000000000000000000000000000000000000018bcfe568000a010203000015b3
000001a1fd63dc867f00000100002a9f00000000000000000000000000000003010203015400224b455953016b02544147530141025f5f43
5243333223013634363633353634373102""")
INNER_BATCH = bytes.fromhex(
    """
000000c8daa320a7051ebb1100000000000000000000000000000001000000000000009f000000c00000018bcfe568007f00000100000001
000001a1fd68e0537f0000010000000200000000000000000000000000000052000000290000000000000000000000000000000262300011
574149540174727565025441475301410200000029000000000000000000000000000000026231001157414954017472756502544147530
141020242510019494e4e45525f42415345013102494e4e45525f4e554d013202""".replace("\n", "")
)


def decode(record: bytes, start_offset: int = 0) -> MessageExt:
    return decode_message(memoryview(record), 0, start_offset)


@pytest.mark.parametrize("at", [20, BODY_AT, 90, -22, -1, -2, -11])
def test_a_record_that_differs_from_the_checksum_over_all_of_it_is_refused(at: int) -> None:
    record = bytearray(PROPERTY_CRC)
    record[at] ^= 1

    with pytest.raises(CorruptRecordError, match=r"bad (checksum over the record|body CRC)"):
        decode(bytes(record))


@pytest.mark.parametrize(
    ("sys_flag", "kind", "is_queued"),
    [
        (0, TransactionType.NOT_TYPE, True),
        (4, TransactionType.PREPARED_TYPE, False),
        (8, TransactionType.COMMIT_TYPE, True),
        (12 | 1, TransactionType.ROLLBACK_TYPE, False),
    ],
)
def test_transaction_type_is_two_bits_of_the_sys_flag(sys_flag: int, kind: TransactionType, is_queued: bool) -> None:
    message = decode(bytes(Segment().append(b"", sys_flag=sys_flag).data))

    assert message.transaction_type is kind
    assert message.transaction_type.is_queued is is_queued


@pytest.mark.parametrize("sys_flag", [0x401, 0x501, 0x601, 0x701])
def test_compression_types_above_three_are_refused(sys_flag: int) -> None:
    message = decode(bytes(Segment().append(b"", sys_flag=sys_flag).data))

    with pytest.raises(ValueError, match=str(sys_flag >> 8)):
        _ = message.compression


# --- errors ---


def test_an_error_names_file_offset_expected_found_and_bytes() -> None:
    log = Segment(start_offset=1 << 30).append(b"one", b"two").put(MAGIC_AT, ">i", 0)
    start = log.starts[1]

    with pytest.raises(CorruptRecordError) as caught:
        decode_message(memoryview(log.data), start, 1 << 30, file="00000000001073741824")
    error = caught.value

    assert (error.problem, error.file, error.offset) == ("bad magic code", "00000000001073741824", (1 << 30) + start)
    assert (error.expected, error.found) == ("0xdaa320a7 or 0xdaa320ab", "0x00000000")
    assert error.next_bytes == bytes(log.data[start : start + 16])
    assert str(error).startswith(
        f"bad magic code at offset {(1 << 30) + start} of 00000000001073741824: expected 0xdaa320a7 or 0xdaa320ab, "
        "found 0x00000000; next bytes 00 00 00"
    )


def message_or_error(log: Log, start: int) -> MessageExt | CorruptRecordError:
    try:
        return decode_message(memoryview(log.data), start, log.start_offset)
    except CorruptRecordError as error:
        return error


@given(mutated(logs()))
def test_broken_bytes_raise_nothing_but_errors_that_say_where(log: Log) -> None:
    for start in log.starts:
        match message_or_error(log, start):
            case CorruptRecordError(offset=offset):
                assert offset == log.start_offset + start
            case message:
                assert message.physical_offset == log.start_offset + start
                assert message.store_size <= len(log.data) - start


@pytest.fixture
def batch_store(tmp_path: Path) -> Path:
    return unpack(find_golden_store("5.3.3/bcq"), tmp_path).path


def put_in(path: Path) -> list[tuple[int, int, bytes, dict[str, str]]]:
    """Return the messages of a golden store's inner batches, from the Java program that made it."""
    lines = (json.loads(line) for line in path.joinpath("manifest.jsonl").read_text().splitlines())
    batches = (line for line in lines if line.get("type") == "innerBatch" and line["putStatus"] == "PUT_OK")
    return [
        (line["logicsOffset"] + number, item["flag"], base64.b64decode(item["body"]), item_properties(item))
        for line in batches
        for number, item in enumerate(line["messages"])
    ]


def item_properties(item: dict[str, Any]) -> dict[str, str]:
    return parse_properties(base64.b64decode(item["propertiesString"] or "").decode())


def is_inner_batch(sys_flag: int) -> bool:
    bits = MessageSysFlag.INNER_BATCH_FLAG | MessageSysFlag.NEED_UNWRAP_FLAG
    return sys_flag & bits == bits


@pytest.mark.golden
def test_inner_messages_are_those_that_were_put(batch_store: Path) -> None:
    rows = read_messages(batch_store / "store", columns=["queue_offset", "sys_flag", "body"]).read_all().to_pylist()
    actual = [
        (message.queue_offset, message.flag, message.body, message.properties)
        for row in rows
        if is_inner_batch(row["sys_flag"])
        for message in unwrap_inner_batch(row["body"], row["queue_offset"])
    ]

    assert put_in(batch_store) == actual
    assert len(actual) > 100


@pytest.mark.parametrize("cut", [1, 19, 21, -1])
def test_a_batch_that_is_cut_is_refused(batch_store: Path, cut: int) -> None:
    columns = ["sys_flag", "body"]
    rows = read_messages(batch_store / "store", columns=columns).read_all().to_pylist()
    body = next(row["body"] for row in rows if is_inner_batch(row["sys_flag"]))

    with pytest.raises(ValueError, match="batch"):
        unwrap_inner_batch(body[:cut])


NAMES = [field.name for field in MESSAGE_HEAD.fields]
V6_BITS = (0, 0x10, 0x20, 0x30)
heads = st.binary(min_size=head_size(0x30), max_size=head_size(0x30))


def expected(data: bytes, position: int, name: str, bits: int) -> object:
    value = np.frombuffer(data, head_dtype(bits), 1, position)[0][name]
    return value.tobytes() if head_dtype(bits)[name].names else int(value)


@given(heads, st.binary(max_size=9), st.sets(st.sampled_from(NAMES)), st.sampled_from(V6_BITS))
def test_fields_are_those_of_the_table(head: bytes, before: bytes, names: set[str], bits: int) -> None:
    ordered, data = sorted(names, key=NAMES.index), before + head
    found = head_reader(*ordered, sys_flag=bits)(memoryview(data), len(before))

    assert list(found) == [expected(data, len(before), name, bits) for name in ordered]


@given(heads, st.integers(-(2**31), 2**31 - 1), st.binary(max_size=9))
def test_fields_after_the_hosts_are_found_by_the_flags(head: bytes, sys_flag: int, before: bytes) -> None:
    data = before + head[:SYS_FLAG_AT] + struct.pack(">i", sys_flag) + head[SYS_FLAG_AT + 4 :]
    position = len(before)

    assert read_frame(data, position) == struct.unpack_from(">ii", data, position)
    assert read_sys_flag(data, position) == sys_flag
    assert head_shape(sys_flag).size == head_size(sys_flag)
    (found,) = head_shape(sys_flag).read_body_length(data, position)
    assert found == expected(data, position, "body_length", sys_flag)
    assert store_timestamp(data, position) == expected(data, position, "store_timestamp", sys_flag)
    assert store_timestamp(data, position, has_ipv6=False) == expected(data, position, "store_timestamp", 0)


def test_fields_are_named_in_their_order() -> None:
    with pytest.raises(ValueError, match=re.escape("field total_size is stored before")):
        head_reader("magic_code", "total_size")


v4_addresses = st.ip_addresses(v=4).map(str)
v6_addresses = st.ip_addresses(v=6).map(str)
ports = st.integers(0, 0xFFFF)


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("0a010203", "10.1.2.3:7"),
        ("ffffffff", "255.255.255.255:7"),
        ("00000000000000000000000000000000", "[::]:7"),
        ("00000000000000000000000000000001", "[::1]:7"),
        ("20010db8000000000000000000000002", "[2001:db8::2]:7"),
        ("20010db8000000000001000000000001", "[2001:db8::1:0:0:1]:7"),
        ("20010db8000100010001000100010001", "[2001:db8:1:1:1:1:1:1]:7"),
        ("20010db8000000010001000100010001", "[2001:db8:0:1:1:1:1:1]:7"),
        ("ABCDEF00000000000000000000000000", "[abcd:ef00::]:7"),
        ("00000000000000000000ffff0a010203", "[::ffff:10.1.2.3]:7"),
    ],
)
def test_addresses_are_written_in_the_form_of_rfc_5952(address: str, text: str) -> None:
    assert format_host(bytes.fromhex(address), 7) == text


@given(v4_addresses | v6_addresses, ports)
def test_an_encoded_host_is_what_a_record_holds(ip: str, port: int) -> None:
    assert encode_host(ip, port) == builders.pack_host(ip, port)
