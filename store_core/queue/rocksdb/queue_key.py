# SPDX-License-Identifier: Apache-2.0
"""Keys of a RocksDB with queues: of units, and of the bounds of queues."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from store_core.format.layout import ROCKSDB_QUEUE_NAME, ROCKSDB_QUEUE_PLACE, unit_dtype

__all__ = ["CHECKPOINT_TOPIC", "BoundKey", "parse_bound_key", "unit_key", "unit_key_size"]

CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"
"""Name of the entry, no queue, that tells up to where the log is in the database."""

_SEPARATOR: Final = 1
_NAME: Final = unit_dtype(ROCKSDB_QUEUE_NAME)
_PLACE: Final = unit_dtype(ROCKSDB_QUEUE_PLACE)
_LENGTH: Final = _NAME["topic_length"].itemsize
_QUEUE_ID: Final = _PLACE["queue_id"].itemsize
_BOUNDS: Final = (b"max", b"min")


class BoundKey(NamedTuple):
    """What the key of a bound says.

    Attributes
    ----------
    topic : str
        Bytes that are not UTF-8 are lone surrogates, as in names of directories.
    queue_id : int
    is_max : bool
        Whether the bound is the queue's last unit, and not its first.
    """

    topic: str
    queue_id: int
    is_max: bool


def unit_key(topic: str, queue_id: int, queue_offset: int) -> bytes:
    """Return the key of a unit; keys of one queue are ordered by queue offset.

    >>> unit_key("T5", 3, 258).hex(" ")
    '00 00 00 02 01 54 35 01 00 00 00 03 01 00 00 00 00 00 00 01 02'
    """
    name = topic.encode("utf-8", "surrogateescape")
    head = np.array((len(name), _SEPARATOR), _NAME)
    place = np.array((_SEPARATOR, queue_id, _SEPARATOR, queue_offset), _PLACE)
    return head.tobytes() + name + place.tobytes()


def unit_key_size(topic: str) -> int:
    """Return the bytes of the keys of a topic's units."""
    return _NAME.itemsize + len(topic.encode("utf-8", "surrogateescape")) + _PLACE.itemsize


def parse_bound_key(key: bytes) -> BoundKey | None:
    """Take the key of a bound apart; None if it is no such key.

    >>> parse_bound_key(bytes.fromhex("00000002 01 5435 01 6d6178 01 00000003"))
    BoundKey(topic='T5', queue_id=3, is_max=True)
    """
    length = int.from_bytes(key[:_LENGTH], "big", signed=True)
    name, rest = key[_NAME.itemsize :][: max(length, 0)], key[_NAME.itemsize + max(length, 0) :]
    kind, queue_id = rest[1:4], rest[-_QUEUE_ID:]
    separator = bytes([_SEPARATOR])
    expected = key[:_LENGTH] + separator + name + separator + kind + separator + queue_id
    if len(name) != length or key != expected or kind not in _BOUNDS or len(queue_id) != _QUEUE_ID:
        return None
    number = int.from_bytes(queue_id, "big", signed=True)
    return BoundKey(name.decode("utf-8", "surrogateescape"), number, kind == _BOUNDS[0])
