# SPDX-License-Identifier: Apache-2.0
"""The queue of a batch topic: units that cover several messages, found by search."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.queue.consume_queue.batch_consume_queue import BatchConsumeQueue
from store_core.queue.consume_queue.queue_search import BoundaryType
from store_core.queue.consume_queue_unit import BATCH_UNIT_DTYPE, BATCH_UNIT_SIZE, batch_units
from store_core.queue.dispatch.dispatch_batch import DispatchRequest
from tests.store_core.queue.consume_queues import QueueMaker, units_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_UNITS = 4
_FILE_SIZE = _UNITS * BATCH_UNIT_SIZE


class _Unit(NamedTuple):
    """What a queue stores about a record."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    base: int
    batch_size: int


def _new(maker: QueueMaker) -> BatchConsumeQueue:
    return BatchConsumeQueue("B", 0, maker.directory, maker.services)


def _opened(maker: QueueMaker) -> BatchConsumeQueue:
    queue = _new(maker)
    queue.load()
    queue.recover()
    return queue


@pytest.fixture
def maker(tmp_path: Path) -> QueueMaker:
    return QueueMaker(tmp_path)


def _records(sizes: Sequence[int], start: int = 1000) -> list[_Unit]:
    """Make the units of records with so many messages each."""
    bases = [0, *np.cumsum(sizes).tolist()]
    return [
        _Unit(start + 100 * i, 100, i, 10 * i, base, size)
        for i, (base, size) in enumerate(zip(bases, sizes, strict=False))
    ]


def _put(queue: BatchConsumeQueue, units: Iterable[_Unit]) -> list[bool]:
    return [
        queue.put_message_position_info_wrapper(
            DispatchRequest(
                "B",
                0,
                unit.physical_offset,
                unit.size,
                unit.tags_code,
                unit.store_timestamp,
                unit.base,
                message_base_offset=unit.base,
                batch_size=unit.batch_size,
            )
        )
        for unit in units
    ]


def _put_together(queue: BatchConsumeQueue, units: Sequence[_Unit]) -> bool:
    names = ("physical_offset", "store_size", "tags_code", "store_timestamp", "msg_base_offset", "batch_size")
    columns = np.array(units, np.int64).reshape(-1, len(_Unit._fields)).T
    return queue.put_units(batch_units(dict(zip(names, columns, strict=True))))


def _state(queue: BatchConsumeQueue) -> dict[str, Any]:
    return {
        "bounds": (queue.min_offset_in_queue, queue.max_offset_in_queue),
        "max_physical_offset": queue.max_physical_offset,
        "min_logic_offset": queue.min_logic_offset,
        "files": [(file.path.name, file.path.read_bytes()) for file in queue.mapped_file_queue.mapped_files],
        "end": queue.mapped_file_queue.max_offset,
    }


def _first_base(queue: BatchConsumeQueue, queue_offset: int) -> int | None:
    units = queue.get_index_buffer(queue_offset)
    return None if units is None else int(units[0]["msg_base_offset"])


def test_an_empty_queue_begins_at_minus_one_and_ends_at_0(maker: QueueMaker) -> None:
    queue = _new(maker)

    assert (queue.min_offset_in_queue, queue.max_offset_in_queue) == (-1, 0)
    assert queue.last_unit is None
    assert queue.get_index_buffer(0) is None
    assert list(units_in(queue)) == []
    assert queue.roll_next_file(3) == 0


def test_a_record_that_starts_no_later_than_the_last_is_there_already(maker: QueueMaker) -> None:
    queue = _new(maker)
    first, second = _records([2, 3])

    assert _put(queue, [first, second, second, first]) == [True] * 4
    assert [unit.queue_offset for unit in units_in(queue)] == [0, 2]
    assert queue.max_physical_offset == second.physical_offset


_UNIT = st.builds(
    _Unit,
    st.integers(-200, 3000),
    st.integers(-1, 200),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 100),
    st.integers(-2, 60),
    st.integers(-2, 9),
)


@given(st.lists(_UNIT, max_size=30), st.integers(1, 12))
def test_many_units_at_once_are_as_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, units: list[_Unit], cut: int
) -> None:
    one_by_one = _new(QueueMaker(tmp_path_factory.mktemp("a")))
    bulk = _new(QueueMaker(tmp_path_factory.mktemp("b")))
    results = _put(one_by_one, units)
    parts = [units[first : first + cut] for first in range(0, len(units), cut)]
    together = [_put_together(bulk, part) for part in parts]

    assert all(results) == all(together)
    assert _state(one_by_one) == _state(bulk)


@given(st.lists(st.integers(1, 5), max_size=20), st.integers(-2, 110))
def test_an_index_finds_the_unit_that_covers_it(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], queue_offset: int
) -> None:
    queue = _new(QueueMaker(tmp_path_factory.mktemp("q")))
    units = _records(sizes)
    _put_together(queue, units)
    covering = [unit.base for unit in units if unit.base <= queue_offset < unit.base + unit.batch_size]

    assert _first_base(queue, queue_offset) == (covering[0] if covering else None)
    assert [unit.queue_offset for unit in units_in(queue, queue_offset)] == [
        unit.base for unit in units if covering and unit.base >= covering[0]
    ]


def test_an_index_in_a_hole_finds_the_unit_before_it(maker: QueueMaker) -> None:
    queue = _new(maker)
    _put(queue, [_Unit(1000, 100, 0, 0, 5, 2), _Unit(1100, 100, 0, 0, 20, 1)])

    assert [_first_base(queue, index) for index in (4, 5, 6, 12, 20, 21)] == [None, 5, 5, 5, 20, None]


@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 15, 17])
def test_a_restart_finds_the_same_queue(maker: QueueMaker, count: int) -> None:
    queue = _new(maker)
    _put(queue, _records([2] * count))

    assert _state(queue) == _state(_opened(maker))


def _damage(maker: QueueMaker, index: int, name: str, value: int) -> None:
    """Set one field of a unit on disk."""
    path = maker.directory / f"{index // _UNITS * _FILE_SIZE:020d}"
    units = np.frombuffer(path.read_bytes(), BATCH_UNIT_DTYPE).copy()
    units[name][index % _UNITS] = value
    path.write_bytes(units.tobytes())


@pytest.mark.parametrize(
    ("name", "value"),
    [("physical_offset", -1), ("store_size", 0), ("msg_base_offset", -1), ("batch_size", 0), ("batch_size", -3)],
)
def test_a_unit_that_can_not_be_ends_the_queue(maker: QueueMaker, name: str, value: int) -> None:
    _put(_new(maker), _records([2] * 15))
    _damage(maker, 9, name, value)
    queue = _opened(maker)

    assert (queue.min_offset_in_queue, queue.max_offset_in_queue) == (0, 18)
    assert queue.max_physical_offset == 1000 + 100 * 8
    assert [path.name for path in sorted(maker.directory.iterdir())] == [f"{i * _FILE_SIZE:020d}" for i in range(3)]


def test_what_was_dropped_is_told(maker: QueueMaker) -> None:
    _put(_new(maker), _records([1] * 10))
    _damage(maker, 5, "store_size", -7)
    queue = _new(maker)
    queue.load()

    (note,) = queue.recover()

    assert "ends at byte 46, where a unit has position 1500 and size -7; 1 later files dropped" in note


def test_units_behind_the_end_are_not_revived(maker: QueueMaker) -> None:
    _put(_new(maker), _records([1] * 4))
    _damage(maker, 1, "store_size", 0)
    queue = _opened(maker)
    queue.clear_tail()
    _put(queue, [_Unit(1100, 100, 0, 0, 1, 1)])

    assert _opened(maker).max_offset_in_queue == 2


@given(st.integers(1, 14), st.integers(900, 2600))
def test_cut_queues_hold_what_lies_before_the_cut(
    tmp_path_factory: pytest.TempPathFactory, count: int, physical_offset: int
) -> None:
    maker = QueueMaker(tmp_path_factory.mktemp("q"))
    units = _records([3] * count)
    queue = _new(maker)
    _put_together(queue, units)
    notes = queue.truncate_dirty_logic_files(physical_offset)
    kept = [unit for unit in units if unit.physical_offset < physical_offset]
    bounds = (kept[0].base, kept[-1].base + 3) if kept else (-1, 0)

    assert [unit.queue_offset for unit in units_in(queue)] == [unit.base for unit in kept]
    assert (queue.min_offset_in_queue, queue.max_offset_in_queue) == bounds
    assert queue.max_physical_offset == (kept[-1].physical_offset if kept else physical_offset - 1)
    assert bool(notes) == (len(kept) < count)
    reopened = _opened(maker)
    assert (reopened.min_offset_in_queue, reopened.max_offset_in_queue) == bounds


def test_a_last_file_of_zeros_keeps_one_unit_when_it_is_cut(maker: QueueMaker) -> None:
    _put(_new(maker), _records([1] * 4))
    (maker.directory / f"{_FILE_SIZE:020d}").write_bytes(bytes(_FILE_SIZE))
    queue = _opened(maker)
    queue.truncate_dirty_logic_files(5000)

    assert queue.mapped_file_queue.max_offset == _FILE_SIZE + BATCH_UNIT_SIZE
    assert queue.max_offset_in_queue == 0


@pytest.mark.parametrize(("min_physical_offset", "first"), [(0, 0), (1000, 0), (1001, 2), (1350, 8), (9999, 8)])
def test_the_first_index_is_found_in_the_first_file_only(
    maker: QueueMaker, min_physical_offset: int, first: int
) -> None:
    queue = _new(maker)
    _put(queue, _records([2] * 6))
    queue.correct_min_offset(min_physical_offset)

    assert queue.min_offset_in_queue == first


def test_files_of_which_every_unit_is_gone_are_deleted_but_for_the_last(maker: QueueMaker) -> None:
    queue = _new(maker)
    _put(queue, _records([2] * 10))

    assert queue.delete_expired_file(1300) == 0
    assert queue.delete_expired_file(1301) == 1
    assert queue.min_offset_in_queue == 8
    assert queue.delete_expired_file(99_999) == 1
    assert (queue.min_offset_in_queue, queue.max_offset_in_queue) == (20, 20)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(-1, 25))
def test_a_time_finds_the_first_unit_stored_then_or_later(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], timestamp: int
) -> None:
    """Except after a file's last unit: then that one, even if the next file's first unit would fit better."""
    queue = _new(QueueMaker(tmp_path_factory.mktemp("q")))
    times = np.cumsum(steps).tolist()
    units = [unit._replace(store_timestamp=time) for unit, time in zip(_records([2] * len(times)), times, strict=True)]
    _put_together(queue, units)
    files = [units[first : first + _UNITS] for first in range(0, len(units), _UNITS)]
    chosen = next((file for file in reversed(files) if file[0].store_timestamp <= timestamp), files[0])
    later = [unit for unit in chosen if unit.store_timestamp >= timestamp]
    expected = chosen[-1] if timestamp >= chosen[-1].store_timestamp else later[0]

    assert queue.get_offset_in_queue_by_time(timestamp, BoundaryType.LOWER) == expected.base


def test_after_thirty_tries_the_queues_count_as_broken(maker: QueueMaker) -> None:
    queue = _new(maker)
    maker.disk.fail("write", errno.EIO, times=100)

    assert _put(queue, _records([1, 1])) == [False, False]
    assert maker.clock.slept == [1.0] * 30
    assert maker.errors == 2
    assert queue.max_physical_offset == -1
    assert queue.max_offset_in_queue == 0
