# SPDX-License-Identifier: Apache-2.0
"""A check finds nothing in what RocketMQ wrote, and exactly each fault that is planted into it."""

from __future__ import annotations

import json
import os
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from store_core import (
    DefaultMessageStore,
    Message,
    MessageStoreConfig,
    RebuildOptions,
    StoreNotFoundError,
    read_messages,
    rebuild_consume_queue,
)
from store_core.answers import CheckReport, check, diff
from store_core.answers.index_chains import expected_links, is_sound
from store_core.answers.report import Verdict
from store_core.answers.store_check import RELEASE_GIVEN
from store_core.files.machine import SystemClock
from store_core.format.release import DEFAULT_RELEASE
from store_core.queue.consume_queue_unit import CQ_STORE_UNIT_SIZE
from store_core.snapshot import log_end
from store_core.snapshot.likely_release import LikelyRelease
from store_core.store.rebuild.findings import FindingKind
from tests.budgets import budget
from tests.builders import MAGIC_AT, patch
from tests.store_core.answers.planting import StoreCopy, counts_of, fault_named, largest_queue, plant
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
    patch(root / "checkpoint", 0, struct.pack(">qqq", *[last + later if later else 0] * 3))


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


@pytest.mark.golden
def test_a_file_in_the_place_of_a_queue_is_found_in_words(golden: Golden, tmp_path: Path) -> None:
    root = shutil.copytree(golden("5.3.3/propcrc").root, tmp_path / "store")
    queue = largest_queue(root).directory
    shutil.rmtree(queue)
    queue.touch()
    (found,) = (row for row in check(root).to_json()["tables"]["findings"] if row["kind"] == "queue_unreadable")

    assert f"{queue}: expected a directory, found a file. Move what is there elsewhere" == found["found"]


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


def test_queues_that_are_gone_are_findings_unless_the_copy_is_of_the_log_alone(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    assert {"unit_missing"} == set(check(store).counts)
    shutil.rmtree(store / "index")
    report = check(store)

    assert Verdict.CLEAN is report.verdict
    assert 1 == sum("consume queues and key index are not in this copy" in note for note in report.found.notes)
    assert {"queues", "index"} <= set(report.found.not_checked)
    assert "0 of 0 queues" not in report.to_text()
    sorted((store / "commitlog").iterdir())[1].unlink()
    assert {"log_layout": 1} == check(store).counts, "of the log itself all is said"


@pytest.mark.parametrize("place", [0, -1])
def test_a_link_to_nothing_at_an_end_of_the_log_is_a_finding(place: int, store: Path) -> None:
    segment = sorted((store / "commitlog").iterdir())[place]
    segment.unlink()
    segment.symlink_to(store / "gone")

    report = check(store)
    assert 1 == report.counts["log_layout"]
    assert any(f"ignored the link {segment}" in note for note in report.found.notes)


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


@pytest.mark.parametrize("damage", ["one queue of several is gone", "the files are of another size", "units are wrong"])
def test_a_topic_some_of_whose_queues_are_there_was_not_deleted(damage: str, store: Path) -> None:
    topic, queue_id = largest_queue(store).place
    write_config(store, "topics.json", json.dumps({"topicConfigTable": {"other": {"topicName": "other"}}}))
    queues = sorted((store / "consumequeue" / topic).iterdir())
    assert len(queues) > 1
    for queue in queues:
        for file in queue.iterdir():
            if damage == "the files are of another size":
                os.truncate(file, 777)
            elif damage == "units are wrong":
                file.write_bytes(b"\1" * file.stat().st_size)
    if damage == "one queue of several is gone":
        shutil.rmtree(store / "consumequeue" / topic / str(queue_id))
    report = check(store)

    assert report.counts
    assert not [note for note in report.found.notes if "has messages without" in note]


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


CONFIG: Final = MessageStoreConfig(
    release="5.3", mapped_file_size_commit_log=1 << 16, max_hash_slot_num=10, max_index_num=30
)
BEFORE: Final = 12


@dataclass
class LaterClock(SystemClock):
    """A clock that is some time ahead."""

    ahead_ms: int = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


def put(root: Path, clock: SystemClock, keys: list[str]) -> list[int]:
    """Put a message for each key, without one if it is empty; return where they are."""
    with DefaultMessageStore.open(root, CONFIG, clock=clock) as store:
        messages = [Message("orders", b"body", keys=[key] if key else []) for key in keys]
        results = [store.put_message(message).append_message_result for message in messages]
        return [result.wrote_offset for result in results if result is not None]


def tear(root: Path, offset: int) -> None:
    """Overwrite the magic code of a record: what follows it is lost, too, when the store is opened."""
    patch(root / "commitlog" / f"{0:020d}", offset + MAGIC_AT, bytes(4))


def notes_of(report: CheckReport) -> int:
    return sum("records that are gone" in note or "cuts the log" in note for note in report.found.notes)


KEYED: Final = st.lists(st.sampled_from(["other", "k 1"]), max_size=20)
KEYED_OR_NOT: Final = st.lists(st.sampled_from(["", "", "k3", "other", "k 1"]), max_size=20)


CUT: Final = st.one_of(st.tuples(KEYED, st.just(0)), st.tuples(KEYED_OR_NOT, st.just(5000)))
"""Keys of what is put after the cut, and how many ms later: time tells records apart that have no key."""


@given(st.integers(1, BEFORE - 1), CUT)
@example(1, ([], 0))
@example(1, (["other"], 0))
@example(3, (["other"], 0))
@example(1, (["", "other"], 5000))
@example(3, (["k11"], 5000))
@budget(0.2)
def test_entries_of_records_that_were_cut_off_are_a_note(lost: int, cut: tuple[list[str], int]) -> None:
    later, ahead_ms = cut
    with TemporaryDirectory() as name:
        root = Path(name) / "store"
        offsets = put(root, SystemClock(), [f"k{number}" for number in range(BEFORE)])
        tear(root, offsets[-lost])
        put(root, LaterClock(ahead_ms), later)

        report = check(root, release="5.3")

    assert {} == report.counts
    assert notes_of(report) >= 1


@pytest.mark.parametrize("damage", [(b"KEYS", b"JEYS"), (b"KEYS\x01", b"KEYS\x00"), (b"KEYS\x01", bytes(5))])
def test_a_key_that_damage_took_from_its_record_is_still_a_finding(damage: tuple[bytes, bytes], tmp_path: Path) -> None:
    root = tmp_path / "store"
    put(root, SystemClock(), [f"k{number}" for number in range(BEFORE)])
    log = root / "commitlog" / f"{0:020d}"
    log.write_bytes(log.read_bytes().replace(*damage, 1))

    assert {"index_extra": 1} == check(root, release="5.3").counts


@pytest.mark.golden
@pytest.mark.parametrize(
    "fault", ["entry_hash_changed", "entry_leads_to_another_record", "entry_leads_inside_a_record"]
)
def test_an_entry_that_was_changed_is_still_a_finding_wherever_it_is(
    fault: str, golden: Golden, tmp_path: Path
) -> None:
    store = golden("5.5.0/tx")
    for seed in range(6):
        copy = StoreCopy(shutil.copytree(store.root, tmp_path / str(seed)), seed, store.golden.release)
        expected = fault_named(fault).plant(copy)

        assert counts_of(expected) == check(copy.root, release=store.golden.release).counts


SLOTS = 4


@given(st.lists(st.integers(0, SLOTS - 1), max_size=12), st.data())
def test_chains_are_sound_exactly_if_each_link_is_the_expected_one(own: list[int], data: st.DataObject) -> None:
    slots = np.array([0, *own], np.int64)
    links, table = expected_links(slots, SLOTS)
    for values, first in ((links, 1), (table, 0)):
        changes = st.lists(st.tuples(st.integers(first, max(len(values) - 1, first)), st.integers(-1, 13)), max_size=2)
        for place, value in data.draw(changes):
            if place < len(values):
                values[place] = value
    expected, newest = expected_links(slots, SLOTS)

    cut = data.draw(st.integers(1, len(slots)))
    pieces = [(slots[1:cut], links[1:cut]), (slots[cut:], links[cut:])]
    is_right = np.array_equal(expected[1:], links[1:]) and np.array_equal(newest, table)

    assert is_sound(pieces, table.astype(">i4")) == is_right


def test_chains_of_a_file_without_entries_are_sound() -> None:
    assert is_sound([], np.zeros(SLOTS, ">i4"))
