# SPDX-License-Identifier: Apache-2.0
"""The bloom filter has RocketMQ's sizes, and sets RocketMQ's bits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.broker.consumer_filter import BloomFilter, BloomFilterData, murmur3_128

names = st.text(max_size=20)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"", 0),
        (b"hello", 0xCBD8A7B341BD9B02),
        (b"The quick brown fox jumps over the lazy dog", 0xE34BBC7BBC071B6C),
    ],
)
def test_murmur_gives_published_values(data: bytes, value: int) -> None:
    assert value == murmur3_128(data)


def test_the_bits_of_a_consumer_are_those_of_rocketmq() -> None:
    assert BloomFilterData((19, 13, 46), 112) == BloomFilter().generate("g1", "TopicA")


@given(st.lists(st.tuples(names, names), max_size=6), st.tuples(names, names))
def test_a_map_is_hit_by_all_that_were_put_in(consumers: list[tuple[str, str]], other: tuple[str, str]) -> None:
    bloom = BloomFilter()
    bit_map = bytearray(bloom.m // 8)
    for group, topic in consumers:
        bloom.hash_to(bloom.generate(group, topic), bit_map)
    bits = {position for consumer in consumers for position in bloom.generate(*consumer).positions}
    missing = bloom.generate(*other)

    assert all(bloom.is_hit(bloom.generate(*consumer), bytes(bit_map)) for consumer in consumers)
    assert (set(missing.positions) <= bits) == bloom.is_hit(missing, bytes(bit_map))
    assert sum(1 << position for position in bits) == int.from_bytes(bit_map, "little")
