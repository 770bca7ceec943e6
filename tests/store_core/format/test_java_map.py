# SPDX-License-Identifier: Apache-2.0
"""The order of a Java ``HashMap``; the expected orders are what OpenJDK 17 printed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.format import java
from store_core.format.java import hash_map_capacity, hash_map_order, spread_hash

ON_SEND = ("TAGS", "KEYS", "WAIT", "UNIQ_KEY", "CLUSTER", "DELAY", "REAL_TOPIC", "REAL_QID")
PARTS = ("Aa", "BB")
COLLIDING = tuple("".join(PARTS[number >> place & 1] for place in range(4)) for number in range(10))


@pytest.mark.parametrize(
    ("names", "capacity", "expected"),
    [
        (ON_SEND, 16, "REAL_TOPIC KEYS UNIQ_KEY CLUSTER WAIT DELAY TAGS REAL_QID"),
        (ON_SEND, 128, "UNIQ_KEY CLUSTER DELAY TAGS KEYS WAIT REAL_TOPIC REAL_QID"),
        (("AaAa", "BBBB", "AaBB", "BBAa"), 16, "AaAa BBBB AaBB BBAa"),
        (
            tuple(f"name{number}" for number in range(20)),
            16,
            (
                "name19 name18 name17 name16 name6 name15 name5 name14 name4 name13 name3 name12 name11 name9 name10 "
                "name8 name7 name2 name1 name0"
            ),
        ),
        ((*COLLIDING, "z"), 16, " ".join((*COLLIDING, "z"))),
        (tuple(chr(32 + 16 * number) for number in range(12)), 16, "  @ ` \x80 \xa0 \xc0 0 P p \x90 \xb0 \xd0"),
    ],
)
def test_keys_come_in_the_order_of_java(names: tuple[str, ...], capacity: int, expected: str) -> None:
    assert expected == " ".join(hash_map_order(names, hash_map_capacity(names, capacity)))


@pytest.mark.parametrize(
    ("names", "capacity", "expected"),
    [
        ((), 16, 16),
        (tuple("abcdefghijkl"), 16, 16),
        (tuple("abcdefghijklm"), 16, 32),
        (COLLIDING[:8], 16, 16),
        (COLLIDING[:9], 16, 32),
        (COLLIDING, 16, 64),
        (COLLIDING, 128, 128),
        (tuple(map(str, range(97))), 128, 256),
    ],
)
def test_map_grows_when_it_or_a_bucket_is_crowded(names: tuple[str, ...], capacity: int, expected: int) -> None:
    assert expected == hash_map_capacity(names, capacity)


@given(st.lists(st.text(max_size=3), unique=True, max_size=30))
def test_order_keeps_all_keys_and_follows_the_buckets(names: list[str]) -> None:
    capacity = hash_map_capacity(names)
    order = hash_map_order(tuple(names), capacity)

    assert sorted(names) == sorted(order)
    buckets = [spread_hash(name) & (capacity - 1) for name in order]
    assert sorted(buckets) == buckets


def test_what_is_kept_of_maps_does_not_grow_with_them() -> None:
    known = java._known_order.cache_info().currsize, java._known_hash.cache_info().currsize
    many, long = tuple(f"name{number}" for number in range(65)), "n" * 1025

    orders = hash_map_order(many), hash_map_order((long, "b"))

    assert [set(each) for each in orders] == [set(many), {long, "b"}]
    assert java._known_order.cache_info().currsize == known[0]
    assert java._known_hash.cache_info().currsize <= known[1] + len(many) + 1
