# SPDX-License-Identifier: Apache-2.0
"""Entries of records that RocketMQ cut off are a note, and entries of damaged records are findings as before."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from store_core import DefaultMessageStore, Message, MessageStoreConfig
from store_core.answers import check
from store_core.answers.index_chains import expected_links, is_sound
from store_core.files.clock import SystemClock
from tests.budgets import budget
from tests.store_core.answers.planting import StoreCopy, counts_of, fault_named

if TYPE_CHECKING:
    from store_core.answers import CheckReport
    from tests.golden_stores import Golden

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
    with (root / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(offset + 4)
        log.write(bytes(4))


def checked(root: Path, release: str = "5.3") -> CheckReport:
    return check(root, release=release)


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

        report = checked(root)

    assert {} == report.counts
    assert notes_of(report) >= 1


@pytest.mark.parametrize("damage", [(b"KEYS", b"JEYS"), (b"KEYS\x01", b"KEYS\x00"), (b"KEYS\x01", bytes(5))])
def test_a_key_that_damage_took_from_its_record_is_still_a_finding(damage: tuple[bytes, bytes], tmp_path: Path) -> None:
    root = tmp_path / "store"
    put(root, SystemClock(), [f"k{number}" for number in range(BEFORE)])
    log = root / "commitlog" / f"{0:020d}"
    log.write_bytes(log.read_bytes().replace(*damage, 1))

    assert {"index_extra": 1} == checked(root).counts


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

        assert counts_of(expected) == checked(copy.root, store.golden.release).counts


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
