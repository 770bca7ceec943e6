# SPDX-License-Identifier: Apache-2.0
"""Behind damage the next sound record is found: what a walk keeps, what it names, and how little it looks at."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.format import salvage, segment_view
from store_core.format.columnar.chain import Place, Window
from store_core.format.record.scan import (
    Framing,
    RecordCheck,
    Scan,
    StopReason,
    check_frame,
    check_record,
    follow_frames,
)
from store_core.format.salvage import CandidateFinder, Damage, SalvageWalk
from store_core.format.segment_view import SegmentView
from tests.builders import (
    BODY_AT,
    FIRST_STORE_TIMESTAMP,
    MAGIC_AT,
    PHYSICAL_OFFSET_AT,
    SIZE_AT,
    STORE_TIMESTAMP_AT,
    LogBuilder,
    Record,
)
from tests.dledger_logs import DLedgerLog
from tests.segment import Segment, windowed
from tests.strategies import Log, layouts, logs, mutated

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt


SIZE = 4096
START = 8192


class Walk:
    """Everything found in a segment, flattened."""

    def __init__(self, walk: SalvageWalk, place: Place | None = None, until: int | None = None) -> None:
        self.walk = walk
        self.parts = list(walk.parts(place or Place(), until=until))
        self.starts = [start for part in self.parts if isinstance(part, Window) for start in part.starts.tolist()]
        self.damaged = [part for part in self.parts if isinstance(part, Damage)]
        self.damage = [(part.begin, part.end) for part in self.damaged]
        self.reasons = [part.check.reason for part in self.damaged]


def walked(
    data: bytes,
    start_offset: int = START,
    next_data: Callable[[int], int] = lambda position: position,
    *,
    until: int | None = None,
    **options: bool,
) -> Walk:
    segment = SegmentView.of(np.frombuffer(data, np.uint8), start_offset, next_data)
    return Walk(SalvageWalk(segment, **options), until=until)


@pytest.fixture
def log() -> LogBuilder:
    """Ten records of different sizes in a segment that is not full."""
    log = LogBuilder(SIZE, START)
    for number in range(10):
        log.append(b"body %d " % number * (number + 1))
    return log


def segment(log: LogBuilder) -> bytes:
    (data,) = log.segments().values()
    return data


def places(log: LogBuilder) -> list[int]:
    return [record.physical_offset - START for record in log.records]


def without(log: LogBuilder, *numbers: int) -> list[int]:
    return [place for number, place in enumerate(places(log)) if number not in numbers]


# ------------------------------------------------------------------------------------------- blank records of odd sizes


@pytest.mark.parametrize("zeros", [1, 7, 90])
def test_a_few_zeros_that_can_be_no_record_end_a_segment(log: LogBuilder, zeros: int) -> None:
    assert walked(segment(log)[: log.end - START + zeros]).damage == []


def test_damage_at_both_ends_is_found(log: LogBuilder) -> None:
    log.flip(log.records[0].physical_offset + MAGIC_AT)
    log.flip(log.records[9].physical_offset + MAGIC_AT)
    log.roll()
    found = walked(segment(log))

    assert found.starts == without(log, 0, 9)
    assert found.damage == [(0, places(log)[1]), (places(log)[9], log.records[9].end - START)]


@pytest.mark.parametrize("size", [0, -1, 8, 100_000])
def test_a_blank_record_of_a_wrong_size_is_damage_if_newer_records_follow(log: LogBuilder, size: int) -> None:
    log.patch(log.records[4].physical_offset, struct.pack(">iI", size, 0xCBD43194))
    log.roll()
    found = walked(segment(log))

    assert found.starts == without(log, 4)
    assert found.reasons == [StopReason.END_OF_FILE]


def test_stale_records_do_not_make_damage_of_a_blank_record(log: LogBuilder) -> None:
    stale = log.truncate(log.records[5].physical_offset)
    log.append(log.records[-1], store_timestamp=FIRST_STORE_TIMESTAMP + 10_000)
    log.append_raw(struct.pack(">iI", 0, 0xCBD43194))
    log.append_raw(stale[log.end - log.records[-1].physical_offset :])

    assert walked(segment(log)).starts == places(log)


# ------------------------------------------------------------------------------------------------------ hostile bodies


def break_field(log: LogBuilder, number: int, at: int, value: int) -> None:
    log.patch(log.records[number].physical_offset + at, struct.pack(">i", value))


def decoys(log: LogBuilder) -> bytes:
    """Make a body of whole newer records with correct physical offsets."""
    body = b""
    for _ in range(3):
        body += Record(b"decoy", physical_offset=log.end + BODY_AT + len(body), store_timestamp=2**40).encode()
    return body


@pytest.mark.parametrize(
    ("at", "value"),
    [(SIZE_AT, 0), (SIZE_AT, 2**31 - 1), (SIZE_AT, 200), (MAGIC_AT, 1), (PHYSICAL_OFFSET_AT, 1)],
)
def test_records_in_the_body_of_a_broken_record_are_not_taken_for_data(log: LogBuilder, at: int, value: int) -> None:
    log.append(decoys(log))
    log.append_all(b"after", b"the", b"end")
    break_field(log, 10, at, value)
    log.roll()

    assert walked(segment(log)).starts == without(log, 10)


def test_records_in_a_body_that_was_not_written_to_its_end_are_not_taken_for_data(log: LogBuilder) -> None:
    record = log.append(decoys(log) + b"the part that is missing")
    log.patch(record.end - 30, bytes(30))
    found = walked(segment(log), only_newer=True, is_growing=True)

    assert found.starts == without(log, 10)
    assert not found.parts[-1].is_followed  # type: ignore[union-attr]  # it is damage


# ------------------------------------------------------------------------------------------------------- stale records


def with_stale_tail(log: LogBuilder) -> list[int]:
    """Move the write position back, append newer records, and keep old ones after them; return the sound positions."""
    keep = log.records[3].physical_offset
    stale = log.truncate(keep)
    log.append_all(b"new", b"newer", store_timestamp=FIRST_STORE_TIMESTAMP + 10_000)
    sound = places(log)
    log.append_raw(bytes(8))
    log.append_raw(stale[log.end - keep :])
    return sound


def test_a_newer_record_among_stale_ones_is_found_and_its_chain_followed(log: LogBuilder) -> None:
    newer, following = log.records[8:]
    log.patch(newer.physical_offset + STORE_TIMESTAMP_AT, struct.pack(">q", FIRST_STORE_TIMESTAMP + 20_000))
    sound = with_stale_tail(log)
    found = [newer.physical_offset - START, following.physical_offset - START]

    assert walked(segment(log), only_newer=True).starts == [*sound, *found]


# ----------------------------------------------------------------------------------------------------- growing segments


def test_a_record_that_a_writer_finishes_meanwhile_is_no_damage(log: LogBuilder) -> None:
    raw = np.frombuffer(bytearray(segment(log)), np.uint8)
    begin, end = places(log)[5], places(log)[6]
    record = raw[begin:end].copy()
    raw[begin:end] = 0

    def finish(position: int) -> int:
        raw[begin:end] = record
        return position

    found = Walk(SalvageWalk(SegmentView.of(raw, START, finish), only_newer=True, is_growing=True))

    assert found.starts == places(log)


# --------------------------------------------------------------------------------------------------- limits of time


def test_damage_everywhere_costs_no_more_than_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    windows: list[int] = []

    def counted(data: memoryview, begin: int, end: int, start_offset: int, framing: Framing, *, previous: int) -> Scan:
        windows.append(end - begin)
        return follow_frames(data, begin, end, start_offset, framing, previous=previous)

    monkeypatch.setattr("store_core.format.salvage.follow_frames", counted)
    data = bytearray()
    for _ in range(3000):
        data += Record(b"x", physical_offset=START + len(data)).encode() + b"#"
    found = walked(bytes(data))

    assert len(found.starts) == 3000
    assert len(found.damage) == 3000
    assert len(windows) <= 3001
    assert max(windows) <= 4096


def test_bodies_are_read_twice_at_most_even_if_they_are_nested_a_thousand_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[int] = []

    def counted(body: memoryview) -> int:
        read.append(len(body))
        return -1

    monkeypatch.setattr("store_core.format.record.scan.body_crc", counted)
    count, head = 1000, BODY_AT
    data = bytearray(b"garbage!")
    tail = b"body" + struct.pack(">bh", 0, 0)
    for number in range(count):  # each claims all that follows as its body; only their checksums are wrong
        rest = (count - 1 - number) * head + len(b"body")
        record = Record(b"", physical_offset=START + len(data), crc=7).encode()[: head - 4]
        data += struct.pack(">i", head + rest + 3) + record[4:] + struct.pack(">i", rest)
    found = walked(bytes(data + tail))

    assert found.starts == []
    assert found.damage == [(0, len(data) + len(tail))]
    assert 0 < sum(read) <= 2 * len(data)


# ----------------------------------------------------------------------------------------------------------- for all


@given(logs() | layouts())
def test_as_long_as_nothing_is_broken_the_walk_is_the_chain(log: Log) -> None:
    chain = follow_frames(memoryview(log.data), start_offset=log.start_offset)
    found = walked(log.data, log.start_offset)

    assert found.starts[: chain.starts.size] == chain.starts.tolist()
    if not chain.reason.is_damage and chain.reason is not StopReason.UNWRITTEN:
        assert found.damage == []


@given(mutated(logs() | layouts()), st.booleans(), st.booleans())
def test_parts_are_sound_and_leave_nothing_out(log: Log, only_newer: bool, is_growing: bool) -> None:
    found = walked(log.data, log.start_offset, only_newer=only_newer, is_growing=is_growing)
    position = 0
    for part in found.parts:
        if isinstance(part, Window):
            chain = follow_frames(memoryview(log.data), position, part.stop, log.start_offset)
            assert part.starts.tolist() == chain.starts.tolist()
            position = part.stop
        else:
            assert part.begin == position
            assert part.begin < part.end
            position = part.end
    assert found.walk.stop <= position <= len(log.data)


@given(mutated(logs() | layouts()), st.data())
def test_a_walk_that_stops_early_sees_the_same(log: Log, data: st.DataObject) -> None:
    until = data.draw(st.integers(0, len(log.data)))
    whole = walked(log.data, log.start_offset)
    part = walked(log.data, log.start_offset, until=until)

    assert part.starts == [start for start in whole.starts if start < until]
    assert part.damage == [damage for damage in whole.damage if damage[0] < until]


@given(mutated(logs() | layouts()), st.booleans(), st.data())
def test_a_walk_from_where_sound_records_led_sees_the_same(log: Log, only_newer: bool, data: st.DataObject) -> None:
    segment = SegmentView.of(np.frombuffer(log.data, np.uint8), log.start_offset)
    whole = Walk(SalvageWalk(segment, only_newer=only_newer))
    place = data.draw(st.sampled_from([Place(), *(part.place for part in whole.parts if isinstance(part, Window))]))
    rest = Walk(SalvageWalk(segment, only_newer=only_newer), place)

    assert rest.starts == [start for start in whole.starts if start >= place.position]
    assert rest.damage == [damage for damage in whole.damage if damage[0] >= place.position]


@given(mutated(logs() | layouts()), st.booleans(), st.booleans())
def test_a_walk_needs_one_chunk_at_a_time(log: Log, only_newer: bool, is_growing: bool) -> None:
    whole = SegmentView.of(np.frombuffer(log.data, np.uint8), log.start_offset)
    check_windows(whole, windowed(log.data, log.start_offset), only_newer=only_newer, is_growing=is_growing)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("only_newer", [False, True])
def test_a_walk_through_entries_needs_one_chunk_at_a_time(seed: int, only_newer: bool) -> None:
    log = DLedgerLog(1 << 16)
    for number in range(60):
        log.append(b"x" * (13 * number), queue_offset=number)
    ((_, data),) = log.files().items()
    damaged, random = bytearray(data), np.random.default_rng(seed)
    for at in random.integers(0, log.end, 1 + seed % 4).tolist():
        damaged[at : at + 600] = random.bytes(600)
    raw = np.frombuffer(damaged, np.uint8)
    whole = SegmentView.of(raw, framing=Framing.ENTRIES)
    check_windows(whole, windowed(bytes(damaged), 0, Framing.ENTRIES), only_newer=only_newer)


def check_windows(whole: SegmentView, view: SegmentView, **options: bool) -> None:
    """Compare a walk through bytes that are there with one through chunks."""
    expected, found = Walk(SalvageWalk(whole, **options)), Walk(SalvageWalk(view, **options))

    assert (expected.starts, expected.damaged) == (found.starts, found.damaged)
    for name in ("stop", "reason", "stale", "is_unfinished", "covered"):
        assert getattr(found.walk, name) == getattr(expected.walk, name)


MAGIC = b"\xda\xa3\x20\xa7"


def found_in(raw: npt.NDArray[np.uint8], start_offset: int, begin: int = 0) -> list[int]:
    """Ask for candidates until there are no more."""
    finder = CandidateFinder(SegmentView.of(raw, start_offset))
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

    assert CandidateFinder(SegmentView.of(np.zeros(size, np.uint8), 0, next_data)).next(100) is None
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
        **options: Any,  # noqa: ANN401 -- as of what it replaces
    ) -> RecordCheck:
        seen.append(position)
        return check_frame(data, position, start_offset, framing, **options)

    monkeypatch.setattr(segment_view, "check_frame", count_checks)
    found = list(SalvageWalk(SegmentView.of(np.frombuffer(bytes(log.data), np.uint8))).parts())

    assert len(found) == 3
    assert len(seen) < 20
