# SPDX-License-Identifier: Apache-2.0
"""Each kind of fault that is planted into a golden store is found, where it is, and nothing else is."""

from __future__ import annotations

import shutil
from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING, Final

import pytest

from store_core.answers import check
from tests.golden_stores import golden_stores
from tests.store_core.answers.planting import FAULTS, Expected, Fault, StoreCopy, counts_of, fault_named

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
