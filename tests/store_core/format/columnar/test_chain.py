# SPDX-License-Identifier: Apache-2.0
"""A chain that is measured, or walked with many cursors, equals following lengths one by one."""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.format.columnar import chain as module
from store_core.format.columnar.chain import Chain, Place, Run, find_candidate, scan
from store_core.format.layout import MIN_RECORD_SIZE
from store_core.format.record.scan import follow_frames
from store_core.format.salvage import find_walk_starts
from store_core.format.segment_view import SegmentView
from tests.builders import BODY_AT, BODY_LENGTH_AT, MAGIC_AT, SIZE_AT, Record
from tests.segment import Segment, assert_same_scan
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


def damaged_log(at: int) -> tuple[Log, int]:
    """Make a log of twenty records; one of them has a wrong field. Return also where that one starts."""
    log = Segment().append(*[b"body"] * 20)
    struct.pack_into(">i", log.data, log.starts[12] + at, 3)
    return Log(bytes(log.data), 0, log.starts), log.starts[12]


@given(mutated(logs() | layouts()))
def test_the_sound_part_of_a_chain_is_the_definition(log: Log) -> None:
    expected = follow_frames(memoryview(log.data), start_offset=log.start_offset)
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


def test_a_record_whose_parts_do_not_add_up_does_not_end_the_chain() -> None:
    log, _ = damaged_log(BODY_LENGTH_AT)
    windows = chain_of(log).windows(Place(), len(log.data))
    assert [start for window in windows for start in window.starts.tolist()] == log.starts


@pytest.mark.parametrize("at", [BODY_LENGTH_AT, MAGIC_AT])
def test_a_walk_begins_at_the_record_before_a_position_unless_a_broken_one_is_in_the_way(at: int) -> None:
    log, broken = damaged_log(at)
    sound = chain_of(log).followed_sound()
    starts = find_walk_starts(sound, range(len(log.data)))

    assert sound.stop == broken
    for begin, start in enumerate(starts):
        before = [place for place in log.starts if place < begin]
        assert start == (before[-1] if before and begin <= broken else None)


lanes = st.sampled_from([None, 1, 2, 3, 12, 13, 14, 40, 4096])


def assert_scans_as_chain(
    log: Log, begin: int = 0, end: int | None = None, *, lanes: int | None = None, shift: int = 0, asked: bool = True
) -> None:
    """Compare both for the log at an address that is `shift` bytes after a multiple of eight."""
    start_offset = log.start_offset if asked else None
    buffer = np.zeros(len(log.data) + 16, np.uint8)
    first = -buffer.ctypes.data % 8 + shift
    raw = buffer[first : first + len(log.data)]
    raw[:] = np.frombuffer(log.data, np.uint8)
    expected = follow_frames(memoryview(log.data), begin, end, start_offset)

    assert_same_scan(expected, scan(raw, begin, end, start_offset, lanes=lanes))


@pytest.mark.parametrize(
    "drawn",
    [layouts(), mutated(layouts()), mutated(logs()), st.binary(max_size=400).map(Log)],
    ids=["sound", "broken", "of every kind of record", "any bytes"],
)
@given(data=st.data(), lanes=lanes, shift=st.integers(0, 7), asked=st.booleans())
def test_scan_equals_the_chain(
    drawn: st.SearchStrategy[Log], data: st.DataObject, lanes: int | None, shift: int, asked: bool
) -> None:
    assert_scans_as_chain(data.draw(drawn), lanes=lanes, shift=shift, asked=asked)


@given(layouts() | mutated(layouts()), lanes, st.data())
def test_scan_equals_the_chain_of_any_range(log: Log, lanes: int | None, data: st.DataObject) -> None:
    places = st.sampled_from([0, len(log.data), *log.starts]) | st.integers(0, len(log.data) + 20)
    begin, end = data.draw(places), data.draw(st.none() | places)

    assert_scans_as_chain(log, begin, end, lanes=lanes)


@given(layouts() | mutated(layouts()), st.integers(2, 40), st.integers(1, 200), st.booleans())
def test_candidates_of_all_lanes_are_those_of_each_lane(log: Log, count: int, probe: int, asked: bool) -> None:
    raw = np.frombuffer(log.data, np.uint8)
    start_offset = log.start_offset if asked else None
    cuts = np.arange(count + 1, dtype=np.int64) * raw.size // count
    probes = probe, 2 * probe
    with mock.patch.object(module, "_NEAR_PROBES", probes):
        found = module._near_candidates(raw, cuts, start_offset)

    def near(cut: int, stop: int) -> int:
        inside = [probe for probe in probes if cut + probe + MIN_RECORD_SIZE <= raw.size]
        each = (find_candidate(raw, cut, stop, start_offset, (probe,)) for probe in inside)
        return next((at for at in each if at >= 0), -1)

    assert [near(int(cut), int(stop)) for cut, stop in itertools.pairwise(cuts)] == found.tolist()


def equal_records() -> Segment:
    """Make a log in which all cursors reach the end of their stretch, since all stretches are equal."""
    return Segment().append(*[b"body"] * 60)


@pytest.mark.parametrize("lanes", [1, 20, 60])
def test_scan_equals_the_chain_of_a_log_torn_anywhere(lanes: int) -> None:
    log = equal_records()
    while len(log.data) > log.starts[-2] - 3:
        assert_scans_as_chain(Log(bytes(log.data)), lanes=lanes)
        log.shrink(1)


@pytest.mark.parametrize("at", [SIZE_AT, MAGIC_AT, BODY_LENGTH_AT])
@pytest.mark.parametrize("number", [0, 1, -1, 90, 91, 107, 1000, (1 << 31) - 1, -(1 << 31)])
def test_scan_equals_the_chain_with_any_record_broken(at: int, number: int) -> None:
    sound = equal_records()
    for start in sound.starts:
        data = bytearray(sound.data)
        struct.pack_into(">i", data, start + at, number)

        assert_scans_as_chain(Log(bytes(data)), lanes=20)


@pytest.mark.parametrize("shift", range(8))
@pytest.mark.parametrize("version", [1, 2])
def test_cursors_do_the_work_of_single_steps(monkeypatch: pytest.MonkeyPatch, shift: int, version: int) -> None:
    """The walk would be correct, though slow, if cursors read nonsense: single steps correct them."""
    log = Segment().append(*[b"body"] * 1000, version=version)
    stepped = []
    single_steps = module._single_steps

    def count_steps(data: memoryview, position: int, stop: int, lead: int) -> tuple[list[int], int]:
        found, arrived = single_steps(data, position, stop, lead)
        stepped.extend(found)
        return found, arrived

    monkeypatch.setattr(module, "_single_steps", count_steps)

    assert_scans_as_chain(Log(bytes(log.data)), lanes=100, shift=shift)
    assert len(stepped) < 20


@pytest.mark.parametrize("count", [1, 5, 14, 100])
def test_bodies_full_of_records_with_right_offsets_are_not_believed(count: int) -> None:
    log = Segment()
    for _ in range(40):
        inside = Segment(start_offset=len(log.data) + BODY_AT).append(*[b"decoy"] * count)
        log.append(bytes(inside.data)).append(b"true")

    for lanes in (1, 13, 50, 500, 4096):
        assert_scans_as_chain(Log(bytes(log.data)), lanes=lanes)


def test_a_large_segment_with_large_records_equals_the_chain() -> None:
    log = Segment()
    for number in range(300):
        log.append(bytes(number * 41 % 9000))
    log.append_raw(bytes(100_000))

    assert_scans_as_chain(Log(bytes(log.data)))
    assert len(log.data) > 1 << 20


def test_magic_codes_all_over_a_body_are_looked_at_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a hostile segment would take minutes."""
    log = Segment().append(Record().encode()[4:7] * 700_000)
    tries = []
    looks_like_record = module._looks_like_record

    def count_tries(chunk: bytes, position: int, cut: int, start_offset: int | None) -> bool:
        tries.append(position)
        return looks_like_record(chunk, position, cut, start_offset)

    monkeypatch.setattr(module, "_looks_like_record", count_tries)
    lanes = len(log.data) // module._LANE_BYTES

    assert scan(np.frombuffer(log.data, np.uint8)).starts.tolist() == [0]
    assert len(tries) <= lanes * 200
