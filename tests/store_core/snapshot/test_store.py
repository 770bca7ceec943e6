# SPDX-License-Identifier: Apache-2.0
"""A store as a value: its parts agree with the readers of each, stay as they were, and cost nothing unasked."""

from __future__ import annotations

import pickle
import shutil
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import store_core
from store_core import (
    DefaultMessageStore,
    Message,
    Store,
    StoreKind,
    StoreNotFoundError,
    read_messages,
)
from store_core.answers import bill
from store_core.answers.info import Info
from store_core.errors import InvalidOptionError
from store_core.files.file_system import OsFileSystem
from store_core.files.store_lock import StoreLock
from store_core.format.java import hash_code, positive_hash
from store_core.snapshot.timers import CANCELS, TIMER_DTYPE, SlotChains, followed_slots
from tests.budgets import budget
from tests.builders import BODY_AT, FIRST_STORE_TIMESTAMP, LogBuilder
from tests.golden_stores import GoldenStore, golden_stores, stores_of_kind, unpack
from tests.viewed_store import write_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def root(viewed: Path) -> Path:
    return viewed


def test_opening_reads_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "nowhere")

    with pytest.raises(StoreNotFoundError, match="nowhere"):
        _ = store.topics


def test_what_is_no_path_is_refused_at_once() -> None:
    with pytest.raises(InvalidOptionError, match="expected the path of a store"):
        Store(b"/data/store")  # type: ignore[arg-type]  # a mistake that a user can make


def test_its_parts_are_those_of_the_store(pristine: Path) -> None:
    store = Store.open(pristine)

    assert ("idle", "orders", "payments") == store.topics
    assert (0, 30) == store.queues["orders", 1].bounds[:2]
    assert 90 == store.messages(columns="topic").read_all().num_rows
    assert store_core.read_view(pristine, "topics").read_all() == store.view("topics").read_all()
    assert store_core.read_messages(pristine).read_all() == store.view("messages").read_all()
    assert {"billing"} == set(store.config.subscription_groups or ())
    assert {12: 7, 3: 30} == store.config.delay_offsets
    assert store.checkpoint is not None
    assert store.checkpoint["physic_msg_timestamp"] > 0
    assert 1 == len(store.timers.files)
    assert store.log.begin == 0 < store.log.end
    assert store.index.names
    assert (StoreKind(0), False, None) == (store.kind, store.is_live, store.end)
    assert store.release.releases
    assert not store.notes


def test_units_lead_to_the_records(pristine: Path) -> None:
    store = Store(pristine)
    units = store.queues["orders", 1].units(10, 20)
    rows = store.messages(columns=["physical_offset", "store_size"], topic="orders", queue_id=1).read_all()

    assert list(range(10, 20)) == units["queue_offset"].to_pylist()
    assert rows["physical_offset"].to_pylist()[10:20] == units["physical_offset"].to_pylist()
    assert rows["store_size"].to_pylist()[10:20] == units["store_size"].to_pylist()


def test_an_emptied_log_has_no_last_time_though_its_checkpoint_has_one(root: Path) -> None:
    for segment in sorted((root / "commitlog").iterdir()):
        segment.write_bytes(bytes(segment.stat().st_size))

    told = Info().ask(root).to_json()
    assert Store(root).log.begin == told["log_end"]
    assert (None, None) == (told["first_time"], told["last_time"])


def test_what_was_read_stays_until_a_refresh(root: Path) -> None:
    store = Store(root)
    assert store.config.delay_offsets is not None
    before = store.topics
    write_config(root, "delayOffset.json", '{"offsetTable":{12:8}}')
    shutil.rmtree(root / "consumequeue" / "payments")

    assert (before, 7) == (store.topics, store.config.delay_offsets[12])
    store.refresh()
    assert ("idle", "orders") == store.topics
    assert {12: 8} == store.config.delay_offsets


@pytest.fixture
def live(root: Path) -> Iterator[DefaultMessageStore]:
    with DefaultMessageStore.open(root) as opened:
        yield opened


def test_the_index_of_a_store_that_is_written_ends_where_its_log_does(live: DefaultMessageStore, root: Path) -> None:
    live.put_message(Message("orders", b"before", properties={"KEYS": "k-1"}, queue_id=0))
    live.dispatch_now()
    store, newer = Store(root), Store(root)
    assert store.end is not None
    for number in range(3):
        live.put_message(Message("orders", b"later", properties={"KEYS": f"k-{number}"}, queue_id=0))
    live.dispatch_now()

    key = positive_hash(hash_code("orders#k-1"))
    files, grown = ([file for file in each.index.files() if file.slots] for each in (store, newer))
    assert sum(file.stop for file in files) + 3 == sum(file.stop for file in grown)
    assert [1, 2] == [sum(len([*file.chain(key)]) for file in each) for each in (files, grown)]
    assert all((entries["physical_offset"] < store.end).all() for file in files for _, entries in file.windows())


def test_committed_offsets_that_were_read_travel_with_a_store(live: DefaultMessageStore, root: Path) -> None:
    write_config(root, "consumerOffset.json", '{"offsetTable":{"orders@billing":{0:10}}}')
    store = Store(root)
    assert store.end is not None
    sent = pickle.dumps(store)
    write_config(root, "consumerOffset.json", '{"offsetTable":{"orders@billing":{0:20}}}')
    again = pickle.loads(sent)  # noqa: S301 -- made here
    live.put_message(Message("orders", b"later", queue_id=0))

    assert again.config.offsets is not None
    assert 10 == again.config.offsets.by_group["orders", "billing"][0]
    assert again.is_live


@pytest.mark.golden
@pytest.mark.parametrize("golden", golden_stores(), ids=lambda golden: golden.name)
def test_golden_stores_are_as_their_readers_have_them(golden: GoldenStore, tmp_path: Path) -> None:
    root = unpack(golden, tmp_path).root
    view = store_core.read_view(root, "topics", columns=["topic", "queue_id", "min_offset", "max_offset"]).read_all()
    with Store(root) as store:
        known = {row["topic"] for row in view.to_pylist()}
        rows = [row for row in view.to_pylist() if row["queue_id"] is not None]
        found = [(row, store.queues[row["topic"], row["queue_id"]].bounds) for row in rows]

        assert known == {topic for topic in store.topics if topic in known}
        assert [(row["min_offset"], row["max_offset"]) for row in rows] == [bounds[:2] for _, bounds in found]


@pytest.mark.golden
@pytest.mark.parametrize("golden", stores_of_kind("dledger"), ids=lambda golden: golden.name)
def test_dledger_logs_are_of_their_kind(golden: GoldenStore, tmp_path: Path) -> None:
    assert StoreKind.DLEDGER in Store(unpack(golden, tmp_path).root).kind


SIZE = TIMER_DTYPE.itemsize
_GAP = 40
"""Bytes at the end of a file that are no unit."""


def units_of(drawn: list[tuple[int, int, bool]]) -> tuple[np.ndarray, np.ndarray]:
    """Return positions and units of two files: the unit before each, its time, and whether it cancels."""
    units = np.zeros(len(drawn), TIMER_DTYPE)
    positions = SIZE * np.arange(len(drawn)) + _GAP * (np.arange(len(drawn)) >= len(drawn) // 2)
    for number, (before, time, cancels) in enumerate(drawn):
        known = {-1: -1, -2: 7, -3: 1 << 40}  # none; between units; far away
        units["previous_position"][number] = known.get(before, int(positions[before % len(drawn)]))
        units["write_timestamp"][number] = time
        units["magic"][number] = 1 + CANCELS * cancels
    return positions, units


def plainly_followed(last: int, positions: np.ndarray, units: np.ndarray) -> tuple[object, ...]:
    """Follow one chain from unit to unit."""
    numbers = {position: number for number, position in enumerate(positions.tolist())}
    if last not in numbers:
        return (False,)
    due, first, length, timers, is_whole = int(units["write_timestamp"][numbers[last]]), last, 0, 0, True
    while last in numbers:
        unit, first = units[numbers[last]], last
        length, timers = length + 1, timers + (-1 if unit["magic"] & CANCELS else 1)
        is_whole &= int(unit["write_timestamp"]) == due
        previous = int(unit["previous_position"])
        last = previous if 0 <= previous < last else -1
        is_whole &= last in numbers or previous == -1
    return True, due, first, length, timers, is_whole


def shown(chains: SlotChains, row: int) -> tuple[object, ...]:
    if not chains.is_there[row]:
        return (False,)
    numbers = (chains.due, chains.first, chains.units, chains.timers)
    return (True, *(int(each[row]) for each in numbers), bool(chains.is_whole[row]))


@given(
    st.lists(st.tuples(st.integers(-3, 30), st.integers(1, 2), st.booleans()), min_size=1, max_size=30),
    st.integers(1, 40),
)
@budget(1)
def test_chains_are_followed_in_parts_as_unit_by_unit(drawn: list[tuple[int, int, bool]], at_once: int) -> None:
    positions, units = units_of(drawn)
    last = np.concatenate([positions, [-1, 7, 1 << 40]])
    starts = range((len(drawn) - 1) // at_once * at_once, -1, -at_once)
    found = followed_slots(last, ((positions[at : at + at_once], units[at : at + at_once]) for at in starts))

    assert [plainly_followed(each, positions, units) for each in last.tolist()] == [
        shown(found, row) for row in range(len(last))
    ]


DAMAGE: Final[dict[str, tuple[int, int, bytes]]] = {  # number of a record in the last segment, where in it, and what
    "none": (0, 0, b""),
    "first magic": (0, 4, b"\x00\x01"),
    "first size": (0, 0, b"\x7f\xff"),
    "first body": (0, BODY_AT, b"\xff"),
    "first zeroed": (0, 0, bytes(60)),
    "middle size": (2, 0, b"\x7f\xff"),
    "middle magic": (2, 4, b"\x00\x01"),
    "middle body": (2, BODY_AT, b"\xff"),
    "last body": (-1, BODY_AT, b"\xff"),
    "last size": (-1, 0, b"\x7f\xff"),
}


@pytest.mark.parametrize("preallocated", [0, 1])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_log_ends_with_the_last_message_that_a_scan_finds(tmp_path: Path, damage: str, preallocated: int) -> None:
    """Damage in the last segment, also of its first record, hides no message behind it; a torn one is none."""
    log = LogBuilder()
    for number in range(60):
        log.append(b"body %d" % number * 20, store_timestamp=FIRST_STORE_TIMESTAMP + 1000 * number)
    inside = [each for each in log.records if each.physical_offset >= log.end - log.end % 4096]
    number, at, data = DAMAGE[damage]
    log.patch(inside[number].physical_offset + at, data)
    root = log.write(tmp_path / "store", preallocated=preallocated)
    columns = ["physical_offset", "store_size", "store_timestamp_ms", "body"]
    last = read_messages(root, columns=columns, mode="DROPMALFORMED").read_all().to_pylist()[-1]
    closed = bill(root).to_json()
    with StoreLock(root, OsFileSystem()):
        store = Store(root)
        assert store.is_live
        held = bill(root).to_json()

    assert len(inside) > 4
    assert (last["store_timestamp_ms"], last["physical_offset"] + last["store_size"]) == (
        store.last_store_time,
        store.end,
    )
    assert closed == {**held, "notes": closed["notes"]}
