# SPDX-License-Identifier: Apache-2.0
"""Limits of a get that depend on what is in memory, and units whose records are gone, on made-up queues and logs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pytest

from store_core import MessageStoreConfig
from store_core.queue.consume_queue_unit import UNIT_DTYPE
from store_core.store.get_message import GetMessageResult, GetMessageStatus, MessageGetter

if TYPE_CHECKING:
    from store_core.format.filter.message_selector import MessageFilter
    from store_core.format.release import Release
    from store_core.queue.consume_queue_unit import UnitArray

RELEASES: Final[tuple[Release, ...]] = ("4.3", "4.9", "5.3")
FILE: Final = 10_000
"""Bytes of a segment of the log."""
FOREVER: Final = 1 << 40


@dataclass
class Queue:
    """Units in files of `per_file`."""

    units: list[tuple[int, int, int]]
    per_file: int = 10_000
    ext: object = None
    unit_dtype: ClassVar = UNIT_DTYPE
    min_offset_in_queue: ClassVar = 0

    @property
    def max_offset_in_queue(self) -> int:
        return len(self.units)

    def get_index_buffer(self, offset: int) -> UnitArray:
        return np.array(self.units[offset : self.roll_next_file(offset)], UNIT_DTYPE)

    def roll_next_file(self, offset: int) -> int:
        return offset + self.per_file - offset % self.per_file


@dataclass
class Log:
    """Records of whatever size a unit says, but for those that are gone."""

    max_offset: int = 0
    gone: set[int] = field(default_factory=set)

    def get_message(self, physical_offset: int, size: int) -> memoryview | None:
        return None if physical_offset in self.gone else memoryview(bytes(size))

    def roll_next_file(self, physical_offset: int) -> int:
        return physical_offset + FILE - physical_offset % FILE


class Nothing:
    """A filter that no unit passes."""

    def is_matched_by_consume_queue(self, _tags_code: int | None, _unit: object = None) -> bool:
        return False

    def is_matched_by_commit_log(self, _record: memoryview) -> bool:
        raise AssertionError("a record is read")


def small(count: int, size: int = 100) -> list[tuple[int, int, int]]:
    return [(number * size, size, 0) for number in range(count)]


def get(
    queue: Queue,
    most: int = 32,
    *,
    log: Log | None = None,
    memory: int = FOREVER,
    wanted: MessageFilter | None = None,
    **settings: Any,  # noqa: ANN401 -- those of a store
) -> GetMessageResult:
    log = log or Log(max_offset=sum(size for _, size, _ in queue.units))
    getter = MessageGetter(MessageStoreConfig(**settings), log, memory)  # type: ignore[arg-type]  # it has what is needed
    return getter.get(queue, 0, most, wanted)  # type: ignore[arg-type]  # likewise


# ---- how far it looks, how much it returns


@pytest.mark.parametrize("release", RELEASES)
def test_a_unit_of_a_huge_size_overflows_the_bytes_of_a_get_and_does_not_end_it(release: Release) -> None:
    units = [*small(4), (400, 2**31 - 1, 0)]

    result = get(Queue(units), log=Log(1_000, gone={400}), release=release)

    assert (GetMessageStatus.FOUND, 4, 5) == (result.status, result.message_count, result.next_begin_offset)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("most", "settings", "following"),
    [(32, {}, 800), (800, {}, 800), (900, {}, 900), (32, {"max_filter_message_size": 40}, 32), (1, {}, 800)],
    ids=str,
)
def test_get_looks_at_16000_bytes_of_units_or_as_many_as_messages_are_wanted(
    release: Release, most: int, settings: dict[str, Any], following: int
) -> None:
    result = get(Queue(small(1000)), most, wanted=Nothing(), release=release, **settings)

    assert (GetMessageStatus.NO_MATCHED_MESSAGE, following) == (result.status, result.next_begin_offset)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("size", "most", "memory", "returned"),
    [
        (100, 31, FOREVER, 31),
        (100, 100, FOREVER, 32),
        (100, 100, 0, 8),
        (262_144 // 4, 100, FOREVER, 4),
        (262_144 // 4 + 1, 100, FOREVER, 3),
        (65_536 // 4, 100, 0, 4),
        (65_536 // 4 + 1, 100, 0, 3),
        (300_000, 100, FOREVER, 1),
        (300_000, 100, 0, 1),
        (100, 0, FOREVER, 1),
    ],
)
def test_get_returns_as_much_as_its_limits_allow_and_always_one_message(
    release: Release, size: int, most: int, memory: int, returned: int
) -> None:
    result = get(Queue(small(50, size)), most, memory=memory, release=release)

    assert (returned, returned * size, returned) == (
        result.message_count,
        result.buffer_total_size,
        result.next_begin_offset,
    )


@pytest.mark.parametrize("release", RELEASES)
def test_limits_of_memory_and_disk_are_configured(release: Release) -> None:
    queue = Queue(small(50))
    counts: dict[str, Any] = {"max_transfer_count_on_message_in_memory": 5, "max_transfer_count_on_message_in_disk": 3}
    sizes: dict[str, Any] = {
        "max_transfer_bytes_on_message_in_memory": 700,
        "max_transfer_bytes_on_message_in_disk": 200,
    }

    assert [5, 3, 7, 2] == [
        get(queue, memory=memory, release=release, **settings).message_count
        for settings in (counts, sizes)
        for memory in (FOREVER, 0)
    ]


# ---- what counts as in memory


@pytest.mark.parametrize(
    ("ratio", "physical_offset", "expected"),
    [(40, 9600, True), (40, 9599, False), (40, 10_000, True), (75, 9250, True), (75, 9249, False)],
)
def test_what_lies_within_a_share_of_the_memory_from_the_logs_end_is_in_memory(
    ratio: int, physical_offset: int, expected: bool
) -> None:
    config = MessageStoreConfig(access_message_in_memory_max_ratio=ratio)
    getter = MessageGetter(config, Log(), 1000)  # type: ignore[arg-type]  # it is not asked

    assert expected is getter.is_in_memory(physical_offset, 10_000)


@pytest.mark.parametrize("release", RELEASES)
def test_each_record_has_the_limits_of_where_it_lies(release: Release) -> None:
    """The ninth record is in memory, so the limit for those on disk does not end the get."""
    units = small(12)
    log = Log(max_offset=1200)
    on_disk = get(Queue(units), log=log, memory=900, release=release)
    in_memory = get(Queue(units), log=log, memory=1000, release=release)

    assert (8, 12) == (on_disk.message_count, in_memory.message_count)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(("memory", "expected"), [(1000, False), (997, True)])
def test_slave_is_suggested_if_the_last_record_looked_at_is_not_in_memory(
    release: Release, memory: int, expected: bool
) -> None:
    result = get(Queue(small(2)), log=Log(max_offset=500), memory=memory, release=release)

    assert (2, expected) == (result.message_count, result.suggest_pulling_from_slave)


# ---- records that are gone


def test_get_of_5_goes_on_in_the_queues_next_file_if_told_to_and_asks_for_the_records_anew() -> None:
    log = Log(max_offset=2 * FILE, gone={0, 100})
    queue = Queue([(0, 100, 0), (100, 100, 0), (200, 100, 0)], per_file=2)
    one = get(queue, log=log, travel_cq_file_num_when_get_message=1)
    two = get(queue, log=log, travel_cq_file_num_when_get_message=2)

    assert (GetMessageStatus.MESSAGE_WAS_REMOVING, 2) == (one.status, one.next_begin_offset)
    assert (GetMessageStatus.FOUND, [2], 3) == (two.status, two.message_queue_offsets, two.next_begin_offset)
