# SPDX-License-Identifier: Apache-2.0
"""Addresses and message ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.format.record.record_head import encode_host, format_host, message_id
from tests import builders

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
