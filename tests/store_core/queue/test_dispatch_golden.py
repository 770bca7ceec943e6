# SPDX-License-Identifier: Apache-2.0
"""Every golden store is dispatched as the release that wrote it dispatches it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from store_core.format.record.delayed import parse_delay_levels
from store_core.format.segment_view import Piece
from store_core.queue.dispatch.dispatch_batch import DispatchRequest, MessageCheck, RequestBatch
from store_core.queue.dispatch.dispatch_reader import DispatchReader
from store_core.queue.dispatch.rocketmq_check import REPUT, Strictness
from store_core.queue.queue_path import QueueRules
from tests.store_core.queue.dispatch_logs import RELEASES, assert_same_columns, read_one_by_one

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store_core.format.release import Release
    from tests.golden_stores import UnpackedStore

pytestmark = pytest.mark.golden

LEVELS: Final = parse_delay_levels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")
RECOVERY: Final = Strictness(check_crc=True, read_body=True)


def rules_of(store: UnpackedStore, **rules: bool) -> QueueRules:
    release: Release = next(release for release in RELEASES if release == store.golden.release)
    return QueueRules(release=release, delay_levels=LEVELS, **rules)  # type: ignore[arg-type]


def answers(store: UnpackedStore) -> list[dict[str, Any]]:
    """Read the result of RocketMQ's check for each record, as our attributes."""
    return [_answer(line) for line in store.lines("record")]


def _answer(line: dict[str, Any]) -> dict[str, Any]:
    dispatch = line["dispatch"]
    return {
        "topic": line["topic"],
        "queue_id": line["queueId"],
        "physical_offset": line["physicalOffset"],
        "message_size": line["storeSize"],
        "store_timestamp": line["storeTimestamp"],
        "prepared_transaction_offset": line["preparedTransactionOffset"],
        "properties": line["properties"],
        "tags_code": dispatch["tagsCode"],
        "keys": dispatch["keys"],
        "unique_key": dispatch["uniqKey"],
        "consume_queue_offset": dispatch["consumeQueueOffset"],
        "sys_flag": dispatch["sysFlag"],
        "message_base_offset": dispatch.get("msgBaseOffset", line["queueOffset"]),
        "batch_size": dispatch.get("batchSize", 1),
    }


def read_log(
    store: UnpackedStore, read: Callable[[Path], tuple[list[DispatchRequest], MessageCheck]]
) -> list[DispatchRequest]:
    """Read consecutive files, as long as each ends with a blank record."""
    requests: list[DispatchRequest] = []
    for segment in store.segments:
        found, end = read(segment)
        requests += found
        if not end.is_blank:
            break
    return requests


def as_answers(requests: list[DispatchRequest], expected: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = expected[0]
    return [{name: getattr(request, name) for name in names} for request in requests]


def assert_same_answers(expected: list[dict[str, Any]], requests: list[DispatchRequest]) -> None:
    actual = as_answers(requests, expected)
    for answer, other in zip(expected, actual, strict=False):
        assert answer == other
    assert len(expected) == len(actual)


def test_record_by_record_dispatch_is_that_of_rocketmq(golden_store: UnpackedStore) -> None:
    rules = rules_of(golden_store)

    def read(segment: Path) -> tuple[list[DispatchRequest], MessageCheck]:
        requests, _, _, end = read_one_by_one(segment.read_bytes(), 0, rules, RECOVERY)
        return requests, end

    assert_same_answers(answers(golden_store), read_log(golden_store, read))


@pytest.mark.parametrize("checks", [RECOVERY, REPUT], ids=["recovery", "reput"])
def test_in_batches_dispatch_is_that_of_record_by_record(golden_store: UnpackedStore, checks: Strictness) -> None:
    rules = rules_of(golden_store)
    for segment in golden_store.segments:
        data = segment.read_bytes()
        requests, starts, stop, end = read_one_by_one(data, 0, rules, checks)
        reader = DispatchReader(
            Piece(np.frombuffer(data, np.uint8), int(segment.name)), 0, rules, checks, batch_rows=300
        )
        first = 0
        for batch in reader:
            rows = slice(first, first + len(batch))
            assert_same_columns(RequestBatch(requests[rows], starts[rows]), batch)
            first += len(batch)

        assert (len(requests), stop, end) == (first, reader.position, reader.end)


def test_property_checksums_of_rocketmq_are_right(golden_store: UnpackedStore) -> None:
    """Where it wrote them, demanding them changes nothing; elsewhere the first record fails."""
    rules = rules_of(golden_store, verify_property_crc=True)
    data = golden_store.segments[0].read_bytes()
    has_checksums = golden_store.golden.scenario == "propcrc"
    demanded = read_one_by_one(data, 0, rules, RECOVERY)[0]

    if has_checksums or not rules.features.has_property_crc:
        assert read_one_by_one(data, 0, rules_of(golden_store), RECOVERY)[0] == demanded
    else:
        assert [] == demanded
