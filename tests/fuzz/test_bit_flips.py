# SPDX-License-Identifier: Apache-2.0
"""A flipped bit of a golden segment is found where a checksum covers it, and never costs another row without a word."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fuzz.bit_flips import (
    REPORTED,
    SILENT,
    STORES,
    copied_store,
    flip_bits,
    full_reading_differs,
    golden_segments,
)
from tests.golden_stores import golden_stores

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.golden

_HERE = {store.name for store in golden_stores()}
_EVERY = 1009


@pytest.mark.parametrize("name", [name for name in STORES if name in _HERE])
@pytest.mark.parametrize("every", [_EVERY, pytest.param(1, marks=pytest.mark.soak)])
def test_each_flip_is_found_or_stays_in_its_own_column(name: str, every: int, tmp_path: Path) -> None:
    for number, segment in enumerate(golden_segments(name, tmp_path)):
        flips, shown = flip_bits(segment, every)
        root = copied_store(segment, tmp_path / f"store-{number}")

        assert {REPORTED} == set(flips.of("body"))
        assert 0 == flips.with_outcome(SILENT)
        assert -(-len(segment.data) * 8 // every) == flips.total
        for bit, begin, end, _ in shown[:: max(len(shown) // 4, 1)]:
            assert "" == full_reading_differs(segment, root, bit, (begin, end))


def test_property_checksums_cover_the_whole_record(tmp_path: Path) -> None:
    (segment,) = golden_segments("5.3.3/propcrc", tmp_path, 1)
    flips, _ = flip_bits(segment, _EVERY // 10)

    for name in ("topic", "properties", "queue_id", "queue_offset", "store_timestamp", "born_host"):
        assert {"found by the checksum in the record's properties"} == set(flips.of(name))
