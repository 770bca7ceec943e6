# SPDX-License-Identifier: Apache-2.0
"""A log is followed in batches: each record is in exactly one, whatever is appended, torn or lost meanwhile."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import (
    CorruptRecordError,
    ExpiredSegmentsError,
    InvalidOptionError,
    ReplacedStoreError,
    TruncatedLogError,
)
from store_core.format.columnar import lockstep
from store_core.store.read.follow import log_segments, waypoints
from store_core.store.read.follow.log_follower import LogFollower
from store_core.store.read.follow.log_position import LogPosition
from store_core.store.read.follow.read_limits import ReadLimits
from store_core.store.read.message_reader import read_range
from store_core.store.read.read_messages import read_messages
from store_core.store.read.read_options import ReadOptions
from tests.budgets import budget
from tests.builders import BODY_AT, FIRST_STORE_TIMESTAMP, MAGIC_AT, LogBuilder

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from store_core.format.record.framing import Framing
    from store_core.format.record.scan import Scan
    from store_core.format.segment_view import SegmentView
    from tests.builders import Record

SIZE = 1024
ALL = ReadLimits()
TEN = ReadLimits(max_records=10)


class Followed:
    """A store on disk, and a stream that follows it; positions pass through JSON, as in a checkpoint."""

    def __init__(self, root: Path, start_offset: int = 0) -> None:
        self.root = root
        self.log = LogBuilder(SIZE, start_offset)
        self.options: dict[str, Any] = {}
        self.restart()

    def restart(self, **options: Any) -> Followed:  # noqa: ANN401 -- those of reading
        """Forget what a process remembers."""
        self.options |= options
        self.parsed = ReadOptions.parse(**self.options)
        self.follower = LogFollower(self.root, self.parsed)
        return self

    def write(self, *, preallocated: int = 0) -> None:
        self.log.write(self.root, preallocated=preallocated)

    def first(self, *, at_end: bool = False) -> LogPosition:
        return through_json(self.follower.initial(at_end=at_end))

    def advance(self, start: LogPosition, limits: ReadLimits = ALL) -> LogPosition:
        return through_json(self.follower.advance(start, limits))

    def read(self, start: LogPosition, end: LogPosition) -> list[int]:
        """Return the physical offsets of a batch's rows, in order."""
        batches = (batch for part in self.follower.ranges(start, end) for batch in read_range(part, self.parsed))
        return [offset for batch in batches for offset in batch["physical_offset"].to_pylist()]

    def drain(self, start: LogPosition, limits: ReadLimits = ALL) -> tuple[list[list[int]], LogPosition]:
        """Read batches until nothing is new."""
        batches = []
        while (end := self.advance(start, limits)) != start:
            batches.append(self.read(start, end))
            start = end
        return batches, start

    @property
    def offsets(self) -> list[int]:
        return [record.physical_offset for record in self.log.records]

    def delete_first(self) -> None:
        min((self.root / "commitlog").iterdir()).unlink()


def through_json(position: LogPosition) -> LogPosition:
    return LogPosition.from_json(json.loads(json.dumps(position.as_json())))


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    """Return a store of three closed segments and one that is being written; the first was deleted long ago."""
    followed = Followed(tmp_path / "store", SIZE)
    followed.log.fill(3)
    followed.log.append_all(b"one", b"two", b"three")
    followed.write(preallocated=1)
    return followed


# -------------------------------------------------------------------------------------------------------------- growth


def test_one_batch_without_limits_has_all_records(followed: Followed) -> None:
    batches, end = followed.drain(followed.first())

    assert batches == [followed.offsets]
    assert end.physical_offset == followed.log.end


def test_nothing_new_is_no_batch(followed: Followed) -> None:
    end = followed.advance(followed.first())

    assert followed.advance(end) == end
    assert followed.restart().advance(end) == end


def test_what_is_appended_is_the_next_batch(followed: Followed) -> None:
    _, end = followed.drain(followed.first())
    before = followed.offsets
    followed.log.append(b"four")
    followed.log.fill(2)
    followed.write(preallocated=2)

    assert followed.drain(end)[0] == [followed.offsets[len(before) :]]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_segment_that_is_closed_at_the_position_is_left(followed: Followed, is_restarted: bool) -> None:
    _, end = followed.drain(followed.first())
    followed.log.roll()
    followed.write(preallocated=1)
    closed = followed.advance(end)
    followed.log.append(b"in the next one")
    followed.write()
    if is_restarted:
        followed.restart()

    assert closed.physical_offset == 5 * SIZE
    assert closed.segment == f"{5 * SIZE:020d}"
    assert followed.drain(closed)[0] == followed.drain(end)[0] == [followed.offsets[-1:]]


def test_the_end_is_not_searched_for_from_the_segment_s_start_again(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = followed.advance(followed.first())
    begins: list[int] = []

    def watched(raw: npt.NDArray[np.uint8], begin: int, end: int, start_offset: int, framing: Framing) -> Scan:
        begins.append(begin)
        return lockstep.chain(raw, begin, end, start_offset, framing)

    monkeypatch.setattr("store_core.format.columnar.chain.chain", watched)
    for number in range(5):
        followed.log.append(b"%d" % number)
        followed.write()
        end = followed.restart().advance(end) if number % 2 else followed.advance(end)

    assert end.physical_offset == followed.log.end
    assert min(begins) >= followed.log.records[-6].end % SIZE


def finished_later(followed: Followed, record: Record, missing: int) -> tuple[LogPosition, list[list[int]]]:
    """Write a record without its last bytes, then with them; return how far it was read, and what is read then."""
    before = followed.advance(followed.first())
    whole = followed.log.segments()
    followed.log.patch(record.end - missing, bytes(missing))
    followed.write()
    torn = followed.advance(before)
    for name, data in whole.items():
        (followed.root / "commitlog" / name).write_bytes(data)
    return torn, followed.drain(before)[0]


@pytest.mark.parametrize("written", [1, 8, 40, 88, 95, 110])
def test_a_record_that_is_half_written_is_not_there_yet(followed: Followed, written: int) -> None:
    before = followed.advance(followed.first())
    record = followed.log.append(b"y" * 60, properties={"TAGS": "a", "b": "c"})
    torn, then = finished_later(followed, record, record.size - written)

    assert torn == before
    assert then == [[record.physical_offset]]


@pytest.mark.parametrize("missing", [3, 5, 7])
def test_a_record_without_the_end_of_its_topic_is_not_there_yet(followed: Followed, missing: int) -> None:
    before = followed.advance(followed.first())
    record = followed.log.append(b"body", topic="a-topic", properties={})
    torn, then = finished_later(followed, record, missing)

    assert torn == before
    assert then == [[record.physical_offset]]


@pytest.mark.parametrize("missing", [1, 2, 5])
def test_a_record_without_the_end_of_its_properties_is_not_there_yet(followed: Followed, missing: int) -> None:
    before = followed.advance(followed.first())
    record = followed.log.append(b"body", properties={"TAGS": "abcdefgh"})
    followed.log.patch(record.end - missing, bytes(missing))
    followed.write()
    alone = followed.advance(before)
    followed.log.append(b"next")
    followed.write()

    assert alone == before
    assert followed.drain(before)[0] == [followed.offsets[-2:]]


def test_a_growing_copy_is_read_as_far_as_it_goes(followed: Followed, tmp_path: Path) -> None:
    copy = Followed(tmp_path / "copy")
    commit_log = copy.root / "commitlog"
    commit_log.mkdir(parents=True)
    read: list[int] = []
    position: LogPosition | None = None
    for name, data in sorted(followed.log.segments().items()):
        for size in range(100, SIZE + 1, 77):
            (commit_log / name).write_bytes(data[:size])
            if position is None:
                position = copy.first()
            batches, position = copy.drain(position)
            read += [offset for batch in batches for offset in batch]
        (commit_log / name).write_bytes(data)
    batches, _ = copy.drain(position or copy.first())

    assert read + [offset for batch in batches for offset in batch] == followed.offsets


def test_an_empty_log_has_no_batch_until_there_is_a_record(tmp_path: Path) -> None:
    followed = Followed(tmp_path / "store", SIZE)
    followed.write()
    start = followed.first()

    assert followed.advance(start) == start
    followed.log.append(b"first")
    followed.write()
    assert followed.drain(start)[0] == [[SIZE]]


# ----------------------------------------------------------------------------------------------------- starting points


def test_a_stream_from_the_latest_offset_has_only_what_comes_later(followed: Followed) -> None:
    start = followed.first(at_end=True)
    record = followed.log.append(b"later")
    followed.write()

    assert followed.drain(start)[0] == [[record.physical_offset]]


@pytest.mark.parametrize("number", [0, 1, 7, 8, 9, -1])
@pytest.mark.parametrize("before", [0, 1, 50])
def test_a_stream_from_an_offset_starts_at_the_next_record(followed: Followed, number: int, before: int) -> None:
    offset = followed.offsets[number] - before
    followed.restart(starting_offsets=max(offset, 0))

    assert followed.drain(followed.first())[0] == [[each for each in followed.offsets if each >= offset]]


@pytest.mark.parametrize("number", [0, 3, 7, 8, 15, -1])
def test_a_stream_from_a_time_has_what_was_stored_since(followed: Followed, number: int) -> None:
    time = followed.log.records[number].store_timestamp
    followed.restart(starting_timestamp=time)

    assert followed.drain(followed.first())[0] == [
        [record.physical_offset for record in followed.log.records if record.store_timestamp >= time]
    ]


def test_a_time_takes_precedence_over_the_latest_offset(followed: Followed) -> None:
    time = followed.log.records[4].store_timestamp
    followed.restart(starting_timestamp=time)

    assert followed.first(at_end=True) == followed.first() != followed.advance(followed.first())


def test_a_stream_from_the_future_starts_at_the_end(followed: Followed) -> None:
    followed.restart(starting_timestamp=FIRST_STORE_TIMESTAMP * 2)

    assert followed.first() == followed.first(at_end=True)


# -------------------------------------------------------------------------------------------------------------- limits


def test_a_batch_has_no_more_records_than_allowed(followed: Followed) -> None:
    batches, _ = followed.drain(followed.first(), TEN)

    assert [offset for batch in batches for offset in batch] == followed.offsets
    assert {len(batch) for batch in batches[:-1]} == {10}


@pytest.mark.parametrize("size", [1, 300, 1000, 2500])
def test_a_batch_has_no_more_bytes_than_allowed_but_a_record(followed: Followed, size: int) -> None:
    start = followed.first()
    batches, _ = followed.drain(start, ReadLimits(max_bytes=size))
    longest = max(record.size for record in followed.log.records)

    assert [offset for batch in batches for offset in batch] == followed.offsets
    position = start
    while (end := followed.advance(position, ReadLimits(max_bytes=size))) != position:
        assert end.last_record is not None
        assert end.last_record.end_offset - position.physical_offset <= max(size, longest)
        position = end


@pytest.mark.parametrize("most", [1, 7, 60])
def test_a_batch_may_end_with_a_segment_of_which_little_was_loaded(tmp_path: Path, most: int) -> None:
    followed = Followed(tmp_path / "store")
    followed.log = LogBuilder(1 << 16)
    followed.log.append_all(*[b"x" * 400] * 300)
    followed.write(preallocated=1)
    batches, _ = followed.drain(followed.first(), ReadLimits(max_records=most))

    assert [offset for batch in batches for offset in batch] == followed.offsets


def test_records_that_wait_are_counted_up_to_what_is_enough(followed: Followed) -> None:
    start = followed.first()

    assert followed.follower.waiting_records(start, 1000) == len(followed.offsets)
    assert followed.follower.waiting_records(start, 4) == 4
    assert followed.follower.waiting_records(followed.advance(start), 4) == 0


@budget(0.3)
@given(
    bodies=st.lists(st.integers(0, 300), min_size=1, max_size=40),
    limits=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    damaged=st.sets(st.integers(0, 39), max_size=3),
)
def test_batches_together_are_the_log(
    tmp_path_factory: pytest.TempPathFactory, bodies: list[int], limits: list[int], damaged: set[int]
) -> None:
    followed = Followed(tmp_path_factory.mktemp("log") / "store")
    for size in bodies:
        followed.log.append(b"z" * size, properties={"TAGS": "t"})
    for number in damaged & set(range(len(bodies))):
        followed.log.flip(followed.offsets[number] + (MAGIC_AT if number % 2 else BODY_AT))
    followed.write()
    followed.restart(mode="PERMISSIVE", min_partitions=3)
    position, rows, turn = followed.first(), [], 0
    while (end := followed.restart().advance(position, ReadLimits(max_records=limits[turn % len(limits)]))) != position:
        found = followed.read(position, end)
        assert followed.restart().read(position, end) == found
        rows += found
        position, turn = end, turn + 1
    whole = read_messages(followed.root, mode="PERMISSIVE").read_all()

    assert rows == [offset for offset in whole["physical_offset"].to_pylist() if offset < position.physical_offset]
    assert np.all(np.diff(rows) > 0)
    assert not [
        offset for offset in followed.offsets if offset >= position.physical_offset and is_sound(followed, offset)
    ]


def is_sound(followed: Followed, offset: int) -> bool:
    return offset in read_messages(followed.root, mode="DROPMALFORMED").read_all()["physical_offset"].to_pylist()


# ------------------------------------------------------------------------------------------------------------- replays


def test_a_batch_that_is_planned_again_has_the_same_rows(followed: Followed) -> None:
    start = followed.first()
    ends = [start]
    while (end := followed.advance(ends[-1], TEN)) != ends[-1]:
        ends.append(end)
    before = [followed.read(*pair) for pair in pairwise(ends)]
    followed.log.fill(3)
    followed.write()
    followed.restart()

    assert [followed.read(*pair) for pair in pairwise(ends)] == before


def test_tasks_begin_at_records_that_limiting_the_batch_has_passed(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waypoints, "_STEP", 100)
    followed.restart(min_partitions=8)
    start = followed.first()
    end = followed.advance(start, ReadLimits(max_records=len(followed.offsets) - 1))
    parts = followed.follower.ranges(start, end)
    again = followed.restart().follower.ranges(start, end)

    assert [replace(part, walk_start=None) for part in parts] == [replace(part, walk_start=None) for part in again]
    for part in parts:
        before = [offset for offset in followed.offsets if part.segment.start_offset <= offset < part.begin]
        assert part.walk_start in before[-2:] or not before


def test_what_follows_damage_is_found_only_by_walking_through_it(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waypoints, "_STEP", 1)
    followed.log.flip(followed.offsets[3] + MAGIC_AT)
    followed.write()
    followed.restart(min_partitions=8)
    start = followed.first()
    parts = followed.follower.ranges(start, followed.advance(start, TEN))
    walked = {part.walk_start for part in parts if part.segment.start_offset == SIZE}

    assert len(parts) > 4
    assert walked <= {None, *followed.offsets[:3]}


def test_damage_in_a_batch_ends_the_stream_when_it_is_read(followed: Followed) -> None:
    followed.log.flip(followed.offsets[3] + MAGIC_AT)
    followed.write()
    start = followed.first()
    end = followed.advance(start)

    with pytest.raises(CorruptRecordError):
        followed.read(start, end)


# ----------------------------------------------------------------------------------------------------------- data loss


def test_segments_that_expire_before_they_are_read_are_an_error(followed: Followed) -> None:
    start = followed.advance(followed.first(), ReadLimits(max_records=2))
    followed.delete_first()

    with pytest.raises(ExpiredSegmentsError) as error:
        followed.advance(start)
    assert (error.value.begin, error.value.end) == (start.physical_offset, 2 * SIZE)
    assert "fail_on_data_loss=false (failOnDataLoss in Spark)" in str(error.value)


def test_a_segment_that_expires_after_it_was_read_is_not_missed(followed: Followed) -> None:
    start = followed.first()
    in_first = sum(offset < 2 * SIZE for offset in followed.offsets)
    end = followed.advance(start, ReadLimits(max_records=in_first))
    followed.delete_first()

    assert end.physical_offset == 2 * SIZE
    assert followed.restart().drain(end)[0] == [followed.offsets[in_first:]]


def test_a_stream_that_may_lose_data_goes_on_at_the_first_segment_left(
    followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    followed.restart(fail_on_data_loss=False)
    start = followed.advance(followed.first(), ReadLimits(max_records=2))
    followed.delete_first()
    with caplog.at_level(logging.WARNING, "store_core"):
        batches, _ = followed.drain(start)

    assert batches == [[offset for offset in followed.offsets if offset >= 2 * SIZE]]
    (warning,) = [record.getMessage() for record in caplog.records]
    assert f"from offset {start.physical_offset} to {2 * SIZE} are lost" in warning


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_segment_that_is_missing_at_the_position_is_not_skipped(
    followed: Followed, is_cut: bool, caplog: pytest.LogCaptureFixture
) -> None:
    in_first = [offset for offset in followed.offsets if offset < 2 * SIZE]
    start = followed.advance(followed.first(), ReadLimits(max_records=len(in_first) - is_cut))
    if is_cut:
        with (followed.root / "commitlog" / f"{SIZE:020d}").open("r+b") as file:
            file.truncate(start.physical_offset - SIZE)
    else:
        (followed.root / "commitlog" / f"{2 * SIZE:020d}").unlink()

    with pytest.raises(ExpiredSegmentsError, match=f"expected offset {start.physical_offset} in segment"):
        followed.restart().advance(start)
    batches, _ = followed.restart(fail_on_data_loss=False).drain(start)
    assert batches == [[offset for offset in followed.offsets if offset >= (2 if is_cut else 3) * SIZE]]
    assert "are lost" in caplog.text


def test_a_segment_that_is_missing_in_a_batch_is_logged(followed: Followed, caplog: pytest.LogCaptureFixture) -> None:
    (followed.root / "commitlog" / f"{2 * SIZE:020d}").unlink()
    followed.restart(fail_on_data_loss=False).drain(followed.first())

    assert f"segment {2 * SIZE:020d} is missing" in caplog.text


def truncate(followed: Followed, number: int, *bodies: bytes) -> None:
    """Move the log's end back to a record, as recovery does, and write others from there on, after a restart."""
    followed.log.truncate(followed.offsets[number])
    for body in bodies:
        followed.log.append(body)
    followed.write()


def test_a_log_that_was_truncated_behind_the_position_is_an_error(followed: Followed) -> None:
    end = followed.advance(followed.first())
    cut = followed.offsets[-2]
    truncate(followed, -2)

    with pytest.raises(TruncatedLogError) as error:
        followed.advance(end)
    assert (error.value.begin, error.value.end, error.value.resume_offset) == (cut, end.physical_offset, cut)


@pytest.mark.parametrize("bodies", [(b"four",), (b"a", b"b", b"c"), (b"fo", b"three", b"x" * 300, b"y" * 500)])
def test_records_written_after_a_truncation_are_read_once(
    followed: Followed, bodies: tuple[bytes, ...], caplog: pytest.LogCaptureFixture
) -> None:
    followed.restart(fail_on_data_loss=False)
    end = followed.advance(followed.first())
    truncate(followed, -2, *bodies)
    written = followed.offsets[-len(bodies) :]

    assert followed.drain(end)[0] == [written]
    assert followed.restart().drain(end, ReadLimits(max_records=1))[0] == [[offset] for offset in written]
    assert f"between the offsets {written[0]} and {end.physical_offset}" in caplog.text


def test_a_truncation_at_the_start_of_a_segment_is_no_other_log(followed: Followed) -> None:
    end = followed.advance(followed.first())
    first = next(number for number, offset in enumerate(followed.offsets) if offset == 4 * SIZE)
    truncate(followed, first - 1, b"x", b"y" * 300, b"z")

    with pytest.raises(TruncatedLogError):
        followed.advance(end)
    assert followed.restart(fail_on_data_loss=False).drain(end)[0] == [followed.offsets[-3:]]


def test_a_truncation_while_the_end_is_looked_for_is_recognised(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last record is there when the end is searched for, and gone when its position is taken."""
    end = followed.advance(followed.first())
    cut = followed.offsets[-1]
    is_finished = log_segments._is_finished

    def cut_and_see(view: SegmentView, start: int, stop: int) -> bool:
        if followed.offsets[-1] == cut:
            truncate(followed, -1)
        return is_finished(view, start, stop)

    monkeypatch.setattr(log_segments, "_is_finished", cut_and_see)

    assert followed.restart().first(at_end=True).physical_offset == cut
    monkeypatch.undo()
    with pytest.raises(TruncatedLogError):
        followed.advance(end)


def test_a_truncated_log_goes_on_where_it_ends(followed: Followed) -> None:
    followed.restart(fail_on_data_loss=False)
    end = followed.advance(followed.first())
    truncate(followed, -2)
    shorter = followed.advance(end)
    record = followed.log.append(b"new")
    followed.write()

    assert shorter.physical_offset == record.physical_offset
    assert followed.read(end, shorter) == []
    assert followed.drain(shorter)[0] == followed.drain(end)[0] == [[record.physical_offset]]


def test_a_batch_whose_end_was_truncated_is_not_replayed_as_if_it_were_whole(followed: Followed) -> None:
    start, middle = followed.first(), followed.advance(followed.first(), TEN)
    end = followed.advance(middle)
    truncate(followed, -2, b"four")

    with pytest.raises(TruncatedLogError):
        followed.read(middle, end)
    assert followed.read(start, middle) == followed.offsets[:10]
    assert followed.restart(fail_on_data_loss=False).read(middle, end) == followed.offsets[10:-1]


def test_another_store_at_the_path_is_an_error(followed: Followed, tmp_path: Path) -> None:
    end = followed.advance(followed.first())
    other = Followed(tmp_path / "other", SIZE)
    other.log.append_all(*[b"other"] * 30, topic="others")
    other.write()
    other.restart()

    with pytest.raises(ReplacedStoreError, match="another log is there"):
        other.advance(end)
    assert other.restart(fail_on_data_loss=False).drain(end)[0] == [other.offsets]


@pytest.mark.parametrize(
    "found",
    [
        None,
        [],
        {},
        {"physicalOffset": -1, "segment": "0"},
        {"physicalOffset": True, "segment": "0"},
        {"physicalOffset": 2**63, "segment": "0"},
        {"physicalOffset": 5, "segment": 0},
        {"physicalOffset": 5, "segment": "0", "lastRecord": {"physicalOffset": 0, "size": "9"}},
        {
            "physicalOffset": 5,
            "segment": "0",
            "lastRecord": {"physicalOffset": 0, "size": 9, "storeTimestamp": 0, "headCrc": 0},
        },
    ],
)
def test_a_position_that_is_none_is_refused(found: object) -> None:
    with pytest.raises(InvalidOptionError, match="expected"):
        LogPosition.from_json(found)


def test_a_position_is_readable(followed: Followed) -> None:
    shown = followed.advance(followed.first()).as_json()

    assert shown["physicalOffset"] == followed.log.end
    assert shown["segment"] == f"{4 * SIZE:020d}"
    assert isinstance(shown["lastRecord"], dict)
    assert shown["lastRecord"]["storeTimestamp"] == followed.log.records[-1].store_timestamp
