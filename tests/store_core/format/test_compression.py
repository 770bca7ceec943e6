# SPDX-License-Identifier: Apache-2.0
"""Compressed bodies: data of other implementations is expanded, within limits, and anything else is refused."""

from __future__ import annotations

import tracemalloc
import zlib
from typing import TYPE_CHECKING

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from store_core.format.compression import MAX_EXPANDED_BODY, BodyTooLargeError, expand_body
from store_core.format.layout import CompressionType

if TYPE_CHECKING:
    from collections.abc import Callable

Packer = tuple[CompressionType, "Callable[[bytes], bytes]"]


def zstd_stream(body: bytes) -> bytes:
    """Pack without the expanded size in the frame's head, as a stream writer does."""
    packer = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    return packer.compress(body) + packer.flush()


def lz4_checked(body: bytes) -> bytes:
    packed: bytes = lz4.frame.compress(
        body, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, content_checksum=True, store_size=False
    )
    return packed


def zlib_with_dictionary(body: bytes) -> bytes:
    packer = zlib.compressobj(zdict=b"what producer and consumer know")
    return packer.compress(body) + packer.flush()


PACKERS: dict[str, Packer] = {
    "zlib": (CompressionType.ZLIB, zlib.compress),
    "zlib, level 0": (CompressionType.ZLIB, lambda body: zlib.compress(body, 0)),
    "lz4": (CompressionType.LZ4, lambda body: lz4.frame.compress(body, block_linked=False)),
    "lz4, small blocks": (CompressionType.LZ4, lz4_checked),
    "zstd": (CompressionType.ZSTD, zstandard.ZstdCompressor().compress),
    "zstd, stream": (CompressionType.ZSTD, zstd_stream),
}
packers = pytest.mark.parametrize("packer", PACKERS.values(), ids=PACKERS)


@given(st.binary(), st.sampled_from(list(PACKERS.values())), st.integers(1, 5000))
def test_what_another_implementation_packs_is_expanded(body: bytes, packer: Packer, times: int) -> None:
    kind, pack = packer

    assert expand_body(pack(body * times), kind) == body * times


@packers
def test_a_stream_cut_anywhere_is_refused(packer: Packer) -> None:
    kind, pack = packer
    packed = pack(b"some body that is worth packing " * 3)
    for size in range(1, len(packed)):
        with pytest.raises(ValueError, match=r"zlib|lz4|zstd"):
            expand_body(packed[:size], kind)


@packers
def test_refused_bodies_keep_no_memory(packer: Packer) -> None:
    kind, pack = packer
    cut = pack(b"some body that is worth packing " * 3)[:-5]
    tracemalloc.start()
    for _ in range(20):
        with pytest.raises(ValueError, match=r"zlib|lz4|zstd"):
            expand_body(cut, kind)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert kept < 1 << 20


@pytest.mark.parametrize("kind", [CompressionType.ZLIB, CompressionType.LZ4, CompressionType.ZSTD])
@pytest.mark.parametrize("body", [b"x", b"no stream at all", bytes(100), b"\xff" * 100])
def test_what_is_no_stream_is_refused(kind: CompressionType, body: bytes) -> None:
    with pytest.raises(ValueError, match=kind.name.lower()):
        expand_body(body, kind)


@given(st.sampled_from(list(PACKERS.values())), st.binary(max_size=100), st.data())
def test_any_bytes_are_expanded_or_refused_and_raise_nothing_else(
    packer: Packer, body: bytes, data: st.DataObject
) -> None:
    kind, pack = packer
    packed = bytearray(pack(body))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        expanded = expand_body(bytes(packed), kind)
    except ValueError:
        return

    assert isinstance(expanded, bytes)


_SKIPPABLE = b"\x57\x2a\x4d\x18\x04\0\0\0skip"
_ZSTD, _LZ4, _ZLIB = zstandard.ZstdCompressor().compress(b"body"), lz4_checked(b"body"), zlib.compress(b"body")


@pytest.mark.parametrize(
    ("kind", "packed", "expanded"),
    [
        (CompressionType.ZLIB, _ZLIB + b"trailing", b"body"),
        (CompressionType.ZLIB, _ZLIB + _ZLIB, b"body"),
        (CompressionType.ZLIB, zlib_with_dictionary(b"body"), b""),
        (CompressionType.LZ4, _LZ4 + _LZ4, b"bodybody"),
        (CompressionType.ZSTD, _ZSTD + _ZSTD, b"bodybody"),
        (CompressionType.ZSTD, _ZSTD + b"four", b"body"),
        (CompressionType.ZSTD, _ZSTD + _SKIPPABLE, b"body"),
        (CompressionType.ZSTD, _ZSTD + _SKIPPABLE[:-1], b"body"),
        (CompressionType.ZSTD, _SKIPPABLE + _ZSTD + _SKIPPABLE + _ZSTD, b"bodybody"),
        (CompressionType.ZSTD, zstd_stream(b"body") + _ZSTD, b"bodybody"),
    ],
)
def test_what_follows_a_body_is_read_as_by_the_decoder_of_rocketmq(
    kind: CompressionType, packed: bytes, expanded: bytes
) -> None:
    """Each was given to ``MessageDecoder.decode`` of 4.9.7, 5.3.3 and 5.5.1."""
    assert expand_body(packed, kind) == expanded


@pytest.mark.parametrize(
    ("kind", "packed"),
    [
        (CompressionType.LZ4, lz4.frame.compress(bytes(200_000), block_size=4, block_linked=True)),
        (CompressionType.LZ4, _LZ4 + b"four"),
        (CompressionType.ZSTD, _ZSTD + b"fives"),
        (CompressionType.ZSTD, _SKIPPABLE[:-1]),
    ],
)
def test_what_the_decoder_of_rocketmq_refuses_is_refused(kind: CompressionType, packed: bytes) -> None:
    with pytest.raises(ValueError, match=kind.name.lower()):
        expand_body(packed, kind)


@packers
def test_a_body_of_exactly_the_bound_is_expanded_and_one_more_byte_is_refused(packer: Packer) -> None:
    kind, pack = packer

    assert expand_body(pack(bytes(1000)), kind, 1000) == bytes(1000)
    with pytest.raises(BodyTooLargeError, match="more than 1000 bytes"):
        expand_body(pack(bytes(1001)), kind, 1000)


@pytest.mark.parametrize("name", ["zlib", "lz4", "zstd", "zstd, stream"])
def test_a_bomb_is_refused_before_it_fills_memory(name: str) -> None:
    kind, pack = PACKERS[name]
    bomb = pack(bytes(256 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(BodyTooLargeError):
            expand_body(bomb, kind, 1 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(bomb) < 2 << 20
    assert peak < 16 << 20


def test_a_zstd_frame_that_asks_for_a_huge_window_is_refused() -> None:
    """A frame's head may ask the reader for gigabytes of window before a byte is expanded."""
    parameters = zstandard.ZstdCompressionParameters(window_log=30, strategy=zstandard.STRATEGY_FAST)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = packer.compress(b"body") + packer.flush()

    with pytest.raises(ValueError, match="zstd"):
        expand_body(packed, CompressionType.ZSTD)


def test_the_bound_is_far_above_what_a_broker_takes() -> None:
    assert MAX_EXPANDED_BODY == 16 * (4 << 20)
