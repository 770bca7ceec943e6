# SPDX-License-Identifier: Apache-2.0
"""Where a queue begins and ends: after a restart, a truncated log, deleted files; units of files are read as asked."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from store_core.files.overlay_file_system import OverlayFile, OverlayFileSystem
from store_core.queue.consume_queue.batch_consume_queue import BatchConsumeQueue
from store_core.queue.consume_queue.consume_queue import ConsumeQueue, PutUnits, QueueServices
from store_core.queue.consume_queue.queue_search import BoundaryType, LogTimes
from store_core.queue.consume_queue_unit import BATCH_UNIT_SIZE, CQ_STORE_UNIT_SIZE, FileUnits, batch_units
from store_core.queue.queue_path import QueueRules
from store_core.store.get_message import queue_units
from tests.store_core.fakes import FakeClock, FaultyFileSystem
from tests.store_core.queue.consume_queues import (
    FILE_SIZE,
    RELEASES,
    UNITS,
    QueueMaker,
    Unit,
    put_all,
    records,
    state_of,
    units_in,
    write_files,
)

if TYPE_CHECKING:
    from store_core.files.file_system import FileSystem
    from store_core.format.release import Release


Triple = tuple[int, int, int]
BLANK: Final[Triple] = (0, 2**31 - 1, 0)
ZERO: Final[Triple] = (0, 0, 0)


@pytest.fixture
def maker(tmp_path: Path) -> QueueMaker:
    return QueueMaker(tmp_path / "T" / "0")


def triples(count: int, first: int = 0) -> list[Triple]:
    return [unit[:3] for unit in records(count, first)]


def opened(maker: QueueMaker, units: list[Triple]) -> ConsumeQueue:
    write_files(maker.directory, units)
    return maker.opened()


def is_valid(unit: Triple) -> bool:
    return unit[0] >= 0 and unit[1] > 0


# ---- recovery

any_units = st.lists(
    st.one_of(
        st.builds(lambda size: (5000, size, 1), st.integers(1, 900)),
        st.sampled_from([BLANK, (2**63 - 1, 5, 0), (7, 9, -(2**63))]),
    ),
    min_size=1,
    max_size=55,
)


@pytest.mark.parametrize("release", RELEASES)
@given(any_units, st.lists(st.tuples(st.integers(0, 54), st.sampled_from([ZERO, (-1, 5, 1), (5, 0, 1), (5, -9, 1)]))))
@example([(5000, 1, 1)] * 4 * UNITS, [(UNITS, ZERO)])
@example([(5000, 1, 1)] * 5 * UNITS, [(3, ZERO), (25, ZERO)])
def test_a_queue_ends_at_the_first_invalid_unit_of_its_last_three_files(
    release: Release, units: list[Triple], damage: list[tuple[int, Triple]]
) -> None:
    for index, unit in damage:
        if index < len(units):
            units[index] = unit
    with tempfile.TemporaryDirectory() as directory:
        maker = QueueMaker(Path(directory, "0"), release)
        queue = opened(maker, units)

        file_count = -(-len(units) // UNITS)
        end, covered = end_of(units, file_count, release)
        assert (end, covered) == (queue.max_offset_in_queue, queue.max_physical_offset)
        assert end * CQ_STORE_UNIT_SIZE == queue.mapped_file_queue.flushed_where
        # What was after the end is gone. If files are gone, another restart reads earlier ones.
        state = state_of(queue)
        again = end_of(units[:end], min(file_count, end // UNITS + 1), release)
        queue = maker.opened()
        assert again == (queue.max_offset_in_queue, queue.max_physical_offset)
        assert again != (end, covered) or state == state_of(queue)


def end_of(units: list[Triple], file_count: int, release: Release) -> tuple[int, int]:
    """Find the end in the last three files, and what the last unit before it covers; -1 if none was looked at."""
    looked_at = max(0, file_count - 3) * UNITS
    padded = units + [ZERO] * (file_count * UNITS - len(units))
    end = next((index for index in range(looked_at, len(padded)) if not is_valid(padded[index])), len(padded))
    if end == looked_at:
        return end, -1
    start, size, _ = padded[end - 1]
    return end, start if release == "4.3" else (start + size + 2**63) % 2**64 - 2**63


def test_recovery_tells_what_it_drops(maker: QueueMaker) -> None:
    units = triples(3 * UNITS)
    units[12] = (-5, 7, 0)
    write_files(maker.directory, units)
    queue = maker.new()
    queue.load()
    (note,) = queue.recover()

    assert f"{FILE_SIZE:020d}" in note
    assert "position -5 and size 7" in note
    assert "1 later files" in note
    assert [0, FILE_SIZE] == list(maker.file_bytes())


def test_units_dropped_by_recovery_are_erased(maker: QueueMaker) -> None:
    units = triples(UNITS)
    units[4] = ZERO
    queue = opened(maker, units)
    queue.clear_tail()
    assert bytes(6 * CQ_STORE_UNIT_SIZE) == maker.file_bytes()[0][4 * CQ_STORE_UNIT_SIZE :]

    # RocketMQ finds the units 5 to 9 again here.
    put_all(queue, [Unit(9000, 100, 0, 4)])
    assert 5 == maker.opened().max_offset_in_queue


# ---- truncation


@pytest.mark.parametrize(
    ("release", "end", "count", "covered"),
    [
        # Units 0 to 24 point to 1000, 1100, ... 3400, and the log ends at 3500.
        ("5.3", 3500, 25, 3500),
        ("5.3", 3401, 25, 3500),
        ("5.3", 3400, 24, 3400),
        ("5.3", 3000, 20, 3000),
        ("5.3", 2999, 20, 3000),
        ("5.3", 1001, 1, 1100),
        ("5.3", 1000, 0, 1000),
        ("5.3", 0, 0, 0),
        ("4.9", 3400, 24, 3400),
        ("4.9", 1000, 0, 1000),
        ("4.3", 3500, 25, 3400),
        ("4.3", 3400, 24, 3300),
        ("4.3", 1000, 0, 999),
        ("4.3", 0, 0, -1),
    ],
)
def test_units_that_point_behind_the_log_are_dropped(
    tmp_path: Path, release: Release, end: int, count: int, covered: int
) -> None:
    maker = QueueMaker(tmp_path / "0", release)
    queue = opened(maker, triples(25))
    notes = queue.truncate_dirty_logic_files(end)

    assert (count, covered) == (queue.max_offset_in_queue, queue.max_physical_offset)
    assert (count < 25) == bool(notes)
    assert triples(count) == [unit[1:] for unit in units_in(queue)]
    if count:
        assert count == maker.opened().max_offset_in_queue
        assert not b"".join(maker.file_bytes().values())[count * CQ_STORE_UNIT_SIZE :].strip(b"\x00")
    else:
        assert {} == maker.file_bytes()


@pytest.mark.parametrize(("release", "covered"), [("4.3", 4999), ("4.9", 5000), ("5.3", 5000)])
def test_a_queue_without_files_keeps_where_the_log_ends(tmp_path: Path, release: Release, covered: int) -> None:
    queue = QueueMaker(tmp_path, release).new()
    queue.truncate_dirty_logic_files(5000)

    assert covered == queue.max_physical_offset


def test_dropped_units_do_not_come_back(maker: QueueMaker) -> None:
    """With RocketMQ 5.3.3 the units 4 to 8 come back, and point into records of other queues."""
    queue = opened(maker, triples(9))
    queue.truncate_dirty_logic_files(1300)
    put_all(queue, [Unit(5000, 100, 0, 3)])

    assert 4 == maker.opened().max_offset_in_queue


# ---- the minimum


def queue_from(maker: QueueMaker, units: list[Triple], min_logic_offset: int = 0) -> ConsumeQueue:
    queue = opened(maker, units)
    queue.min_logic_offset = min_logic_offset
    return queue


@pytest.mark.parametrize("release", RELEASES)
@given(count=st.integers(1, 35), min_physical_offset=st.integers(0, 5000))
def test_the_minimum_is_the_first_unit_that_points_into_the_log(
    release: Release, count: int, min_physical_offset: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        queue = queue_from(QueueMaker(Path(directory, "0"), release), triples(count))
        queue.correct_min_offset(min_physical_offset)

        live = max(0, -(-(min_physical_offset - 1000) // 100))
        if live < min(count, UNITS):
            expected = live
        elif live >= count and release == "5.3":
            expected = count  # all units point below the log: the queue keeps its numbers
        else:
            expected = 0  # none in the first file does: until that is deleted, nothing changes
        assert expected == queue.min_offset_in_queue


@pytest.mark.parametrize(
    ("min_physical_offset", "deleted"),
    [(1000 + 100 * 9, 0), (1001 + 100 * 9, 1), (1001 + 100 * 19, 2), (10**6, 3)],
)
def test_files_go_with_their_last_unit_but_never_the_last_file(
    maker: QueueMaker, min_physical_offset: int, deleted: int
) -> None:
    queue = queue_from(maker, triples(4 * UNITS))

    assert deleted == queue.delete_expired_file(min_physical_offset)
    assert 4 - deleted == len(maker.file_bytes())


@pytest.mark.parametrize("release", ["4.3", "4.9"])
def test_pre_fill_counts_as_live_before_5_0_even_in_the_process_that_made_it(tmp_path: Path, release: Release) -> None:
    queue = QueueMaker(tmp_path, release).new()
    put_all(queue, records(3, 13))
    assert 13 == queue.min_offset_in_queue

    queue.correct_min_offset(0)
    assert 10 == queue.min_offset_in_queue


def test_a_new_queue_keeps_its_first_index_until_the_next_restart(maker: QueueMaker) -> None:
    queue = maker.new()
    put_all(queue, records(3, 13))
    queue.correct_min_offset(0)
    assert 13 == queue.min_offset_in_queue

    again = maker.opened()
    again.correct_min_offset(0)
    assert 12 == again.min_offset_in_queue  # the blank that halving met


@pytest.mark.parametrize(
    ("min_logic_offset", "min_physical_offset", "expected"),
    [
        (9 * 20, 1000, 9),  # the minimum points into the log already
        (9 * 20, 10**6, 15),  # all is gone
        (3 * 20, 1400, 4),
        (15 * 20, 10**6, 15),  # it is the end already
        (12 * 20, 2250, 12),  # after the first file: not read
    ],
)
def test_5_3_starts_at_the_present_minimum(
    maker: QueueMaker, min_logic_offset: int, min_physical_offset: int, expected: int
) -> None:
    queue = queue_from(maker, triples(15), min_logic_offset)
    queue.correct_min_offset(min_physical_offset)

    assert expected == queue.min_offset_in_queue


@pytest.mark.parametrize("release", RELEASES)
def test_an_empty_last_file_does_not_stop_the_search(tmp_path: Path, release: Release) -> None:
    """RocketMQ 5.3.3 throws: it looks at the unit before the file's first."""
    queue = queue_from(QueueMaker(tmp_path / "0", release), [*triples(UNITS), ZERO])
    queue.correct_min_offset(1400)

    assert 4 == queue.min_offset_in_queue


@pytest.mark.parametrize(("release", "begins"), [("5.5", 40), ("5.5.1", 0)])
def test_a_queue_without_files_begins_at_0_again_from_5_5_1_on(release: Release, begins: int, tmp_path: Path) -> None:
    queue = QueueMaker(tmp_path, release).new()
    queue.min_logic_offset = 40
    queue.correct_min_offset(1000)

    assert begins == queue.min_logic_offset


_UNITS: Final = 20_000
_FILES: Final = 3
_RULES: Final = QueueRules(
    consume_queue_file_size=_UNITS * CQ_STORE_UNIT_SIZE, batch_consume_queue_file_size=_UNITS * BATCH_UNIT_SIZE
)
_LOG: Final = LogTimes(lambda physical_offset, _: physical_offset // 100, 0)
"""A log in which the record at 100 * n is stored at n."""


def _queue(directory: Path, disk: FileSystem, *, is_batch: bool) -> ConsumeQueue | BatchConsumeQueue:
    services = QueueServices(_RULES, disk, FakeClock())
    return (BatchConsumeQueue if is_batch else ConsumeQueue)("T", 0, directory, services)


def _write(directory: Path, *, is_batch: bool) -> None:
    """Write a queue in which unit n is of the record at 100 * n, of one message, stored at n."""
    numbers = np.arange(_FILES * _UNITS)
    ones = np.ones(len(numbers), np.int64)
    queue = _queue(directory, FaultyFileSystem(), is_batch=is_batch)
    if isinstance(queue, ConsumeQueue):
        units = PutUnits.of(100 * numbers, 100 * ones, ones, numbers, queue.rules.features)
        assert queue.put(units, 0, len(numbers))
    else:
        columns = {"physical_offset": 100 * numbers, "store_size": 100 * ones, "tags_code": ones}
        columns |= {"store_timestamp": numbers, "msg_base_offset": numbers, "batch_size": ones}
        assert queue.put_units(batch_units(columns))


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_question_reads_few_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_batch: bool) -> None:
    _write(tmp_path, is_batch=is_batch)
    read: list[int] = []
    view = OverlayFile._view

    def counted(file: OverlayFile, begin: int, end: int) -> memoryview:
        read.append(end - begin)
        return view(file, begin, end)

    monkeypatch.setattr(OverlayFile, "_view", counted)
    queue = _queue(tmp_path, OverlayFileSystem(FaultyFileSystem(), FakeClock()), is_batch=is_batch)
    queue.load()
    queue.recover()
    read.clear()
    for number in (7, _UNITS + 70, _FILES * _UNITS - 1):
        assert 100 * number == next(queue_units(queue, number) or iter(())).physical_offset
        assert number == queue.get_offset_in_queue_by_time(number, BoundaryType.LOWER, _LOG)
    last = queue.last_unit
    assert last is not None
    assert _FILES * _UNITS - 1 == last.queue_offset
    queue.correct_min_offset(100 * 70)
    assert 70 == queue.min_offset_in_queue
    assert max(read) <= 1024 * queue.unit_dtype.itemsize
    assert sum(read) <= _UNITS * queue.unit_dtype.itemsize / 10


def test_a_unit_beyond_the_last_is_an_error(tmp_path: Path) -> None:
    _write(tmp_path, is_batch=False)
    queue = _queue(tmp_path, FaultyFileSystem(), is_batch=False)
    queue.load()
    queue.recover()
    units = FileUnits(queue.mapped_file_queue.first_mapped_file, begin=(_UNITS - 2) * CQ_STORE_UNIT_SIZE)

    assert [100 * (_UNITS - 2), 100 * (_UNITS - 1)] == [int(units[at]["physical_offset"]) for at in (0, 1)]
    assert 0 == len(units[5:])
    assert 100 * (_UNITS - 1) == int(units[-1]["physical_offset"])
    with pytest.raises(IndexError):
        units[2]
    assert 0 == len(FileUnits(None))
