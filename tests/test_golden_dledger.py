# SPDX-License-Identifier: Apache-2.0
"""Golden stores with a DLedger log are read as RocketMQ read them, field by field; so are their queues."""

from __future__ import annotations

import json
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pytest

from store_core import read_messages, read_view
from store_core.answers import check, diff
from store_core.errors import UnsupportedStoreError
from store_core.format.columns import COLUMNS, STORE
from tests.golden_stores import GoldenStore, UnpackedStore, stores_of_kind, table_rows, unpack, unpack_field_case

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.golden

ALL = [column.name for column in COLUMNS if column.name != STORE]  # whose value is no message's


@pytest.fixture(params=stores_of_kind("dledger"), ids=attrgetter("name"))
def store(request: pytest.FixtureRequest, golden_directory: Path) -> UnpackedStore:
    golden: GoldenStore = request.param
    return unpack(golden, golden_directory)


def view(store: UnpackedStore, name: str, *columns: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_view(store.root, name, columns=list(columns)).read_all().to_pylist()
    return rows


@pytest.mark.parametrize("size", [None, 20_000])
def test_every_message_is_as_rocketmq_reads_it(
    store: UnpackedStore, size: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    table = read_messages(store.root, columns=ALL, max_partition_bytes=size).read_all()
    table.validate(full=True)
    assert not caplog.messages
    expected, actual = store.expected(), table_rows(table)

    for row, other in zip(expected, actual, strict=False):
        assert row == other
    assert len(expected) == len(actual)


def test_entries_are_numbered_and_committed(store: UnpackedStore) -> None:
    columns = ["segment", "dledger_index", "dledger_term", "dledger_committed"]
    rows = read_messages(store.root, columns=columns).read_all().to_pylist()
    old = {path.name for path in store.segments if path.parent.name == "commitlog"}
    entries = [row for row in rows if row["segment"] not in old]

    assert [(number, 0, True) for number in range(762)] == [
        (row["dledger_index"], row["dledger_term"], row["dledger_committed"]) for row in entries
    ]
    assert all(row[name] is None for row in rows if row["segment"] in old for name in columns[1:])


def test_units_and_bounds_of_queues_are_those_that_rocketmq_reads(store: UnpackedStore) -> None:
    lines = map(json.loads, store.path.joinpath("queues.jsonl").read_text().splitlines())
    queues = [line for line in lines if line["type"] == "queue"]
    units = view(store, "consumequeue", "topic", "queue_id", "queue_offset", "physical_offset", "store_size")
    found = view(store, "topics", "topic", "queue_id", "min_offset", "max_offset", "newest_store_timestamp")
    times = {row["physical_offset"]: row["store_timestamp"] for row in store.expected()}
    last = {(queue["topic"], queue["queueId"]): times[queue["units"][-1]["pos"]] for queue in queues if queue["units"]}

    assert {
        (queue["topic"], queue["queueId"], unit["offset"], unit["pos"], unit["size"])
        for queue in queues
        for unit in queue["units"]
    } == {tuple(row.values()) for row in units}
    assert {
        (line["topic"], line["queueId"], line["minOffset"], line["maxOffset"]) for line in queues if line["units"]
    } == {tuple(row.values())[:4] for row in found}
    assert last == {
        (row["topic"], row["queue_id"]): round(row["newest_store_timestamp"].timestamp() * 1000) for row in found
    }


def test_the_log_ends_where_rocketmq_ends_it(store: UnpackedStore) -> None:
    rows = view(store, "segments", "data_end", "messages", "is_last", "stop_reason")

    assert store.info["maxPhyOffset"] == rows[-1]["data_end"]
    assert len(store.expected()) == sum(row["messages"] for row in rows)
    assert [False] * (len(rows) - 1) + [True] == [row["is_last"] for row in rows]


# ---- a log in several directories


@pytest.fixture
def spread(tmp_path: Path) -> Path:
    """Unpack a store of RocketMQ 4.9.7 whose DLedger log is in three directories, beside its configuration."""
    root = unpack_field_case("dledger-multipath", tmp_path) / "store"
    paths = ",".join(f"{root}/multi/{name}" for name in "abc")
    (tmp_path / "broker.conf").write_text(
        f"storePathRootDir={root}\nenableDLegerCommitLog=true\ndLegerSelfId=n0\nstorePathDLedgerCommitLog={paths}\n"
    )
    return root


def test_a_dledger_log_in_several_directories_is_read_by_its_configuration(
    spread: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = read_messages(spread, config=tmp_path / "broker.conf", columns=["queue_offset", "body"]).read_all()
    topics = read_view(spread, "topics", config=tmp_path / "broker.conf", columns=["messages"]).read_all()

    assert list(range(1000)) == rows["queue_offset"].to_pylist()
    assert [1000] == topics["messages"].to_pylist()
    assert not caplog.records


@pytest.mark.parametrize("order", ["abc", "cab"])
def test_a_dledger_log_in_several_directories_is_read_from_their_list(
    spread: Path, tmp_path: Path, order: str, caplog: pytest.LogCaptureFixture
) -> None:
    whole = read_messages(spread, config=tmp_path / "broker.conf").read_all()
    rows = read_messages([spread / "multi" / name for name in order]).read_all()

    assert whole.equals(rows)
    assert 1 == sum("which of its entries are committed is not known" in each.getMessage() for each in caplog.records)
    assert (
        read_messages(spread, store_path_commit_log=f"{spread}/multi/a,{spread}/multi/b,{spread}/multi/c")
        .read_all()
        .equals(whole)
    )


def test_a_dledger_log_in_several_directories_is_refused_by_name_where_it_is_not_read(
    spread: Path, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedStoreError, match="DLedger"):
        check(spread, config=tmp_path / "broker.conf")
    with pytest.raises(UnsupportedStoreError, match="DLedger"):
        diff(spread / "multi" / "a", spread / "multi" / "b")
