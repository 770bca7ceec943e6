# SPDX-License-Identifier: Apache-2.0
"""Candidates are those that searching one by one would find, whatever the bytes contain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.format.damage import salvage
from store_core.format.damage.salvage import CandidateFinder, Salvage
from store_core.format.record.scan import Framing, RecordCheck, check_frame, check_record
from store_core.format.segment_view import SegmentView
from tests.segment import Segment
from tests.strategies import Log, layouts, mutated

if TYPE_CHECKING:
    import numpy.typing as npt

MAGIC = b"\xda\xa3\x20\xa7"


def found_in(raw: npt.NDArray[np.uint8], start_offset: int, begin: int = 0) -> list[int]:
    """Ask for candidates until there are no more."""
    finder = CandidateFinder(SegmentView(raw, start_offset))
    found = []
    position = finder.next(begin)
    while position is not None:
        found.append(position)
        position = finder.next(position + 1)
    return found


def looked_for(raw: npt.NDArray[np.uint8], start_offset: int, begin: int = 0) -> list[int]:
    """Look at every position."""
    checks = ((position, check_record(raw.data, position, start_offset)) for position in range(begin, raw.size))
    return [position for position, check in checks if check.reason is None]


@given(log=mutated(layouts()), block=st.integers(1, 500), data=st.data())
def test_candidates_are_what_looking_everywhere_finds(log: Log, block: int, data: st.DataObject) -> None:
    raw = np.frombuffer(log.data[:3000], np.uint8)
    begin = data.draw(st.integers(0, raw.size))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(salvage, "_BLOCK", block)
        patch.setattr(salvage, "_FIRST_CHUNK", max(block // 2, 1))
        patch.setattr(salvage, "_SEARCH_CHUNK", 2 * block)

        assert looked_for(raw, log.start_offset, begin) == found_in(raw, log.start_offset, begin)


def test_a_search_leaves_a_hole_soon() -> None:
    """What follows a log's end is read for every plan: a hole of a gibibyte must not be."""
    size, asked = 1 << 24, []

    def next_data(position: int) -> int:
        asked.append(position)
        return position if position < 1 << 12 else size

    assert CandidateFinder(SegmentView(np.zeros(size, np.uint8), 0, next_data)).next(100) is None
    assert len(asked) == 2
    assert asked[1] < 1 << 17


def test_magic_codes_all_over_damage_are_not_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a hostile segment would take hours."""
    log = Segment().append(b"one").append(MAGIC * 50_000).put(0, ">i", 1).append(b"two")
    seen = []

    def count_checks(
        data: memoryview,
        position: int,
        start_offset: int | None,
        framing: Framing,
        *,
        verify_crc: bool = False,
        previous: int = -1,
    ) -> RecordCheck:
        seen.append(position)
        return check_frame(data, position, start_offset, framing, verify_crc=verify_crc, previous=previous)

    monkeypatch.setattr(salvage, "check_frame", count_checks)
    found = list(Salvage(SegmentView(np.frombuffer(bytes(log.data), np.uint8))).parts())

    assert len(found) == 3
    assert len(seen) < 20
