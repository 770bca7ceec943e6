# SPDX-License-Identifier: Apache-2.0
"""Decompression of bodies that the producer compressed."""

from __future__ import annotations

import zlib
from typing import Final

import pyarrow as pa

from store_core.format.layout import CompressionType

MAX_EXPANDED_BODY: Final = 64 << 20
"""Most bytes one body may expand to: sixteen times the broker's default limit (``maxMessageSize``, 4 MiB)."""

_CODECS: Final = {CompressionType.LZ4: "lz4", CompressionType.ZSTD: "zstd"}
_CHUNK: Final = 1 << 20
_NEEDS_DICTIONARY: Final = "Error 2 "
"""How zlib's error begins for a stream that was packed with a dictionary."""

_LZ4_INDEPENDENT: Final = 0x20
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE: Final = range(0x184D2A50, 0x184D2A60)
_ZSTD_LEAST: Final = 5
"""Bytes of a zstd frame without which its reader does not even look at its magic number."""


class BodyTooLargeError(ValueError):
    """A body expands to more than its bound."""


def expand_body(body: bytes, compression: CompressionType, limit: int = MAX_EXPANDED_BODY) -> bytes:
    """Expand a compressed body, never to more than a bound.

    * `body`: As stored: a zlib stream, an LZ4 frame or a zstd frame.
    * `compression`: How it is compressed; NONE returns it unchanged.

    RocketMQ 4.9.4 and later: ``ZlibCompressor``, ``Lz4Compressor``, ``ZstdCompressor``; older releases have zlib only.
    Bytes after a zlib stream are left out. A zlib stream that needs a dictionary is an empty body, because Java takes
    it for one that ended. Of zstd, skippable frames are left out, and a rest too short for a frame.
    """
    if compression is CompressionType.NONE:
        return body
    if compression is CompressionType.ZLIB:
        return _expand_zlib(body, limit)
    if compression is CompressionType.ZSTD:
        body = _read_frames(body)
    elif _has_linked_blocks(body):
        raise ValueError("an lz4 frame whose blocks depend on each other, which RocketMQ does not read")
    return _expand_frame(body, _CODECS[compression], limit)


def _has_linked_blocks(body: bytes) -> bool:
    """Return whether this is an LZ4 frame whose blocks depend on each other, which RocketMQ's library refuses."""
    at = len(_LZ4_MAGIC)
    return body.startswith(_LZ4_MAGIC) and len(body) > at and not body[at] & _LZ4_INDEPENDENT


def _expand_zlib(body: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        expanded = stream.decompress(body, limit + 1)
    except zlib.error as error:
        if str(error).startswith(_NEEDS_DICTIONARY):
            return b""
        raise ValueError(f"not a zlib stream: {error}") from error
    _check_bound(len(expanded), limit)
    if not stream.eof:
        raise ValueError(f"the zlib stream of {len(body)} bytes is cut off")
    return expanded


def _read_frames(body: bytes) -> bytes:
    """Return the zstd frames of a body that RocketMQ reads; what is damaged stays, and is refused later."""
    frames: list[bytes] = []
    position = 0
    while position < len(body):
        is_skippable = int.from_bytes(body[position : position + 4], "little") in _ZSTD_SKIPPABLE
        size = int.from_bytes(body[position + 4 : position + 8], "little")
        end = position + 8 + size if is_skippable else _zstd_frame_end(body, position)
        if position and (len(body) - position < _ZSTD_LEAST or (is_skippable and end > len(body))):
            break
        frames += [] if is_skippable and end <= len(body) else [body[position:end]]
        position = end
    return b"".join(frames)


def _zstd_frame_end(body: bytes, position: int) -> int:
    """Return where the zstd frame at a position ends, as RFC 8878 says; the body's end where there is no whole one."""
    if body[position : position + 4] != _ZSTD_MAGIC or len(body) - position < _ZSTD_LEAST:
        return len(body)
    described = body[position + 4]
    is_single, has_checksum = bool(described & 0x20), bool(described & 4)
    at = position + 5 + (not is_single) + (0, 1, 2, 4)[described & 3] + (int(is_single), 2, 4, 8)[described >> 6]
    is_last = False
    while not is_last:
        if at + 3 > len(body):
            return len(body)
        block = int.from_bytes(body[at : at + 3], "little")
        is_last, is_repeated = bool(block & 1), (block >> 1) & 3 == 1
        at += 3 + (1 if is_repeated else block >> 3)
    at += 4 * has_checksum
    return min(at, len(body))


def _expand_frame(body: bytes, codec: str, limit: int) -> bytes:
    pieces: list[pa.Buffer] = []
    total = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
            # Not `read`: when that fails, PyArrow keeps the memory which it took for the result for ever.
            while (piece := stream.read_buffer(_CHUNK)).size:
                total += piece.size
                _check_bound(total, limit)
                pieces.append(piece)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"not a whole {codec} frame: {error}") from error
    return b"".join(pieces)


def _check_bound(size: int, limit: int) -> None:
    if size > limit:
        raise BodyTooLargeError(f"the body expands to more than {limit} bytes")
