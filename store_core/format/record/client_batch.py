# SPDX-License-Identifier: Apache-2.0
"""Batches as a client sends them: messages of one topic, encoded back to back in the body of one message.

Such a body is exploded into records (``putMessages``), or stored as it is: an inner batch of a BatchCQ topic (RocketMQ
5.0 and later).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from store_core.errors import InvalidOptionError
from store_core.format.layout import BATCH_ITEM_HEAD
from store_core.format.properties import decode_text, parse_properties
from store_core.format.property_string import MAX_PROPERTIES_SIZE, format_properties, to_utf8
from store_core.format.releases.release import DEFAULT_RELEASE
from store_core.format.sys_flag import MessageSysFlag

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from store_core.format.message import Message

__all__ = ["InnerMessage", "client_batch", "decode_items", "encode_item", "is_inner_batch", "unwrap_inner_batch"]


@dataclass(frozen=True, slots=True)
class InnerMessage:
    """One message of an inner batch; topic, times, hosts and the like are those of the record.

    Attributes
    ----------
    queue_offset : int
        Index in the queue: the batch's own, plus the message's number in the batch.
    flag : int
        The application's own flag.
    body : bytes
    properties : mapping of str to str
        The message's own; the batch's are those of the record.
    """

    queue_offset: int
    flag: int
    body: bytes
    properties: Mapping[str, str]


def is_inner_batch(sys_flag: int) -> bool:
    """Return whether a record's body is to be unwrapped: both bits must be set, as for a consumer."""
    bits = MessageSysFlag.INNER_BATCH_FLAG | MessageSysFlag.NEED_UNWRAP_FLAG
    return sys_flag & bits == bits


def unwrap_inner_batch(body: bytes, queue_offset: int = 0) -> list[InnerMessage]:
    """Unwrap the body of an inner batch.

    Parameters
    ----------
    body : bytes
        The body of a record with `is_inner_batch`; decompressed if the record is compressed as well.
    queue_offset : int
        Column ``queue_offset`` of the record: the index of the first message.

    Raises
    ------
    ValueError
        If a length is negative or runs past the body.

    Notes
    -----
    RocketMQ 5.3.3: ``MessageDecoder.decodeMessages``.
    """
    return [
        InnerMessage(queue_offset + number, flag, bytes(item), parse_properties(decode_text(bytes(text))))
        for number, (flag, item, text) in enumerate(decode_items(body))
    ]


_HEAD: Final = struct.Struct(">" + "i" * len(BATCH_ITEM_HEAD.fields))
_LENGTH: Final = struct.Struct(">h")


def encode_item(flag: int, body: bytes, properties: bytes) -> bytes:
    """Encode one message of a batch as a client does (``MessageDecoder.encodeMessage``)."""
    size = _HEAD.size + len(body) + _LENGTH.size + len(properties)
    return b"".join((_HEAD.pack(size, 0, 0, flag, len(body)), body, _LENGTH.pack(len(properties)), properties))


def client_batch(messages: Sequence[Message], release: str = DEFAULT_RELEASE) -> Message:
    """Return one message whose body holds others, as a client builds it (``MessageBatch.generateFromList``).

    Topic, queue, hosts, born time and flags of the batch are those of the first message; each item keeps its own flag,
    body and properties.

    Raises
    ------
    InvalidOptionError
        If there is no message, topics or `wait_store_msg_ok` differ, or a message has a delay level, no body or too
        many properties.
    """
    if not messages:
        raise InvalidOptionError("a batch needs at least one message")
    first = messages[0]
    body = b"".join(_item(message, first, number, release) for number, message in enumerate(messages))
    return replace(first, body=body, flag=0, tags=None, keys=None, properties=None, properties_string=None)


def _item(message: Message, first: Message, number: int, release: str) -> bytes:
    if message.topic != first.topic or message.wait_store_msg_ok != first.wait_store_msg_ok:
        raise InvalidOptionError(f"message {number} of a batch has another topic or wait_store_msg_ok than the first")
    if message.delay_level:
        raise InvalidOptionError(f"message {number} of a batch has a delay level")
    if message.body is None:
        raise InvalidOptionError(f"message {number} of a batch has no body")
    text = message.properties_string
    if text is None:
        text = format_properties(message.property_map(), release)
    properties = text if isinstance(text, bytes) else to_utf8(text)
    if len(properties) > MAX_PROPERTIES_SIZE:
        raise InvalidOptionError(f"message {number} of a batch has {len(properties)} bytes of properties")
    return encode_item(message.flag, message.body, properties)


def decode_items(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield flag, body and properties of each item of a batch.

    Sizes, magic codes and checksums of items are ignored, as in ``MessageExtEncoder.encode``.

    Raises
    ------
    ValueError
        If a length is negative or runs past the batch. RocketMQ fails on most of these and misreads the others.
    """
    position = 0
    while position < len(data):
        if len(data) - position < _HEAD.size:
            raise ValueError(f"a batch ends {len(data) - position} bytes into an item's head of {_HEAD.size}")
        *_, flag, body_length = _HEAD.unpack_from(data, position)
        body_stop = position + _HEAD.size + body_length
        if body_length < 0 or body_stop + _LENGTH.size > len(data):
            raise ValueError(f"an item at {position} of a batch of {len(data)} bytes claims a body of {body_length}")
        properties_length = _LENGTH.unpack_from(data, body_stop)[0]
        stop = body_stop + _LENGTH.size + properties_length
        if properties_length < 0 or stop > len(data):
            raise ValueError(f"an item at {position} of a batch claims properties of {properties_length} bytes")
        yield flag, data[position + _HEAD.size : body_stop], data[body_stop + _LENGTH.size : stop]
        position = stop
