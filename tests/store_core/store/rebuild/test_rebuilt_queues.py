# SPDX-License-Identifier: Apache-2.0
"""Rebuilt queues equal those of the open store, at the limits of a queue, in memory, and by parts of a segment."""

from __future__ import annotations

import errno
from dataclasses import replace
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store_core.files.segment_source import Segment
from store_core.format.release import Release, rules_of
from store_core.queue.consume_queue.consume_queue import QueueServices
from store_core.queue.consume_queue.consume_queue_store import ConsumeQueueStore
from store_core.queue.dispatch.dispatch_batch import DispatchRequest, RequestBatch
from store_core.queue.index_format import MessageKeys
from store_core.queue.queue_path import QueueRules
from store_core.snapshot import log_end
from store_core.snapshot.log_end import find_end
from store_core.store.parts import packed
from store_core.store.rebuild import segment_scan
from store_core.store.rebuild.plan import RebuildRules
from store_core.store.rebuild.queue_compare import StoredQueues
from store_core.store.rebuild.queue_files import QueuePlace, QueueReport, QueueWriters
from store_core.store.rebuild.segment_scan import (
    SegmentOutcome,
    SegmentPart,
    SegmentScan,
    SegmentUnits,
    find_rebuilt_end,
    merge_outcomes,
    split_segments,
)
from store_core.store.segment_diff import JOINED, DifferingBytes
from tests.budgets import budget
from tests.builders import BODY_AT, LogBuilder, Record
from tests.store_core.fakes import FakeClock, FaultyFileSystem
from tests.store_core.queue.consume_queues import file_bytes
from tests.store_core.queue.dispatch_logs import BORDER_OFFSETS, log_requests
from tests.strategies import Log, layouts, logs, mutated

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy.typing as npt

    from store_core.queue.queue_assignment import QueueUnits, RefusedUnit


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
    root: Path, rules: QueueRules, requests: list[DispatchRequest], cut: int = 5
) -> tuple[list[RefusedUnit], list[QueueReport]]:
    """Rebuild the queues of records; return what is refused, and the reports of the queues."""
    asked = RebuildRules(rules)
    units = SegmentUnits(asked, 4)
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
    requests = data.draw(log_requests())
    expected = put_all(root / "open", rules, requests)
    refused, _ = rebuild_all(root / "rebuilt", rules, requests, data.draw(st.integers(1, 13)))

    assert file_bytes(root / "rebuilt") == file_bytes(root / "open")
    assert sorted(refused) == sorted(expected)


def test_what_a_full_queue_can_not_take_is_refused_by_all(tmp_path: Path) -> None:
    rules = replace(RULES, is_multi_dispatch_enabled=True)
    light = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "0"}
    requests = [request(LAST_INDEX, 1000), request(0, 1100), request(LAST_INDEX - 3, 1200, properties=light)]
    expected = put_all(tmp_path / "open", rules, requests)
    refused, reports = rebuild_all(tmp_path / "rebuilt", rules, requests)
    queues = open_queues(tmp_path / "batch", rules)
    queues.put_batch(RequestBatch(requests[:1]))
    queues.gather_batch(RequestBatch(requests[1:]))
    queues.put_gathered()
    queues.close()

    assert [unit.physical_offset for unit in expected] == [1100, 1200]
    assert "the queue is full" in expected[0].reason
    assert refused == expected == queues.refused
    assert [(report.topic, report.refused_count, report.units) for report in reports] == [("T", 2, 1), ("%LMQ%a", 0, 1)]
    assert file_bytes(tmp_path / "rebuilt") == file_bytes(tmp_path / "open") == file_bytes(tmp_path / "batch")


def units_of(rules: RebuildRules, requests: list[DispatchRequest]) -> list[QueueUnits]:
    units = SegmentUnits(rules, 7)
    return [*units.add(RequestBatch(requests)), *units.rest()]


@pytest.mark.parametrize("release", ["4.3", "5.3"])
@given(data=st.data(), min_offset=st.sampled_from([0, 0, 1500, 2**40]))
def test_what_is_kept_in_memory_is_what_is_loaded_from_the_files(
    tmp_path_factory: pytest.TempPathFactory, release: Release, data: st.DataObject, min_offset: int
) -> None:
    root = tmp_path_factory.mktemp("q")
    rules = replace(
        RULES,
        release=release,
        batch_topics=frozenset({"B"}) if release == "5.3" else frozenset(),
        is_ext_enabled=data.draw(st.booleans()),
        is_multi_dispatch_enabled=data.draw(st.booleans()),
    )
    asked = RebuildRules(rules)
    pieces = units_of(asked, data.draw(log_requests()))
    kept = QueueWriters(asked, QueuePlace(root, None, FaultyFileSystem()))
    written = QueueWriters(asked, QueuePlace(root, root, FaultyFileSystem()))
    for piece in pieces:
        kept.put(piece)
        written.put(piece)

    assert kept.finish() == written.finish()
    with StoredQueues(root, rules) as stored:
        for name, writer in kept.writers.items():
            expected, found = stored.side(name, min_offset), writer.side(min_offset)
            assert expected.indexes.tolist() == found.indexes.tolist()
            assert expected.units.tolist() == found.units.tolist()


def test_a_queue_on_a_failing_disk_is_given_up_at_once(tmp_path: Path) -> None:
    """A broker tries for half a minute; a job would wait as long for each of its queues."""
    disk, asked = FaultyFileSystem(), RebuildRules(RULES)
    (piece,) = units_of(asked, [DispatchRequest("T", 0, 1000, 100, 0, 1, 0)])
    disk.fail("open", errno.EIO, times=1)
    writers = QueueWriters(asked, QueuePlace(tmp_path, tmp_path, disk))

    with pytest.raises(OSError, match="Input/output error"):
        writers.put(piece)


def pairs() -> st.SearchStrategy[tuple[bytes, bytes]]:
    """Return two equal strings in which some bytes of the second are then inverted."""
    positions = st.lists(st.integers(0, 599), max_size=12)

    def changed(data: bytes, at: list[int]) -> tuple[bytes, bytes]:
        other = bytearray(data)
        for position in at:
            if position < len(other):
                other[position] ^= 0xFF
        return data, bytes(other)

    return st.builds(changed, st.binary(min_size=0, max_size=600), positions)


def chunks(data: npt.NDArray[np.uint8]) -> Callable[[int, int], npt.NDArray[np.uint8]]:
    return lambda begin, end: data[begin:end]


def compare_bytes(a: bytes, b: bytes) -> list[tuple[int, int, int]]:
    """Return begin, end and number of differing bytes of each range: the definition of `DifferingBytes.between`."""
    ranges: list[tuple[int, int, int]] = []
    for at in (at for at, (left, right) in enumerate(zip(a, b, strict=True)) if left != right):
        if ranges and at - ranges[-1][1] < JOINED:
            ranges[-1] = (ranges[-1][0], at + 1, ranges[-1][2] + 1)
        else:
            ranges.append((at, at + 1, 1))
    return ranges


@given(pairs(), st.sampled_from([1, 7, 64, 100, 1 << 20]))
def test_differing_ranges_equal_their_definition(pair: tuple[bytes, bytes], block: int) -> None:
    a, b = (np.frombuffer(each, np.uint8) for each in pair)
    found = DifferingBytes.between(chunks(a), chunks(b), a.size, block)

    ranges = (found.begins.tolist(), found.ends.tolist(), found.counts.tolist())

    assert compare_bytes(*pair) == list(zip(*ranges, strict=True))
    assert blake2b(pair[0], digest_size=16).digest() == found.digest_a
    assert blake2b(pair[1], digest_size=16).digest() == found.digest_b


def test_ranges_are_one_with_less_than_the_joined_bytes_between_them() -> None:
    data = bytes(JOINED + 1)
    near = b"x" + data[: JOINED - 1] + b"x"
    far = b"x" + data[:JOINED] + b"x"

    assert [(0, JOINED + 1, 2)] == compare_bytes(bytes(len(near)), near)
    assert [(0, 1, 1), (JOINED + 1, JOINED + 2, 1)] == compare_bytes(bytes(len(far)), far)


def test_a_range_touches_what_has_a_byte_in_common_with_it() -> None:
    a, b = np.zeros(300, np.uint8), np.zeros(300, np.uint8)
    b[[100, 199]] = 1
    found = DifferingBytes.between(chunks(a), chunks(b), a.size)
    starts, stops = np.array([0, 90, 101, 150, 199, 200]), np.array([100, 101, 150, 200, 200, 300])

    assert [False, True, False, True, True, False] == found.touches(starts, stops).tolist()


PART_RULES: Final = RebuildRules(QueueRules(), has_index=True)
Units = dict[tuple[str, int], list[tuple[int, ...]]]

one_directory = settings(budget(0.5), suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_scan, "_SMALLEST_PART", 100)


def segment_of(data: bytes, start_offset: int, directory: Path) -> Segment:
    path = directory / f"{start_offset:020d}"
    path.write_bytes(data)
    return Segment(str(path), start_offset, len(data))


def read_parts(parts: list[SegmentPart]) -> tuple[list[SegmentOutcome], Units, list[bytes]]:
    """Read the parts in turn; return how each ended, the units by queue, and the index entries."""
    units: Units = {}
    outcomes, entries = [], []
    for part in parts:
        scan = SegmentScan(part, PART_RULES)
        for piece in scan:
            if isinstance(piece, MessageKeys):
                entries.append(packed(piece.to_table()))
                continue
            rows = piece.units
            columns = (rows.physical_offset, rows.size, rows.tags_code, rows.queue_offset)
            for code, *values in zip(rows.code.tolist(), *(column.tolist() for column in columns), strict=True):
                units.setdefault(piece.queues[code], []).append(tuple(values))
        assert scan.outcome is not None
        outcomes.append(scan.outcome)
    return outcomes, units, entries


@one_directory
@given(mutated(logs() | layouts()) | layouts(), st.integers(1, 40))
def test_parts_that_fit_together_give_what_the_whole_gives(tmp_path: Path, log: Log, tasks: int) -> None:
    segment = segment_of(log.data, log.start_offset, tmp_path)
    parts = list(split_segments([segment], tasks))
    outcomes, units, _ = read_parts(parts)
    merged = merge_outcomes(parts, outcomes)

    assert [0, *(part.end for part in parts)] == [*(part.begin for part in parts), len(log.data)]
    if merged is not None:
        whole, expected, _ = read_parts([SegmentPart(segment, 0, segment.size, is_last=True)])
        assert whole == merged
        assert expected == units


@one_directory
@given(mutated(logs()) | logs() | layouts(), st.integers(0, 400), st.binary(max_size=40))
def test_the_end_where_reading_ended_is_that_of_the_chain(tmp_path: Path, log: Log, zeros: int, junk: bytes) -> None:
    segment = segment_of(log.data + bytes(zeros) + junk, log.start_offset, tmp_path)
    outcomes, _, _ = read_parts([SegmentPart(segment, 0, segment.size, is_last=True)])
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"_LEAST": 1, "_WINDOWS": (1 << 7, 1 << 9), "_PROBE": 1 << 5}.items():
            patch.setattr(log_end, name, value)

        assert find_end([segment]) == find_rebuilt_end([segment], outcomes, live_end=None)


def test_the_end_of_a_sound_log_needs_its_last_part_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogBuilder(segment_size=1 << 16)
    log.append_all(*[b"x" * 50] * 50)
    (data,) = log.segments().values()
    segment = segment_of(data, 0, tmp_path)
    outcomes, _, _ = read_parts([SegmentPart(segment, 0, segment.size, is_last=True)])
    for name, value in {"_LEAST": 1 << 10, "_WINDOWS": (1 << 9,), "_PROBE": 1 << 8}.items():
        monkeypatch.setattr(log_end, name, value)
    monkeypatch.setattr(log_end, "_SEGMENT_START", None)

    assert find_rebuilt_end([segment], outcomes, live_end=None).end_offset == log.end


def test_sound_segments_are_cut_and_fit_together(tmp_path: Path) -> None:
    log = LogBuilder(segment_size=1 << 16)
    log.fill(1, b"x" * 50)
    (data,) = list(log.segments().values())[:1]
    parts = list(split_segments([segment_of(data, 0, tmp_path)], 20))
    outcomes, _, _ = read_parts(parts)
    starts = {record.physical_offset for record in log.records}

    assert len(parts) >= 20
    assert len(parts) == len({part.begin for part in parts} & starts)
    assert [sum(outcome.records for outcome in outcomes)] == [
        outcome.records for outcome in merge_outcomes(parts, outcomes) or ()
    ]


def test_a_record_in_a_body_that_claims_its_place_makes_no_part(tmp_path: Path) -> None:
    log = LogBuilder(segment_size=1 << 15)
    log.append_all(*[b"x" * 50] * 20)
    decoy = Record(b"y" * 200, physical_offset=log.end + BODY_AT + 4000, queue_id=7).encode()
    log.append(bytes(4000) + decoy + bytes(4000))
    log.append_all(*[b"x" * 50] * 20)
    (data,) = log.segments().values()
    segment = segment_of(data, 0, tmp_path)
    at = data.index(decoy)
    cut = SegmentPart(segment, 0, at), SegmentPart(segment, at, segment.size)
    outcomes, units, _ = read_parts(list(cut))

    assert ("orders", 7) in units
    assert merge_outcomes(cut, outcomes) is None


def test_what_is_not_written_yet_is_not_cut(tmp_path: Path) -> None:
    log = LogBuilder(segment_size=1 << 16)
    log.append_all(*[b"x" * 50] * 50)
    (data,) = log.segments().values()
    parts = split_segments([segment_of(data, 0, tmp_path)], 20)

    assert all(part.begin < log.end for part in parts)
    assert len(data) == parts[-1].end
    assert all(before.end == after.begin for before, after in pairwise(parts))
