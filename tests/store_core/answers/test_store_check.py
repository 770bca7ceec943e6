# SPDX-License-Identifier: Apache-2.0
"""A check finds nothing in what RocketMQ wrote, and exactly each fault that is planted into it."""

from __future__ import annotations

import json
import os
import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store_core import RebuildOptions, StoreNotFoundError, read_messages, rebuild_consume_queue
from store_core.answers import CheckReport, check, diff
from store_core.answers.report import Verdict
from store_core.answers.store_check import RELEASE_GIVEN
from store_core.format.release import DEFAULT_RELEASE
from store_core.queue.consume_queue_unit import CQ_STORE_UNIT_SIZE
from store_core.snapshot import log_end
from store_core.snapshot.likely_release import LikelyRelease
from store_core.store.rebuild.findings import FindingKind
from tests.budgets import budget
from tests.store_core.answers.planting import StoreCopy, largest_queue, plant
from tests.store_core.files.store_kinds import every_file
from tests.strategies import Log, layouts, logs, mutated
from tests.viewed_store import write_config

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store_core.files.segment_source import Segment
    from store_core.snapshot.log_end import FoundEnd
    from tests.golden_stores import Golden, UnpackedStore

CLUSTER: Final = Path(__file__).parents[3] / "notebooks" / "store" / "cluster.tar.xz"
"""Stores of two brokers, whose delay levels are all of a second."""


LATER = 10_000
"""How much later than the log a checkpoint can be so that recovery starts at the last segment, ms."""


def set_checkpoint(root: Path, later: int) -> None:
    """Let all times of the checkpoint be later than the log's last record by some ms; 0 for no times at all."""
    times = read_messages(root, columns=["store_timestamp"]).read_all()["store_timestamp"]
    last = round(times[-1].as_py().timestamp() * 1000)
    with (root / "checkpoint").open("r+b") as file:
        file.write(struct.pack(">qqq", *[last + later if later else 0] * 3))


def checked(store: UnpackedStore, root: Path | None = None) -> CheckReport:
    return check(root or store.root, release=store.golden.release)


@pytest.mark.golden
def test_nothing_is_found_in_a_store_that_rocketmq_wrote(golden_store: UnpackedStore) -> None:
    before = every_file(golden_store.root)

    report = check(golden_store.root)

    assert {} == report.counts
    assert golden_store.golden.release in LikelyRelease.of(golden_store.root).releases
    assert report.found.release in (golden_store.golden.release, DEFAULT_RELEASE)
    assert report.found.release_why != RELEASE_GIVEN
    assert report.tables["certificates"]["is_complete"].to_pylist().count(False) == 0
    assert before == every_file(golden_store.root)


@pytest.mark.parametrize("name", ["index-ipv6", "index-empty", "no-index", "index-extra"])
def test_what_releases_leave_of_an_index_is_no_finding(name: str, field: Callable[[str], Path]) -> None:
    assert {} == check(field(name) / "store").counts


def test_a_store_without_an_index_file_has_one_note_unless_options_say_that_there_is_an_index(
    field: Callable[[str], Path],
) -> None:
    root = field("no-index") / "store"

    assert 1 == sum("no index file" in note for note in check(root).found.notes)
    assert {"index_missing": 200} == check(root, release="5.3", index_num=20_000_000).counts


def test_no_index_is_missing_where_the_broker_keeps_none(store: Path, tmp_path: Path) -> None:
    shutil.rmtree(store / "index")
    config = tmp_path / "broker.conf"
    config.write_text("messageIndexEnable=false\nmappedFileSizeCommitLog=131072\nmappedFileSizeConsumeQueue=800\n")
    report = check(store, release="5.3", config=config)

    assert Verdict.CLEAN is report.verdict
    assert any("messageIndexEnable=false" in note for note in report.found.notes)
    config.write_text(config.read_text().replace("false", "true"))
    assert FindingKind.INDEX_MISSING in check(store, release="5.3", config=config).counts


def test_a_release_that_ignores_a_cut_queue_file_has_no_units_of_it(golden: Golden, tmp_path: Path) -> None:
    store = golden("4.3.0/tx")
    root = shutil.copytree(store.root, tmp_path / "store")
    count = largest_queue(root).count
    os.truncate(largest_queue(root).files[0], count * CQ_STORE_UNIT_SIZE + 7)

    assert {"unit_missing": count} == checked(store, root).counts


def test_in_a_store_that_was_not_closed_what_a_crash_leaves_is_a_note(store: Path) -> None:
    (store / "abort").touch()
    queue = largest_queue(store)
    offset, size, code = queue.unit(queue.count - 1)
    queue.put(queue.count, (1 << 30, size, code))
    assert offset < 1 << 30

    report = check(store)

    assert Verdict.CLEAN is report.verdict
    assert any(
        "1 units of records that are not there, at its end; a restart cuts them" in note
        for note in report.facts["notes"]
    )


@pytest.mark.parametrize("is_ahead", [True, False])
def test_a_store_that_counts_as_closed_and_does_not_end_as_one_gets_a_hint(is_ahead: bool, store: Path) -> None:
    assert not [note for note in check(store).facts["notes"] if "abort" in note]
    for queue in StoreCopy(store).queues():
        units = [queue.unit(number) for number in range(queue.first, queue.first + queue.count)]
        end = max(each[0] for each in units)
        if is_ahead:
            queue.put(queue.first + queue.count, (end + (1 << 30), 100, 0))
    if not is_ahead:
        cut_queues_behind(store, 0.9)
    report = check(store)
    hints = [note for note in report.facts["notes"] if f"make an empty file {store / 'abort'}" in note]
    (store / "abort").touch()

    assert report.counts
    assert 1 == len(hints)
    assert {} == {kind: count for kind, count in check(store).counts.items() if kind.startswith("unit")}


def cut_queues_behind(store: Path, share: float) -> None:
    """Take away the units of the last records, from all queues."""
    queues = StoreCopy(store).queues()
    units = [(queue, n, queue.unit(n)[0]) for queue in queues for n in range(queue.first, queue.first + queue.count)]
    end = sorted(offset for _, _, offset in units)[int(share * len(units))]
    for queue, number, offset in units:
        if offset >= end:
            queue.put(number, (0, 0, 0))


def test_a_lost_queue_is_a_finding_if_a_restart_goes_on_after_its_records(store: Path) -> None:
    (store / "abort").touch()
    queue = min(StoreCopy(store).queues(), key=lambda each: each.unit(each.first)[0])
    shutil.rmtree(queue.directory)
    healed = check(store, release="5.3").counts
    set_checkpoint(store, LATER)

    assert {} == healed
    assert {"unit_missing": queue.count} == check(store, release="5.3").counts


def test_records_after_all_units_are_not_missed_if_a_restart_adds_their_units(store: Path) -> None:
    for path in store.glob("consumequeue/*/*"):
        shutil.rmtree(path)
    closed = check(store).counts
    (store / "abort").touch()
    set_checkpoint(store, LATER)
    late = check(store).counts
    set_checkpoint(store, 0)

    assert closed["unit_missing"] > 0
    assert late["unit_missing"] > 0  # by its checkpoint a restart goes on after them
    assert {} == check(store).counts


def test_a_finding_says_where_it_is_what_is_expected_and_what_is_there(store: Path) -> None:
    queue = largest_queue(store)
    offset, size, code = queue.unit(3)
    queue.put(3, (offset, size + 1, code))

    (found,) = check(store).tables["findings"].to_pylist()

    assert (FindingKind.UNIT_WRONG_SIZE, 3, offset) == (found["kind"], found["queue_offset"], found["begin"])
    assert (queue.directory.parent.name, int(queue.directory.name)) == (found["topic"], found["queue_id"])
    assert f"of {size + 1} bytes" in found["found"]


def test_a_record_that_differs_from_its_checksum_is_found_though_no_file_tells_the_release(
    field: Callable[[str], Path],
) -> None:
    (found,) = check(field("propcrc") / "store").tables["findings"].to_pylist()

    assert (FindingKind.LOG_RECORD_CRC, 1800) == (found["kind"], found["begin"])


def test_bodies_that_no_consumer_can_expand_are_counted(field: Callable[[str], Path]) -> None:
    path = field("compress-odd") / "store"
    found = [
        [each["begin"] for each in report.tables["findings"].to_pylist() if each["kind"] == FindingKind.LOG_BODY]
        for report in (check(path), check(path, check_crc=False))
    ]

    assert found == [[149, 309, 456, 895, 1521, 1674, 1829], []]


def test_only_queues_of_the_topics_asked_for_are_checked(store: Path) -> None:
    queue = largest_queue(store)
    shutil.rmtree(queue.directory)
    topics = {path.parent.name for path in store.glob("consumequeue/*/*")} - {queue.directory.parent.name}
    other = min(topics)

    assert {} == check(store, topic=[other]).counts


def test_certificates_tell_queues_apart_and_a_changed_log_too(store: Path) -> None:
    before = check(store)
    plant("magic_code_overwritten", store)
    after = check(store)

    digests = before.tables["certificates"]["digest"].to_pylist()
    assert len(set(digests)) == len(digests)
    assert before.found.digest != after.found.digest
    assert after.tables["certificates"]["is_complete"].to_pylist().count(False) == 1


def test_tables_have_their_types_without_rows(store: Path) -> None:
    assert pa.int64() == check(store).tables["findings"].schema.field("begin").type


def test_a_copy_of_the_log_alone_is_one_note_and_no_finding(store: Path) -> None:
    for name in ("consumequeue", "index"):
        shutil.rmtree(store / name)
    report = check(store)

    assert Verdict.CLEAN is report.verdict
    assert 1 == sum("consume queues and key index are not in this copy" in note for note in report.found.notes)
    assert {"queues", "index"} <= set(report.found.not_checked)
    assert "0 of 0 queues" not in report.to_text()


def test_a_copy_of_the_log_alone_still_says_what_is_wrong_with_the_log(store: Path) -> None:
    for name in ("consumequeue", "index"):
        shutil.rmtree(store / name)
    sorted((store / "commitlog").iterdir())[1].unlink()

    assert {"log_layout": 1} == check(store).counts


def test_queues_that_are_gone_beside_an_index_are_findings(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")

    assert {"unit_missing"} == set(check(store).counts)


@pytest.mark.parametrize("config", ["the others", "all", "none"])
def test_a_topic_that_the_broker_deleted_is_told_apart_from_lost_queues(config: str, store: Path) -> None:
    topic = largest_queue(store).place[0]
    shutil.rmtree(store / "consumequeue" / topic)
    known = {"other": {"topicName": "other"}} | ({topic: {"topicName": topic}} if config == "all" else {})
    if config != "none":
        write_config(store, "topics.json", json.dumps({"topicConfigTable": known}))
    report = check(store)

    assert {"unit_missing"} == set(report.counts)
    assert [config == "the others"] == [any(f"{topic} has messages without" in note for note in report.found.notes)]


def test_delay_levels_of_its_own_have_to_be_given(tmp_path: Path) -> None:
    """What the levels are is in the configuration alone, so without it nobody knows when messages are due."""
    shutil.unpack_archive(CLUSTER, tmp_path)
    store, config = tmp_path / "cluster" / "broker-b" / "store", tmp_path / "broker.conf"
    sizes = "mappedFileSizeConsumeQueue=60000\nmaxHashSlotNum=5000\nmaxIndexNum=20000\n"
    config.write_text(f"messageDelayLevel={' '.join(['1s'] * 18)}\n{sizes}")
    without, told = check(store), check(store, config=config)

    assert ["unit_wrong_tags_code"] == list(without.counts)
    assert any("If the broker has others, give its configuration" in note for note in without.found.notes)
    assert not told.counts
    assert not any("messageDelayLevel" in note for note in told.found.notes)


@settings(budget(0.3), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.data(),
    (logs() | layouts()).filter(lambda log: log.data),
    st.integers(0, 400),
    st.binary(max_size=40),
    st.booleans(),
)
def test_a_log_whose_last_part_tells_its_end_has_the_findings_of_one_that_is_followed(
    tmp_path: Path, data: st.DataObject, log: Log, zeros: int, junk: bytes, is_open: bool
) -> None:
    store = tmp_path / "store"
    shutil.rmtree(store, ignore_errors=True)
    segment = store / "commitlog" / f"{log.start_offset:020d}"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(log.data + bytes(zeros))
    rebuild_consume_queue(store, RebuildOptions(with_index=True, hash_slot_num=10, index_num=50))
    for name in ("consumequeue", "index"):
        if (store / "rebuilt" / name).exists():
            (store / "rebuilt" / name).rename(store / name)
    damaged = data.draw(st.just(log) | mutated(st.just(log)))
    segment.write_bytes(damaged.data + bytes(zeros) + junk)
    if is_open:
        (store / "abort").touch()
    followed = check(store)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"_LEAST": 1, "_WINDOWS": (1 << 7, 1 << 9), "_PROBE": 1 << 5}.items():
            patch.setattr(log_end, name, value)

        assert followed.to_json() == check(store).to_json()


def test_a_sound_log_is_not_followed_once_more_for_its_end(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_LEAST": 1 << 10, "_WINDOWS": (1 << 12,), "_PROBE": 1 << 8}.items():
        monkeypatch.setattr(log_end, name, value)
    find, by_tail = log_end.find_end, list[bool]()

    def found(segments: Sequence[Segment], *, by_tail_too: bool = False) -> FoundEnd:
        by_tail.append(by_tail_too)
        return find(segments, by_tail=by_tail_too)

    monkeypatch.setattr(
        "store_core.answers.check_job.find_end", lambda some, by_tail=False: found(some, by_tail_too=by_tail)
    )

    assert {} == check(store).counts
    assert [True] == by_tail


def test_a_log_of_an_empty_file_has_no_finding_and_gives_no_queue(tmp_path: Path) -> None:
    segment = tmp_path / "commitlog" / f"{0:020d}"
    segment.parent.mkdir()
    segment.touch()

    report = check(tmp_path)
    rebuilt = rebuild_consume_queue(tmp_path, RebuildOptions(with_index=True))

    assert ({}, 0, 0) == (report.counts, report.found.records, report.found.end_offset)
    assert rebuilt.report is not None
    assert ((), Verdict.CLEAN) == (rebuilt.report.queues, rebuilt.verdict)
    with pytest.raises(StoreNotFoundError, match="expected a segment with bytes, found none; ignored the empty file"):
        diff(tmp_path, tmp_path)


GUIDE = Path(__file__).parents[3] / "docs" / "incidents" / "queues-and-index.md"


def test_the_guide_has_all_kinds_in_order() -> None:
    rows = GUIDE.read_text(encoding="utf-8").split("| kind | meaning |\n|---|---|\n")[1].split("\n\n")[0]

    assert [f"| `{kind}` | {kind.meaning} |" for kind in FindingKind] == rows.splitlines()
