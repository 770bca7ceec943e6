# SPDX-License-Identifier: Apache-2.0
"""Appended records reach queues and index while the store is open."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import BrokerConfig, DefaultMessageStore, SegmentLayoutError
from store_core.files.file_system import OsFileSystem
from store_core.files.machine import SystemClock
from store_core.files.mapped_file import file_name_of
from store_core.files.mapped_file_queue import MappedFileQueue
from store_core.files.segment_listing import SegmentPaths
from store_core.queue.dispatch.rocketmq_check import check_message_and_return_size
from store_core.queue.queue_path import QueueRules
from store_core.store.reput import FlushCheckpointService, FlushConsumeQueueService, ReputMessageService
from store_core.store.store_state import RunningFlag, StoreCheckpoint
from tests.budgets import budget
from tests.builders import LogBuilder, Record, blank_record
from tests.store_core.fakes import FakeClock, FaultyFileSystem
from tests.store_core.store.logs import FILE_SIZE, Listener, config, message

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from threading import Event

    from store_core.queue.dispatch.dispatch_batch import DispatchBatch, DispatchRequest
    from store_core.store.message_store_config import BrokerRole, Release

SIZE: Final = 600
RELEASES: Final[list[Release]] = ["4.3", "4.9", "5.3"]


# ---- the service against RocketMQ's loop


@dataclass
class Seen:
    """A dispatcher that records its requests."""

    requests: list[DispatchRequest] = field(default_factory=list)
    dispatched: int = 0

    def dispatch_batch(self, batch: DispatchBatch, *, gather: bool) -> None:
        assert not gather
        self.requests += batch.requests()
        self.dispatched += len(batch)

    def write_back(self) -> None:
        pass


def reput_by_the_book(
    queue: MappedFileQueue, rules: QueueRules, start: int, end: int, *, master: bool
) -> tuple[int, list[DispatchRequest]]:
    """Do as ``ReputMessageService.doReput`` does, record by record; `end` is where dispatching must stop."""
    seen: list[DispatchRequest] = []
    reput = max(start, queue.min_offset) if rules.release != "4.3" else start
    goes_on = reput < end
    while goes_on:
        file = queue.find_mapped_file_by_offset(reput, return_first=reput == 0)
        view = file.select(0) if file is not None else None
        position = reput % SIZE
        if file is None or view is None or position >= len(view):
            break
        reput, size, read = file.file_from_offset + position, len(view) - position, 0
        while read < size and goes_on and (rules.release != "5.3" or reput < end):
            check = check_message_and_return_size(view, position, len(view), rules)
            if rules.release == "5.3" and reput + check.size > end:
                return reput, seen
            if check.request is not None:
                seen.append(check.request)
                reput, read, position = reput + check.size, read + check.size, position + check.size
            elif check.is_success:
                reput, read = reput + SIZE - reput % SIZE, size
            elif check.size > 0:
                reput, position = reput + check.size, position + check.parsed
            else:
                goes_on = False
                reput += size - read if master else 0
        goes_on = goes_on and reput < end
    return reput, seen


@st.composite
def files(draw: st.DrawFn) -> tuple[dict[int, bytes], int]:
    """Draw a few files, some with damage, some missing, and how much of the last one is written."""
    found: dict[int, bytes] = {}
    first = draw(st.sampled_from([0, 3]))
    count = draw(st.integers(1, 4))
    for number in range(first, first + count):
        data = bytearray()
        for size in draw(st.lists(st.integers(0, 60), max_size=7)):
            record = bytearray(Record(b"x" * size, physical_offset=number * SIZE + len(data)).encode())
            if len(data) + len(record) + 8 > SIZE:
                break
            if draw(st.sampled_from([False] * 5 + [True])):
                at = draw(st.sampled_from([0, 2, 3, 4, 7, 36, 87, 88, len(record) - 1]))
                record[at] ^= draw(st.sampled_from([1, 2, 64, 128]))
            data += record
        data += blank_record(SIZE - len(data)) if draw(st.booleans()) else bytes(SIZE - len(data))
        found[number * SIZE] = bytes(data)
    if count > 2 and draw(st.booleans()):
        del found[(first + 1) * SIZE]
    return found, draw(st.integers(0, SIZE))


@budget(3)
@given(
    files(), st.sampled_from(RELEASES), st.booleans(), st.integers(0, 7 * SIZE), st.sampled_from([0, 0, 1, 90, SIZE])
)
def test_dispatching_goes_the_way_of_rocketmq(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: tuple[dict[int, bytes], int],
    release: Release,
    master: bool,
    start: int,
    held_back: int,
) -> None:
    directory = tmp_path_factory.mktemp("log")
    contents, wrote = drawn
    for offset, data in contents.items():
        directory.joinpath(file_name_of(offset)).write_bytes(data)
    queue = MappedFileQueue(SegmentPaths((directory,)), SIZE, OsFileSystem())
    queue.load(release)
    queue.mapped_files[-1].set_position(wrote)
    end = queue.max_offset - (held_back if release == "5.3" else 0)
    rules, seen = QueueRules(release=release), Seen()
    service = ReputMessageService(queue, seen, rules, FakeClock(), lambda: end, is_master=master)  # type: ignore[arg-type]  # it does what is needed
    service.reput_from_offset = start
    service.run_once()

    stopped, expected = reput_by_the_book(queue, rules, start, end, master=master)
    assert expected == seen.requests
    assert stopped == service.reput_from_offset


# ---- in a store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DefaultMessageStore]:
    with DefaultMessageStore.open(tmp_path, config()) as opened:
        yield opened


def test_reader_finds_what_was_put_before(store: DefaultMessageStore) -> None:
    for number in range(50):
        store.put_message(message(keys=["k"]))
        assert number + 1 == store.get_max_offset_in_queue("orders", 0)
    store.dispatch_now()

    assert 0 == store.dispatch_behind_bytes
    found = store.index_service.query_offset("orders", "k", 64, 0, 2**63 - 1).physical_offsets
    assert 50 == len(found)
    assert (0, 0) == (store.get_max_offset_in_queue("other", 0), store.get_min_offset_in_queue("other", 0))


class PatientClock(SystemClock):
    """A clock on which a service's pause ends only if the test ends it."""

    def wait(self, event: Event, seconds: float | None) -> bool:
        return super().wait(event, None if seconds is None or seconds >= 0.1 else seconds)


@pytest.mark.parametrize(
    "more",
    [
        {"release": "4.3"},
        {"release": "5.3"},
        {"flush_disk_type": "SYNC_FLUSH"},
        {"transient_store_pool_enable": True, "transient_store_pool_size": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("count", [1, 2])
def test_what_moves_the_logs_end_wakes_the_dispatching(tmp_path: Path, more: dict[str, Any], count: int) -> None:
    listener = Listener(enough=count)
    with DefaultMessageStore.open(tmp_path, config(**more), clock=PatientClock()) as store:
        store.reput_message_service.listeners.append(listener)
        if count == 1:
            store.put_message(message())
        else:
            store.append_batch(pa.table({"topic": ["orders"] * count, "body": [b"1", b"2"]}))

        assert listener.is_enough.wait(30)


def test_an_idle_dispatching_waits_for_a_wake_up_and_never_spins() -> None:
    clock, waits = FakeClock(), []
    service = ReputMessageService(None, Seen(), QueueRules(), clock, lambda: 0)  # type: ignore[arg-type]  # idle
    for _ in range(3):
        begin = clock.seconds
        service.pause()
        waits.append(clock.seconds - begin)

    assert [0.1] * 3 == pytest.approx(waits)


@pytest.mark.parametrize(("has_listener", "expected"), [(True, 0.002), (False, 0.02)])
def test_records_gather_longer_if_nobody_waits_for_them(has_listener: bool, expected: float) -> None:
    clock = FakeClock()
    service = ReputMessageService(None, Seen(), QueueRules(), clock, lambda: 100)  # type: ignore[arg-type]  # not run
    if has_listener:
        service.listeners.append(Listener(enough=1))
    service.wakeup()
    service.pause()

    assert pytest.approx(expected) == clock.seconds


@pytest.mark.parametrize(
    ("release", "role", "polls", "expected"),
    [
        ("4.3", "ASYNC_MASTER", True, 1),
        ("4.9", "SYNC_MASTER", True, 1),
        ("5.3", "ASYNC_MASTER", True, 1),
        ("4.3", "ASYNC_MASTER", False, 0),
        ("4.9", "ASYNC_MASTER", False, 0),
        ("5.3", "ASYNC_MASTER", False, 0),
        ("4.3", "SLAVE", True, 0),
        ("4.9", "SLAVE", True, 0),
        ("5.3", "SLAVE", True, 1),
        ("5.3", "SLAVE", False, 0),
    ],
)
def test_listeners_hear_with_long_polling_and_before_5_not_on_slaves(
    tmp_path: Path, release: Release, role: BrokerRole, polls: bool, expected: int
) -> None:
    listener, broker = Listener(enough=1), BrokerConfig(long_polling_enable=polls)
    with DefaultMessageStore.open(tmp_path, config(release=release, broker_role=role), broker=broker) as store:
        store.reput_message_service.listeners.append(listener)
        store.commit_log.put(message())  # as a slave's log grows: past the checks that refuse a producer's puts
        store.dispatch_now()
        store.close()

    assert expected == len(listener.arrived)


def test_light_queues_hear_of_their_messages(tmp_path: Path) -> None:
    listener = Listener(enough=3)
    light = config(enable_lmq=True, enable_multi_dispatch=True)
    with DefaultMessageStore.open(tmp_path, light) as store:
        store.reput_message_service.listeners.append(listener)
        store.put_message(message(queue_id=3, properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}))
        assert listener.is_enough.wait(30)

    assert [("orders", 3, 1), ("%LMQ%a", 0, 1), ("%LMQ%b", 0, 1)] == listener.arrived


def test_with_synchronous_flush_queues_never_run_ahead_of_the_disk(tmp_path: Path) -> None:
    disk = FaultyFileSystem()
    store = DefaultMessageStore.open(tmp_path, config(flush_disk_type="SYNC_FLUSH"), file_system=disk)
    store.put_message(message())
    assert 1 == store.get_max_offset_in_queue("orders", 0)
    disk.fail("sync", errno.EIO, times=100_000)
    store.put_message(message())
    assert (1, 2) == (
        store.get_max_offset_in_queue("orders", 0),
        store.get_max_offset_in_queue("orders", 0, committed=False),
    )
    disk.heal()
    store.close()

    assert (tmp_path / "abort").exists()


def test_closing_dispatches_what_is_left(tmp_path: Path) -> None:
    store = DefaultMessageStore.open(tmp_path, config())
    with store.reput_message_service.paused():
        for _ in range(30):
            store.put_message(message(b"x" * 300))
    store.close()

    with DefaultMessageStore.open(tmp_path, config(), read_only=True) as reader:
        assert 30 == reader.get_max_offset_in_queue("orders", 0)
        assert reader.recovery_report.last_exit_ok


def test_a_queue_that_can_not_be_written_ends_the_putting_and_leaves_abort(tmp_path: Path) -> None:
    (tmp_path / "consumequeue").mkdir()
    (tmp_path / "consumequeue" / "orders").write_bytes(b"in the way")
    clock = FakeClock()
    clock.while_waiting = lambda: None
    store = DefaultMessageStore.open(tmp_path, config())
    store.reput_message_service._clock = clock
    queue = store.consume_queue_store.find_or_create("orders", 0)
    queue._services = replace(queue._services, clock=clock)
    store.put_message(message())
    store.dispatch_now()

    assert store.running_flags.has(RunningFlag.WRITE_LOGICS_QUEUE_ERROR)
    assert not store.is_writeable
    store.close()
    assert (tmp_path / "abort").exists()


# ---- cutting


@pytest.mark.parametrize("release", RELEASES)
def test_what_lies_behind_the_end_of_a_cut_log_is_no_data_while_the_store_runs(
    tmp_path: Path, release: Release
) -> None:
    """RocketMQ leaves the bytes there; here they become zeros. Either way they are never returned."""
    with DefaultMessageStore.open(tmp_path, config(release=release)) as store:
        results = [store.put_message(message(b"x" * 500, keys=["k"])) for _ in range(5)]
        places = [result.append_message_result.wrote_offset for result in results]  # type: ignore[union-attr]  # they are ok
        store.dispatch_now()
        store.truncate_dirty_files(places[3])
        found = store.query_message("orders", "k", 64, 0, 2**63 - 1).messages

        assert [None, None] == [store.look_message_by_offset(place) for place in places[3:]]
        assert (places[:3], 3) == (
            [each.physical_offset for each in found],
            store.get_max_offset_in_queue("orders", 0),
        )
        assert not (tmp_path / "commitlog" / file_name_of(0)).read_bytes()[places[3] :].strip(b"\0")
    (tmp_path / "abort").touch()
    with DefaultMessageStore.open(tmp_path, config(release=release)) as store:
        assert (places[3], 3) == (store.max_physical_offset, store.get_max_offset_in_queue("orders", 0))


def test_start_of_4_9_refuses_to_wait_at_a_hole(tmp_path: Path) -> None:
    with DefaultMessageStore.open(tmp_path, config(release="4.9")) as store:
        for _ in range(20):
            store.put_message(message(b"x" * 900))
    (tmp_path / "commitlog" / file_name_of(FILE_SIZE)).unlink()
    for path in (tmp_path / "consumequeue" / "orders" / "0").iterdir():
        path.unlink()
    report = DefaultMessageStore.dry_run(tmp_path, config(release="4.9"))

    assert report.is_refused
    assert f"no bytes at {FILE_SIZE}" in report.refusal
    with pytest.raises(SegmentLayoutError, match="a segment is missing"):
        DefaultMessageStore.open(tmp_path, config(release="4.9"))
    assert DefaultMessageStore.dry_run(tmp_path, config(release="5.3")).refusal == ""


# ---- flushing


class Queues:
    """Queues that count their flushes."""

    def __init__(self, during: StoreCheckpoint) -> None:
        self.flushes: list[int] = []
        self._during = during

    def flush(self, least_pages: int) -> bool:
        self.flushes.append(least_pages)
        time, offset = self._during.last_put  # another thread dispatches meanwhile
        self._during.last_put = time + 5, offset + 100
        return False


def test_queues_are_flushed_by_pages_and_every_minute_thoroughly(tmp_path: Path) -> None:
    clock, disk = FakeClock(), FaultyFileSystem()
    checkpoint = StoreCheckpoint(tmp_path, disk, "5.3")
    checkpoint.last_put = 1000, 500
    queues = Queues(checkpoint)
    service = FlushConsumeQueueService(config(release="5.3"), queues, checkpoint, clock)  # type: ignore[arg-type]  # they can flush
    service.run_once()
    assert ([0], 1000) == (queues.flushes, checkpoint.logics_msg_timestamp)

    clock.advance(59)
    service.run_once()
    assert ([0, 2], 1000) == (queues.flushes, checkpoint.logics_msg_timestamp)
    clock.advance(1)
    service.run_once()
    assert ([0, 2, 0], 1010) == (queues.flushes, checkpoint.logics_msg_timestamp)
    assert 1010 == StoreCheckpoint(tmp_path, disk).load().logics_msg_timestamp
    service.finish()
    assert (1015, 0) == (checkpoint.logics_msg_timestamp, checkpoint.logics_physical_offset)


def test_the_checkpoint_of_5_5_has_time_and_offset_of_a_unit_that_is_flushed(tmp_path: Path) -> None:
    clock, disk = FakeClock(), FaultyFileSystem()
    checkpoint = StoreCheckpoint(tmp_path, disk, "5.5")
    checkpoint.last_put = 1000, 500
    service = FlushConsumeQueueService(config(release="5.5"), Queues(checkpoint), checkpoint, clock)  # type: ignore[arg-type]  # they can flush
    service.flush_thoroughly()
    loaded = StoreCheckpoint(tmp_path, disk, "5.5").load()

    assert (1000, 500) == (loaded.logics_msg_timestamp, loaded.logics_physical_offset)
    assert (1005, 600) == checkpoint.last_put


def test_checkpoint_is_written_when_it_has_changed(tmp_path: Path) -> None:
    clock, disk = FakeClock(), FaultyFileSystem()
    checkpoint = StoreCheckpoint(tmp_path, disk)
    service = FlushCheckpointService(checkpoint, clock)
    service.run_once()
    service.run_once()
    assert 1 == disk.count("sync")
    checkpoint.physic_msg_timestamp = 7
    service.pause()
    service.run_once()

    assert 7 == StoreCheckpoint(tmp_path, disk).load().physic_msg_timestamp
    assert 1.0 == clock.seconds


class Slow(Seen):
    """A dispatcher that takes its time, and notes when it writes to the index file."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock
        self.written: list[float] = []

    def dispatch_batch(self, batch: DispatchBatch, *, gather: bool) -> None:
        super().dispatch_batch(batch, gather=gather)
        self.clock.advance(0.2)

    def write_back(self) -> None:
        self.written.append(self.clock.seconds)


def test_keys_reach_the_index_file_though_there_is_always_more_to_dispatch(tmp_path: Path) -> None:
    """Who reads the disk finds what was dispatched half a second ago, however long a writer goes on."""
    log = LogBuilder(SIZE)
    for _ in range(20):
        log.append(b"body")
        log.roll()
    root, clock = log.write(tmp_path), FakeClock()
    queue = MappedFileQueue(SegmentPaths((root / "commitlog",)), SIZE, OsFileSystem())
    queue.load("5.3")
    slow = Slow(clock)
    ReputMessageService(queue, slow, QueueRules(), clock, lambda: queue.max_offset).run_once()  # type: ignore[arg-type]  # as above

    assert 20 == slow.dispatched
    assert all(later - earlier < 0.9 for earlier, later in pairwise([0.0, *slow.written]))
    assert slow.written[-1] == clock.seconds
