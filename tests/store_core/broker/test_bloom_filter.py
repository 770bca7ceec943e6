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


def test_the_default_sizes_are_those_of_a_broker() -> None:
    assert (112, 3) == (BloomFilter().m, BloomFilter().k)


@pytest.mark.parametrize(
    ("rate", "number", "m", "k"), [(10, 128, 616, 4), (1, 1, 16, 7), (50, 8, 16, 1), (99, 1, 8, 1)]
)
def test_sizes_follow_from_error_rate_and_number(rate: int, number: int, m: int, k: int) -> None:
    assert (m, k) == (BloomFilter(rate, number).m, BloomFilter(rate, number).k)


@pytest.mark.parametrize(("rate", "number"), [(0, 32), (100, 32), (20, 0)])
def test_sizes_that_make_no_filter_are_refused(rate: int, number: int) -> None:
    with pytest.raises(ValueError, match="expected an error rate of 1 to 99 per cent"):
        BloomFilter(rate, number)


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


def test_bits_of_another_filter_are_not_valid() -> None:
    bloom = BloomFilter()

    assert bloom.is_valid(bloom.generate("g", "t"))
    assert not bloom.is_valid(None)
    assert not bloom.is_valid(BloomFilter(10, 128).generate("g", "t"))
    assert not bloom.is_valid(BloomFilterData((1, 2), 112))
