# SPDX-License-Identifier: Apache-2.0
"""Putting units into a queue one by one, and reading them."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from store_core.queue.consume_queue.consume_queue_ext import ConsumeQueueExt, address_of
from store_core.queue.consume_queue_unit import CQ_STORE_UNIT_SIZE
from store_core.queue.dispatch.dispatch_batch import DispatchRequest
from tests.store_core.fakes import descriptors
from tests.store_core.queue.consume_queues import (
    FILE_SIZE,
    RELEASES,
    UNITS,
    QueueMaker,
    Unit,
    put_all,
    put_bulk,
    records,
    state_of,
    units_in,
)

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.format.release import Release
    from store_core.queue.consume_queue.consume_queue import ConsumeQueue


@pytest.fixture
def maker(tmp_path: Path) -> QueueMaker:
    return QueueMaker(tmp_path / "T" / "0")


@pytest.fixture
def queue(maker: QueueMaker) -> ConsumeQueue:
    return maker.new()


def stored(queue: ConsumeQueue) -> list[tuple[int, int, int]]:
    return [unit[1:] for unit in units_in(queue)]


def request(unit: Unit) -> DispatchRequest:
    return DispatchRequest("T", 0, unit.physical_offset, unit.size, unit.tags_code, 1, unit.queue_offset)


# ---- the unit


def test_a_file_size_that_is_no_multiple_of_the_unit_is_rounded_up(maker: QueueMaker) -> None:
    maker.rules = replace(maker.rules, consume_queue_file_size=FILE_SIZE - 19)

    assert FILE_SIZE == maker.new().mapped_file_queue.file_size


# ---- putting


@pytest.mark.parametrize(
    ("release", "covered", "next_size", "is_put"),
    [
        ("4.3", 1000, 50, False),  # it starts where the last one starts
        ("4.3", 1000, 500, False),
        ("4.9", 1100, 100, False),
        ("4.9", 1100, 101, True),  # it ends after the last one's end
        ("5.3", 1100, 100, False),
        ("5.3", 1100, 101, True),
    ],
)
def test_a_covered_record_is_not_put_again(
    tmp_path: Path, release: Release, covered: int, next_size: int, is_put: bool
) -> None:
    queue = QueueMaker(tmp_path, release).new()
    queue.put_message_position_info(1000, 100, 0, 0)

    assert covered == queue.max_physical_offset
    assert queue.put_message_position_info(1000, next_size, 0, 1)
    assert 1 + is_put == queue.max_offset_in_queue


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("files", [1, 2])
def test_a_repetition_leaves_no_empty_file_behind_a_full_one(tmp_path: Path, release: Release, files: int) -> None:
    """RocketMQ makes one: 5.3.3 then throws while it loads the queue, and 4.9.7 loads it."""
    for number, put in enumerate((put_all, put_bulk)):
        maker = QueueMaker(tmp_path / f"{number}", release)
        queue = maker.new()
        put(queue, [*records(files * UNITS), Unit(10**6, 100, 0, 4), Unit(10**6 + 100, 100, 0, UNITS - 1)])

        assert files * UNITS == queue.max_offset_in_queue
        assert [number * FILE_SIZE for number in range(files)] == list(maker.file_bytes())


def test_a_unit_behind_a_gap_goes_to_the_end_and_is_counted(queue: ConsumeQueue) -> None:
    put_all(queue, records(5))
    put_all(queue, records(2, 8))

    assert [unit[:3] for unit in records(2, 8)] == stored(queue)[5:]
    assert 2 == queue.misplaced


def test_a_record_whose_end_overflows_is_taken_for_a_covered_one(queue: ConsumeQueue) -> None:
    assert queue.put_message_position_info(2**63 - 1, 10, 0, 0)
    assert 0 == queue.max_offset_in_queue


def test_the_largest_index_fills_one_file_and_then_the_queue_is_full(queue: ConsumeQueue, maker: QueueMaker) -> None:
    last = (2**63 - 1) // FILE_SIZE * UNITS - 1
    assert queue.put_message_position_info(9000, 100, 0, last)

    assert [(last - UNITS + 1) * CQ_STORE_UNIT_SIZE] == list(maker.file_bytes())
    assert last + 1 == queue.max_offset_in_queue
    assert not queue.put_message_position_info(9100, 100, 0, 0)
    assert 1 == len(maker.file_bytes())


# ---- failures


def test_a_unit_is_tried_thirty_times_a_second_apart(queue: ConsumeQueue, maker: QueueMaker) -> None:
    put_all(queue, records(2))
    before = state_of(queue)
    maker.disk.fail("write", errno.EIO, times=1000)

    assert not queue.put_message_position_info_wrapper(request(records(3)[2]))
    assert [1.0] * 30 == maker.clock.slept
    assert 1 == maker.errors
    assert before == state_of(queue)


def test_where_a_file_has_the_place_of_the_directory_one_try_is_enough(tmp_path: Path) -> None:
    maker = QueueMaker(tmp_path / "taken")
    maker.directory.write_bytes(b"")

    assert not maker.new().put_message_position_info_wrapper(request(records(1)[0]))
    assert maker.clock.slept == []
    assert maker.errors == 1


def test_a_unit_that_failed_is_put_by_a_later_try(queue: ConsumeQueue, maker: QueueMaker) -> None:
    units = records(3)
    put_all(queue, units[:2])
    maker.disk.fail("write", errno.ENOSPC, times=4)

    assert queue.put_message_position_info_wrapper(request(units[2]))
    assert ([1.0] * 4, 0) == (maker.clock.slept, maker.errors)
    assert [unit[:3] for unit in units] == stored(queue)


@pytest.mark.parametrize("operation", ["open", "grow", "write"])
def test_a_queue_that_could_not_begin_begins_by_a_later_try(tmp_path: Path, operation: str) -> None:
    sound, failing = QueueMaker(tmp_path / "sound"), QueueMaker(tmp_path / "failing")
    failing.disk.fail(operation, errno.ENOSPC, times=2)
    queues = sound.new(), failing.new()
    for queue in queues:
        assert queue.put_message_position_info_wrapper(request(records(1, 13)[0]))

    assert state_of(queues[0]) == state_of(queues[1])
    assert sound.file_bytes() == failing.file_bytes()


def test_nothing_is_tried_while_queues_must_not_be_written(queue: ConsumeQueue, maker: QueueMaker) -> None:
    maker.is_writable = False

    assert not queue.put_message_position_info_wrapper(request(records(1)[0]))
    assert (0, 1, []) == (queue.max_offset_in_queue, maker.errors, maker.clock.slept)


# ---- the extension


def extension(maker: QueueMaker, file_size: int = 100) -> ConsumeQueueExt:
    """Return an extension with four units per file."""
    rules = replace(maker.rules, ext_file_size=file_size)
    return ConsumeQueueExt(maker.directory.with_name("ext"), rules, maker.disk)


@pytest.mark.parametrize(("file_size", "tags_code"), [(100, address_of(0)), (20, 7)])
def test_the_tags_code_gives_way_to_an_address_if_a_file_has_room(
    maker: QueueMaker, file_size: int, tags_code: int
) -> None:
    queue = maker.new(ext=extension(maker, file_size))
    queue.put_message_position_info_wrapper(request(Unit(1000, 100, 7, 0)))

    assert [(1000, 100, tags_code)] == stored(queue)


def reopened(maker: QueueMaker) -> tuple[ConsumeQueue, MappedFileQueue, tuple[str, ...]]:
    """Open a queue with its extension; return it, the extension's files, and what was told."""
    ext = extension(maker)
    queue = maker.new(ext=ext)
    notes = queue.load()
    queue.recover()
    return queue, ext.mapped_file_queue, notes


def test_what_is_put_where_a_queue_was_cut_over_a_border_is_flushed(maker: QueueMaker) -> None:
    queue = maker.new(ext=extension(maker))
    for unit in records(13):
        queue.put_message_position_info_wrapper(request(unit))
    queue.close()
    (maker.directory / f"{FILE_SIZE:020d}").write_bytes(bytes(FILE_SIZE))
    queue, extended, _ = reopened(maker)
    for index in (10, 5):
        (unit,) = records(1, index)
        if index == 5:
            queue.truncate_dirty_logic_files(unit.physical_offset)
        queue.put_message_position_info_wrapper(request(unit))
        for _ in range(4):
            queue.flush(0)
        files = (*queue.mapped_file_queue.mapped_files, *extended.mapped_files)

        assert index + 1 == queue.max_offset_in_queue
        assert all(file.flushed_position == file.wrote_position for file in files)


def test_the_extension_is_opened_cut_flushed_closed_and_deleted_with_its_queue(maker: QueueMaker) -> None:
    before, queue = descriptors(), maker.new(ext=extension(maker))
    for unit in records(12):
        queue.put_message_position_info_wrapper(request(unit))
    queue.close()
    assert before == descriptors()
    odd = maker.directory.with_name("ext") / "7"
    odd.mkdir()
    _, files, notes = reopened(maker)
    odd.rmdir()
    assert ([True], 280) == ([str(odd) in note for note in notes], files.max_wrote_position)

    last = maker.directory / f"{FILE_SIZE:020d}"
    last.write_bytes(last.read_bytes()[:CQ_STORE_UNIT_SIZE].ljust(FILE_SIZE, b"\0"))  # the unit 11 is lost
    queue, files, _ = reopened(maker)
    assert (0, 260) == (files.min_offset, files.max_wrote_position)
    queue.correct_min_offset(1900)
    assert 200 == files.min_offset
    queue.put_message_position_info_wrapper(request(records(1, 11)[0]))
    assert 60 == files.mapped_files[-1].flushed_position
    assert not queue.flush(0)
    assert 80 == files.mapped_files[-1].flushed_position
    queue.truncate_dirty_logic_files(0)
    assert 280 == files.max_wrote_position
    (maker.directory / f"{0:020d}").write_bytes(bytes(FILE_SIZE))  # no unit has an address
    queue, files, _ = reopened(maker)
    assert 280 == files.max_wrote_position
    queue.destroy()
    assert not maker.directory.with_name("ext").exists()


# ---- reading


def test_an_index_buffer_copies_nothing_and_outlives_its_file(queue: ConsumeQueue) -> None:
    put_all(queue, records(2))
    units = queue.get_index_buffer(0)
    assert units is not None
    queue.destroy()

    found = units[:]
    assert not found.flags.owndata
    assert not found.flags.writeable
    assert [1000, 1100] == found["physical_offset"].tolist()


def test_an_iteration_crosses_files_and_holes_between_them(maker: QueueMaker) -> None:
    put_all(maker.new(), records(5 * UNITS + 1))
    (maker.directory / f"{FILE_SIZE:020d}").unlink()
    queue = maker.opened()

    expected = [unit for unit in range(5 * UNITS + 1) if unit // UNITS != 1]
    assert expected == [unit.queue_offset for unit in units_in(queue)]
    assert [10, 20, 30] == [queue.roll_next_file(index) for index in (0, 10, 29)]


# ---- life


@pytest.mark.parametrize("recovers", [True, False])
def test_a_queue_does_not_grow_into_units_of_a_file_it_did_not_load(tmp_path: Path, recovers: bool) -> None:
    maker = QueueMaker(tmp_path, "4.3")
    put_all(maker.new(), records(25))
    (tmp_path / "00000000000000000100").mkdir()  # ends the list of files
    queue = maker.opened()
    assert UNITS == queue.max_offset_in_queue

    if not recovers:
        queue.clear_tail()
    put_all(queue, records(1, UNITS))
    if recovers:
        queue.clear_tail()
    assert bytes(FILE_SIZE - CQ_STORE_UNIT_SIZE) == (tmp_path / f"{FILE_SIZE:020d}").read_bytes()[CQ_STORE_UNIT_SIZE:]
