# SPDX-License-Identifier: Apache-2.0
"""Entries of ``rocksdbstore/``, made with plain `struct`, only from the format's description."""

from __future__ import annotations

import struct

__all__ = ["half", "index_key", "timer"]

_HOUR = 3_600_000


def index_key(text: str, stored: int, physical_offset: int) -> tuple[bytes, bytes]:
    """Return an entry of the index; the text is as ``@topic@K@key@UNIQ_KEY@``."""
    key = struct.pack(">q", stored // _HOUR * _HOUR) + text.encode() + struct.pack(">q", physical_offset)
    return key, struct.pack(">q", stored)


def timer(due: int, unique_key: str, physical_offset: int, store_size: int = 100) -> tuple[bytes, bytes]:
    """Return a pending timer."""
    return struct.pack(">q", due) + unique_key.encode(), struct.pack(">iq", store_size, physical_offset)


def half(physical_offset: int, topic: str, transaction: str, check_times: int = 0) -> tuple[bytes, bytes]:
    """Return a half message of 200 bytes that is still open."""
    return struct.pack(">q", physical_offset) + f"@{topic}@{transaction}".encode(), struct.pack(">ii", check_times, 200)
