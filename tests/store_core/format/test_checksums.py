# SPDX-License-Identifier: Apache-2.0
"""Checksums of many bodies equal those of each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.format import checksums
from store_core.format.checksums import body_crcs
from store_core.format.message import body_crc

bodies = st.lists(
    st.binary(max_size=20) | st.sampled_from([b"", b"a", bytes(1023), bytes(1024), bytes(1025), b"x" * 5000]),
    max_size=30,
)


@given(bodies, st.sampled_from([1, 2, 64]), st.sampled_from([1 << 10, 1 << 17]))
def test_checksums_of_many_equal_those_of_each(rows: list[bytes], fewest: int, together: int) -> None:
    stops = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    raw = np.frombuffer(b"".join(rows), np.uint8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checksums, "_FEWEST_ALIKE", fewest)
        patch.setattr(checksums, "_TOGETHER_BYTES", together)
        found = body_crcs(raw, stops[:-1], stops[1:])

    assert [body_crc(row) for row in rows] == found.tolist()
