# SPDX-License-Identifier: Apache-2.0
"""Queues that RocketMQ wrote: read as RocketMQ reads them, and written again byte for byte."""

from __future__ import annotations

import json
import lzma
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from store_core.queue.consume_queue.queue_search import BoundaryType, LogTimes
from store_core.queue.dispatch.dispatch_batch import RequestBatch
from tests.golden_stores import SCHEDULE_TOPIC, UnpackedStore, find_golden_store, has_stores_beside
from tests.store_core.queue.consume_queues import (
    FOLDERS,
    answers_of,
    file_bytes,
    golden_answers,
    golden_requests,
    golden_rules,
    queue_store,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from store_core.queue.consume_queue.consume_queue_store import ConsumeQueueStore


pytestmark = pytest.mark.golden

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


_ANSWERS: Final = Path(__file__).parents[4] / "shared" / "golden" / "answers" / "time_index_matrix.jsonl.xz"


def _log_times(store: UnpackedStore) -> LogTimes:
    """Return when each record of a log was stored, and where the log starts, as RocketMQ found after loading."""
    (summary,) = store.lines("summary")
    times = {(line["physicalOffset"], line["storeSize"]): line["storeTimestamp"] for line in store.lines("record")}
    return LogTimes(lambda offset, size: times.get((offset, size), -1), summary["afterLoad"]["minPhyOffset"])


def test_offsets_by_time_are_what_rocketmq_finds(golden_store: UnpackedStore, tmp_path: Path) -> None:
    queues, log = _opened(golden_store, tmp_path), _log_times(golden_store)
    lines = {(line["topic"], line["queueId"]): line["offsets"] for line in golden_store.lines("byTime")}
    for queue in queues.queues():
        expected = lines[queue.topic, queue.queue_id]
        found = {time: queue.get_offset_in_queue_by_time(int(time), BoundaryType.LOWER, log) for time in expected}

        assert expected == found, (queue.topic, queue.queue_id)


@pytest.mark.skipif(not has_stores_beside() or not _ANSWERS.exists(), reason="needs the stores beside the repository")
def test_offsets_by_both_boundaries_are_what_rocketmq_finds(
    golden: Callable[[str], UnpackedStore], tmp_path: Path
) -> None:
    stores: dict[str, tuple[ConsumeQueueStore, LogTimes]] = {}
    with lzma.open(_ANSWERS, "rt") as lines:
        questions = [json.loads(line) for line in lines if '"offsetByTime"' in line]
    for question in questions:
        name = question["store"].removeprefix("golden/")
        if name not in stores:
            store = golden(find_golden_store(name).name)
            stores[name] = _opened(store, tmp_path / name), _log_times(store)
        queues, log = stores[name]
        queue = queues.find_or_create(question["topic"], question["queueId"])
        boundary = BoundaryType[question["boundary"] or "LOWER"]

        assert question["answer"] == queue.get_offset_in_queue_by_time(question["timestamp"], boundary, log), question
    assert 11_000 < len(questions)
