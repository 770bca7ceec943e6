# SPDX-License-Identifier: Apache-2.0
"""The table of all queues: what is loaded, where records go, what is refused, and how few files stay open."""

from __future__ import annotations

import errno
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import InvalidOptionError, SegmentLayoutError
from store_core.files.mapped_file import MAX_OPEN_QUEUES
from store_core.queue.consume_queue.consume_queue import QueueServices
from store_core.queue.consume_queue.consume_queue_store import ConsumeQueueStore
from store_core.queue.dispatch.dispatch_batch import DispatchRequest, RequestBatch
from store_core.queue.queue_path import QueueRules
from tests.budgets import budget
from tests.store_core.fakes import FakeClock, FaultyFileSystem, MortalFileSystem, SyncingDisk, descriptors
from tests.store_core.queue.consume_queues import answers_of, file_bytes, units_in
from tests.store_core.queue.dispatch_logs import log_requests

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.file_system import FileSystem
    from store_core.format.release import Release

_RULES = QueueRules(
    consume_queue_file_size=100,
    batch_consume_queue_file_size=138,
    batch_topics=frozenset({"B"}),
    ext_file_size=100,
    is_multi_dispatch_enabled=True,
    is_lmq_enabled=True,
)


class _Maker:
    """Makes tables over one directory, and records what they report."""

    def __init__(self, root: Path, rules: QueueRules = _RULES) -> None:
        self.root = root
        self.rules = rules
        self.disk = FaultyFileSystem()
        self.clock = FakeClock()
        self.put_times: list[int] = []
        self.put_offsets: list[int] = []
        self.errors = 0

    def new(self, disk: FileSystem | None = None, **options: Any) -> ConsumeQueueStore:  # noqa: ANN401 -- keywords of the class
        services = QueueServices(self.rules, disk or self.disk, self.clock, lambda: not self.errors, self._note_error)
        return ConsumeQueueStore(self.root, services, self._note_put, **options)

    def _note_put(self, store_timestamp: int, physical_offset: int) -> None:
        self.put_times.append(store_timestamp)
        self.put_offsets.append(physical_offset)

    def _note_error(self) -> None:
        self.errors += 1

    def opened(self) -> ConsumeQueueStore:
        queues = self.new()
        queues.load()
        queues.recover()
        return queues


@pytest.fixture
def maker(tmp_path: Path) -> _Maker:
    return _Maker(tmp_path)


def _request(topic: str = "T", queue_id: int = 0, index: int = 0, start: int = 1000, **values: Any) -> DispatchRequest:  # noqa: ANN401 -- fields of a request
    values.setdefault("message_base_offset", index)
    return DispatchRequest(topic, queue_id, start, 100, 5, start * 10, index, **values)


def _starts(queues: ConsumeQueueStore, topic: str) -> list[int] | None:
    """Return the positions of a queue's records; None without the queue."""
    queue = queues.get(topic, 0)
    if queue is None:
        return None
    return [unit.physical_offset for unit in units_in(queue, max(0, queue.min_offset_in_queue))]


# ---- opening


def test_what_is_no_queue_is_left_out_and_told(maker: _Maker) -> None:
    maker.new().put(_request())
    for name in ("T/x", "U/1_0", "-", "V/-1", "\x01/0"):
        (maker.root / "consumequeue" / name).mkdir(parents=True)
    (maker.root / "consumequeue" / "file").touch()
    queues = maker.new()
    queues.load()

    assert [(queue.topic, queue.queue_id) for queue in queues.queues()] == [("T", 0)]
    assert [note.rpartition("consumequeue/")[2] for note in queues.notes] == [
        "\x01/0: the name holds '\\x01'",
        "T/x: expected a number, the queue's id",
        "U/1_0: expected a number, the queue's id",
        "V/-1: a queue id is 0 to 2147483647",
    ]


def test_a_file_in_the_place_of_a_queue_is_an_empty_queue(maker: _Maker) -> None:
    (maker.root / "consumequeue" / "T").mkdir(parents=True)
    (maker.root / "consumequeue" / "T" / "3").touch()
    queues = maker.opened()

    assert queues.queue_offsets() == {("T", 3): 0}
    assert "is a file" in queues.notes[0]


@pytest.mark.parametrize(("folder", "topic"), [("consumequeue", "B"), ("batchconsumequeue", "T")])
def test_queues_of_the_wrong_type_are_refused(maker: _Maker, folder: str, topic: str) -> None:
    (maker.root / folder / topic / "0").mkdir(parents=True)

    with pytest.raises(SegmentLayoutError, match=r"queue\.type"):
        maker.new().load()


def test_the_queue_that_is_farthest_says_how_far_queues_cover_the_log(maker: _Maker) -> None:
    queues = maker.new()

    assert queues.recover() == -1

    queues.put(_request("T", start=1000))
    queues.put(_request("U", start=1200))
    queues.put(_request("B", start=1250))

    assert maker.opened().max_physical_offset == 1300, "the end of a record in a simple queue"

    queues.put(_request("B", index=1, start=1400))

    assert maker.opened().max_physical_offset == 1400, "the start of one in a batch queue"


# ---- what is refused


@pytest.mark.parametrize(
    ("topic", "queue_id", "index"),
    [
        ("../../x", 0, 0),
        ("a/b", 0, 0),
        ("", 0, 0),
        ("..", 0, 0),
        ("a\0b", 0, 0),
        ("x" * 32767, 0, 0),
        ("T", -1, 0),
        ("T", -(2**31), 0),
        ("T", 0, -1),
        ("T", 0, 2**62),
        ("T", 0, 2**63 - 1),
        ("B", 0, -1),
        ("B", 0, 2**63 - 1),
    ],
)
@pytest.mark.parametrize("in_batch", [False, True])
def test_hostile_names_and_numbers_are_reported_and_write_nothing(
    tmp_path: Path, topic: str, queue_id: int, index: int, in_batch: bool
) -> None:
    maker = _Maker(tmp_path / "store")
    queues = maker.new()
    requests = [_request(topic, queue_id, index), _request("good", 0, 0, 1100)]
    if in_batch:
        queues.put_batch(RequestBatch(requests))
    else:
        for request in requests:
            queues.put(request)

    assert [(unit.topic, unit.queue_id, unit.physical_offset) for unit in queues.refused] == [(topic, queue_id, 1000)]
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert list(file_bytes(maker.root)) == [f"consumequeue/good/0/{0:020d}"]
    assert maker.put_times == [11_000]
    assert maker.errors == 0


def test_no_more_queues_are_made_than_allowed(maker: _Maker) -> None:
    queues = maker.new(max_queues=3)
    requests = [_request("T", queue_id, start=1000 + 100 * queue_id) for queue_id in range(5)]
    queues.put_batch(RequestBatch(requests))

    assert len(queues) == 3
    assert [unit.queue_id for unit in queues.refused] == [3, 4]
    with pytest.raises(InvalidOptionError, match="there are 3 queues"):
        queues.find_or_create("T", 9)


def test_the_list_of_refused_units_is_bounded(maker: _Maker) -> None:
    queues = maker.new()
    for _ in range(1200):
        queues.put(_request(".."))

    assert queues.refused_count == 1200
    assert len(queues.refused) == 1000


# ---- many at once


def _outcome(maker: _Maker, queues: ConsumeQueueStore) -> dict[str, Any]:
    return {
        "files": file_bytes(maker.root),
        "answers": answers_of(queues),
        "offsets": queues.queue_offsets(),
        "min": {(queue.topic, queue.queue_id): queue.min_logic_offset for queue in queues.queues()},
        "flushed": [queue.mapped_file_queue.flushed_where for queue in queues.queues()],
        "refused": sorted(queues.refused),  # batches refuse queue by queue
        "refused_count": queues.refused_count,
        "last_put": (maker.put_times[-1:], maker.put_offsets[-1:]),
    }


@pytest.mark.parametrize("release", ["4.3", "4.9", "5.3"])
@pytest.mark.parametrize("kind", ["plain", "mixed", "hostile"])
@pytest.mark.parametrize("gathers", [False, True])
@budget(0.2)
@given(data=st.data())
def test_batches_put_or_gathered_are_as_records_put_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, release: Release, kind: str, gathers: bool
) -> None:
    rules = replace(
        _RULES,
        release=release,
        batch_topics=_RULES.batch_topics if release == "5.3" else frozenset(),
        is_ext_enabled=data.draw(st.booleans()),
        is_multi_dispatch_enabled=release != "4.3",
        is_lmq_enabled=release != "4.3" and data.draw(st.booleans()),
    )
    requests = data.draw(log_requests(kind, max_size=25, steps=[100, 100, 100, 50, -100]))
    single, bulk = (_Maker(tmp_path_factory.mktemp("q"), rules) for _ in range(2))
    most = data.draw(st.sampled_from([6, 12]))
    one_by_one = single.new(max_queues=most)
    together = bulk.new(max_queues=most, most_gathered=data.draw(st.integers(1, 12)))
    for request in requests:
        one_by_one.put(request)
    while requests:
        cut = data.draw(st.integers(1, 26))
        is_gathered = gathers and data.draw(st.sampled_from([True, True, False]))
        (together.gather_batch if is_gathered else together.put_batch)(RequestBatch(requests[:cut]))
        requests = requests[cut:]
    together.put_gathered()

    assert _outcome(single, one_by_one) == _outcome(bulk, together)


def test_units_of_plain_records_are_gathered_until_there_is_no_room_or_they_are_wanted(maker: _Maker) -> None:
    queues = maker.new(most_gathered=4)
    queues.gather_batch(RequestBatch([_request(index=0, start=1000), _request("U", start=1100)]))
    queues.gather_batch(RequestBatch([_request(index=1, start=1200), _request(sys_flag=4, start=1300)]))
    before = len(queues)
    queues.gather_batch(RequestBatch([_request(index=2, start=1400), _request("U", index=1, start=1500)]))
    full = _starts(queues, "T"), _starts(queues, "U")
    queues.put_gathered()

    assert before == 0
    assert full == ([1000, 1200], [1100])
    assert (_starts(queues, "T"), _starts(queues, "U")) == ([1000, 1200, 1400], [1100, 1500])
    assert maker.put_times == [12_000, 15_000]


# ---- when the disk fails


@pytest.mark.parametrize("in_batch", [False, True])
def test_a_queue_that_can_not_be_written_is_an_error_of_the_store(maker: _Maker, in_batch: bool) -> None:
    queues = maker.new()
    maker.disk.fail("write", errno.EIO, times=1000)
    if in_batch:
        queues.put_batch(RequestBatch([_request()]))
    else:
        queues.put(_request())

    assert maker.errors == 1
    assert maker.clock.slept == [1.0] * 30
    assert maker.put_times == []


@pytest.mark.parametrize("failures", [1, 5])
def test_a_sequence_that_is_not_written_at_once_is_tried_again(maker: _Maker, failures: int) -> None:
    queues = maker.new()
    queues.put_batch(RequestBatch([_request(index=0, start=1000)]))
    maker.disk.fail("write", errno.ENOSPC, times=failures)
    queues.put_batch(RequestBatch([_request(index=index, start=1000 + 100 * index) for index in range(1, 12)]))

    assert _starts(queues, "T") == [1000 + 100 * index for index in range(12)]
    assert maker.errors == 0
    assert maker.put_times == [10_000, 21_000]


def test_directories_of_new_queues_are_synced_when_they_are_flushed_each_once(maker: _Maker) -> None:
    disk = maker.disk = SyncingDisk()
    queues = maker.new()
    for topic, queue_id in (("T", 0), ("T", 1), ("U", 2)):
        queues.put(_request(topic, queue_id))
    before = [*disk.synced]
    for _ in range(2):
        queues.flush()

    assert before == []
    assert sorted(disk.synced) == sorted(["0", "1", "2", "T", "U", "consumequeue", maker.root.name])


def test_directories_that_a_killed_process_left_are_synced_by_a_recovery(maker: _Maker) -> None:
    disk = maker.disk = SyncingDisk()
    maker.new().put(_request("T", 7))
    maker.disk = disk = SyncingDisk()
    maker.opened().force()

    assert {"7", "T", "consumequeue", maker.root.name} <= set(disk.synced)


def test_one_queue_that_can_not_be_flushed_does_not_keep_the_others_from_it(maker: _Maker) -> None:
    queues = maker.new()
    for topic in ("T", "U", "V"):
        queues.put(_request(topic))
    maker.disk.fail("sync", errno.EIO)

    with pytest.raises(OSError, match="Input/output error"):
        queues.flush()
    flushed = [queue.mapped_file_queue.flushed_where for queue in queues.queues()]

    assert flushed == [0, 20, 20]


# ---- cutting


def test_all_queues_are_cut_where_the_log_ends(maker: _Maker) -> None:
    queues = maker.new()
    for index in range(12):
        queues.put(_request("T", 0, index, 1000 + 200 * index))
        queues.put(_request("B", 0, index, 1100 + 200 * index))
    notes = queues.truncate_dirty(1900)

    assert queues.queue_offsets() == {("B", 0): 4, ("T", 0): 5}
    assert queues.max_physical_offset == 1900
    assert queues.notes == list(notes)
    assert len(notes) == 5
    assert answers_of(maker.opened()) == answers_of(queues)


def test_what_points_below_the_log_goes_but_for_last_files(maker: _Maker) -> None:
    queues = maker.new()
    for index in range(12):
        queues.put(_request("T", 0, index, 1000 + 200 * index))
        queues.put(_request("B", 0, index, 1100 + 200 * index))

    assert sum(queue.delete_expired_file(2000) for queue in queues.queues()) == 2
    assert {queue.topic: queue.min_offset_in_queue for queue in queues.queues()} == {"B": 5, "T": 5}

    queues.correct_min_offset(2300)

    assert {queue.topic: queue.min_offset_in_queue for queue in queues.queues()} == {"B": 6, "T": 7}


def test_without_a_log_all_files_go_and_the_queues_stay(maker: _Maker) -> None:
    queues = maker.new()
    queues.put(_request("T", index=13))
    queues.put(_request("B"))
    queues.destroy_all()

    assert file_bytes(maker.root) == {}
    assert queues.queue_offsets() == {("B", 0): 0, ("T", 0): 0}
    assert {queue.topic: queue.min_offset_in_queue for queue in queues.queues()} == {"B": -1, "T": 0}
    assert queues.max_physical_offset == -1


# ---- how many files are open


def test_however_many_queues_there_are_few_files_are_open(maker: _Maker) -> None:
    count = 4 * MAX_OPEN_QUEUES
    requests = [_request(f"%LMQ%{index}", 0, 0, 1000 + 100 * index) for index in range(count)]
    before = len(descriptors())
    queues = maker.new()
    queues.put_batch(RequestBatch(requests))

    assert len(descriptors()) - before <= MAX_OPEN_QUEUES + 1

    reopened = maker.opened()
    reopened.correct_min_offset(0)
    reopened.truncate_dirty(1 << 40)
    units = [queue.last_unit for queue in reopened.queues()]

    assert len(units) == count
    assert None not in units
    assert len(descriptors()) - before <= 3 * MAX_OPEN_QUEUES

    queues.close()
    reopened.close()

    assert len(descriptors()) <= before


def test_queues_are_read_while_records_are_put(maker: _Maker) -> None:
    """More queues than may have files open, so that reader and writer take them from each other."""
    queues = maker.new()
    names = [f"t{index}" for index in range(2 * MAX_OPEN_QUEUES)]
    wrong: list[str] = []
    done = False

    def read() -> None:
        while not done:
            for queue in queues.queues():
                units = queue.get_index_buffer(0)
                if units is not None and np.any(units[:]["store_size"] != 100):
                    wrong.append(queue.topic)

    reader = Thread(target=read)
    reader.start()
    try:
        for index in range(8):
            start = 1000 + 100 * index * len(names)
            queues.put_batch(
                RequestBatch([_request(name, 0, index, start + 100 * at) for at, name in enumerate(names)])
            )
    finally:
        done = True
        reader.join()

    assert wrong == []
    assert set(queues.queue_offsets().values()) == {8}


# ---- when the process is killed within a write


@pytest.mark.parametrize("torn", [0.0, 0.2, 0.5, 0.8])
@pytest.mark.parametrize("way", ["put", "put_batch"])
def test_a_killed_process_leaves_whole_units_and_what_is_dispatched_again_completes_them(
    tmp_path: Path, torn: float, way: str
) -> None:
    requests = [_request(index=index, start=1000 + 100 * index) for index in range(3)]
    changes, is_killed = 0, True
    while is_killed:
        maker, disk = _Maker(tmp_path / str(changes)), MortalFileSystem()
        disk.changes_left, disk.torn = changes, torn
        queues = maker.new(disk)
        if way == "put_batch":
            queues.put_batch(RequestBatch(requests))
        else:
            for request in requests:
                queues.put(request)
        is_killed, changes, maker.errors = disk.is_dead, changes + 1, 0
        after = maker.opened()
        for request in requests:
            after.put(request)
        queue = after.get("T", 0)

        assert queue is not None
        assert [(unit.physical_offset, unit.store_size, unit.tags_code) for unit in units_in(queue)] == [
            (1000, 100, 5),
            (1100, 100, 5),
            (1200, 100, 5),
        ]
    assert changes > 5
