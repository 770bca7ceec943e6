# SPDX-License-Identifier: Apache-2.0
"""Percentiles from buckets are those of the numbers, as nearly as they say."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from store_core.answers.store_producers import bucket_begin, buckets_of, percentiles

numbers = st.one_of(st.integers(-300, 300), st.integers(-(1 << 40), 1 << 40), st.integers(-(1 << 63), (1 << 63) - 1))


@given(st.lists(numbers, min_size=1, max_size=30), st.integers(0, 100))
def test_a_percentile_is_the_number_of_its_rank_nearly(values: list[int], rank: int) -> None:
    buckets, counts = np.unique(buckets_of(np.array(values, np.int64)), return_counts=True)
    (found,) = percentiles(buckets.astype(np.int32), counts, [rank])
    exact = sorted(values)[max(math.ceil(rank / 100 * len(values)), 1) - 1]
    expected = min(max(exact, -(1 << 52)), 1 << 52)

    assert abs(found) <= abs(expected) <= abs(found) * (1 + 1 / 128)
    assert found == expected or abs(expected) > 255
    assert found == 0 or (found < 0) == (expected < 0)


@given(st.lists(numbers, min_size=2, max_size=9))
def test_buckets_have_the_order_of_their_numbers(values: list[int]) -> None:
    buckets = buckets_of(np.array(sorted(values), np.int64)).tolist()

    assert sorted(buckets) == buckets
    assert buckets == [int(buckets_of(np.array([bucket_begin(bucket)]))[0]) for bucket in buckets]
