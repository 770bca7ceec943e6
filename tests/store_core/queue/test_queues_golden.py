# SPDX-License-Identifier: Apache-2.0
"""We read queues that RocketMQ wrote as it does, and make the same files from what it dispatched."""

from __future__ import annotations

import json
import lzma
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from store_core.queue.consume_queue.batch_consume_queue import BatchConsumeQueue
from store_core.queue.consume_queue.queue_search import BoundaryType
from store_core.queue.dispatch.dispatch_batch import DispatchRequest, RequestBatch
from tests.golden_stores import SCHEDULE_TOPIC, UnpackedStore
from tests.store_core.queue.golden_queues import (
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
