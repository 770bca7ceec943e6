# SPDX-License-Identifier: Apache-2.0
"""A measured chain equals following lengths one by one, kept or not, from any record."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.format.columnar import chain as module
from store_core.format.columnar.chain import Chain, Place, Run
from store_core.format.log_end import find_walk_starts
from store_core.format.record.scan import follow_chain
from store_core.format.segment_view import SegmentView
from tests.builders import BODY_LENGTH_AT, MAGIC_AT
from tests.segment import Segment
from tests.strategies import Log, layouts, logs, mutated

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LEAST", 150)
    monkeypatch.setattr(module, "_LARGEST", 300)


def chain_of(log: Log) -> Chain:
    return Chain(SegmentView.of(np.frombuffer(log.data, np.uint8), log.start_offset))


def starts_of(runs: Iterator[Run] | tuple[Run, ...]) -> list[int]:
    return [start for run in runs for start in run.starts.tolist()]


def damaged_log(at: int, value: int) -> tuple[Log, int]:
    """Make a log of twenty records; one of them has a wrong field. Return also where that one starts."""
    log = Segment().append(*[b"body"] * 20)
    struct.pack_into(">i", log.data, log.starts[12] + at, value)
    return Log(bytes(log.data), 0, log.starts), log.starts[12]


@given(mutated(logs() | layouts()))
def test_the_sound_part_of_a_chain_is_the_definition(log: Log) -> None:
    expected = follow_chain(memoryview(log.data), start_offset=log.start_offset)
    sound = chain_of(log).followed_sound()

    assert starts_of(sound.kept) == expected.starts.tolist()
    assert sound.stop == expected.stop
    assert sound.place == Place(expected.stop, int(expected.starts[-1]) if expected.starts.size else -1)


@given(mutated(logs() | layouts()), st.integers(0, 2000), st.integers(1, 20), st.booleans())
def test_windows_follow_one_another_and_hold_their_frames(log: Log, limit: int, rows: int, is_kept: bool) -> None:
    chain = chain_of(log).followed_sound() if is_kept else chain_of(log)
    position = 0
    for window in chain.windows(Place(), limit, rows):
        assert window.starts[0] == position
        assert window.starts[-1] < limit
        assert window.raw.tobytes() == log.data[window.base : window.base + window.raw.size]
        position = window.stop
    sound = chain_of(log).followed_sound()
    assert position >= min(sound.stop, limit)


@given(mutated(logs() | layouts()), st.integers(0, 400))
def test_the_kept_part_before_a_position_is_found(log: Log, end: int) -> None:
    chain = chain_of(log).followed_sound()

    assert chain.starts_before(end).tolist() == [start for start in starts_of(chain.kept) if start < end]


def test_a_record_whose_parts_do_not_add_up_ends_the_sound_part_and_not_the_chain() -> None:
    log, broken = damaged_log(BODY_LENGTH_AT, 3)

    windows = chain_of(log).windows(Place(), len(log.data))
    assert [start for window in windows for start in window.starts.tolist()] == log.starts
    assert chain_of(log).followed_sound().stop == broken


def test_a_chain_breaks_where_there_is_no_magic_code() -> None:
    log, broken = damaged_log(MAGIC_AT, 1)

    assert chain_of(log).followed_sound().stop == broken


@pytest.mark.parametrize("at", [BODY_LENGTH_AT, MAGIC_AT])
def test_a_walk_begins_at_the_record_before_a_position_unless_a_broken_one_is_in_the_way(at: int) -> None:
    log, broken = damaged_log(at, 3)
    starts = find_walk_starts(chain_of(log).followed_sound(), range(len(log.data)))

    for begin, start in enumerate(starts):
        before = [place for place in log.starts if place < begin]
        assert start == (before[-1] if before and begin <= broken else None)


def test_no_walk_begins_in_a_segment_without_records() -> None:
    assert find_walk_starts(chain_of(Log(bytes(200))).followed_sound(), [0, 10, 200]) == [None, None, None]
