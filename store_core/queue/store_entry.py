# SPDX-License-Identifier: Apache-2.0
"""Entries of ``rocksdbstore/``, the RocksDB of RocketMQ 5.4 and later with index, timers and half messages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.format.layout import STORED_HALF, STORED_INDEX, STORED_TIMER, STORED_TIMER_KEY, unit_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


STORE_DATABASE: Final = "rocksdbstore"
"""Name of the directory below a store's root."""

_TIMER_KEY: Final = unit_dtype(STORED_TIMER_KEY)
_TIMER: Final = unit_dtype(STORED_TIMER)
_HALF: Final = unit_dtype(STORED_HALF)
_INDEX: Final = unit_dtype(STORED_INDEX)
_INDEX_KEY: Final = re.compile(
    rb"(?P<hour>.{8})@(?P<topic>[^@]*)@(?P<type>[KTU])@(?P<named>.*@)?(?P<unique_key>[^@]*)@(?P<offset>.{8})", re.DOTALL
)
_HALF_KEY: Final = re.compile(rb"(?P<offset>.{8})@(?P<topic>[^@]*)@(?P<transaction>.*)", re.DOTALL)
_KEY_TYPES: Final = {b"K": "KEYS", b"T": "TAGS", b"U": "UNIQ_KEY"}
_PLACES: Final = frozenset(
    {b"lastOffsetPy", b"lastStoreTimeStamp", b"sys_topic_scan_offset_checkpoint", b"timeline_checkpoint"}
)
"""Keys of how far a broker has come, which are no entries."""


class StoreEntry(NamedTuple):
    """One entry; what a kind does not have is None.

    * `key_type`, `key`: What an index entry is for: ``KEYS``, ``TAGS`` or ``UNIQ_KEY``; and the key, or all tags.
    * `due_timestamp`, `store_timestamp`: When a timer is due, and when an index entry's message was stored; ms.
    """

    kind: str  # ``index``, ``timer`` or ``half``
    physical_offset: int  # position of the record in the log
    topic: str | None = None  # of an index entry; of a half message the topic that it will be in
    key_type: str | None = None
    key: str | None = None
    unique_key: str = ""  # of the message; of a half message the id of its transaction
    due_timestamp: int | None = None
    store_timestamp: int | None = None
    store_size: int | None = None  # bytes of the record
    check_times: int | None = None  # how often the producer of a half message was asked


def _index(key: bytes, value: bytes) -> StoreEntry | None:
    found = _INDEX_KEY.fullmatch(key)
    if found is None or len(value) != _INDEX.itemsize or (found["named"] is None) != (found["type"] == b"U"):
        return None
    named = None if found["named"] is None else _text(found["named"][:-1])
    (stored,) = np.frombuffer(value, _INDEX)[0].item()
    return StoreEntry(
        "index", _number(found["offset"]), _text(found["topic"]), _KEY_TYPES[found["type"]], named,
        _text(found["unique_key"]), store_timestamp=stored,
    )  # fmt: skip


def _timer(key: bytes, value: bytes) -> StoreEntry | None:
    if len(key) < _TIMER_KEY.itemsize or len(value) != _TIMER.itemsize:
        return None
    size, offset = np.frombuffer(value, _TIMER)[0].item()
    (due,) = np.frombuffer(key, _TIMER_KEY, 1)[0].item()
    unique_key = _text(key[_TIMER_KEY.itemsize :])
    return StoreEntry("timer", offset, unique_key=unique_key, due_timestamp=due, store_size=size)


def _half(key: bytes, value: bytes) -> StoreEntry | None:
    found = _HALF_KEY.fullmatch(key)
    if found is None or len(value) != _HALF.itemsize:
        return None
    times, size = np.frombuffer(value, _HALF)[0].item()
    topic, transaction = _text(found["topic"]), _text(found["transaction"])
    return StoreEntry(
        "half", _number(found["offset"]), topic, unique_key=transaction, store_size=size, check_times=times
    )


FAMILIES: Final[Mapping[str, Callable[[bytes, bytes], StoreEntry | None]]] = {
    "default": _index,
    "timer": _timer,
    "trans": _half,
}
"""How entries are read, by column family; None for what is no entry of RocketMQ."""


def is_place(key: bytes) -> bool:
    """Return whether a key is of how far a broker has come, and of no message."""
    return key in _PLACES


def _number(stored: bytes) -> int:
    return int.from_bytes(stored, "big", signed=True)


def _text(stored: bytes) -> str:
    return stored.decode("utf-8", "replace")
