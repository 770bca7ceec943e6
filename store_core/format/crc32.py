# SPDX-License-Identifier: Apache-2.0
"""CRC-32, by the faster of the implementations that are installed.

`isal`, a Python binding of Intel's storage library, is an optional dependency: for 50 bytes and more it takes a third
of zlib's time or less. Both compute the function of IEEE 802.3, as Java's ``java.util.zip.CRC32`` does, so they differ
only in speed.
"""

from __future__ import annotations

from typing import Final, Protocol

try:
    from isal.isal_zlib import crc32 as _crc32
except ImportError:
    from zlib import crc32 as _crc32


class _Crc32(Protocol):
    def __call__(self, data: bytes | bytearray | memoryview, value: int = 0, /) -> int: ...


crc32: Final[_Crc32] = _crc32
"""Return the checksum of contiguous bytes, 0 to 2**32 - 1; the second argument is that of the bytes before them.

It is the imported function itself: a wrapper in Python would take longer than the checksum of a short body.
"""

CRC_MASK: Final = 0x7FFFFFFF
"""Bits of a checksum that RocketMQ stores: all but the top one (``UtilAll.crc32``)."""
