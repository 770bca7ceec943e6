# SPDX-License-Identifier: Apache-2.0
"""Single fields of a record's head are read where the layout's table has them; addresses and message ids."""

from __future__ import annotations

import re
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.format.layout import MESSAGE_HEAD, field_position, head_dtype, head_size
from store_core.format.record.record_head import (
    encode_host,
    format_host,
    head_reader,
    head_shape,
    message_id,
    read_frame,
    read_sys_flag,
    store_timestamp,
)
from tests import builders
from tests.builders import SYS_FLAG_AT, Record

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


@pytest.mark.parametrize("bits", V6_BITS)
def test_a_head_of_a_record_is_read(bits: int) -> None:
    hosts = ("::1", 1) if bits & 0x10 else ("10.0.0.1", 1), ("::2", 2) if bits & 0x20 else ("10.0.0.2", 2)
    record = Record(b"four", born_host=hosts[0], store_host=hosts[1], store_timestamp=77, queue_id=9)
    data = record.encode()

    assert read_sys_flag(data, 0) == bits
    assert (*head_shape(bits).read_body_length(data, 0), store_timestamp(data, 0)) == (4, 77)
    assert head_reader("total_size", "queue_id")(data, 0) == (len(data), 9)


@pytest.mark.parametrize("name", NAMES)
def test_a_head_that_ends_within_a_field_is_not_read(name: str) -> None:
    end = field_position(head_dtype(), name) + head_dtype()[name].itemsize
    read = head_reader(name)
    read(bytes(end), 0)

    with pytest.raises(struct.error):
        read(bytes(end), 1)


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


@pytest.mark.parametrize(
    ("ip", "port", "offset", "msg_id"),
    [
        ("127.0.0.1", 10911, 0, "7F00000100002A9F0000000000000000"),
        ("192.168.1.2", 10911, 605, "C0A8010200002A9F000000000000025D"),
        ("fe80::1", 10911, 0, "FE80000000000000000000000000000100002A9F0000000000000000"),
    ],
)
def test_message_ids_are_those_of_rocketmq(ip: str, port: int, offset: int, msg_id: str) -> None:
    assert message_id(encode_host(ip, port), offset) == msg_id
