# SPDX-License-Identifier: Apache-2.0
"""Golden stores are dispatched as their release does it, and what it dispatched makes its index and its answers."""

from __future__ import annotations

import json
import lzma
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from store_core.files.file_system import OsFileSystem
from store_core.files.names import INDEX_DIRECTORY
from store_core.format.record.delayed import parse_delay_levels
from store_core.format.segment_view import Piece
from store_core.queue.dispatch.dispatch_batch import DispatchRequest, MessageCheck, RequestBatch
from store_core.queue.dispatch.dispatch_reader import DispatchReader
from store_core.queue.dispatch.rocketmq_check import REPUT, Strictness
from store_core.store.store_state import StoreCheckpoint
from tests.golden_replay import golden_puts
from tests.golden_stores import UnpackedStore, find_golden_store, golden_stores
from tests.store_core.queue.consume_queues import golden_requests, golden_rules
from tests.store_core.queue.dispatch_logs import assert_same_columns, read_one_by_one
from tests.store_core.queue.index_builders import ALWAYS, contents, index_service, request

if TYPE_CHECKING:
    from collections.abc import Callable

    from store_core.queue.index_service import IndexService
    from store_core.queue.queue_path import QueueRules


pytestmark = pytest.mark.golden


def _one_by_one(index: IndexService, requests: list[DispatchRequest]) -> None:
    for each in requests:
        index.build_index(each)


def _in_batches(index: IndexService, requests: list[DispatchRequest]) -> None:
    for start in range(0, len(requests), 300):
        index.build_indexes(RequestBatch(requests[start : start + 300]))


_NAMES: Final = [store.name for store in golden_stores()]
_CASES: Final = [(name, _in_batches) for name in _NAMES] + [
    (name, _one_by_one) for name in _NAMES if not name.endswith(("/live", "-zero", "-garble", "-header"))
]
_ANSWERED: Final = [name for name in _NAMES if not name.endswith("/live")]
_MATRIX: Final = Path(__file__).parents[4] / "shared" / "golden" / "answers" / "time_index_matrix.jsonl.xz"
_ROUNDS: Final = 3


def _stored(store: UnpackedStore) -> list[bytes]:
    return [path.read_bytes() for path in sorted(store.root.joinpath(INDEX_DIRECTORY).iterdir())]


def _rebuilt(
    store: UnpackedStore,
    directory: Path,
    golden: Callable[[str], UnpackedStore],
    build: Callable[[IndexService, list[DispatchRequest]], None],
) -> IndexService:
    """Build a store's index from what RocketMQ dispatched."""
    index = index_service(directory, golden_rules(store))
    if store.golden.is_torn:  # the index is older than the damage
        store = golden(f"{store.golden.version}/crash")
    if store.golden.scenario == "aged":
        begin = int(store.segments[0].name)
        build(index, [each for each in _puts(store) if each.physical_offset < begin] + golden_requests(store))
        index.delete_expired_file(begin)
        return index
    build(index, golden_requests(store))
    if store.golden.scenario == "live":
        # Its broker was killed: the file that was not full was deleted, and the last message of the one before, whose
        # offset is not before the index's end, was put again when the log was dispatched anew.
        index.close()
        index.files[-1].remove()
        index = index_service(directory, golden_rules(store))
        index.load(last_exit_ok=True, index_msg_timestamp=0)
        build(index, golden_requests(store))
    return index


def _puts(store: UnpackedStore) -> list[DispatchRequest]:
    """Return the requests of a store whose log has lost its beginning, from what was put."""
    lines = (put.line for put in golden_puts(store))
    return [
        request(
            line["wroteOffset"],
            line["properties"].get("KEYS", ""),
            line["storeTimestamp"],
            topic=line["topic"],
            unique_key=line["properties"].get("UNIQ_KEY"),
            sys_flag=line["sysFlag"],
            properties=line["properties"],
        )
        for line in lines
        if line["putStatus"] == "PUT_OK"
    ]


@pytest.mark.parametrize(("name", "build"), _CASES)
def test_what_rocketmq_dispatched_makes_its_index_files_byte_for_byte(
    name: str,
    build: Callable[[IndexService, list[DispatchRequest]], None],
    golden: Callable[[str], UnpackedStore],
    tmp_path: Path,
) -> None:
    store = golden(name)

    index = _rebuilt(store, tmp_path / "index", golden, build)
    index.close()

    assert _stored(store) == [data for _, data in contents(index)]


def _as_asked(store: UnpackedStore, directory: Path) -> IndexService:
    """Return the index that RocketMQ answered from: after a crash, what its recovery makes of it."""
    shutil.copytree(store.root / INDEX_DIRECTORY, directory)
    index = index_service(directory, golden_rules(store))
    is_clean = not store.root.joinpath("abort").exists()
    checkpoint = StoreCheckpoint(store.root, OsFileSystem(), store.golden.release).load()
    index.load(is_clean, checkpoint.index_msg_timestamp)
    if not is_clean:
        _one_by_one(index, golden_requests(store))
    return index


@pytest.mark.parametrize("name", _ANSWERED)
def test_queries_give_what_rocketmq_gave(name: str, golden: Callable[[str], UnpackedStore], tmp_path: Path) -> None:
    store = golden(name)
    index = _as_asked(store, tmp_path / "index")
    lines = [json.loads(line) for line in store.path.joinpath("index.jsonl").read_text().splitlines()]
    assert lines

    for line in lines:
        answer = index.query_offset(line["topic"], line["key"], 64, *ALWAYS)

        assert line["indexServiceOffsets"] == answer.physical_offsets
        if line["offsets"]:
            assert line["indexLastUpdateTimestamp"] == answer.index_last_update_timestamp
            assert line["indexLastUpdatePhyoffset"] == answer.index_last_update_physical_offset


def _query_message(index: IndexService, times: dict[int, int], line: dict[str, Any]) -> tuple[list[int], int, int]:
    """Do what ``DefaultMessageStore.queryMessage`` does with the index; `times` stands for the log."""
    end, found, last = line["end"], list[int](), (0, 0)
    for _ in range(_ROUNDS):
        answer = index.query_offset(line["topic"], line["key"], line["maxNum"], line["begin"], end)
        offsets = sorted(answer.physical_offsets)
        if not offsets:
            break
        last = answer.index_last_update_timestamp, answer.index_last_update_physical_offset
        end = times.get(offsets[0], end)
        found += [offset for offset in offsets if offset in times]
        if found or end < line["begin"]:
            break
    return found, *last


@pytest.mark.parametrize("answers", [_MATRIX] if _MATRIX.exists() else [])
def test_queries_by_time_give_what_rocketmq_gave(
    answers: Path, golden: Callable[[str], UnpackedStore], tmp_path: Path
) -> None:
    opened: dict[str, tuple[IndexService, dict[int, int]]] = {}
    with lzma.open(answers, "rt") as lines:
        asked = [json.loads(line) for line in lines if '"queryMessage"' in line]
    assert len(asked) > 5000

    for line in asked:
        name = line["store"].removeprefix("golden/")
        if name not in opened:
            store = golden(find_golden_store(name).name)
            times = {row["physical_offset"]: row["store_timestamp"] for row in store.expected()}
            opened[name] = _as_asked(store, tmp_path / name), times
        expected = line["answer"]

        assert (
            expected["physicalOffsets"],
            expected["indexLastUpdateTimestamp"],
            expected["indexLastUpdatePhyoffset"],
        ) == _query_message(*opened[name], line)


LEVELS: Final = parse_delay_levels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")
RECOVERY: Final = Strictness(check_crc=True, read_body=True)


def rules_of(store: UnpackedStore, **rules: Any) -> QueueRules:  # noqa: ANN401 -- fields of the rules
    return replace(golden_rules(store), delay_levels=LEVELS, **rules)


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


def test_record_by_record_dispatch_is_that_of_rocketmq(golden_store: UnpackedStore) -> None:
    rules = rules_of(golden_store)

    def read(segment: Path) -> tuple[list[DispatchRequest], MessageCheck]:
        requests, _, _, end = read_one_by_one(segment.read_bytes(), 0, rules, RECOVERY)
        return requests, end

    expected = [replace(each, bit_map=b"") for each in golden_requests(golden_store)]
    assert expected == read_log(golden_store, read)


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
