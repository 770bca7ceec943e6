# SPDX-License-Identifier: Apache-2.0
"""Rebuilt queues equal those of the open store, also at the limits of a queue."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.format.release import Release, rules_of
from store_core.queue.consume_queue.consume_queue import QueueServices
from store_core.queue.consume_queue.consume_queue_store import ConsumeQueueStore
from store_core.queue.dispatch.dispatch_batch import DispatchRequest, RequestBatch
from store_core.queue.queue_path import QueueRules
from store_core.store.rebuild.plan import RebuildRules
from store_core.store.rebuild.queue_files import QueuePlace, QueueReport, QueueWriters
from store_core.store.rebuild.segment_scan import SegmentUnits
from tests.store_core.fakes import FakeClock, FaultyFileSystem
from tests.store_core.queue.consume_queues import file_bytes
from tests.store_core.queue.dispatch_logs import BORDER_OFFSETS, hostile_requests

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.queue.queue_assignment import RefusedUnit
    from store_core.queue.unit_rows import QueueUnits

RULES = QueueRules(consume_queue_file_size=100, batch_consume_queue_file_size=138, ext_file_size=100)
LAST_INDEX = (2**63 - 1) // 100 * 5 - 1


def open_queues(root: Path, rules: QueueRules) -> ConsumeQueueStore:
    return ConsumeQueueStore(root, QueueServices(rules, FaultyFileSystem(), FakeClock()), lambda *_: None)


def put_all(root: Path, rules: QueueRules, requests: list[DispatchRequest]) -> list[RefusedUnit]:
    """Put records into the queues of an open store; return what it refuses."""
    queues = open_queues(root, rules)
    for request in requests:
        queues.put(request)
    queues.close()
    return queues.refused


def rebuild_all(
    root: Path, rules: QueueRules, requests: list[DispatchRequest], cut: int = 5, room: int = 4
) -> tuple[list[RefusedUnit], list[QueueReport]]:
    """Rebuild the queues of records; return what is refused, and the reports of the queues."""
    asked = RebuildRules(rules)
    units = SegmentUnits(asked, room)
    pieces: list[QueueUnits] = []
    for first in range(0, len(requests), cut):
        pieces += units.add(RequestBatch(requests[first : first + cut]))
    writers = QueueWriters(asked, QueuePlace(root, root, FaultyFileSystem()))
    for piece in [*pieces, *units.rest()]:
        writers.put(piece)
    reports = writers.finish()
    return units.refused + [unit for report in reports for unit in report.refused], reports


def request(index: int, start: int, **values: object) -> DispatchRequest:
    made = DispatchRequest("T", 0, start, 100, 5, 10, index, message_base_offset=index)
    return replace(made, **values)  # type: ignore[arg-type]  # fields of a request


@pytest.mark.parametrize("index", BORDER_OFFSETS)
@pytest.mark.parametrize("release", ["4.3", "4.9", "5.3"])
def test_a_rebuild_takes_the_indexes_that_an_open_store_takes(tmp_path: Path, index: int, release: Release) -> None:
    rules, requests = replace(RULES, release=release), [request(index, 1000)]
    refused, reports = rebuild_all(tmp_path / "rebuilt", rules, requests)

    assert refused == put_all(tmp_path / "open", rules, requests)
    assert [report.max_offset for report in reports] == [index + 1] * (0 <= index <= LAST_INDEX)
    assert file_bytes(tmp_path / "rebuilt") == file_bytes(tmp_path / "open")


@pytest.mark.parametrize("release", ["4.3", "4.9", "5.3"])
@given(data=st.data())
def test_rebuilt_queues_are_those_of_an_open_store(
    tmp_path_factory: pytest.TempPathFactory, release: Release, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("q")
    has_batch_queues = rules_of(release).has_batch_queues
    rules = replace(
        RULES,
        release=release,
        batch_topics=data.draw(st.sampled_from([frozenset(), frozenset({"B"})] if has_batch_queues else [frozenset()])),
        is_ext_enabled=data.draw(st.booleans()),
        is_multi_dispatch_enabled=data.draw(st.booleans()),
        is_lmq_enabled=data.draw(st.booleans()),
    )
    requests = data.draw(hostile_requests())
    expected = put_all(root / "open", rules, requests)
    refused, _ = rebuild_all(root / "rebuilt", rules, requests, data.draw(st.integers(1, 13)))

    assert file_bytes(root / "rebuilt") == file_bytes(root / "open")
    assert sorted(refused) == sorted(expected)


def test_what_a_full_queue_can_not_take_is_refused_by_all(tmp_path: Path) -> None:
    requests = [request(LAST_INDEX, 1000), request(0, 1100), request(LAST_INDEX - 3, 1200)]
    expected = put_all(tmp_path / "open", RULES, requests)
    refused, reports = rebuild_all(tmp_path / "rebuilt", RULES, requests)
    queues = open_queues(tmp_path / "batch", RULES)
    queues.put_batch(RequestBatch(requests[:1]))
    queues.gather_batch(RequestBatch(requests[1:]))
    queues.put_gathered()
    queues.close()

    assert [unit.physical_offset for unit in expected] == [1100, 1200]
    assert "the queue is full" in expected[0].reason
    assert refused == expected == queues.refused
    assert [(report.refused_count, report.units) for report in reports] == [(2, 1)]
    assert file_bytes(tmp_path / "rebuilt") == file_bytes(tmp_path / "open") == file_bytes(tmp_path / "batch")
