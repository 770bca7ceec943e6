# SPDX-License-Identifier: Apache-2.0
"""The views of golden stores show what RocketMQ itself reads back from them, and as of a time what was there then."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from store_core import InvalidOptionError, StoreNotFoundError, read_messages, read_view
from store_core.format.layout import CHECKPOINT
from store_core.format.release import rules_of
from store_core.store.read.read_plan import log_end_at
from store_core.views.view_columns import VIEWS
from tests.golden_stores import UnpackedStore, find_golden_store, golden_stores, has_stores_beside, newer_store, unpack
from tests.viewed_store import refusal, rows_of, write_config

if TYPE_CHECKING:
    from pathlib import Path

    from tests.golden_stores import Golden


Queues = dict[tuple[str, int], dict[str, Any]]


def queues_of(store: UnpackedStore) -> Queues:
    """Return RocketMQ's answers on each queue, by topic and id."""
    path = store.path / "queues.jsonl"
    lines = path if path.exists() else store.path / "dump.jsonl"
    answers = map(json.loads, lines.read_text().splitlines())
    return {(line["topic"], line["queueId"]): line for line in answers if line["type"] == "queue"}


unchanged = pytest.mark.parametrize(
    "name", [store.name for store in golden_stores() if not store.is_torn and store.scenario != "crash"]
)
"""With stores from which RocketMQ's recovery dropped nothing before it answered."""

loaded = pytest.mark.parametrize("name", [store.name for store in golden_stores() if store.scenario != "crash"])
"""And with those of which it dropped units of records that are not in the log."""


def test_units_are_those_that_rocketmq_reads(golden_store: UnpackedStore) -> None:
    expected = {
        (*queue, unit["offset"]): (unit["pos"], unit["size"], unit["tagsCode"], unit.get("batchNum", 1))
        for queue, answer in queues_of(golden_store).items()
        for unit in answer["units"]
    }
    end = max(row["physical_offset"] + row["store_size"] for row in golden_store.expected())
    columns = ["topic", "queue_id", "queue_offset", "physical_offset", "store_size", "tags_code", "batch_num"]
    found = {
        tuple(row.values())[:3]: tuple(row.values())[3:]
        for row in rows_of(golden_store.root, "consumequeue", columns=[*columns, "is_filler"])
        if not row.pop("is_filler") and row["physical_offset"] < end
    }
    deleted = {
        unit for unit in found.keys() - expected.keys() if unit[2] < queues_of(golden_store)[unit[:2]]["minOffset"]
    }

    assert expected == {unit: values for unit, values in found.items() if unit not in deleted}


@loaded
def test_topics_have_the_bounds_that_rocketmq_answers(name: str, golden: Golden) -> None:
    store = golden(name)
    answers = queues_of(store)
    expected = {queue: (max(each["minOffset"], 0), each["maxOffset"]) for queue, each in answers.items()}
    without_files = {queue for queue, bounds in expected.items() if bounds == (0, 0)}
    rows = rows_of(store.root, "topics", columns=["topic", "queue_id", "min_offset", "max_offset", "in_queues"])

    found = {
        (row["topic"], row["queue_id"]): (row["min_offset"], row["max_offset"]) for row in rows if row["in_queues"]
    }

    assert expected == found | dict.fromkeys(without_files, (0, 0))


@loaded
def test_times_of_a_queue_are_those_of_its_first_and_last_message(name: str, golden: Golden) -> None:
    golden_store = golden(name)
    times = {row["physical_offset"]: row["store_timestamp"] for row in golden_store.expected()}
    units: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row in rows_of(golden_store.root, "consumequeue"):
        if row["physical_offset"] in times and not row["is_filler"]:
            units[row["topic"], row["queue_id"]].append(times[row["physical_offset"]])
    columns = ["topic", "queue_id", "oldest_store_timestamp", "newest_store_timestamp", "in_queues"]
    for row in rows_of(golden_store.root, "topics", columns=columns):
        stored = units.get((row["topic"], row["queue_id"]), [])
        is_known = golden_store.golden.is_torn or row["newest_store_timestamp"] is not None
        if row["in_queues"] and stored and is_known:
            assert stored[0] == round(row["oldest_store_timestamp"].timestamp() * 1000)
            assert stored[-1] == round(row["newest_store_timestamp"].timestamp() * 1000)


def test_segments_count_the_messages_and_end_where_the_read_ends(golden_store: UnpackedStore) -> None:
    messages = read_messages(golden_store.root, columns=["physical_offset", "store_size", "segment"]).read_all()
    expected: dict[str, tuple[int, int]] = {}
    for row in messages.to_pylist():
        count = expected.get(row["segment"], (0, 0))[0]
        expected[row["segment"]] = (count + 1, row["physical_offset"] + row["store_size"])
    rows = rows_of(golden_store.root, "segments")

    assert expected == {row["segment"]: (row["messages"], row["data_end"]) for row in rows if row["messages"]}
    assert [max(expected)] == [row["segment"] for row in rows if row["is_last"]]
    assert {"END_OF_FILE"} >= {row["stop_reason"] for row in rows if row["segment"] < max(expected)}


@pytest.mark.parametrize("name", [store.name for store in golden_stores() if store.is_torn])
def test_what_was_committed_past_the_end_of_a_torn_log_is_beyond_the_end(
    name: str, golden: Golden, tmp_path: Path
) -> None:
    store = golden(name)
    root = shutil.copytree(store.root, tmp_path / "store")
    torn = json.loads((store.path / "recovered.json").read_text().splitlines()[0])["afterLoad"]["maxPhyOffset"]
    units = rows_of(store.root, "consumequeue", columns=["topic", "queue_id", "queue_offset", "physical_offset"])
    unit = next(each for each in units if each["physical_offset"] == torn)
    queue = unit["topic"], unit["queue_id"]
    write_config(
        root, "consumerOffset.json", f'{{"offsetTable":{{"{queue[0]}@g":{{{queue[1]}:{unit["queue_offset"] + 1}}}}}}}'
    )
    (row,) = read_view(root, "consumer_offsets").read_all().to_pylist()

    assert ("beyond_end", None) == (row["state"], row["behind"])
    assert queues_of(store)[queue]["maxOffset"] == unit["queue_offset"] == row["max_offset"]


@unchanged
def test_index_entries_are_found_by_the_keys_that_rocketmq_answers(name: str, golden: Golden) -> None:
    golden_store = golden(name)
    path = golden_store.path / "index.jsonl"
    by_hash = defaultdict(set)
    for row in rows_of(golden_store.root, "index"):
        by_hash[row["key_hash"]].add(row["physical_offset"])
    asked = path.read_text().splitlines()[:50] if path.exists() else []  # a broker's store has no such answers
    for line in map(json.loads, asked):
        rows = rows_of(golden_store.root, "index", topic=line["topic"], key=line["key"])

        assert set(line["offsets"]) <= {row["physical_offset"] for row in rows}
        assert all(by_hash[row["key_hash"]] == {each["physical_offset"] for each in rows} for row in rows)


@pytest.mark.parametrize("name", [store.name for store in golden_stores() if store.scenario != "live"])
def test_checkpoint_has_the_fields_that_rocketmq_loads(name: str, golden: Golden) -> None:
    store = golden(name)
    rows = rows_of(store.root, "checkpoint", release=store.golden.release)
    answer = json.loads((store.path / "recovered.json").read_text().splitlines()[0])
    loaded = answer["afterLoad"]["checkpoint"]
    names = {field.name: field.java_name for field in CHECKPOINT.fields}
    found = {names[row["name"]]: row["value"] for row in rows}

    flushed = found.pop("logicsPhysicalOffset", None)  # the answers leave it out
    assert (flushed is not None) is rules_of(store.golden.release).keeps_flushed_queue_offset
    assert loaded.keys() == found.keys()
    assert loaded["indexMsgTimestamp"] == found["indexMsgTimestamp"]  # recovery changes the others


@pytest.mark.skipif(not has_stores_beside(), reason="the store of a broker is in the larger collection only")
def test_a_brokers_files_are_read(golden: Golden) -> None:
    store = golden("5.3.3/live")
    offsets = {
        (row["consumer_group"], row["topic"], row["queue_id"]): row for row in rows_of(store.root, "consumer_offsets")
    }
    topics = rows_of(store.root, "topics")

    assert 10 == len(offsets)
    assert {"committed_offset": 494, "behind": 1649, "state": "ok"}.items() <= offsets[
        "lab_group", "LiveTopic", 0
    ].items()
    assert [{"delay_level": 3, "offset": 30, "config_file": "config/delayOffset.json"}] == rows_of(
        store.root, "delay_offsets"
    )
    assert 10 == len(rows_of(store.root, "subscription_groups"))
    assert {True, None} >= {row["in_config"] for row in topics if row["topic"] == "LiveTopic"}
    assert {4} == {row["read_queue_nums"] for row in topics if row["topic"] == "LiveTopic"}


# ---- as of a time, without the records from where the log ended then

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
        found = rows_of(root, view, fail_on_data_loss=False)
        expected = [row for row in found if row["physical_offset"] < end]

        assert expected == rows_of(root, view, as_of=time, fail_on_data_loss=False)


@pytest.mark.golden
def test_queues_end_after_their_last_unit_before_the_end(root: Path, time: int, end: int) -> None:
    now, then = by_queue(rows_of(root, "topics")), by_queue(rows_of(root, "topics", as_of=time))
    heads = {queue: row["min_offset"] for queue, row in now.items()}
    records = read_messages(root, columns=["topic", "queue_id", "queue_offset", "physical_offset", "transaction_type"])
    for row in rows_of(root, "consumequeue"):
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
    found = rows_of(root, "segments", as_of=time)
    read = read_messages(root, columns=["physical_offset"], as_of=time).read_all()

    assert read.num_rows == sum(row["messages"] for row in found)
    assert all(row["data_end"] <= end for row in found)
    assert [True] * bool(found) == [row["is_last"] for row in found if row["is_last"]]


@pytest.mark.golden
def test_what_was_committed_since_counts_as_consumed(root: Path, time: int, tmp_path: Path) -> None:
    store = shutil.copytree(root, tmp_path / "store")
    queues = by_queue(rows_of(store, "topics"))
    heads = by_queue(rows_of(store, "topics", as_of=time))
    text = ",".join(
        f'"{topic}@group":{{{queue_id}:{(row["min_offset"] + row["max_offset"]) // 2}}}'
        for (topic, queue_id), row in queues.items()
        if "@" not in topic and queue_id == min(each[1] for each in queues if each[0] == topic)
    )
    write_config(store, "consumerOffset.json", f'{{"offsetTable":{{{text}}}}}')
    found = by_queue(rows_of(store, "consumer_offsets", as_of=time))

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
