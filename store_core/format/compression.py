# SPDX-License-Identifier: Apache-2.0
"""Decompression of bodies that the producer compressed."""

from __future__ import annotations

import zlib
from typing import Final

import pyarrow as pa

from store_core.format.sys_flag import CompressionType

__all__ = ["MAX_EXPANDED_BODY", "BodyTooLargeError", "expand_body"]

MAX_EXPANDED_BODY: Final = 64 << 20
"""Most bytes one body may expand to: sixteen times the broker's default limit (``maxMessageSize``, 4 MiB)."""

_CODECS: Final = {CompressionType.LZ4: "lz4", CompressionType.ZSTD: "zstd"}
_CHUNK: Final = 1 << 20


class BodyTooLargeError(ValueError):
    """A body expands to more than its bound."""


def expand_body(body: bytes, compression: CompressionType, limit: int = MAX_EXPANDED_BODY) -> bytes:
    """Expand a compressed body, never to more than a bound.

    Parameters
    ----------
    body : bytes
        As stored: a zlib stream, an LZ4 frame or a zstd frame.
    compression : CompressionType
        How it is compressed; NONE returns it unchanged.
    limit : int
        Most bytes to accept.

    Raises
    ------
    BodyTooLargeError
        If it would expand to more than `limit` bytes; never more than that is held in memory.
    ValueError
        If it is incomplete or not of that format.

    Notes
    -----
    RocketMQ 4.9.4 and later: ``ZlibCompressor``, ``Lz4Compressor``, ``ZstdCompressor``; older releases have zlib only.
    """
    if compression is CompressionType.NONE:
        return body
    if compression is CompressionType.ZLIB:
        return _expand_zlib(body, limit)
    return _expand_frame(body, _CODECS[compression], limit)


def _expand_zlib(body: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        expanded = stream.decompress(body, limit + 1)
    except zlib.error as error:
        message = f"not a zlib stream: {error}"
        raise ValueError(message) from error
    _check_bound(len(expanded), limit)
    if not stream.eof:
        message = f"the zlib stream of {len(body)} bytes is cut off"
        raise ValueError(message)
    return expanded


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
        message = f"not a whole {codec} frame: {error}"
        raise ValueError(message) from error
    return b"".join(pieces)


def _check_bound(size: int, limit: int) -> None:
    if size > limit:
        message = f"the body expands to more than {limit} bytes"
        raise BodyTooLargeError(message)
