# SPDX-License-Identifier: Apache-2.0
"""Addresses of producers and brokers as bytes, ``ip:port`` text and message ids."""

from __future__ import annotations

import ipaddress
import re
import struct
from typing import Final

__all__ = ["V4_BYTES", "encode_host", "format_host", "is_message_id", "message_id", "position_of_message_id"]

V4_BYTES: Final = 4
_MESSAGE_ID: Final = re.compile(r"(?:[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56})")
_PORT: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")


def format_host(address: bytes, port: int) -> str:
    """Return ``ip:port``, for IPv6 ``[ip]:port`` in the form of RFC 5952.

    Examples
    --------
    >>> format_host(bytes([10, 1, 2, 3]), 5555)
    '10.1.2.3:5555'
    """
    if len(address) == V4_BYTES:
        return f"{address[0]}.{address[1]}.{address[2]}.{address[3]}:{port}"
    return f"[{_format_v6(address)}]:{port}"


def _format_v6(address: bytes) -> str:
    """Return an IPv6 address as text; IPv4-mapped ones are written here, since Python up to 3.13 differs."""
    if address[:12] == b"\0" * 10 + b"\xff\xff":
        return f"::ffff:{address[12]}.{address[13]}.{address[14]}.{address[15]}"
    return str(ipaddress.IPv6Address(address))


def encode_host(ip: str, port: int) -> bytes:
    """Pack an address and port as a record stores them: 8 bytes, or 20 for IPv6."""
    return ipaddress.ip_address(ip).packed + _PORT.pack(port)


def message_id(store_host: bytes, physical_offset: int) -> str:
    """Return the offset message id: upper-case hex of address, port and offset, 32 or 56 digits.

    Parameters
    ----------
    store_host : bytes
        The record's store host field: address and port, 8 or 20 bytes.
    physical_offset : int
        Position of the record in the log, in bytes.

    Notes
    -----
    RocketMQ: ``MessageDecoder.createMessageId``.
    """
    return (store_host + _OFFSET.pack(physical_offset)).hex().upper()


def is_message_id(text: str) -> bool:
    """Return whether a text has the form of an offset message id: 32 hexadecimal digits, or 56 with an IPv6 host."""
    return _MESSAGE_ID.fullmatch(text) is not None


def position_of_message_id(msg_id: str) -> int:
    """Return the physical offset in an offset message id; no record has a negative one.

    >>> position_of_message_id("0A01020300002A9F000000000000002A")
    42
    """
    position: int = _OFFSET.unpack(bytes.fromhex(msg_id)[-_OFFSET.size :])[0]
    return position
