# SPDX-License-Identifier: Apache-2.0
"""Several stores at once give the rows of each, one after the other, whatever is asked."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from store_core import Store, read_messages, read_view, sql
from store_core.errors import CorruptRecordError, StoreNotFoundError
from store_core.views.view_names import VIEW_PLANS
from tests.builders import MAGIC_AT, patch
from tests.golden_stores import find_golden_store, unpack
from tests.store_core.command.calls import call
from tests.stores_in_memory import in_memory
from tests.viewed_store import make_viewed_store

if TYPE_CHECKING:
    from pathlib import Path

_COLUMNS = ["store", "topic", "queue_id", "queue_offset", "physical_offset", "body"]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Make stores of two brokers: one written by RocketMQ, one by us."""
    top = tmp_path_factory.mktemp("cluster")
    golden = unpack(find_golden_store("5.5.0/tx"), top / "golden").root
    return [shutil.copytree(golden, top / "a" / "store"), make_viewed_store(top / "b" / "store")]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"topic": ["orders", "tx_topic"]},
        {"queue_id": 0},
        {"starting_offsets": 4096},
        {"ending_offsets": 9000, "topic": "orders"},
        {"as_of": "2023-11-14T22:14:00Z"},
        {"starting_timestamp": 1_700_000_010_000},
        {"key": "k1"},
        {"mode": "PERMISSIVE"},
        {"use_consume_queues": "never", "tag": "paid"},
    ],
)
def test_rows_are_those_of_each_store(stores: list[Path], options: dict[str, Any]) -> None:
    names = [Store(stores[0]).name, stores[1].parent.name]
    found = read_messages(stores, columns=_COLUMNS, **options).read_all()
    expected = [read_messages(store, columns=_COLUMNS[1:], **options).read_all() for store in stores]

    assert pa.concat_tables(expected).equals(found.drop(["store"]))
    assert [name for name, each in zip(names, expected, strict=True) for _ in range(each.num_rows)] == found[
        "store"
    ].to_pylist()


def test_one_store_has_a_name_too(stores: list[Path]) -> None:
    assert {"lab"} == set(read_messages(stores[0], columns="store").read_all()["store"].to_pylist())
    assert {"lab"} == set(Store(stores[0]).messages(columns="store").read_all()["store"].to_pylist())


@pytest.mark.parametrize("view", ["messages", *VIEW_PLANS])
def test_views_are_those_of_each_store(stores: list[Path], view: str) -> None:
    options: dict[str, Any] = {} if view == "messages" else {"fail_on_data_loss": False}
    alone = [read_view(store, view, **options).read_all() for store in stores]
    columns = ["store", *alone[0].column_names]
    found = read_view(stores, view, columns, **options).read_all()

    assert pa.concat_tables(alone).equals(found.drop(["store"]))
    assert ["lab"] * alone[0].num_rows + ["b"] * alone[1].num_rows == found["store"].to_pylist()
    assert found["store"].to_pylist() == read_view(stores, view, "store", **options).read_all()["store"].to_pylist()


def test_sql_asks_all(stores: list[Path]) -> None:
    found = sql("SELECT store, count(*) AS n FROM messages GROUP BY 1 ORDER BY n", stores).read_all().to_pylist()
    joined = sql("SELECT DISTINCT store FROM topics JOIN messages USING (store, topic)", stores).read_all()

    assert [{"store": "b", "n": 90}, {"store": "lab", "n": 323}] == found
    assert {"b", "lab"} == set(joined["store"].to_pylist())


def test_stores_of_different_storages(stores: list[Path]) -> None:
    paths: list[str | Path] = [in_memory(stores[1], "cluster/b"), stores[0]]

    assert 413 == read_messages(paths, topic=None).read_all().num_rows
    assert 20 < read_messages(paths, topic="orders").read_all().num_rows < 90


def test_a_time_before_the_last_message_is_before_the_last_of_all(stores: list[Path]) -> None:
    last = max(filter(None, (Store(store).last_store_time for store in stores)))

    assert read_messages(stores, starting_timestamp=last - 60_000).read_all() == (
        read_messages(stores, starting_timestamp="-1m").read_all()
    )


def test_damage_in_one_store_is_an_error_that_names_it_after_the_rows_before(
    stores: list[Path], tmp_path: Path
) -> None:
    broken = shutil.copytree(stores[1], tmp_path / "broken")
    patch(broken / "commitlog" / f"{0:020d}", MAGIC_AT, b"\0\1\2\3")
    reader = read_messages([stores[0], broken])
    rows = 0

    with pytest.raises(CorruptRecordError, match="broken/commitlog"):  # noqa: PT012 -- which batch has it
        for batch in reader:
            rows += batch.num_rows
    assert 323 == rows
    (tmp_path / "empty" / "commitlog").mkdir(parents=True)
    with pytest.raises(StoreNotFoundError, match="empty"):
        read_messages([stores[0], tmp_path / "empty"])


# ---- commands


def test_commands_take_several_stores_and_patterns(stores: list[Path]) -> None:
    pattern = f"{stores[0].parent.parent}/[ab]/store"

    assert [{"store": "b", "messages": 90}, {"store": "lab", "messages": 323}] == [
        {name: row[name] for name in ("store", "messages")}
        for row in call("count", pattern, "--by", "store", "--format", "jsonl").rows
    ]
    assert 413 == call("count", *stores, "--format", "jsonl").rows[0]["messages"]
    assert 324 == len(call("head", *stores, "-n", 324, "--columns", "store", "--format", "jsonl").rows)
    last = call("tail", *stores, "-n", 1, "--columns", "store", "--format", "jsonl").rows
    assert ["lab", "b"] == [row["store"] for row in last]
    assert {"lab", "b"} == {row["store"] for row in call("ls", *stores, "--columns", "store", "--format", "jsonl").rows}
    view = call("view", *stores, "checkpoint", "--columns", "store", "--format", "jsonl")
    assert ["lab", "b"] == list(dict.fromkeys(row["store"] for row in view.rows))
    asked = call("sql", pattern, "SELECT DISTINCT store FROM messages ORDER BY 1", "--format", "jsonl")
    assert ["b", "lab"] == [row["store"] for row in asked.rows]
    assert ["lab", "b"] == [row["store"] for row in call("explain", *stores, "--format", "jsonl").rows]


def test_get_looks_in_all(stores: list[Path]) -> None:
    (row,) = call("get", *stores, "orders/1/5", "--columns", "store,queue_offset", "--format", "jsonl").rows
    missing = call("get", *stores, "no such key")

    assert {"store": "b", "queue_offset": 5} == row
    assert 2 == missing.code
    assert all(str(store) in missing.errors for store in stores)


def test_a_topic_that_one_of_the_stores_has_is_known(stores: list[Path]) -> None:
    found = call("count", *stores, "--topic", "orders", "--format", "jsonl")
    none = call("count", *stores, "--topic", "order", "--format", "jsonl")

    assert (0, "") == (found.code, found.errors)
    assert 2 == none.code
    assert 1 == none.errors.count("did you mean 'orders'?")
