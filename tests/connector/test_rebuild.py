# SPDX-License-Identifier: Apache-2.0
"""Rebuilds, however the work is cut, ordered and repeated; of broken logs, and of golden stores."""

from __future__ import annotations

import random
import resource
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from store_core.errors import UnsafeSizeError
from store_core.queue.queue_path import QueueRules
from store_core.snapshot.log_end import LiveMoment
from store_core.store.rebuild import job, segment_scan
from store_core.store.rebuild.job import rebuild_by
from store_core.store.rebuild.plan import RebuildRules
from store_core.store.rebuild.queue_compare import LogBounds
from tests.builders import BODY_LENGTH_AT, MAGIC_AT, LogBuilder, patch
from tests.connector.called import LocalRunner, differing, log_of, rebuild_here
from tests.store_core.rebuilt import golden_rules, index_files, queue_files

if TYPE_CHECKING:
    from tests.golden_stores import UnpackedStore


SIZES = QueueRules(consume_queue_file_size=200, max_hash_slot_num=10, max_index_num=25)
RULES = RebuildRules(SIZES, has_index=True)


def put(log: LogBuilder, *offsets: int, topic: str = "t", queue_id: int = 0) -> LogBuilder:
    for offset in offsets:
        log.append(b"x", topic=topic, queue_id=queue_id, queue_offset=offset)
    return log


# ---- however the work is divided


@pytest.mark.parametrize("lost", [(), (20, 21, 90, 150)], ids=["sound", "salvaged"])
@pytest.mark.parametrize("seed", range(5))
def test_the_result_depends_neither_on_cuts_nor_on_order_nor_on_repetition(
    seed: int, lost: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, rules = log_of(200), replace(RULES, is_salvaged=bool(lost))
    for number in lost:
        log.patch(log.records[number].physical_offset + MAGIC_AT, b"\xff" * 4)
    store = log.write(tmp_path / "store")
    expected = rebuild_by(LocalRunner(slots=1), store, tmp_path / "expected", rules)  # one task writes the index
    chosen = random.Random(seed)  # noqa: S311 -- for variety
    monkeypatch.setattr(segment_scan, "_SMALLEST_PART", 300)
    monkeypatch.setattr(job, "_BUCKETS_A_SLOT", chosen.randint(1, 5))
    monkeypatch.setattr(job, "_CHUNK", seed % 3 * job._CHUNK or 1)  # queues are written piece by piece, or at once
    runner = LocalRunner(chosen, attempts=2, is_one_machine=seed % 2 == 0, slots=chosen.randint(1, 40))
    report = rebuild_by(runner, store, tmp_path / "found", rules)

    assert queue_files(tmp_path / "expected") == queue_files(tmp_path / "found")
    assert index_files(tmp_path / "expected") == index_files(tmp_path / "found")
    assert expected.queues == report.queues
    assert 200 - len(lost) == report.records
    assert {"consumequeue", "index"} == {path.name for path in (tmp_path / "found").iterdir()}


class CountingRunner(LocalRunner):
    """Counts the parts of ungrouped jobs: files of an index."""

    parts = 0

    def run(self, job: Any) -> Any:  # noqa: ANN401 -- it is an `IndexFilesJob`
        self.parts += len(job.plan())
        return super().run(job)


@pytest.mark.parametrize(("records", "entries", "files"), [(80, 25, 14), (80, 100_000, 1), (5, 25, 1)])
@pytest.mark.parametrize(("slots", "is_one_machine"), [(1, True), (2, True), (2, False)])
def test_each_file_of_an_index_has_a_task_of_its_own_if_there_are_slots(
    records: int, entries: int, files: int, slots: int, is_one_machine: bool, tmp_path: Path
) -> None:
    store = log_of(records).write(tmp_path / "store")
    runner = CountingRunner(slots=slots, is_one_machine=is_one_machine)
    rules = replace(RULES, queue_rules=replace(SIZES, max_index_num=entries))
    report = rebuild_by(runner, store, tmp_path / "found", rules)

    assert report.index is not None
    assert files == report.index.files == len(index_files(tmp_path / "found"))
    assert runner.parts == (files if slots > 1 and files > 1 else 0)


def test_segments_are_read_whole_where_their_parts_do_not_fit_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of(40, segment_size=1 << 14)
    bad = log.records[10].physical_offset
    log.patch(bad + BODY_LENGTH_AT, (1 << 20).to_bytes(4))  # a body that exceeds its record: lengths still chain
    store = log.write(tmp_path / "store")
    rebuild_here(store, tmp_path / "expected", RULES)
    monkeypatch.setattr(segment_scan, "_SMALLEST_PART", 300)
    report = rebuild_by(LocalRunner(slots=30), store, tmp_path / "found", RULES)

    assert queue_files(tmp_path / "expected") == queue_files(tmp_path / "found")
    assert 10 == report.records
    assert report.is_damaged


# ---- broken logs


def test_a_log_ends_at_damage_and_segments_behind_it_do_not_count(tmp_path: Path) -> None:
    log = log_of(120)
    store = log.write(tmp_path / "store")
    first, second, *behind = sorted((store / "commitlog").iterdir())
    data = bytearray(second.read_bytes())
    data[4:8] = b"\xff\xff\xff\xff"
    second.write_bytes(data)
    report = rebuild_here(store, tmp_path / "found", RULES)
    for path in (second, *behind):
        path.unlink()
    rebuild_here(store, tmp_path / "expected", RULES)

    assert len(behind) > 0
    assert report.is_damaged
    assert (
        f"{len(behind)} segments with records come after bytes that are not a record at {int(second.name)}"
        in report.problems[0]
    )
    assert report.read_end_offset == report.outcomes[0].end_offset < int(second.name)
    assert log.end == report.end_offset
    assert queue_files(tmp_path / "expected") == queue_files(tmp_path / "found")
    assert index_files(tmp_path / "expected") == index_files(tmp_path / "found")
    assert first.exists()


def test_a_log_without_a_segment_in_its_middle_is_damaged_and_rebuilt_across(tmp_path: Path) -> None:
    store = log_of(120).write(tmp_path / "store")
    sorted((store / "commitlog").iterdir())[1].unlink()
    report = rebuild_here(store, tmp_path / "found", RULES)

    assert report.is_damaged
    assert "is missing" in report.problems[0]
    assert {"jump"} == {gap.kind for queue in report.queues for gap in queue.gaps}
    assert 3 == report.gap_count


def test_every_offset_that_does_not_go_on_is_listed(tmp_path: Path) -> None:
    log = put(LogBuilder(segment_size=1 << 14), 0, 1, 5, 6, 6, 2, 3)
    (queue,) = rebuild_here(log.write(tmp_path / "store"), tmp_path / "found", RULES).queues
    offsets = [record.physical_offset for record in log.records]

    assert [
        ("jump", offsets[2], 5, 2),
        ("duplicate", offsets[4], 6, 7),
        ("back", offsets[5], 2, 7),
    ] == [(gap.kind, gap.physical_offset, gap.queue_offset, gap.expected) for gap in queue.gaps]
    assert 7 == queue.units
    assert 5 == queue.max_offset  # RocketMQ treats 2 and 3 as existing units, and writes 5, 6 and 6 at 2, 3 and 4


def test_an_aged_log_gives_queues_that_begin_where_it_does(tmp_path: Path) -> None:
    store = log_of(200).write(tmp_path / "store")
    for path in sorted((store / "commitlog").iterdir())[:2]:
        path.unlink()
    report = rebuild_here(store, tmp_path / "found", RULES)

    assert not report.is_damaged
    assert all(queue.min_offset > 0 for queue in report.queues)
    assert all(queue.max_offset - queue.min_offset == queue.units for queue in report.queues)
    assert not report.gap_count


def test_hostile_names_get_no_queue_and_are_listed(tmp_path: Path) -> None:
    log = put(LogBuilder(segment_size=1 << 14), 0, 1)
    put(log, 0, topic="../../evil")
    put(log, 0, topic="a/b")
    put(log, 0, topic="t", queue_id=-1)
    put(log, -5, topic="u")
    put(log, 2)
    report = rebuild_here(log.write(tmp_path / "store"), tmp_path / "found", RULES)

    assert ["t"] == [queue.topic for queue in report.queues]
    assert 3 == report.queues[0].units
    assert 4 == report.refused_count
    assert [("../../evil", 0), ("a/b", 0), ("t", -1), ("u", 0)] == [
        unit[:2] for outcome in report.outcomes for unit in outcome.refused
    ]
    assert {"store", "found"} == {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("segment_size", [1 << 16, 2048])
def test_a_log_that_names_too_many_queues_is_refused(segment_size: int, tmp_path: Path) -> None:
    log = LogBuilder(segment_size=segment_size)
    for number in range(50):
        put(log, 0, topic=f"topic{number}")

    with pytest.raises(UnsafeSizeError, match="too many queues"):
        rebuild_here(log.write(tmp_path / "store"), tmp_path / "found", replace(RULES, max_queues=20))


# ---- parts of a store


@pytest.mark.parametrize("number", [0, 1, 37, 60, 119, 120])
def test_since_an_offset_gives_what_the_whole_log_gives(number: int, tmp_path: Path) -> None:
    log = log_of(120)
    store = log.write(tmp_path / "store")
    rebuild_here(store, tmp_path / "whole", RULES)
    for kind in ("consumequeue", "index"):
        shutil.copytree(tmp_path / "whole" / kind, store / kind)
    for queue in (store / "consumequeue" / "topic1" / "0").iterdir():  # anything may be after the offset
        data = bytearray(queue.read_bytes())
        units = [data[at : at + 20] for at in range(0, len(data), 20)]
        since = log.records[number].physical_offset if number < 120 else log.end
        queue.write_bytes(b"".join(unit if int.from_bytes(unit[:8]) < since else bytes(20) for unit in units))
    since = max(log.records[number].physical_offset if number < 120 else log.end, 1)
    rules = replace(RULES, since_offset=since, index_since_offset=since - 1)
    rebuild_here(store, tmp_path / "since", rules)

    assert queue_files(tmp_path / "whole") == queue_files(tmp_path / "since")
    assert index_files(tmp_path / "whole") == index_files(tmp_path / "since")


# ---- comparing


def test_a_comparison_names_every_difference(tmp_path: Path) -> None:
    store = log_of(90).write(tmp_path / "store")
    rebuild_here(store, store, RULES)
    queues = store / "consumequeue"
    patch(queues / "topic0" / "0" / f"{0:020d}", 3 * 20 + 12, b"\1")  # a tags code
    shutil.rmtree(queues / "topic1" / "0")
    patch(queues / "topic2" / "0" / f"{400:020d}", 9 * 20, bytes(20))  # its last unit
    patch(store / "index" / min(path.name for path in (store / "index").iterdir()), 40 + 40 + 20 * 3, b"\1")  # a hash
    report = rebuild_here(store, tmp_path / "none", RULES, compared=LogBounds(0))

    assert {
        ("topic0", 0): {"unit_wrong_tags_code": 1},
        ("topic1", 0): {"unit_missing": 30},
        ("topic2", 0): {"unit_missing": 1},
    } == differing(report)
    assert [3, 0, 29] == [each.first[0].queue_offset for each in report.judged if each.counts]
    assert (1, 1) == report.index_differences[:2]
    assert not (tmp_path / "none").exists()


def test_a_live_store_may_be_newer_than_what_was_read(tmp_path: Path) -> None:
    log = log_of(60)
    store = log.write(tmp_path / "store")
    rebuild_here(store, store, RULES)
    last = log.records[-1].physical_offset
    segment = max((store / "commitlog").iterdir())
    patch(segment, last - int(segment.name), bytes(4))  # as if the last record was not there yet
    moment = LiveMoment.take(store, RULES.queue_rules)
    newer = rebuild_here(store, tmp_path / "none", RULES, compared=LogBounds(0, moment))
    still = rebuild_here(store, tmp_path / "none", RULES, compared=LogBounds(0))

    assert {} == differing(newer)
    assert [{"unit_extra": 1}] == list(differing(still).values())


# ---- many queues


def test_thousands_of_tiny_queues_do_not_need_thousands_of_open_files(tmp_path: Path) -> None:
    log = LogBuilder(segment_size=1 << 20)
    for number in range(320):
        put(log, 0, topic=f"topic{number // 8}", queue_id=number % 8)
    store = log.write(tmp_path / "store")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 40, hard))
    try:
        report = rebuild_here(store, tmp_path / "found", RULES)
        compared = rebuild_here(store, tmp_path / "none", RULES, compared=LogBounds(0))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert 320 == len(report.queues) == len(queue_files(tmp_path / "found"))
    assert 320 == len(differing(compared))  # the store itself has none


# ---- golden stores


WITH_A_TORN_UNIT = ("torn-header", "torn-zero")
"""RocketMQ was killed after it had indexed the record that was damaged afterwards."""

WITH_BIT_MAPS = "ext"
"""Its extension contains bit maps of consumers that are not in the log, so addresses differ."""

AGED = "aged"
"""Its first segments are deleted; queues and index still have files from that time."""

LIVE = "live"
"""Its broker was killed, and put the two keys of a record into the index once more."""


@pytest.mark.golden
def test_a_rebuild_with_salvage_or_without_gives_the_files_that_rocketmq_wrote(
    golden_store: UnpackedStore, tmp_path: Path
) -> None:
    rules, scenario = golden_rules(golden_store), golden_store.golden.scenario
    report = rebuild_here(golden_store.root, tmp_path / "plain", rules)
    salvaged = rebuild_here(golden_store.root, tmp_path / "salvaged", replace(rules, is_salvaged=True))
    expected, found = queue_files(golden_store.root), queue_files(tmp_path / "plain")
    differing = {name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)}

    assert report.gap_count == 0 or scenario in (AGED, "aged-rebuilt")
    assert not report.refused_count
    if scenario in WITH_A_TORN_UNIT:
        assert len(differing) == 1
    elif scenario == AGED:
        assert {name for name in differing if name not in expected} == set()
    elif scenario != WITH_BIT_MAPS:
        assert set() == differing
    if scenario not in (*WITH_A_TORN_UNIT, AGED, "aged-rebuilt", LIVE):
        assert index_files(golden_store.root) == index_files(tmp_path / "plain")
    assert report.is_damaged == salvaged.is_damaged
    assert found == queue_files(tmp_path / "salvaged")
    assert index_files(tmp_path / "plain") == index_files(tmp_path / "salvaged")


@pytest.mark.golden
def test_a_golden_store_differs_from_its_log_in_nothing_but_the_torn_unit(
    golden_store: UnpackedStore, tmp_path: Path
) -> None:
    rules = golden_rules(golden_store)
    min_offset = int(golden_store.segments[0].name)
    report = rebuild_here(golden_store.root, tmp_path / "none", rules, compared=LogBounds(min_offset))
    found = list(differing(report).values())

    assert ([{"unit_extra": 1}] if golden_store.golden.scenario in WITH_A_TORN_UNIT else []) == found
    assert (0, 2 if golden_store.golden.scenario == LIVE else 0) == report.index_differences[:2]
    assert not (tmp_path / "none").exists()
