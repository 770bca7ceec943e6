# SPDX-License-Identifier: Apache-2.0
"""Which messages and status a get returns: rule by rule, on made-up queues and logs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pytest

from store_core import MessageSelector, MessageStoreConfig
from store_core.queue.consume_queue.consume_queue_ext import is_ext_address
from store_core.queue.consume_queue_unit import UNIT_DTYPE
from store_core.store.get_message import GetMessageResult, GetMessageStatus, MessageGetter

if TYPE_CHECKING:
    from store_core.format.release import Release
    from store_core.queue.consume_queue_unit import UnitArray

RELEASES: Final[tuple[Release, ...]] = ("4.3", "4.9", "5.3")
FILE: Final = 10_000
"""Bytes of a segment of the log."""
FOREVER: Final = 1 << 40


@dataclass
class Queue:
    """Units in files of `per_file`; those of one file may be missing."""

    units: list[tuple[int, int, int]]
    first: int = 0
    per_file: int = 10_000
    hole: int = -1
    ext: object = None
    unit_dtype: ClassVar = UNIT_DTYPE

    @property
    def min_offset_in_queue(self) -> int:
        return self.first

    @property
    def max_offset_in_queue(self) -> int:
        return self.first + len(self.units) if self.units else 0

    def get_index_buffer(self, offset: int) -> UnitArray | None:
        if offset // self.per_file == self.hole:
            return None
        end = self.roll_next_file(offset) - self.first
        return np.array(self.units[offset - self.first : end], UNIT_DTYPE)

    def roll_next_file(self, offset: int) -> int:
        return offset + self.per_file - offset % self.per_file


@dataclass
class Log:
    """Records of whatever size a unit says, but for those that are gone."""

    max_offset: int = 0
    gone: set[int] = field(default_factory=set)
    asked: list[int] = field(default_factory=list)

    def get_message(self, physical_offset: int, size: int) -> memoryview | None:
        self.asked.append(physical_offset)
        return None if physical_offset in self.gone else memoryview(bytes(size))

    def roll_next_file(self, physical_offset: int) -> int:
        return physical_offset + FILE - physical_offset % FILE


@dataclass
class Filter:
    """Selects messages by their position in the log, from the unit or from the record."""

    by_queue: bool = True
    by_log: bool = True

    def is_matched_by_consume_queue(self, _tags_code: int | None, _unit: object = None) -> bool:
        return self.by_queue

    def is_matched_by_commit_log(self, _record: memoryview) -> bool:
        return self.by_log


def small(count: int, size: int = 100) -> list[tuple[int, int, int]]:
    return [(number * size, size, 0) for number in range(count)]


def get(
    queue: Queue,
    offset: int = 0,
    most: int = 32,
    wanted: Any = None,  # noqa: ANN401 -- a filter of any kind
    *,
    log: Log | None = None,
    memory: int = FOREVER,
    **settings: Any,  # noqa: ANN401 -- those of a store
) -> GetMessageResult:
    log = log or Log(max_offset=sum(size for _, size, _ in queue.units))
    getter = MessageGetter(MessageStoreConfig(**settings), log, memory)  # type: ignore[arg-type]  # it has what is needed
    return getter.get(queue, offset, most, wanted)  # type: ignore[arg-type]  # likewise


# ---- offsets


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("first", "count", "offset", "status", "following"),
    [
        (0, 0, 0, "NO_MESSAGE_IN_QUEUE", 0),
        (0, 0, 5, "NO_MESSAGE_IN_QUEUE", 0),
        (3, 5, 2, "OFFSET_TOO_SMALL", 3),
        (3, 5, -1, "OFFSET_TOO_SMALL", 3),
        (3, 5, 8, "OFFSET_OVERFLOW_ONE", 8),
        (3, 5, 9, "OFFSET_OVERFLOW_BADLY", 8),
        (3, 5, 3, "FOUND", 8),
        (3, 5, 7, "FOUND", 8),
    ],
)
def test_offset_outside_of_the_queue_has_a_status_and_the_next_one(
    release: Release, first: int, count: int, offset: int, status: str, following: int
) -> None:
    result = get(Queue(small(count), first), offset, release=release)

    assert (status, following) == (result.status.name, result.next_begin_offset)
    assert (first, first + count if count else 0) == (result.min_offset, result.max_offset)


@pytest.mark.parametrize(("release", "following"), [("4.3", 0), ("4.9", 5), ("5.3", 5)])
def test_offset_far_behind_a_queue_from_0_on_starts_anew_up_to_4_9_3(release: Release, following: int) -> None:
    result = get(Queue(small(5)), 9, release=release)

    assert (GetMessageStatus.OFFSET_OVERFLOW_BADLY, following) == (result.status, result.next_begin_offset)


@pytest.mark.parametrize("release", RELEASES)
def test_offset_in_a_missing_file_of_the_queue_goes_on_in_the_next_file(release: Release) -> None:
    result = get(Queue(small(30), per_file=10, hole=1), 14, release=release)

    assert (GetMessageStatus.OFFSET_FOUND_NULL, 20, 0) == (
        result.status,
        result.next_begin_offset,
        result.message_count,
    )


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
    result = get(Queue(small(1000)), 0, most, Filter(by_queue=False), release=release, **settings)

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
    result = get(Queue(small(50, size)), 0, most, memory=memory, release=release)

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


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("places", "gone", "asked", "status", "offsets"),
    [
        ([0, 100, FILE - 100, FILE, FILE + 100], {0, 100, FILE - 100}, [0, FILE, FILE + 100], "FOUND", [3, 4]),
        ([0, 100, FILE], {0, 100, FILE}, [0, FILE], "MESSAGE_WAS_REMOVING", []),
        # a unit that points back may belong to a log that was truncated and written again
        ([0, FILE, 200], {0}, [0, FILE, 200], "FOUND", [1, 2]),
        ([0, FILE], {FILE}, [0, FILE], "FOUND", [0]),
    ],
)
def test_records_of_a_deleted_segment_are_passed_over_until_one_is_there_without_asking_for_each(
    release: Release, places: list[int], gone: set[int], asked: list[int], status: str, offsets: list[int]
) -> None:
    log = Log(max_offset=2 * FILE, gone=gone)
    result = get(Queue([(place, 100, 0) for place in places]), log=log, release=release)

    assert asked == log.asked
    assert (status, offsets) == (result.status.name, result.message_queue_offsets)
    assert len(places) == result.next_begin_offset


@pytest.mark.parametrize(("release", "offsets", "following"), [("4.3", [0, 3], 4), ("4.9", [0, 3], 4), ("5.3", [0], 2)])
def test_unit_that_is_passed_over_ends_a_full_batch_in_5_only(
    release: Release, offsets: list[int], following: int
) -> None:
    units = [(2 * FILE, 600, 0), (0, 10, 0), (100, 900, 0), (2 * FILE + 600, 100, 0)]
    limit: dict[str, Any] = {"max_transfer_bytes_on_message_in_memory": 1000}
    result = get(Queue(units), log=Log(max_offset=3 * FILE, gone={0}), release=release, **limit)

    assert (offsets, following) == (result.message_queue_offsets, result.next_begin_offset)


def test_get_of_5_goes_on_in_the_queues_next_file_if_told_to_and_asks_for_the_records_anew() -> None:
    log = Log(max_offset=2 * FILE, gone={0, 100})
    queue = Queue([(0, 100, 0), (100, 100, 0), (200, 100, 0)], per_file=2)
    one = get(queue, log=log, travel_cq_file_num_when_get_message=1)
    two = get(queue, log=log, travel_cq_file_num_when_get_message=2)

    assert (GetMessageStatus.MESSAGE_WAS_REMOVING, 2) == (one.status, one.next_begin_offset)
    assert (GetMessageStatus.FOUND, [2], 3) == (two.status, two.message_queue_offsets, two.next_begin_offset)


# ---- filters


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("rejects", "asked"), [(Filter(by_log=False), [0, 100, 200, 300, 400]), (Filter(by_queue=False), [])]
)
def test_record_that_the_filter_rejects_is_left_out_and_not_read_if_its_unit_is(
    release: Release, rejects: Filter, asked: list[int]
) -> None:
    log = Log(max_offset=500)
    result = get(Queue(small(5)), 0, 32, rejects, log=log, release=release)

    assert asked == log.asked
    assert (GetMessageStatus.NO_MATCHED_MESSAGE, 0, 5) == (
        result.status,
        result.message_count,
        result.next_begin_offset,
    )


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("gone", "status"), [({0}, GetMessageStatus.NO_MATCHED_MESSAGE), ({FILE}, GetMessageStatus.MESSAGE_WAS_REMOVING)]
)
def test_of_rejected_and_missing_records_the_last_gives_the_status(
    release: Release, gone: set[int], status: GetMessageStatus
) -> None:
    log = Log(max_offset=2 * FILE, gone=gone)
    result = get(Queue([(0, 100, 0), (FILE, 100, 0)]), 0, 32, Filter(by_log=False), log=log, release=release)

    assert status is result.status


# ---- extensions


@pytest.mark.parametrize(
    ("tags_code", "expected"),
    [(-(2**63), True), (-2_147_483_649, True), (-2_147_483_648, False), (0, False), (2**63 - 1, False)],
)
def test_addresses_lie_below_all_hashes_of_tags(tags_code: int, expected: bool) -> None:
    assert expected is is_ext_address(tags_code)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(("tags_code", "count"), [(-2_147_483_649, 1), (-2_147_483_648, 0), (2_598_919, 1)])
def test_unit_whose_extension_is_lost_matches_every_tag(release: Release, tags_code: int, count: int) -> None:
    """2598919 is the hash of TagA."""
    result = get(Queue([(0, 100, tags_code)]), 0, 32, MessageSelector.of("TAG", "TagA"), release=release)

    assert count == result.message_count
