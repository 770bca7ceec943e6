# SPDX-License-Identifier: Apache-2.0
"""Leaving names out of maps of properties leaves everything else as it is."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from store_core.format.columnar.property_columns import without_names

NAMES = st.sampled_from(["KEYS", "TAGS", "DELAY", "é"])
ROWS = st.lists(st.none() | st.dictionaries(NAMES, st.text(max_size=3)), max_size=6)


@given(ROWS, st.integers(0, 3), st.lists(NAMES, min_size=1, max_size=2))
def test_maps_without_names_are_those_with_the_other_names(
    rows: list[dict[str, str] | None], skipped: int, names: list[str]
) -> None:
    pairs = [None if row is None else list(row.items()) for row in rows]
    maps = pa.array(pairs, pa.map_(pa.string(), pa.string())).slice(min(skipped, len(rows)))
    expected = [row and [pair for pair in row if pair[0] not in names] for row in pairs[skipped:]]

    assert expected == without_names(maps, names).to_pylist()
