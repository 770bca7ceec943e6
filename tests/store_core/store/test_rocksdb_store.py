# SPDX-License-Identifier: Apache-2.0
"""A store whose queues are in a RocksDB, opened read-only, answers as RocketMQ does."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from store_core import DefaultMessageStore, MessageStoreConfig, UnsupportedStoreError, read_messages
from store_core.format.columns import COLUMNS, STORE
from tests.golden_stores import UnpackedStore, newer_store, table_rows, unpack_newer
from tests.store_core.queue.consume_queues import units_in
from tests.store_core.snapshot.test_queues import STORES, queues_of

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.golden

IN_ROCKSDB = [name for name in STORES if "cqdouble" not in name]
IN_REPOSITORY = "5.5.0/rocksdb-crash"


def opened(store: UnpackedStore, root: Path | None = None) -> DefaultMessageStore:
    config = MessageStoreConfig(release=store.golden.release)  # type: ignore[arg-type]  # one that there is
    return DefaultMessageStore.open(root or store.root, config, read_only=True)


def lines_of(store: UnpackedStore, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (store.path / name).read_text(encoding="utf-8").splitlines()]


def state(root: Path) -> dict[Path, tuple[int, int, int]]:
    found = {path: path.stat() for path in (root, *root.rglob("*"))}
    return {path: (each.st_mtime_ns, each.st_ctime_ns, each.st_size) for path, each in found.items()}


@pytest.mark.parametrize("name", IN_ROCKSDB)
def test_units_gets_and_times_are_those_of_rocketmq(name: str, golden_directory: Path) -> None:
    store = unpack_newer(name, golden_directory)
    before = state(store.root)
    with opened(store) as message_store:
        for (topic, queue_id), answer in queues_of(store).items():
            queue = message_store.consume_queue_store.get(topic, queue_id)
            assert queue is not None
            assert (answer["minOffset"], answer["maxOffset"]) == (queue.min_offset_in_queue, queue.max_offset_in_queue)
            found = [unit[:4] for unit in units_in(queue, queue.min_offset_in_queue)]
            assert [(each["offset"], each["pos"], each["size"], each["tagsCode"]) for each in answer["units"]] == found
        for line in lines_of(store, "bytime.jsonl"):
            queue_name = line["topic"], line["queueId"]
            times = {int(time): offset for time, offset in line["offsets"].items()}
            assert times == {time: message_store.get_offset_in_queue_by_time(*queue_name, time) for time in times}
        for line in lines_of(store, "pull.jsonl"):
            if line["type"] != "get":
                continue
            got = message_store.get_message("group", line["topic"], line["queueId"], line["offset"], 32)
            assert got is not None
            assert (line["status"], line["nextBeginOffset"], line["minOffset"], line["maxOffset"]) == (
                got.status.name, got.next_begin_offset, got.min_offset, got.max_offset,
            )  # fmt: skip
            assert line["messageCount"] == got.message_count

    assert before == state(store.root)


@pytest.mark.parametrize("name", [*STORES, *filter(newer_store, ["5.5.0/rockskv"])])
def test_rows_are_those_of_rocketmq(name: str, golden_directory: Path) -> None:
    store = unpack_newer(name, golden_directory)
    table = read_messages(
        store.root, columns=[column.name for column in COLUMNS if column.name != STORE], release=store.golden.release
    )

    assert store.expected() == table_rows(table.read_all())


def test_units_after_the_end_of_a_log_that_was_cut_are_left_out(golden_directory: Path, tmp_path: Path) -> None:
    store = unpack_newer(IN_REPOSITORY, golden_directory)
    root = shutil.copytree(store.root, tmp_path / "store")
    for segment in sorted((root / "commitlog").iterdir())[2:]:
        segment.unlink()
    with opened(store, root) as message_store:
        end = message_store.max_physical_offset
        found = {
            (queue.topic, queue.queue_id): [unit[0] for unit in units_in(queue)]
            for queue in message_store.consume_queue_store.queues()
            if queue.max_offset_in_queue
        }
        assert end < 2 * 131_072

    expected = {
        queue: [unit["offset"] for unit in answer["units"] if unit["pos"] < end]
        for queue, answer in queues_of(store).items()
    }
    assert {queue: units for queue, units in expected.items() if units} == found


def test_it_is_refused_by_name_for_writing_and_a_dry_run_says_so(golden_directory: Path, tmp_path: Path) -> None:
    root = shutil.copytree(unpack_newer(IN_REPOSITORY, golden_directory).root, tmp_path / "store")
    before = state(root)

    with pytest.raises(UnsupportedStoreError, match="is read and never written"):
        DefaultMessageStore.open(root)
    assert "storeType=defaultRocksDB" in str(DefaultMessageStore.dry_run(root).refusal)
    assert before == state(root)


def test_messages_of_a_queue_are_found_by_tag_and_by_time(golden_directory: Path) -> None:
    store = unpack_newer(IN_REPOSITORY, golden_directory)
    with opened(store) as message_store:
        earliest = message_store.get_earliest_message_time("orders", 0)
        last = message_store.get_max_offset_in_queue("orders", 0) - 1

        assert 0 < earliest <= message_store.get_message_store_timestamp("orders", 0, last)
        assert message_store.get_commit_log_offset_in_queue("orders", 0, last) > 598_926  # not in the RocksDB
        assert 0 == message_store.get_commit_log_offset_in_queue("orders", 0, last + 1)
