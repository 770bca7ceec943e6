# SPDX-License-Identifier: Apache-2.0
"""Queues read without owning a store, also in a RocksDB, are those that the writing half keeps and RocketMQ reads."""

from __future__ import annotations

import struct
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import CorruptDatabaseError, SegmentVanishedError, StoreAccessError
from store_core.queue.consume_queue.batch_consume_queue import BatchConsumeQueue
from store_core.queue.consume_queue.consume_queue import ConsumeQueue, QueueServices
from store_core.queue.consume_queue_unit import BATCH_UNIT_SIZE, CQ_STORE_UNIT_SIZE, batch_units
from store_core.queue.queue_path import QueueRules, is_light
from store_core.queue.rocksdb_queues import BoundKey, RocksdbQueues, parse_bound_key, unit_key
from store_core.snapshot.queues import Queues
from store_core.snapshot.units import QueueBounds, QueueKind, TopicFilter, Units
from tests.builders import patch
from tests.golden_stores import UnpackedStore, newer_store, unpack_newer
from tests.store_core.fakes import FakeClock
from tests.store_core.files.rocksdbs import bound, bound_key, make_rocksdb, unit
from tests.store_core.queue.consume_queues import UNITS, QueueMaker, put_all, records, write_files

if TYPE_CHECKING:
    from store_core.snapshot.units import QueueName


_SIZE = 100
_LOG = 1000
"""Where the first record of `records` begins."""


class _Log:
    """A log that only starts somewhere."""

    def __init__(self, start: int) -> None:
        self.start = start

    def end_before(self, position: int, size: int) -> int | None:  # noqa: ARG002 -- the protocol's
        return None

    def queued(self, begin: int, name: QueueName | None = None) -> pa.Table:  # noqa: ARG002 -- the protocol's
        return pa.table({})


def _of_writer(queue: ConsumeQueue) -> list[tuple[int, int, int]]:
    """Return offset, position and size of each unit of an open queue, as a consumer gets them."""
    found = []
    offset = queue.min_offset_in_queue
    while (units := queue.get_index_buffer(offset)) is not None and len(units):
        rows = (unit.item()[:2] for unit in units[:])
        found += [(offset + number, *row) for number, row in enumerate(rows)]
        offset += len(units)
    return found


def _listed(pieces: list[Units]) -> list[tuple[int, int, int]]:
    found = (
        Units.joined(pieces[0].kind, pieces)
        if pieces
        else Units.of(QueueKind.SIMPLE, np.empty(0, QueueKind.SIMPLE.dtype))
    )
    return list(zip(found.offsets.tolist(), found.starts.tolist(), found.sizes.tolist(), strict=True))


def _damage(maker: QueueMaker, place: int, last: int, unit: tuple[int, int]) -> None:
    """Overwrite a unit in the queue's last three files, which are all that a broker looks at."""
    if place // UNITS < last // UNITS - 2:
        return
    path = maker.directory / f"{place // UNITS * UNITS * CQ_STORE_UNIT_SIZE:020d}"
    patch(path, place % UNITS * CQ_STORE_UNIT_SIZE, struct.pack(">qi", *unit))


@given(
    count=st.integers(0, 45),
    first=st.sampled_from([0, 0, 3, 25]),
    gone=st.integers(0, 50),
    damaged=st.none() | st.tuples(st.integers(1, 30), st.sampled_from([(-1, 100), (5, 0), (5, -7)])),
)
def test_a_queue_is_read_as_the_writing_half_opens_it(
    count: int, first: int, gone: int, damaged: tuple[int, tuple[int, int]] | None
) -> None:
    with TemporaryDirectory() as directory:
        root = Path(directory)
        maker = QueueMaker(root / "consumequeue" / "T" / "0")
        made = maker.new()
        put_all(made, records(count, first))
        made.flush(0)
        made.close()
        if damaged is not None and damaged[0] <= count:
            _damage(maker, first + count - damaged[0], first + count - 1, damaged[1])
        start = _LOG + (first + gone) * _SIZE
        queue = maker.opened()
        queue.delete_expired_file(start)
        queue.correct_min_offset(start)
        with Queues(root, _Log(start)) as queues:
            bounds = queues.bounds("T", 0) or QueueBounds(0, 0)
            expected = _of_writer(queue)
            assert queue.max_offset_in_queue == bounds.max_offset
            assert not expected or queue.min_offset_in_queue == bounds.min_offset

            assert expected == _listed(list(queues.units("T", 0, *bounds[:2])))
            assert expected[1:3] == _listed(list(queues.units("T", 0, bounds[0] + 1, min(bounds[0] + 3, bounds[1]))))
        queue.close()


@given(sizes=st.lists(st.integers(1, 5), max_size=40), gone=st.integers(0, 45))
def test_a_batch_queue_is_read_as_the_writing_half_opens_it(sizes: list[int], gone: int) -> None:
    with TemporaryDirectory() as directory:
        root = Path(directory)
        rules = QueueRules(batch_consume_queue_file_size=10 * BATCH_UNIT_SIZE)
        place = root / "batchconsumequeue" / "B" / "0"
        queue = BatchConsumeQueue("B", 0, place, QueueServices(rules, QueueMaker(root).disk, FakeClock()))
        ends = np.cumsum([0, *sizes])
        count = len(sizes)
        starts = _LOG + _SIZE * np.arange(count, dtype=np.int64)
        if count:
            columns = {"msg_base_offset": ends[:-1], "batch_size": np.array(sizes, np.int16)}
            size = np.full(count, _SIZE)
            queue.put_units(batch_units({"physical_offset": starts, "store_size": size, **columns}))
        queue.flush(0)
        start = _LOG + gone * _SIZE
        queue.delete_expired_file(start)
        queue.correct_min_offset(start)
        with Queues(root, _Log(start)) as queues:
            bounds = queues.bounds("B", 0)
            expected = [(*row, _SIZE) for row in zip(ends[gone:count].tolist(), starts[gone:].tolist(), strict=True)]
            assert bounds is None or expected == _listed(list(queues.units("B", 0, *bounds[:2])))
            if bounds is not None and expected:
                assert (queue.min_offset_in_queue, queue.max_offset_in_queue) == bounds[:2]
        queue.close()


def test_what_is_wrong_in_a_queue_is_seen(tmp_path: Path) -> None:
    write_files(tmp_path / "consumequeue" / "T" / "0", [(0, 100, 1), (0, 0, 0), (100, -1, 0), (7, 100, 3)])

    (units,) = Queues(tmp_path)["T", 0].stored.units(0, UNITS)

    assert [0, 0, 100, 7] == units.starts.tolist()[:4]
    assert [100, 0, -1, 100] == units.sizes.tolist()[:4]
    assert [True, False, False, True] == units.are_sound.tolist()[:4]
    assert [0, 3] == units.leading().offsets.tolist()


def test_only_queues_that_are_asked_for_are_named(tmp_path: Path) -> None:
    for topic, queue_id in (("a", "0"), ("a", "10"), ("a", "9"), ("b", "0"), ("b", "x"), ("%LMQ%c", "0")):
        (tmp_path / "consumequeue" / topic / queue_id).mkdir(parents=True)
    queues = Queues(tmp_path)

    assert [("%LMQ%c", 0), ("a", 0), ("a", 9), ("a", 10), ("b", 0)] == list(queues.names())
    assert [f"ignored {tmp_path / 'consumequeue' / 'b' / 'x'}: expected a number, the queue's id"] == list(queues.notes)
    assert [("a", 0), ("a", 10)] == list(queues.names(TopicFilter.of(["a", "d"], None, [0, 10])))
    assert [("b", 0)] == list(queues.names(TopicFilter.of([], "b|d", [])))


@pytest.mark.parametrize("is_loop", [False, True])
def test_what_is_no_directory_or_file_of_a_queue_is_named(tmp_path: Path, *, is_loop: bool) -> None:
    place = tmp_path / "consumequeue" / "a" / "0"
    place.parent.mkdir(parents=True)
    if is_loop:
        place.mkdir()
        place /= "0" * 20
        place.symlink_to(place)
    else:
        place.touch()

    queue = next(Queues(tmp_path).each())
    told = "a path without a loop of links, found a loop" if is_loop else "a directory, found a file"
    with pytest.raises(StoreAccessError, match=f"{place}: expected {told}"):
        queue.bounds(0)


def test_there_is_no_queue_without_its_directory(tmp_path: Path) -> None:
    queues = Queues(tmp_path)

    assert not queues.exist
    assert queues.get("../T", 0) is None
    with pytest.raises(KeyError, match="'T', 0"):
        queues["T", 0]


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    directory = tmp_path / "consumequeue" / "T" / "0"
    write_files(directory, [(0, 100, 1)])
    queue = Queues(tmp_path).get("T", 0)
    assert queue is not None
    assert 1 == queue.files
    (directory / f"{0:020d}").unlink()

    with pytest.raises(SegmentVanishedError, match=f"{directory}/0+ .*it is gone"):
        queue.bounds(0)


@pytest.mark.golden
def test_light_queues_that_only_a_rocksdb_has_are_found_by_name(tmp_path: Path) -> None:
    with Queues(unpack_newer("5.5.1/cqdouble-light", tmp_path).root) as queues:
        assert queues.light_database is not None
        with RocksdbQueues.open(queues.light_database) as stored:
            names = [name for name in stored.names if is_light(name[0])]
            found = list(queues.names(TopicFilter.of({topic for topic, _ in names}, None, [])))

            assert not any(is_light(topic) for topic, _ in queues.names())
            assert names == found
            assert [stored.end_of(*name) for name in names] == [queues[name].bounds.max_offset for name in names]


STORES = [
    name
    for kind in ("rocksdb", "rocksdb-crash", "rocksdb-aged", "cqdouble")
    for name in filter(newer_store, (f"5.3.3/{kind}", f"5.5.0/{kind}"))
]


def queues_of(store: UnpackedStore) -> dict[tuple[str, int], dict[str, Any]]:
    """Return RocketMQ's answers on each queue, by topic and id."""
    return {(line["topic"], line["queueId"]): line for line in store.lines("queue")}


def a_queue(*positions: int, first: int = 0) -> dict[str, dict[bytes, bytes]]:
    units = {unit_key("T", 3, first + at): unit(position) for at, position in enumerate(positions)}
    return {"default": units, "offset": {bound_key("T", b"max", 3): bound(first + len(positions) - 1)}}


@pytest.mark.golden
@pytest.mark.parametrize("name", STORES)
def test_units_and_bounds_are_those_that_rocketmq_reads_back(name: str, golden_directory: Path) -> None:
    store = unpack_newer(name, golden_directory)
    log_start = min(int(path.name) for path in store.root.joinpath("commitlog").iterdir())
    answers = queues_of(store)

    with RocksdbQueues.open(store.root / "consumequeue") as queues:
        flushed = queues.dispatched_offset
        assert set(queues.names) == answers.keys()
        for queue, answer in answers.items():
            start = queues.start_of(*queue, log_start)
            found = [
                (offset, *units[place].item()[:3])
                for offsets, units in queues.units(*queue, start)
                for place, offset in enumerate(offsets.tolist())
            ]
            expected = [(each["offset"], each["pos"], each["size"], each["tagsCode"]) for each in answer["units"]]

            assert [each for each in expected if each[1] < flushed] == found
            if "crash" not in name:
                assert (answer["minOffset"], answer["maxOffset"]) == (start, queues.end_of(*queue))


@pytest.mark.golden
def test_a_store_in_the_repository_is_among_them() -> None:
    assert "5.5.0/rocksdb-crash" in STORES


# ---- keys


@given(st.text(max_size=300), st.integers(0, 2**31 - 1), st.booleans())
def test_a_bound_s_key_says_what_it_was_made_of(topic: str, queue_id: int, is_max: bool) -> None:
    key = bound_key(topic, b"max" if is_max else b"min", queue_id)

    assert BoundKey(topic, queue_id, is_max) == parse_bound_key(key)
    assert parse_bound_key(key[:-1]) is None
    assert parse_bound_key(key + b"\0") is None


@given(st.binary(max_size=40))
def test_other_keys_are_none_of_a_bound(key: bytes) -> None:
    parsed = parse_bound_key(key)

    assert parsed is None or key == bound_key(parsed.topic, b"max" if parsed.is_max else b"min", parsed.queue_id)


# ---- bounds


def test_a_queue_begins_at_the_first_record_of_the_log_and_ends_after_its_max(tmp_path: Path) -> None:
    families = a_queue(*range(0, 1000, 100), first=20)
    families["default"][unit_key("T", 3, 30)] = unit(2000)  # left from before a truncation
    with RocksdbQueues.open(make_rocksdb(tmp_path / "db", families)) as queues:
        assert [("T", 3)] == queues.names
        assert [20, 25, 30, 30] == [queues.start_of("T", 3, start) for start in (0, 401, 901, 5000)]
        assert 30 == queues.end_of("T", 3)
        assert [24, 25] == [int(each) for some in queues.units("T", 3, 24, 26) for each in some.offsets]
        assert (0, 0) == (queues.start_of("T", 4), queues.end_of("T", 4))
        assert -1 == queues.dispatched_offset


def test_an_empty_database_has_no_queues(tmp_path: Path) -> None:
    with RocksdbQueues.open(make_rocksdb(tmp_path / "db", {"offset": {}})) as queues:
        assert [] == queues.names


@pytest.mark.parametrize(
    ("families", "told"),
    [
        ({"offset": {bound_key("T", b"max", 3): bound(-1)}}, "a queue offset of 0 or more, found -1"),
        ({"offset": {bound_key("T", b"max", 3): bound(2**63 - 1)}}, "a queue offset of 0 or more"),
        ({"offset": {bound_key("T", b"max", 3): b"short"}}, "16 bytes, found 5"),
        ({"offset": {bound_key("T", b"max", 2**31): bound(1)}}, "a queue id as key"),
        ({"offset": {bound_key("T", b"mid", 3): bound(1)}}, "a queue id as key"),
        ({"offset": {bound_key("CHECKPOINT_TOPIC", b"max", 0): bound(1)}}, "8 bytes, found 16"),
        ({"default": {b"a": b"b"}}, "expected a column family 'offset', found default"),
    ],
)
def test_a_wrong_bound_and_a_database_of_something_else_are_named(
    families: dict[str, dict[bytes, bytes]], told: str, tmp_path: Path
) -> None:
    with pytest.raises(CorruptDatabaseError, match=told):
        RocksdbQueues.open(make_rocksdb(tmp_path / "db", families))


@pytest.mark.parametrize("is_key", [True, False])
def test_a_wrong_unit_is_named(is_key: bool, tmp_path: Path) -> None:
    families = a_queue(0, 100, 200)
    key = unit_key("T", 3, 1)
    families["default"][key + b"\0" if is_key else key] = unit(100) + (b"" if is_key else b"\0")

    with (
        RocksdbQueues.open(make_rocksdb(tmp_path / "db", families)) as queues,
        pytest.raises(CorruptDatabaseError, match="expected a key of 20 bytes and a unit of 28"),
    ):
        list(queues.units("T", 3))
