# SPDX-License-Identifier: Apache-2.0
"""Look-ups in a DLedger log return the rows of a scan, whatever queues and heads of entries say."""

from __future__ import annotations

import random
import shutil
import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.budgets import budget
from tests.dledger_logs import BODY_LENGTH_AT, HEAD_SIZE, INDEX_AT, MAGIC_AT, POSITION_AT, SIZE_AT, TERM_AT, DLedgerLog
from tests.golden_stores import GoldenStore, stores_of_kind, unpack
from tests.store_core.store.read.lookup_stores import (
    OPTIONS,
    ROLLBACK,
    UNIT,
    keeps_the_promise,
    same_as_scan,
    small_dledger_store,
    write_queues,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module", params=[0, 2], ids=["pure", "mixed"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("look-ups") / "store"
    small_dledger_store(root, old_segments=request.param)
    return root


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_dledger_log_is_looked_up(store: Path, options: dict[str, Any]) -> None:
    plan = same_as_scan(store, **options)

    assert plan.explanation.plan == "queues"
    assert all(part.picks is not None for part in plan.ranges[:-1])  # the log is scanned behind the last unit


def test_the_columns_of_entries_are_those_of_the_scan(store: Path) -> None:
    columns = ["physical_offset", "dledger_index", "dledger_term", "dledger_committed", "segment"]

    assert same_as_scan(store, topic="t1", columns=columns).explanation.plan == "queues"


def test_every_record_is_found_at_its_position(tmp_path: Path) -> None:
    for record in small_dledger_store(tmp_path, old_segments=1).records:
        plan = same_as_scan(tmp_path, physical_offset=record.physical_offset)
        assert (record.body != b"gone") == ("has a unit for it" in plan.explanation.why)
        assert "is walked to it" in same_as_scan(tmp_path, physical_offset=record.physical_offset - 48).explanation.why


def test_entries_without_units_are_read_in_the_log(tmp_path: Path) -> None:
    log = small_dledger_store(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue")
    write_queues(tmp_path, log.records[:-9])

    assert same_as_scan(tmp_path, topic="t0").explanation.plan == "queues"


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
    tmp_path_factory: pytest.TempPathFactory, store: Path, seed: int, lies: int
) -> None:
    root = tmp_path_factory.getbasetemp() / "lying-entries"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(store, root)
    drawn = random.Random(seed)  # noqa: S311 -- reproducible
    for _ in range(lies):
        _lie(root, drawn)

    for options in drawn.sample(OPTIONS, 3):
        keeps_the_promise(root, **options)


@pytest.mark.golden
@pytest.mark.parametrize("golden", stores_of_kind("dledger"), ids=lambda golden: golden.name)
def test_golden_stores_are_looked_up_as_they_are_scanned(golden: GoldenStore, golden_directory: Path) -> None:
    store = unpack(golden, golden_directory)
    row = store.expected()[-40]
    at = {row["topic"]: {row["queue_id"]: row["queue_offset"]}}
    for options in (
        {"topic": [row["topic"]]},
        {"topic": [row["topic"]], "queue_id": row["queue_id"], "starting_offsets": at},
        {"topic": [row["topic"]], "ending_timestamp": row["store_timestamp"]},
    ):
        assert same_as_scan(store.root, **options).explanation.plan == "queues"
    assert "has a unit" in same_as_scan(store.root, physical_offset=row["physical_offset"]).explanation.why
    if row["unique_key"]:
        plan = same_as_scan(store.root, unique_key=row["unique_key"], topic=[row["topic"]])
        assert plan.explanation.plan in {"index", "queues"}
