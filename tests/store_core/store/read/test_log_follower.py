# SPDX-License-Identifier: Apache-2.0
"""A log is followed in batches: each record is in exactly one, whatever is appended, torn or lost meanwhile."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import (
    CorruptRecordError,
    ExpiredSegmentsError,
    InvalidOptionError,
    MissingSegmentsError,
    ReplacedStoreError,
    SegmentLayoutError,
    StoreNotFoundError,
    TruncatedLogError,
)
from store_core.format.columnar.chain import chain
from store_core.store.read.follow import log_segments
from store_core.store.read.follow.log_follower import ReadLimits
from store_core.store.read.follow.log_segments import LogPosition
from store_core.store.read.read_messages import read_messages
from tests.budgets import budget
from tests.builders import BODY_AT, CRC_AT, MAGIC_AT, LogBuilder, Record
from tests.store_core.store.read.followed import SIZE, Followed

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from store_core.format.record.scan import Framing, Scan
    from store_core.format.segment_view import SegmentView

TEN = ReadLimits(max_records=10)


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    """Return a store of three closed segments and one that is being written; the first was deleted long ago."""
    followed = Followed(tmp_path / "store", SIZE)
    followed.log.fill(3)
    followed.log.append_all(b"one", b"two", b"three")
    followed.write(preallocated=1)
    return followed


# -------------------------------------------------------------------------------------------------------------- growth


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

    def watched(
        raw: npt.NDArray[np.uint8], begin: int, end: int, start_offset: int, framing: Framing, *, lanes: int | None
    ) -> Scan:
        begins.append((start_offset + begin) % SIZE)
        return chain(raw, begin, end, start_offset, framing, lanes=lanes)

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


TAGGED = Record(b"y" * 60, properties={"TAGS": "a", "b": "c"})
OF_A_TOPIC = Record(b"body", topic="a-topic", properties={})


@pytest.mark.parametrize(
    ("record", "missing"),
    [
        *((TAGGED, TAGGED.size - written) for written in (1, 8, 40, 88, 95, 110)),
        *((OF_A_TOPIC, missing) for missing in (3, 5, 7)),  # the end of the topic's name
    ],
)
def test_a_record_that_is_half_written_is_not_there_yet(followed: Followed, record: Record, missing: int) -> None:
    before = followed.advance(followed.first())
    placed = followed.log.append(record)
    torn, then = finished_later(followed, placed, missing)

    assert torn == before
    assert then == [[placed.physical_offset]]


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


# ----------------------------------------------------------------------------------------------------- starting points


@pytest.mark.parametrize("number", [0, 1, 7, 8, 9, -1])
@pytest.mark.parametrize("before", [0, 1, 50])
def test_a_stream_from_an_offset_starts_at_the_next_record(followed: Followed, number: int, before: int) -> None:
    offset = followed.offsets[number] - before
    followed.restart(starting_offsets=max(offset, 0))

    assert followed.drain(followed.first())[0] == [[each for each in followed.offsets if each >= offset]]


@pytest.mark.parametrize("is_preallocated", [False, True])
def test_a_stream_from_an_offset_after_the_end_is_refused(followed: Followed, is_preallocated: bool) -> None:
    followed.write(preallocated=is_preallocated)
    end = followed.log.end

    with pytest.raises(InvalidOptionError, match=rf"expected at most {end}, where the log ends in .*, found {end + 1}"):
        followed.restart(starting_offsets=end + 1).first()
    assert followed.restart(starting_offsets=end).first() == followed.first(at_end=True)


@pytest.mark.parametrize("number", [0, 3, 7, 8, 15, -1])
@pytest.mark.parametrize("preallocated", [0, 2])
def test_a_stream_from_a_time_has_what_was_stored_since(followed: Followed, number: int, preallocated: int) -> None:
    followed.write(preallocated=preallocated)
    time = followed.log.records[number].store_timestamp
    followed.restart(starting_timestamp=time)

    assert followed.drain(followed.first())[0] == [
        [record.physical_offset for record in followed.log.records if record.store_timestamp >= time]
    ]


# -------------------------------------------------------------------------------------------------------------- limits


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


# ----------------------------------------------------------------------------------------------------------- fixed ends


def test_reading_ends_where_it_was_fixed_though_that_segment_has_expired(followed: Followed) -> None:
    followed.restart(fail_on_data_loss=False)
    start = followed.advance(followed.first(), TEN)
    followed.follower.fix_end()
    followed.log.fill(2)
    followed.log.append(b"later")
    followed.write()
    for _ in range(5):
        followed.delete_first()

    assert sum(map(len, followed.drain(start)[0])) == 0


@pytest.mark.parametrize("is_all_read", [False, True])
def test_reading_to_an_end_that_was_truncated_ends_where_the_log_then_ends(
    followed: Followed, is_all_read: bool
) -> None:
    followed.restart(fail_on_data_loss=False)
    middle = followed.advance(followed.first(), TEN)
    start = followed.advance(middle) if is_all_read else middle
    followed.follower.fix_end()
    followed.truncate(-2, b"new")
    first = followed.drain(start, ReadLimits(max_records=1 if is_all_read else 100))
    record = followed.log.append(b"newer")
    followed.write()

    assert first[0] == [followed.offsets[-2:-1] if is_all_read else followed.offsets[10:-1]]
    assert followed.drain(first[1])[0] == []
    assert followed.restart().drain(first[1])[0] == [[record.physical_offset]]


# ------------------------------------------------------------------------------------------------------------- replays


def test_damage_in_a_batch_ends_the_stream_when_it_is_read(followed: Followed) -> None:
    followed.log.flip(followed.offsets[3] + MAGIC_AT)
    followed.write()
    start = followed.first()
    end = followed.advance(start)

    with pytest.raises(CorruptRecordError):
        followed.read(start, end)


# ----------------------------------------------------------------------------------------------------------- data loss


def test_segments_that_expire_before_they_are_read_are_an_error_or_the_first_one_left_is_next(
    followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    start = followed.advance(followed.first(), ReadLimits(max_records=2))
    followed.delete_first()

    with pytest.raises(ExpiredSegmentsError) as error:
        followed.advance(start)
    assert (error.value.begin, error.value.end) == (start.physical_offset, 2 * SIZE)
    assert "failOnDataLoss=false" in str(error.value)
    with caplog.at_level(logging.WARNING, "store_core"):
        batches, _ = followed.restart(fail_on_data_loss=False).drain(start)
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


@pytest.mark.parametrize("is_left", [False, True])
@pytest.mark.parametrize("most", [2, 3, 1000])
def test_a_hole_ends_or_not_by_the_mode_wherever_a_batch_ends(
    followed: Followed, most: int, is_left: bool, caplog: pytest.LogCaptureFixture
) -> None:
    hole = followed.root / "commitlog" / f"{2 * SIZE:020d}"
    hole.unlink()
    if is_left:
        hole.touch()  # an empty file
    left = [offset for offset in followed.offsets if not 2 * SIZE <= offset < 3 * SIZE]
    with pytest.raises((MissingSegmentsError, SegmentLayoutError), match="mode=DROPMALFORMED or PERMISSIVE"):
        followed.drain(followed.first(), ReadLimits(max_records=most))
    followed.restart(mode="DROPMALFORMED")

    assert left == [
        each for batch in followed.drain(followed.first(), ReadLimits(max_records=most))[0] for each in batch
    ]
    assert ("too short" if is_left else "missing") in caplog.text


def test_odd_files_are_told_once(followed: Followed, caplog: pytest.LogCaptureFixture) -> None:
    (followed.root / "commitlog" / "abc").touch()
    followed.drain(followed.first(), ReadLimits(max_records=2))

    assert 1 == caplog.text.count("ignored the file")


def test_a_log_of_empty_files_is_none_yet(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").touch()

    with pytest.raises(StoreNotFoundError, match="no segment has any bytes yet: ignored the empty file"):
        Followed(tmp_path, SIZE).first()


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_last_record_that_was_changed_in_its_place_is_named_and_the_next_ones_are_read(
    followed: Followed, caplog: pytest.LogCaptureFixture, *, is_damaged: bool
) -> None:
    end = followed.advance(followed.first(), ReadLimits(max_records=3))
    last = end.last_record
    assert last is not None
    followed.log.patch(last.physical_offset + (MAGIC_AT if is_damaged else CRC_AT), b"\x77")
    followed.write()

    with pytest.raises(ReplacedStoreError, match="the last record that was read was changed in its place"):
        followed.restart().advance(end)
    assert [followed.offsets[3:]] == followed.restart(fail_on_data_loss=False).drain(end)[0]
    assert f"Reading goes on at offset {followed.offsets[3]}" in caplog.text


def test_a_log_that_was_truncated_behind_the_position_is_an_error(followed: Followed) -> None:
    end = followed.advance(followed.first())
    cut = followed.offsets[-2]
    followed.truncate(-2)

    with pytest.raises(TruncatedLogError) as error:
        followed.advance(end)
    assert (error.value.begin, error.value.end, error.value.resume_offset) == (cut, end.physical_offset, cut)


@pytest.mark.parametrize("bodies", [(b"four",), (b"a", b"b", b"c"), (b"fo", b"three", b"x" * 300, b"y" * 500)])
def test_records_written_after_a_truncation_are_read_once(
    followed: Followed, bodies: tuple[bytes, ...], caplog: pytest.LogCaptureFixture
) -> None:
    followed.restart(fail_on_data_loss=False)
    end = followed.advance(followed.first())
    followed.truncate(-2, *bodies)
    written = followed.offsets[-len(bodies) :]

    assert followed.drain(end)[0] == [written]
    assert followed.restart().drain(end, ReadLimits(max_records=1))[0] == [[offset] for offset in written]
    assert f"between the offsets {written[0]} and {end.physical_offset}" in caplog.text


@pytest.mark.parametrize(("before", "expired"), [(12, 0), (11, 5), (9, 0), (7, 0), (7, 4), (2, 0)])
def test_a_truncation_by_many_segments_is_no_other_log(tmp_path: Path, before: int, expired: int) -> None:
    followed = Followed(tmp_path / "store")
    followed.log = LogBuilder(SIZE)
    followed.log.fill(12)
    followed.log.append(b"the last one")
    followed.write()
    end = followed.advance(followed.first())
    followed.truncate(sum(offset < before * SIZE for offset in followed.offsets) - 1, b"a" * 400, b"b" * 400)
    for number, path in enumerate(sorted((followed.root / "commitlog").iterdir())):
        if number < expired or path.name not in followed.log.segments():
            path.unlink()  # a recovery deletes the segments after the cut

    with pytest.raises(TruncatedLogError):
        followed.restart().advance(end)
    assert followed.restart(fail_on_data_loss=False).drain(end)[0] == [followed.offsets[-2:]]


def test_a_position_with_one_anchor_goes_on(followed: Followed) -> None:
    end = followed.advance(followed.first())
    found = end.as_json()
    old = {name: value for name, value in found.items() if name != "anchorRecords"}
    position = LogPosition.from_json(old | {"anchorRecord": end.anchor_records[1].as_json()})
    followed.truncate(-2)

    assert LogPosition.from_json(old | {"anchorRecord": None}).anchor_records == ()
    with pytest.raises(TruncatedLogError):
        followed.advance(position)


def test_a_truncation_while_the_end_is_looked_for_is_recognised(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last record is there when the end is searched for, and gone when its position is taken."""
    end = followed.advance(followed.first())
    cut = followed.offsets[-1]
    is_finished = log_segments._is_finished

    def cut_and_see(view: SegmentView, start: int) -> bool:
        if followed.offsets[-1] == cut:
            followed.truncate(-1)
        return is_finished(view, start)

    monkeypatch.setattr(log_segments, "_is_finished", cut_and_see)

    assert followed.restart().first(at_end=True).physical_offset == cut
    monkeypatch.undo()
    with pytest.raises(TruncatedLogError):
        followed.advance(end)


def test_a_batch_whose_end_was_truncated_is_not_replayed_as_if_it_were_whole(followed: Followed) -> None:
    start, middle = followed.first(), followed.advance(followed.first(), TEN)
    end = followed.advance(middle)
    followed.truncate(-2, b"four")

    with pytest.raises(TruncatedLogError):
        followed.read(middle, end)
    assert followed.read(start, middle) == followed.offsets[:10]
    assert followed.restart(fail_on_data_loss=False).read(middle, end) == followed.offsets[10:-1]


@pytest.mark.parametrize("kind", ["expired", "truncated", "replaced"])
def test_a_loss_of_a_whole_batch_is_told_once(
    followed: Followed, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start = followed.advance(followed.first(), ReadLimits(max_records=2))
    end = followed.advance(start, ReadLimits(max_records=2))
    if kind == "expired":
        followed.delete_first()
    elif kind == "truncated":
        followed.truncate(1, b"other")
    else:
        followed = Followed(tmp_path / "other", SIZE)
        followed.log.append_all(*[b"other"] * 30, topic="others")
        followed.write()
    followed.restart(fail_on_data_loss=False)

    followed.follower.ranges(start, end)
    followed.follower.ranges(start, end)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert f"{end.physical_offset if kind == 'truncated' else start.physical_offset}" in warning


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
        {"physicalOffset": 5, "segment": "0", "anchorRecords": {}},
        {
            "physicalOffset": 150,
            "segment": "0",
            "lastRecord": {"physicalOffset": 0, "size": 100, "storeTimestamp": 0, "headCrc": 0},
        },
        {"physicalOffset": 5, "segment": "0", "anchorRecords": [{"physicalOffset": 0, "size": "9"}]},
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
