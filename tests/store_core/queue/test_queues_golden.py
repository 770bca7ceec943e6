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
from store_core.queue.consume_queue.batch_consume_queue import BatchConsumeQueue
from store_core.queue.consume_queue.consume_queue import ConsumeQueue, QueueServices
from store_core.queue.consume_queue.consume_queue_ext import ConsumeQueueExt
from store_core.queue.consume_queue.queue_search import BoundaryType, LogTimes
from store_core.queue.dispatch.dispatch_batch import DispatchRequest, RequestBatch
from store_core.queue.queue_path import QueueRules
from tests.golden_stores import SCHEDULE_TOPIC, UnpackedStore, find_golden_store, has_stores_beside
from tests.store_core.queue.consume_queues import (
    FOLDERS,
    answers_of,
    file_bytes,
    golden_answers,
    golden_requests,
    golden_rules,
    queue_store,
    units_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from store_core.queue.consume_queue.consume_queue_store import ConsumeQueueStore


pytestmark = pytest.mark.golden

_BATCH_SIZES: Final = (1, 7, 100, 10_000)
_LEVELS: Final = 18


def _opened(store: UnpackedStore, root: Path) -> ConsumeQueueStore:
    """Open a copy of a golden store's queues, as far as its log goes."""
    for folder in FOLDERS:
        if store.root.joinpath(folder).exists():
            shutil.copytree(store.root / folder, root / folder)
    queues = queue_store(root, golden_rules(store))
    queues.load()
    queues.recover()
    if store.golden.is_torn:
        last = golden_requests(store)[-1]
        queues.truncate_dirty(last.physical_offset + last.message_size)
    queues.correct_min_offset(int(store.segments[0].name))
    return queues


def test_queues_that_rocketmq_wrote_hold_what_it_says(golden_store: UnpackedStore, tmp_path: Path) -> None:
    opened = _opened(golden_store, tmp_path)
    if golden_store.golden.release == "4.9":
        # It makes the queues of all delay levels when it loads those.
        for level in range(_LEVELS):
            opened.find_or_create(SCHEDULE_TOPIC, level)

    assert golden_answers(golden_store) == answers_of(opened)


def test_the_queues_of_a_log_are_those_that_rocketmq_wrote(
    golden_store: UnpackedStore, golden: Callable[[str], UnpackedStore], tmp_path: Path
) -> None:
    """The files are equal but for two kinds of stores.

    Of a torn one, RocketMQ's files still have the unit of the torn record: there, what our truncation leaves of them is
    compared. Of one whose first segments are deleted (`aged`), RocketMQ's files still have the units of what is gone:
    its log makes those that RocketMQ made of it again (`aged-rebuilt`).
    """
    requests = golden_requests(golden_store)
    built = queue_store(tmp_path / "built", golden_rules(golden_store))
    if any(request.bit_map for request in requests):
        for request in requests:
            built.put(request)
    else:
        built.put_batch(RequestBatch(requests))
    expected = golden_store.root
    if golden_store.golden.is_torn:
        _opened(golden_store, tmp_path / "cut")
        expected = tmp_path / "cut"
    elif golden_store.golden.scenario == "aged":
        expected = golden("5.3.3/aged-rebuilt").root

    assert built.refused == []
    assert file_bytes(expected) == file_bytes(tmp_path / "built")


@pytest.mark.parametrize("size", _BATCH_SIZES)
def test_put_in_batches_they_are_the_same(golden: Callable[[str], UnpackedStore], size: int, tmp_path: Path) -> None:
    for name in ("5.3.3/bcq", "4.9.7/lmq", "5.3.3/tx"):
        store = golden(name)
        requests = golden_requests(store)
        built = queue_store(tmp_path / name, golden_rules(store))
        for first in range(0, len(requests), size):
            built.put_batch(RequestBatch(requests[first : first + size]))
        one_by_one = queue_store(tmp_path / "single" / name, golden_rules(store))
        for request in requests:
            one_by_one.put(request)

        assert file_bytes(store.root) == file_bytes(tmp_path / name)
        assert answers_of(one_by_one) == answers_of(built)


def test_a_time_finds_the_batch_that_rocketmq_finds(golden: Callable[[str], UnpackedStore], tmp_path: Path) -> None:
    store = golden("5.3.3/bcq")
    queues = _opened(store, tmp_path)
    lines = [json.loads(line) for line in (store.path / "bytime.jsonl").read_text().splitlines()]
    for line in lines:
        queue = queues.get(line["topic"], line["queueId"])
        if isinstance(queue, BatchConsumeQueue):
            found = {time: queue.get_offset_in_queue_by_time(int(time), BoundaryType.LOWER) for time in line["offsets"]}

            assert line["offsets"] == found


_ANSWERS: Final = Path(__file__).parents[4] / "shared" / "golden" / "answers" / "time_index_matrix.jsonl.xz"


@pytest.mark.skipif(not _ANSWERS.exists(), reason="the answers are not beside the repository")
def test_all_times_find_the_batches_that_rocketmq_finds(golden: Callable[[str], UnpackedStore], tmp_path: Path) -> None:
    queues = _opened(golden("5.3.3/bcq"), tmp_path)
    with lzma.open(_ANSWERS, "rt") as text:
        lines = [json.loads(line) for line in text if '"golden/5.3.3/bcq"' in line and '"offsetByTime"' in line]
    expected, found = [], []
    for line in lines:
        queue = queues.get(line["topic"], line["queueId"])
        if isinstance(queue, BatchConsumeQueue):
            boundary = BoundaryType[line["boundary"] or "LOWER"]
            expected.append(line["answer"])
            found.append(queue.get_offset_in_queue_by_time(line["timestamp"], boundary))

    assert len(expected) > 100
    assert expected == found


def test_requests_of_golden_stores_include_every_kind(golden: Callable[[str], UnpackedStore]) -> None:
    def kinds(request: DispatchRequest) -> set[str]:
        found = {"prepared"} if not request.is_queued else set()
        return found | ({"inner batch"} if request.batch_size > 1 else set())

    names = ("5.3.3/bcq", "4.3.0/tx", "5.3.3/tx")

    assert {"prepared", "inner batch"} <= {
        kind for name in names for request in golden_requests(golden(name)) for kind in kinds(request)
    }


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
