# SPDX-License-Identifier: Apache-2.0
"""Positions of a mask found by bits equal those found item by item."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.format.columnar.arrow_slices import true_positions


@given(st.lists(st.booleans(), max_size=100))
def test_positions_are_those_of_numpy(items: list[bool]) -> None:
    mask = np.array(items, np.bool_)

    assert np.flatnonzero(mask).tolist() == true_positions(mask).tolist()


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 1.0])
def test_positions_of_a_long_mask_are_those_of_numpy(share: float) -> None:
    mask = np.random.default_rng(1).random(100_003) < share

    assert np.array_equal(np.flatnonzero(mask), true_positions(mask))


def test_positions_are_of_numpys_type() -> None:
    assert true_positions(np.zeros(0, np.bool_)).dtype == np.int64
