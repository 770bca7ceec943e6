# SPDX-License-Identifier: Apache-2.0
"""Look-ups in a DLedger log, and by queues in a RocksDB, return the rows of a scan, whatever units and heads say."""

from __future__ import annotations

import random
import shutil
import struct
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import explain
from store_core.queue.rocksdb_queues import RocksdbQueues
from store_core.store.read.lookup.explanation import LookUpCosts
from store_core.store.read.read_options import ReadOptions
from store_core.store.read.read_plan import plan_ranges
from tests.budgets import budget
from tests.builders import LogBuilder, Record
from tests.dledger_logs import BODY_LENGTH_AT, HEAD_SIZE, INDEX_AT, MAGIC_AT, POSITION_AT, SIZE_AT, TERM_AT, DLedgerLog
from tests.golden_stores import GoldenStore, UnpackedStore, newer_store, stores_of_kind, unpack, unpack_newer
from tests.store_core.files.rocksdbs import MemoryReader, make_rocksdb
from tests.store_core.snapshot.test_queues import queues_of
from tests.store_core.store.read.lookup_stores import (
    ALWAYS,
    OPTIONS,
    ROLLBACK,
    UNIT,
    keeps_the_promise,
    lying_copy,
    same_as_scan,
    small_dledger_store,
    small_store,
    stored_queues,
    write_queues,
)
from tests.stores_in_memory import in_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("no_pauses", "few_bytes")


@pytest.fixture(scope="module", params=[0, 2], ids=["pure", "mixed"])
def dledger_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("look-ups") / "store"
    small_dledger_store(root, old_segments=request.param)
    return root


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_dledger_log_is_looked_up(dledger_store: Path, options: dict[str, Any]) -> None:
    places = dledger_store, in_memory(dledger_store, "dledger")
    plan, elsewhere = (same_as_scan(dledger_store, at, **options) for at in places)

    assert plan.explanation.plan == elsewhere.explanation.plan == "queues"
    assert all(part.picks is not None for part in plan.ranges[:-1])  # the log is scanned behind the last unit


@pytest.mark.parametrize("at", [MAGIC_AT, SIZE_AT, INDEX_AT, POSITION_AT, BODY_LENGTH_AT])
def test_an_entry_that_is_asked_for_is_checked_with_its_head(at: int, tmp_path: Path) -> None:
    log = small_dledger_store(tmp_path)
    asked = next(n for n, record in enumerate(log.records) if record.topic == "t1" and record.queue_offset == 2)
    log.put(asked, at, ">B", 0xFF)
    shutil.rmtree(tmp_path / "dledger-n0")
    log.write(tmp_path)

    assert keeps_the_promise(tmp_path, topic="t1") == "queues"
    assert same_as_scan(tmp_path, topic="t2").explanation.plan == "queues"


@pytest.mark.parametrize("is_queued", [True, False], ids=["queued", "rolled back"])
@pytest.mark.parametrize(("entry", "at"), [(-1, INDEX_AT), (-2, TERM_AT)])
def test_a_log_ends_before_a_last_entry_that_does_not_continue_the_one_before(
    entry: int, at: int, tmp_path: Path, *, is_queued: bool
) -> None:
    log = DLedgerLog(1024)
    for number in range(30):
        log.append(b"x", topic=f"t{number % 3}", queue_offset=number // 3)
    last = log.append(b"last", topic="t0", queue_offset=10, sys_flag=0 if is_queued else ROLLBACK)
    log.put(entry, at, ">q", 10**6).write(tmp_path)
    write_queues(tmp_path, log.records)

    assert same_as_scan(tmp_path, physical_offset=last.physical_offset).ranges == ()
    plan = same_as_scan(tmp_path, topic="t0")
    assert plan.explanation.plan == "queues"
    assert plan.end is not None
    assert plan.end.end_offset == log.entries[-1]


def _lie(root: Path, drawn: random.Random) -> None:
    """Change the unit of a queue, or the head of an entry."""
    queues = sorted(path for path in root.joinpath("consumequeue").rglob("0*") if path.is_file())
    path = drawn.choice(queues)
    data = bytearray(path.read_bytes())
    at = drawn.randrange(len(data) // UNIT.size) * UNIT.size
    offset, size, code = UNIT.unpack_from(data, at)
    kind = drawn.randrange(5)
    if kind == 0:
        change = drawn.choice([-HEAD_SIZE, HEAD_SIZE, 1, size])
        UNIT.pack_into(data, at, max(offset + change, 0), size, code)
    elif kind == 1:
        UNIT.pack_into(data, at, offset, max(size + drawn.choice([HEAD_SIZE, -HEAD_SIZE, 1]), 0), code)
    elif kind == 2:
        data[at:] = data[: len(data) - at]
    elif kind == 3:
        UNIT.pack_into(data, at, max(offset - HEAD_SIZE, 0), size + HEAD_SIZE, code)
    else:
        path = drawn.choice(sorted(root.glob("dledger-n0/data/*")))
        data = bytearray(path.read_bytes())
        struct.pack_into(">B", data, drawn.randrange(drawn.choice([200, 400])), drawn.choice([0, 1, 2, 0xFF]))
    path.write_bytes(data)


@budget(0.2)
@given(seed=st.integers(0, 2**32), lies=st.integers(1, 4))
def test_lying_queues_and_heads_give_sound_rows(
    tmp_path_factory: pytest.TempPathFactory, dledger_store: Path, seed: int, lies: int
) -> None:
    root = tmp_path_factory.getbasetemp() / "lying-entries"
    drawn = lying_copy(dledger_store, root, seed, lies, _lie)

    for options in drawn.sample(OPTIONS, 3):
        keeps_the_promise(root, **options)


@pytest.mark.golden
@pytest.mark.parametrize("golden", stores_of_kind("dledger"), ids=lambda golden: golden.name)
def test_golden_dledger_logs_are_looked_up_as_they_are_scanned(golden: GoldenStore, golden_directory: Path) -> None:
    dledger_store = unpack(golden, golden_directory)
    row = dledger_store.expected()[-40]
    at = {row["topic"]: {row["queue_id"]: row["queue_offset"]}}
    for options in (
        {"topic": [row["topic"]]},
        {"topic": [row["topic"]], "queue_id": row["queue_id"], "starting_offsets": at},
        {"topic": [row["topic"]], "ending_timestamp": row["store_timestamp"]},
    ):
        assert same_as_scan(dledger_store.root, **options).explanation.plan == "queues"
    assert "has a unit" in same_as_scan(dledger_store.root, physical_offset=row["physical_offset"]).explanation.why
    if row["unique_key"]:
        plan = same_as_scan(dledger_store.root, unique_key=row["unique_key"], topic=[row["topic"]])
        assert plan.explanation.plan in {"index", "queues"}


GOLDEN = [name for name in ("5.3.3/rocksdb-aged", "5.5.0/rocksdb", "5.5.0/rocksdb-crash") if newer_store(name)]

_PLACE = ("topic", "queue_id", "queue_offset", "physical_offset", "sys_flag")

Stored = dict[str, dict[bytes, bytes]]


def with_database(root: Path, flushed: int | None = None) -> LogBuilder:
    """Write a small store whose queues are in a RocksDB."""
    log = small_store(root)
    shutil.rmtree(root / "consumequeue")
    make_rocksdb(root / "consumequeue", stored_queues(log.records, flushed=log.end if flushed is None else flushed))
    return log


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("look-ups") / "store"
    with_database(root)
    return root


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """Return the records of `store`."""
    return small_store(tmp_path_factory.mktemp("again")).records


@pytest.mark.parametrize("options", OPTIONS[::3], ids=str)
def test_a_store_with_a_database_is_looked_up(store: Path, options: dict[str, Any]) -> None:
    plan = same_as_scan(store, **options)

    assert plan.explanation.plan == "queues"
    assert all(part.picks is not None for part in plan.ranges[:-1])  # the log is scanned behind the last unit


def test_a_database_that_can_t_be_read_is_a_reason_to_scan(store: Path, tmp_path: Path) -> None:
    root = shutil.copytree(store, tmp_path / "store")
    for table in (root / "consumequeue").glob("*.sst"):
        table.write_bytes(b"no table")

    assert "can't be read" in same_as_scan(root, topic="t0").explanation.why


def test_a_small_log_is_no_reason_to_open_a_database(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RocksdbQueues, "open", partial(pytest.fail, "opened"))
    costs = replace(ALWAYS, per_database=LookUpCosts().per_database, most_share=0.5)

    plan = plan_ranges(store, ReadOptions.parse(topic="t0"), costs)
    assert plan.explanation.why == "opening the RocksDB of the queues would cost too much"
    assert "is walked to it" in plan_ranges(store, ReadOptions.parse(physical_offset=0), costs).explanation.why
    assert explain(store, topic="t0").plan == "scan"


# ---- units that lie


@contextmanager
def stored_as(families: Stored) -> Iterator[None]:
    """Let any database have some entries: making one takes as long as a hundred examples."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RocksdbQueues, "open", lambda _: RocksdbQueues(MemoryReader(families)))  # type: ignore[arg-type]
        yield


def lie(families: Stored, drawn: random.Random) -> None:
    """Change an entry, exchange two, or leave some out."""
    family = drawn.choice(["default", "default", "default", "offset"])
    entries = families[family]
    key, other = drawn.choice(sorted(entries)), drawn.choice(sorted(entries))
    value, kind = bytearray(entries[key]), drawn.randrange(6)
    if not value:
        del entries[key]
    elif kind == 0:
        value[drawn.randrange(len(value))] ^= 1 << drawn.randrange(8)
        entries[key] = bytes(value)
    elif kind == 1:
        entries[key], entries[other] = entries[other], entries[key]
    elif kind == 2:
        entries[key] = entries[other]
    elif kind == 3:
        del entries[key]
    elif kind == 4:
        entries[key] = bytes(value[: drawn.randrange(len(value))])
    else:
        moved = bytearray(key)
        moved[-1 - drawn.randrange(13)] ^= 1 << drawn.randrange(3)
        entries[bytes(moved)] = entries.pop(key)


@budget(0.5)
@given(seed=st.integers(0, 2**32), lies=st.integers(0, 4))
def test_lying_units_give_sound_rows(store: Path, records: list[Record], seed: int, lies: int) -> None:
    drawn = random.Random(seed)  # noqa: S311 -- reproducible
    families = stored_queues(records, flushed=drawn.choice([1500, 2500, 1 << 20]))
    for _ in range(lies):
        lie(families, drawn)

    with stored_as(families):
        for options in [*drawn.sample(OPTIONS, 3), {"physical_offset": drawn.choice(records).physical_offset}]:
            keeps_the_promise(store, **options)


# ---- golden stores


@pytest.fixture(params=GOLDEN)
def in_rocksdb(request: pytest.FixtureRequest, golden_directory: Path) -> UnpackedStore:
    return unpack_newer(request.param, golden_directory)


@pytest.mark.golden
def test_golden_stores_are_looked_up_as_they_are_scanned(in_rocksdb: UnpackedStore) -> None:
    (topic, queue_id), answer = max(queues_of(in_rocksdb).items(), key=lambda queue: len(queue[1]["units"]))
    middle = answer["units"][len(answer["units"]) // 2]
    at = {topic: {queue_id: middle["offset"]}}
    for options in (
        {"topic": [topic]},
        {"topic": [topic], "queue_id": queue_id, "starting_offsets": at},
        {"topic": [topic], "queue_id": queue_id, "ending_offsets": at},
    ):
        plan = same_as_scan(in_rocksdb.root, **options)
        assert plan.explanation.plan == "queues", plan.explanation
    assert "has a unit" in same_as_scan(in_rocksdb.root, physical_offset=middle["pos"]).explanation.why


@pytest.mark.golden
def test_units_of_batches_lead_to_whole_batches(golden: Callable[[str], UnpackedStore], tmp_path: Path) -> None:
    """A unit in a database stands for all messages of a batch, so that queue offsets between units have none."""
    store = golden("5.3.3/bcq")
    shutil.copytree(store.root / "commitlog", tmp_path / "commitlog")
    records = [Record(**{name: row[name] for name in _PLACE}) for row in store.expected()]
    sizes = [row["store_size"] for row in store.expected()]
    families = stored_queues(records, flushed=1 << 40, sizes=sizes)
    make_rocksdb(tmp_path / "consumequeue", families)

    bounds: list[dict[str, Any]] = [
        {},
        {"starting_offsets": {"bcq_topic": {0: 7}}},
        {"ending_offsets": {"bcq_topic": {0: 30}}},
    ]
    for options in bounds:
        plan = same_as_scan(tmp_path, topic=["bcq_topic"], **options)
        assert "queues" == plan.explanation.plan
        assert 70 < plan.explanation.records <= 102
