# SPDX-License-Identifier: Apache-2.0
"""Views of stores whose queues are in a RocksDB show what RocketMQ reads back from them."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from store_core import read_messages, read_view
from store_core.errors import UnsupportedStoreError
from store_core.files import rocksdb_reader
from tests.golden_stores import unpack_newer
from tests.store_core.queue.test_rocksdb_queues import STORES, queues_of

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.golden

IN_REPOSITORY = "5.5.0/rocksdb-crash"


def rows_of(root: Path, view: str, **options: Any) -> list[dict[str, Any]]:  # noqa: ANN401 -- as of `read_view`
    rows: list[dict[str, Any]] = read_view(root, view, **options).read_all().to_pylist()
    return rows


@pytest.mark.parametrize("name", STORES)
def test_units_are_those_of_rocketmq_with_the_store_times_of_their_records(name: str, golden_directory: Path) -> None:
    store = unpack_newer(name, golden_directory)
    columns = ["topic", "queue_id", "queue_offset", "physical_offset", "store_size", "store_timestamp"]
    records = {tuple(row.values()) for row in read_messages(store.root, columns=columns).read_all().to_pylist()}
    answers = queues_of(store)
    rows = rows_of(store.root, "consumequeue", columns=[*columns, "tags_code", "kind", "batch_num", "segment"])
    live = [row for row in rows if row["queue_offset"] >= answers[row["topic"], row["queue_id"]]["minOffset"]]
    expected = {
        (*queue, unit["offset"]): (unit["pos"], unit["size"], unit["tagsCode"])
        for queue, answer in answers.items()
        for unit in answer["units"]
    }

    found = {
        (row["topic"], row["queue_id"], row["queue_offset"]): (
            row["physical_offset"], row["store_size"], row["tags_code"],
        )
        for row in live
    }  # fmt: skip
    assert found.items() <= expected.items()
    assert "crash" in name or expected == found
    if "cqdouble" in name:
        assert {"simple"} == {row["kind"] for row in rows}
    else:
        assert {("rocksdb", 1, None)} == {(row["kind"], row["batch_num"], row["segment"]) for row in rows}
        assert {tuple(row[column] for column in columns) for row in live} <= records


@pytest.mark.parametrize("name", STORES)
def test_topics_have_the_bounds_of_rocketmq_also_for_what_was_not_flushed(name: str, golden_directory: Path) -> None:
    store = unpack_newer(name, golden_directory)
    rows = rows_of(store.root, "topics")

    assert {queue: (each["minOffset"], each["maxOffset"]) for queue, each in queues_of(store).items()} == {
        (row["topic"], row["queue_id"]): (row["min_offset"], row["max_offset"]) for row in rows
    }
    assert all(row["oldest_store_timestamp"] <= row["newest_store_timestamp"] for row in rows if row["messages"])


def test_lag_counts_what_was_not_flushed(golden_directory: Path, tmp_path: Path) -> None:
    store = unpack_newer(IN_REPOSITORY, golden_directory)
    root = shutil.copytree(store.root, tmp_path / "store")
    (root / "config").mkdir()
    committed = {f"{topic}@group": {str(queue_id): 1} for topic, queue_id in queues_of(store)}
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": committed}))

    rows = rows_of(root, "consumer_offsets")
    ends = {queue: each["maxOffset"] for queue, each in queues_of(store).items()}
    assert {ends[row["topic"], row["queue_id"]] - 1 for row in rows} == {row["behind"] for row in rows}
    assert {"ok"} == {row["state"] for row in rows}


def test_parts_and_bounds_give_the_same_units(golden_directory: Path) -> None:
    root = unpack_newer(IN_REPOSITORY, golden_directory).root
    rows = rows_of(root, "consumequeue")

    assert rows == rows_of(root, "consumequeue", max_partition_bytes=1000, max_records_per_batch=7)
    some = rows_of(root, "consumequeue", topic="orders", queue_id=2, starting_offsets=100_000)
    assert some == [
        row for row in rows if (row["topic"], row["queue_id"]) == ("orders", 2) and row["physical_offset"] >= 100_000
    ]


def test_without_the_library_the_log_is_read_and_a_view_of_queues_says_what_to_install(
    golden_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = unpack_newer(IN_REPOSITORY, golden_directory).root
    monkeypatch.setattr(rocksdb_reader, "find_spec", lambda _: None)

    assert 1_012 == read_messages(root, columns=["topic"]).read_all().num_rows
    for view in ("consumequeue", "topics"):
        with pytest.raises(UnsupportedStoreError, match="pip install"):
            read_view(root, view)
