# SPDX-License-Identifier: Apache-2.0
"""Single fields of a record's head, and the hosts in it.

For many records at once see `store_core.format.columnar.spans`.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from store_core.format.layout import V6_BITS, MessageSysFlag, field_position, head_dtype, head_size

if TYPE_CHECKING:
    Buffer: TypeAlias = bytes | bytearray | memoryview


V4_BYTES: Final = 4
_MESSAGE_ID: Final = re.compile(r"(?:[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56})")
_PORT: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")


def format_host(address: bytes, port: int) -> str:
    """Return ``ip:port``, for IPv6 ``[ip]:port`` in the form of RFC 5952.

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

    * `store_host`: The record's store host field: address and port, 8 or 20 bytes.
    * `physical_offset`: Position of the record in the log, in bytes.

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


_CODES: Final = {4: "i", 8: "q"}
"""Codes of `struct` by width; numpy's depend on the platform."""

_BORN_HOST_V6: Final = int(MessageSysFlag.BORNHOST_V6_FLAG)


class HeadReader(Protocol):
    """Reads some fields of a head."""

    def __call__(self, data: Buffer, position: int, /) -> tuple[Any, ...]:
        """Return the fields of the record at a position of the data: integers, and hosts as bytes."""


def head_reader(*names: str, sys_flag: int = 0) -> HeadReader:
    """Return a function that reads some fields of a head; it costs as much as one call of `struct`.

    * `names`: Fields of `MESSAGE_HEAD`, in the order in which they are stored.
    * `sys_flag`: Host widths, needed for fields after the first host; see `head_dtype`.

    >>> read = head_reader("total_size", "queue_id")
    >>> read(bytes.fromhex("0000005b daa320a7 00000000 00000007"), 0)
    (91, 7)
    """
    dtype = head_dtype(sys_flag)
    code, end = ">", 0
    for name in names:
        begin, field = field_position(dtype, name), dtype[name]
        if begin < end:
            raise ValueError(f"field {name} is stored before those named before it")
        code += f"{begin - end}x" + (f"{field.itemsize}s" if field.names else _CODES[field.itemsize])
        end = begin + field.itemsize
    return struct.Struct(code).unpack_from


read_frame: Final = head_reader("total_size", "magic_code")
"""Reads size and magic code: all that a blank record has, too."""

_read_sys_flag: Final = head_reader("sys_flag")
_read_store_timestamps: Final = {bits: head_reader("store_timestamp", sys_flag=bits) for bits in (0, _BORN_HOST_V6)}


def read_sys_flag(data: Buffer, position: int) -> int:
    """Return the flags of a record."""
    sys_flag: int = _read_sys_flag(data, position)[0]
    return sys_flag


class HeadShape(NamedTuple):
    """What a head's host widths decide."""

    size: int  # bytes of the head
    read_body_length: HeadReader  # reads the length of the body as stored, in bytes; a negative one stands for no bytes


_SHAPES: Final = {
    bits: HeadShape(head_size(bits), head_reader("body_length", sys_flag=bits))
    for bits in (0, *map(int, MessageSysFlag(V6_BITS)), V6_BITS)
}


def head_shape(sys_flag: int) -> HeadShape:
    """Return the shape of the head of a record with these flags."""
    return _SHAPES[sys_flag & V6_BITS]


def store_timestamp(data: Buffer, position: int, *, has_ipv6: bool = True) -> int:
    """Return the store time of a record, ms.

    * `has_ipv6`: Whether the record's flags may call for hosts of IPv6; RocketMQ knows none before 4.6.
    """
    bits = read_sys_flag(data, position) & _BORN_HOST_V6 if has_ipv6 else 0
    stored: int = _read_store_timestamps[bits](data, position)[0]
    return stored
