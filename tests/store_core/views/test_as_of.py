# SPDX-License-Identifier: Apache-2.0
"""As of a time, views show queues, index and segments without the records from where the log ended then."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from store_core import InvalidOptionError, StoreNotFoundError, read_messages
from store_core.store.read.read_plan import log_end_at
from store_core.views.view_columns import VIEWS
from tests.golden_stores import find_golden_store, newer_store, unpack
from tests.store_core.views.asking import refusal, rows
from tests.viewed_store import write_config

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["5.3.3/propcrc", "5.3.3/bcq", "5.3.3/lmq", "4.9.7/ipv6", "5.5.0/rocksdb-crash"]
THEN = [view for view, each in VIEWS.items() if "as_of" in each.options]


@pytest.fixture(scope="module", params=NAMES)
def root(request: pytest.FixtureRequest, golden_directory: Path) -> Path:
    name = str(request.param)
    golden = newer_store(name) if "rocksdb" in name else find_golden_store(name)
    assert golden is not None
    return unpack(golden, golden_directory).root


@pytest.fixture(scope="module", params=[0.0, 0.4, 2.0])
def time(request: pytest.FixtureRequest, root: Path) -> int:
    """Return a store time between those of the first and the last record, or one after it."""
    table = read_messages(root, columns=["store_timestamp"]).read_all()["store_timestamp"]
    times = [value // 1000 for value in table.cast("int64").to_pylist()]
    share = float(request.param)
    return int(times[int(share * len(times))] if share < 1 else times[-1] + 1)


@pytest.fixture(scope="module")
def end(root: Path, time: int) -> int:
    found = log_end_at(root, time)
    return 2**62 if found is None else found


def by_queue(found: list[dict[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    return {(row["topic"], row["queue_id"]): row for row in found if row["queue_id"] is not None}


@pytest.mark.golden
def test_units_and_entries_are_those_of_records_before_the_end(root: Path, time: int, end: int) -> None:
    for view in ("consumequeue", "index"):
        found = rows(root, view, fail_on_data_loss=False)
        expected = [row for row in found if row["physical_offset"] < end]

        assert expected == rows(root, view, as_of=time, fail_on_data_loss=False)


@pytest.mark.golden
def test_queues_end_after_their_last_unit_before_the_end(root: Path, time: int, end: int) -> None:
    now, then = by_queue(rows(root, "topics")), by_queue(rows(root, "topics", as_of=time))
    heads = {queue: row["min_offset"] for queue, row in now.items()}
    records = read_messages(root, columns=["topic", "queue_id", "queue_offset", "physical_offset", "transaction_type"])
    for row in rows(root, "consumequeue"):
        if row["physical_offset"] < end and not row["is_filler"]:
            queue = row["topic"], row["queue_id"]
            heads[queue] = max(heads[queue], row["queue_offset"] + row["batch_num"])
    for row in records.read_all().to_pylist() if "rocksdb" in str(root) else ():
        if row["physical_offset"] < end and row["transaction_type"] in ("NOT_TYPE", "COMMIT_TYPE"):
            queue = row["topic"], row["queue_id"]
            heads[queue] = max(heads[queue], row["queue_offset"] + 1)

    assert heads == {queue: row["max_offset"] for queue, row in then.items()}
    assert all(row["messages"] == row["max_offset"] - row["min_offset"] for row in then.values())
    assert all(row["newest_store_timestamp"] is None or row["messages"] for row in then.values())


@pytest.mark.golden
def test_segments_have_the_records_of_a_read(root: Path, time: int, end: int) -> None:
    found = rows(root, "segments", as_of=time)
    read = read_messages(root, columns=["physical_offset"], as_of=time).read_all()

    assert read.num_rows == sum(row["messages"] for row in found)
    assert all(row["data_end"] <= end for row in found)
    assert [True] * bool(found) == [row["is_last"] for row in found if row["is_last"]]


@pytest.mark.golden
def test_what_was_committed_since_counts_as_consumed(root: Path, time: int, tmp_path: Path) -> None:
    store = shutil.copytree(root, tmp_path / "store")
    queues = by_queue(rows(store, "topics"))
    heads = by_queue(rows(store, "topics", as_of=time))
    text = ",".join(
        f'"{topic}@group":{{{queue_id}:{(row["min_offset"] + row["max_offset"]) // 2}}}'
        for (topic, queue_id), row in queues.items()
        if "@" not in topic and queue_id == min(each[1] for each in queues if each[0] == topic)
    )
    write_config(store, "consumerOffset.json", f'{{"offsetTable":{{{text}}}}}')
    found = by_queue(rows(store, "consumer_offsets", as_of=time))

    assert found
    for queue, row in found.items():
        assert ("ok", heads[queue]["max_offset"]) == (row["state"], row["max_offset"])
        assert max(heads[queue]["max_offset"] - row["committed_offset"], 0) == row["behind"]


def test_views_of_files_that_no_time_is_in_refuse_it(pristine: Path) -> None:
    assert ["consumequeue", "index", "segments", "topics", "consumer_offsets"] == THEN
    for view in set(VIEWS) - set(THEN):
        assert isinstance(refusal(pristine, view, as_of=0), InvalidOptionError)


def test_without_a_log_the_past_is_not_known(store: Path) -> None:
    shutil.rmtree(store / "commitlog")

    assert isinstance(refusal(store, "topics", as_of=0), StoreNotFoundError)
