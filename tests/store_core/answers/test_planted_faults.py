# SPDX-License-Identifier: Apache-2.0
"""A check finds each fault that is planted, and nothing else; a store without findings is served whole by RocketMQ."""

from __future__ import annotations

import shutil
from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core import read_messages
from store_core.answers import Check, check
from store_core.format.layout import TRANSACTION_MASK, TransactionType
from tests.golden_stores import golden_stores, read_conf
from tests.store_core.answers.planting import FAULTS, Expected, Fault, StoreCopy, counts_of, fault_named
from tests.store_core.store.damaged_stores import (
    RELEASES,
    batch_topics_of,
    damaged_archives,
    expected_answers,
    unpack_damaged,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from store_core.answers import CheckReport
    from tests.golden_stores import Golden


pytestmark = pytest.mark.golden

HERE: Final = {store.name for store in golden_stores()}
SEEDS: Final = 5
A_SLICE: Final = 3
"""Every how many kinds are tried without being asked for more."""

APART: Final = [
    fault_named(name)
    for name in (
        "magic_code_zeroed", "body_bit_flipped", "size_negative", "unit_dropped", "units_swapped", "tags_code_changed",
        "unit_size_changed", "unit_points_after_the_end", "queue_missing", "unknown_topic",
        "entry_hash_changed", "entry_leads_inside_a_record", "link_cut", "slot_out_of_range", "config_garbage",
        "checkpoint_garbage",
    )
]  # fmt: skip
"""Faults of which two in one store do not touch each other."""


def planted(fault: Fault) -> list[str]:
    """Return the stores that a fault can be planted into, of those that are here."""
    return [name for name in fault.stores if name in HERE]


def assert_found(expected: list[Expected], report: CheckReport) -> None:
    assert counts_of(expected) == report.counts
    rows = report.tables["findings"].to_pylist()
    for each in expected:
        assert any(is_at(each, row) for row in rows), each


def is_at(expected: Expected, row: dict[str, object]) -> bool:
    """Return whether a finding is the expected one, as far as that says where it is."""
    wanted = {"kind": str(expected.kind), "begin": expected.begin, "queue_offset": expected.queue_offset}
    if expected.place is not None:
        wanted |= {"topic": expected.place[0], "queue_id": expected.place[1]}
    return all(value is None or row[name] == value for name, value in wanted.items())


def plant_all(faults: Iterable[Fault], name: str, seed: int, golden: Golden, target: Path) -> None:
    store = golden(name)
    copy = StoreCopy(shutil.copytree(store.root, target), seed, store.golden.release)
    expected = [each for fault in faults for each in fault.plant(copy)]

    assert_found(expected, check(target))
    if store.golden.release != check(target).found.release:
        assert_found(expected, check(target, release=store.golden.release))


def test_there_are_many_kinds_of_different_names() -> None:
    names = Counter(map(str, FAULTS))

    assert len(names) >= 60
    assert 1 == max(names.values())


@pytest.mark.parametrize("fault", FAULTS[::A_SLICE], ids=str)
def test_a_fault_is_found_and_nothing_else(fault: Fault, golden: Golden, tmp_path: Path) -> None:
    for name in planted(fault)[-1:]:
        plant_all([fault], name, len(str(fault)), golden, tmp_path / "store")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_is_found_in_each_store(fault: Fault, seed: int, golden: Golden, tmp_path: Path) -> None:
    for name in planted(fault):
        plant_all([fault], name, seed, golden, tmp_path / name / "store")


@pytest.mark.parametrize(("first", "second"), [("unit_dropped", "queue_missing"), ("magic_code_zeroed", "link_cut")])
def test_two_faults_are_both_found(first: str, second: str, golden: Golden, tmp_path: Path) -> None:
    plant_all([fault_named(first), fault_named(second)], "5.3.3/propcrc", 7, golden, tmp_path / "store")


def test_a_lost_queue_does_not_make_the_store_one_of_a_release_that_knows_no_light_queues(
    golden: Golden, tmp_path: Path
) -> None:
    copy = StoreCopy(shutil.copytree(golden("4.9.7/lmq").root, tmp_path / "store"), release="4.9")
    shutil.rmtree(copy.root / "consumequeue" / "%LMQ%b0")
    fault_named("slot_out_of_range").plant(copy)

    assert {"unit_missing": 25, "index_chain": 1} == check(copy.root).counts


@pytest.mark.soak
@pytest.mark.parametrize(("first", "second"), list(combinations(APART, 2)), ids=str)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_two_faults_are_both_found_in_each_store(
    seed: int, first: Fault, second: Fault, golden: Golden, tmp_path: Path
) -> None:
    for name in set(planted(first)) & set(planted(second)):
        plant_all([first, second], name, seed, golden, tmp_path / name / "store")


STORES_A_SLICE: Final = 20
"""Every how many stores are looked at without being asked for more."""

FILLER_SIZE: Final = 2**31 - 1
UNQUEUED: Final = (TransactionType.PREPARED_TYPE.value, TransactionType.ROLLBACK_TYPE.value)
FORCED: Final = (
    "enabledAppendPropCRC=true\nforceVerifyPropCRC=true\nmappedFileSizeConsumeQueue={cq-size}\n"
    "maxHashSlotNum={slot-num}\nmaxIndexNum={index-num}\n"
)
"""What no file of a store shows: a record without a checksum of its own is none."""

OF_THE_BASE: Final = {"unit_wrong_tags_code"}
"""The store that most of these were made from has one such unit."""


def not_queued(root: Path, release: str, units: dict[str, list[list[int]]]) -> set[tuple[str, int]]:
    """Return the records of the log that have no unit among these."""
    columns = ["topic", "queue_id", "physical_offset", "sys_flag"]
    logged = read_messages(root, columns=columns, mode="DROPMALFORMED", release=release, verify_crc=False).read_all()
    there = {(queue, unit[1]) for queue, found in units.items() for unit in found if unit[2] != FILLER_SIZE}
    return {
        (f"{row['topic']}/{row['queue_id']}", row["physical_offset"])
        for row in logged.to_pylist()
        if row["sys_flag"] & TRANSACTION_MASK not in UNQUEUED
    } - there


def not_served(root: Path, release: str, answer: dict[str, Any]) -> set[tuple[str, int]]:
    """Return the records without a unit, in queues from which a consumer did not get as many messages as the log has.

    RocketMQ's units were listed from the queue's least offset on, and there are none if the file of that is gone: a
    broker deletes a queue's files one by one, and corrects the least offset only in the first that is left. Where
    nothing was pulled, such queues are not judged.
    """
    lost = not_queued(root, release, answer["units"])
    if "pull" not in answer:
        return {each for each in lost if answer["units"].get(each[0])}
    logged = Counter(queue for queue, _ in not_queued(root, release, {}))
    pulled: Counter[str] = Counter()
    for topic, queue_id, _, status, _, count in answer["pull"]:
        pulled[f"{topic}/{queue_id}"] += count * (status == "FOUND")
    return {each for each in lost if pulled[each[0]] != logged[each[0]]}


def options_of(path: Path, release: str) -> Check:
    conf = read_conf(path / "store.conf")
    if conf.get("force-propcrc") != "true":
        return Check(release=release, batch_topic=tuple(batch_topics_of(conf)))
    (path / "broker.conf").write_text(FORCED.format_map(conf))
    return Check(release=release, batch_topic=tuple(batch_topics_of(conf)), config=path / "broker.conf")


@pytest.mark.parametrize("version", RELEASES)
@pytest.mark.parametrize(
    "archive",
    [
        pytest.param(archive, id=archive.name, marks=[pytest.mark.soak] * (number % STORES_A_SLICE > 0))
        for number, archive in enumerate(damaged_archives())
    ],
)
def test_a_store_without_findings_is_served_whole(archive: Path, version: str, tmp_path: Path) -> None:
    path = unpack_damaged(archive, tmp_path)
    answer: dict[str, Any] = expected_answers(path).get(version, {})
    if "load" not in answer or not any((path / "store" / "commitlog").iterdir()):
        return  # nothing to compare with
    report = options_of(path, RELEASES[version]).ask(path / "store")
    is_of_all = not any("the log was checked, and nothing else" in note for note in report.found.notes)
    is_clean = is_of_all and set(report.counts) <= OF_THE_BASE
    if not answer["load"] or "units" not in answer:  # or its start never returned
        assert not is_clean
        return
    lost = not_served(path / "store", RELEASES[version], answer)

    assert not (is_clean and lost)
    if "unit_missing" in report.counts and not any(kind.startswith("log_") for kind in report.counts):
        assert lost or not (path / "store" / "abort").exists()
