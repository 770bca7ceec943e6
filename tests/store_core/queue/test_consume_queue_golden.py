# SPDX-License-Identifier: Apache-2.0
"""Queues that RocketMQ wrote: read as RocketMQ reads them, and written again byte for byte."""

from __future__ import annotations

import base64
import json
import lzma
import shutil
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from store_core.files.clock import SystemClock
from store_core.files.file_system import OsFileSystem
from store_core.queue.consume_queue.consume_queue import ConsumeQueue, QueueServices
from store_core.queue.consume_queue.consume_queue_ext import ConsumeQueueExt
from store_core.queue.consume_queue.queue_search import BoundaryType, LogTimes
from store_core.queue.dispatch.dispatch_batch import DispatchRequest
from store_core.queue.queue_path import QueueRules
from tests.golden_stores import UnpackedStore, find_golden_store, has_stores_beside
from tests.store_core.queue.consume_queues import units_in

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = pytest.mark.golden

_LMQ: Final = "%LMQ%"


@dataclass
class GoldenQueues:
    """The simple queues of a golden store, in a copy that may be written."""

    store: UnpackedStore
    root: Path

    @cached_property
    def rules(self) -> QueueRules:
        return QueueRules(
            release=self.store.golden.release,  # type: ignore[arg-type]
            consume_queue_file_size=int(self.store.conf["cq-size"]),
            ext_file_size=int(self.store.conf.get("ext-size", 48 << 20)),
            is_ext_enabled="ext" in self.store.conf,
        )

    @cached_property
    def log_bounds(self) -> tuple[int, int]:
        """Where the log starts and ends, as RocketMQ found after loading."""
        (summary,) = self.store.lines("summary")
        return summary["afterLoad"]["minPhyOffset"], summary["afterLoad"]["maxPhyOffset"]

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        return self.store.lines("record")

    @cached_property
    def store_times(self) -> dict[tuple[int, int], int]:
        return {(line["physicalOffset"], line["storeSize"]): line["storeTimestamp"] for line in self.records}

    def store_time(self, physical_offset: int, size: int) -> int:
        return self.store_times.get((physical_offset, size), -1)

    def new(self, root: Path, topic: str, queue_id: int) -> ConsumeQueue:
        disk, clock = OsFileSystem(), SystemClock()
        ext = None
        if self.rules.is_ext_enabled:
            ext = ConsumeQueueExt(root / "consumequeue_ext" / topic / str(queue_id), self.rules, disk)
        directory = root / "consumequeue" / topic / str(queue_id)
        return ConsumeQueue(topic, queue_id, directory, QueueServices(self.rules, disk, clock), ext)

    @cached_property
    def opened(self) -> dict[tuple[str, int], ConsumeQueue]:
        """Load and recover the copy's queues, and cut them where the log ends."""
        for path in self.store.root.glob("consumequeue*"):
            shutil.copytree(path, self.root / path.name)
        queues = {}
        for path in sorted(self.root.glob("consumequeue/*/*")):
            key = path.parent.name, int(path.name)
            queues[key] = self.new(self.root, *key)
            queues[key].load()
            queues[key].recover()
        start, end = self.log_bounds
        largest = max((queue.max_physical_offset for queue in queues.values()), default=-1)
        is_crash = self.store.root.joinpath("abort").exists()
        for queue in queues.values():
            if is_crash if self.rules.release == "4.3" else largest >= end:
                queue.truncate_dirty_logic_files(end)
            queue.correct_min_offset(start)
        return queues

    def queued(self) -> dict[tuple[str, int], list[dict[str, Any]]]:
        """Return the records that have a unit of 20 bytes, by queue, in log order."""
        of_batches = self.store.conf.get("bcq-topics", "").split(",")
        queued = defaultdict(list)
        for line in self.records:
            if line["sysFlag"] & 12 not in (4, 12) and line["topic"] not in of_batches:
                queued[line["topic"], line["queueId"]].append(line)
        return queued

    def bit_maps(self) -> dict[tuple[str, int, int], bytes]:
        """Return the filter bit maps by topic, queue and physical offset: the store's maker chose them."""
        return {
            (queue["topic"], queue["queueId"], unit["pos"]): base64.b64decode(unit["ext"]["filterBitMap"] or "")
            for queue in self.store.lines("queue")
            for unit in queue["units"]
            if "ext" in unit
        }


@pytest.fixture
def queues(golden_store: UnpackedStore, tmp_path: Path) -> GoldenQueues:
    return GoldenQueues(golden_store, tmp_path / "store")


def files_below(root: Path) -> dict[str, bytes]:
    found = (path for kind in ("consumequeue", "consumequeue_ext") for path in (root / kind).rglob("*"))
    return {str(path.relative_to(root)): path.read_bytes() for path in found if path.is_file()}


def asked(queues: GoldenQueues, kind: str) -> list[tuple[dict[str, Any], ConsumeQueue]]:
    """Return the lines about simple queues that have files, each with its queue."""
    lines = [(line, queues.opened.get((line["topic"], line["queueId"]))) for line in queues.store.lines(kind)]
    found = [(line, queue) for line, queue in lines if queue is not None]
    assert set(queues.opened) == {(queue.topic, queue.queue_id) for _, queue in found}
    return found


def test_bounds_and_units_are_what_rocketmq_reads(queues: GoldenQueues) -> None:
    for line, queue in asked(queues, "queue"):
        bounds = queue.min_offset_in_queue, queue.max_offset_in_queue, queue.max_physical_offset
        assert (line["minOffset"], line["maxOffset"], line["maxPhysicOffset"]) == bounds
        expected = [(unit["offset"], unit["pos"], unit["size"], unit["tagsCode"]) for unit in line["units"]]
        assert expected == list(units_in(queue, queue.min_offset_in_queue))


def test_offsets_by_time_are_what_rocketmq_finds(queues: GoldenQueues) -> None:
    log = LogTimes(queues.store_time, queues.log_bounds[0])
    for line, queue in asked(queues, "byTime"):
        for timestamp, expected in line["offsets"].items():
            found = queue.get_offset_in_queue_by_time(int(timestamp), BoundaryType.LOWER, log)
            assert expected == found, (line["topic"], line["queueId"], timestamp)


def put(queue: ConsumeQueue, lines: list[dict[str, Any]], bit_maps: dict[tuple[str, int, int], bytes]) -> None:
    if queue.ext is None:
        keys = ("physicalOffset", "storeSize", "queueOffset")
        physical_offset, size, queue_offset = (np.array([line[key] for line in lines], np.int64) for key in keys)
        tags_code = np.array([line["dispatch"]["tagsCode"] for line in lines], np.int64)
        assert queue.put_units(physical_offset, size, tags_code, queue_offset)
        return
    for line in lines:
        request = DispatchRequest(
            topic=queue.topic,
            queue_id=queue.queue_id,
            physical_offset=line["physicalOffset"],
            message_size=line["storeSize"],
            tags_code=line["dispatch"]["tagsCode"],
            store_timestamp=line["storeTimestamp"],
            consume_queue_offset=line["queueOffset"],
            bit_map=bit_maps[queue.topic, queue.queue_id, line["physicalOffset"]],
        )
        assert queue.put_message_position_info_wrapper(request)


def test_records_put_in_log_order_make_the_files_that_rocketmq_made(queues: GoldenQueues, tmp_path: Path) -> None:
    bit_maps = queues.bit_maps()
    for (topic, queue_id), lines in queues.queued().items():
        put(queues.new(tmp_path / "again", topic, queue_id), lines, bit_maps)
    made = files_below(tmp_path / "again")
    scenario = queues.store.golden.scenario
    if queues.store.golden.is_torn:
        # Its queues still have the unit of the torn record, until they are cut.
        assert queues.opened
        expected = files_below(queues.root)
    else:
        expected = files_below(queues.store.root)
    # Units of light queues stand for records of other topics.
    expected = {name: data for name, data in expected.items() if _LMQ not in name}
    assert sorted(expected) == sorted(made)
    for name, data in expected.items():
        # Of an aged store the first records are deleted, and their units are not.
        begin = made[name].count(b"\x7f\xff\xff\xff") * 20 if scenario == "aged" else 0
        assert data[begin:] == made[name][begin:], name


ANSWERS: Final = Path(__file__).parents[4] / "shared" / "golden" / "answers" / "time_index_matrix.jsonl.xz"


@pytest.mark.skipif(not has_stores_beside() or not ANSWERS.exists(), reason="needs the stores beside the repository")
def test_offsets_by_both_boundaries_are_what_rocketmq_finds(
    golden: Callable[[str], UnpackedStore], tmp_path: Path
) -> None:
    stores: dict[str, GoldenQueues] = {}
    checked = 0
    with lzma.open(ANSWERS, "rt") as lines:
        questions = [json.loads(line) for line in lines if '"offsetByTime"' in line]
    for question in questions:
        name = question["store"].removeprefix("golden/")
        if name not in stores:
            stores[name] = GoldenQueues(golden(find_golden_store(name).name), tmp_path / name)
        queues = stores[name]
        topic, queue_id = question["topic"], question["queueId"]
        queue = queues.opened.get((topic, queue_id)) or queues.new(tmp_path / "absent", topic, queue_id)
        if (queues.store.root / "batchconsumequeue" / topic).exists():
            continue
        boundary = BoundaryType[question["boundary"] or "LOWER"]
        log = LogTimes(queues.store_time, queues.log_bounds[0])
        found = queue.get_offset_in_queue_by_time(question["timestamp"], boundary, log)
        assert question["answer"] == found, question
        checked += 1
    assert 11_000 < checked
