# SPDX-License-Identifier: Apache-2.0
"""The quick check of an index file's chains equals their definition, on sound and on broken ones."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from store_core.answers.index_chains import expected_links, is_sound

SLOTS = 4


@given(st.lists(st.integers(0, SLOTS - 1), max_size=12), st.data())
def test_chains_are_sound_exactly_if_each_link_is_the_expected_one(own: list[int], data: st.DataObject) -> None:
    slots = np.array([0, *own], np.int64)
    links, table = expected_links(slots, SLOTS)
    for values, first in ((links, 1), (table, 0)):
        changes = st.lists(st.tuples(st.integers(first, max(len(values) - 1, first)), st.integers(-1, 13)), max_size=2)
        for place, value in data.draw(changes):
            if place < len(values):
                values[place] = value
    expected, newest = expected_links(slots, SLOTS)

    cut = data.draw(st.integers(1, len(slots)))
    pieces = [(slots[1:cut], links[1:cut]), (slots[cut:], links[cut:])]
    is_right = np.array_equal(expected[1:], links[1:]) and np.array_equal(newest, table)

    assert is_sound(pieces, table.astype(">i4")) == is_right


def test_chains_of_a_file_without_entries_are_sound() -> None:
    assert is_sound([], np.zeros(SLOTS, ">i4"))
