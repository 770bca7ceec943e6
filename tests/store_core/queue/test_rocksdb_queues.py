# SPDX-License-Identifier: Apache-2.0
"""Queues in a RocksDB are those that RocketMQ reads back, and what is no queue is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import CorruptDatabaseError
from store_core.queue.rocksdb_queues import BoundKey, RocksdbQueues, parse_bound_key, unit_key, unit_key_size
from tests.golden_stores import UnpackedStore, newer_store, unpack_newer
from tests.store_core.files.rocksdbs import bound, bound_key, make_rocksdb, unit

if TYPE_CHECKING:
    from pathlib import Path


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


def test_keys_are_ordered_by_queue_and_offset() -> None:
    places = [("T", 0, 0), ("T", 0, 1), ("T", 0, 256), ("T", 1, 0), ("TT", 0, 0)]

    keys = [unit_key(*place) for place in places]
    assert keys == sorted(keys)
    assert [unit_key_size(topic) for topic, _, _ in places] == list(map(len, keys))


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
    ("key", "value", "told"),
    [
        (bound_key("T", b"max", 3), bound(-1), "a queue offset of 0 or more, found -1"),
        (bound_key("T", b"max", 3), bound(2**63 - 1), "a queue offset of 0 or more"),
        (bound_key("T", b"max", 3), b"short", "16 bytes, found 5"),
        (bound_key("T", b"max", 2**31), bound(1), "a queue id as key"),
        (bound_key("T", b"mid", 3), bound(1), "a queue id as key"),
        (bound_key("CHECKPOINT_TOPIC", b"max", 0), bound(1), "8 bytes, found 16"),
    ],
)
def test_a_wrong_bound_is_named(key: bytes, value: bytes, told: str, tmp_path: Path) -> None:
    with pytest.raises(CorruptDatabaseError, match=told):
        RocksdbQueues.open(make_rocksdb(tmp_path / "db", {"offset": {key: value}}))


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


def test_a_database_of_something_else_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorruptDatabaseError, match="expected a column family 'offset', found default"):
        RocksdbQueues.open(make_rocksdb(tmp_path / "db", {"default": {b"a": b"b"}}))
