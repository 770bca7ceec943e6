# SPDX-License-Identifier: Apache-2.0
"""Inner batches: several messages of a BatchCQ topic in the body of one record (RocketMQ 5.0 and later)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from store_core.format.properties import decode_text, parse_properties
from store_core.format.record.client_batch import decode_items
from store_core.format.sys_flag import MessageSysFlag

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["InnerMessage", "is_inner_batch", "unwrap_inner_batch"]


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
