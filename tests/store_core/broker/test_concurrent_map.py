# SPDX-License-Identifier: Apache-2.0
"""The order of Java's ``ConcurrentHashMap``; the expected orders are what Java 17 printed."""

from __future__ import annotations

import pytest

from store_core.broker.config_file import concurrent_map_order, initial_capacity
from store_core.format.java import DEFAULT_CAPACITY

_FORTY = """
    5 25 6 26 11 27 3 4 12 21 9 13 20 29 8 14 28 7 16 15 18 32 19 33 17 31 34 30 35 37 36 0 22 2 39 23 10 24 38 1
"""
_HUNDRED_TWENTY = """
    68 108 105 31 117 71 114 40 80 34 77 112 38 32 75 1 119 36 85 82 73 6 5 48 45 88 42 3 43 110 46 89 9 58 55 52 95 94
    18 15 53 92 16 13 60 57 97 20 23 66 63 106 103 29 26 12 69 64 101 27 30 70 49 109 39 79 33 76 86 118 72 115 116 113
    35 78 4 90 44 87 41 83 7 50 2 81 10 84 8 47 93 17 14 24 61 59 56 99 96 91 100 11 54 51 0 37 74 111 19 98 28 25 67
    21 107 104 22 65 62 102
"""
_NUMBERS = [0, 16, 32, 48, 5, -1, -17, 70000, 65536, 1, 2147483647, -2147483648, 12, 28, 44]


@pytest.mark.parametrize(
    ("keys", "capacity", "expected"),
    [
        ([f"orders{index}@billing" for index in range(40)], DEFAULT_CAPACITY, _FORTY),
        ([f"q{index * 7919 % 1000}" for index in range(120)], initial_capacity(32), _HUNDRED_TWENTY),
    ],
)
def test_a_map_that_grows_gives_its_strings_in_java_s_order(keys: list[str], capacity: int, expected: str) -> None:
    assert [keys[int(place)] for place in expected.split()] == concurrent_map_order(keys, capacity)


def test_a_map_of_numbers_gives_them_in_java_s_order() -> None:
    expected = (5, 2, 0, 10, 11, 8, 9, 4, 12, 14, 6, 3, 1, 7, 13)

    assert [_NUMBERS[place] for place in expected] == concurrent_map_order(_NUMBERS, DEFAULT_CAPACITY)


def test_an_empty_map_has_no_keys() -> None:
    assert [] == concurrent_map_order(list[str](), DEFAULT_CAPACITY)
