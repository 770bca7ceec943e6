# SPDX-License-Identifier: Apache-2.0
"""A rebuilt index: compared with what releases served, and written by tasks of their own as by a single writer."""

from __future__ import annotations

import pickle
import random
import tempfile
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import DefaultMessageStore, Message, MessageStoreConfig
from store_core.answers import check
from store_core.queue.index_format import INDEX_DTYPE, MessageKeys
from store_core.queue.queue_path import QueueRules
from store_core.snapshot import index
from store_core.snapshot.index import KeyFile
from store_core.store.parts import RunReader, RunSpill, SpilledRun, packed, unpacked
from store_core.store.rebuild import segment_scan
from store_core.store.rebuild.index_files import (
    IndexFilesJob,
    IndexReport,
    IndexWriter,
    KeptIndex,
    _expected,
    slice_entries,
)
from tests.budgets import budget
from tests.store_core.fakes import FakeClock
from tests.store_core.rebuilt import index_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.format.release import Release


CONFIG: Final = MessageStoreConfig(mapped_file_size_commit_log=4096, max_hash_slot_num=10, max_index_num=1000)
COUNT: Final = 40


WINDOW: Final = 3


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_scan, "_SMALLEST_PART", 1000)
    monkeypatch.setattr(index, "_WINDOW", WINDOW)


def served_by(root: Path, *releases: Release) -> Path:
    """Let each release put messages, every second one with tags."""
    for release in releases:
        with DefaultMessageStore.open(root, replace(CONFIG, release=release)) as store:
            for number in range(COUNT):
                message = Message("orders", b"body", tags=f"T{number % 3}" if number % 2 else None, keys=[f"k{number}"])
                assert store.put_message(message).is_ok
    return root


def found_in(root: Path, release: Release) -> tuple[dict[str, int], list[str]]:
    report = check(root, release=release, hash_slot_num=CONFIG.max_hash_slot_num, index_num=CONFIG.max_index_num)
    return dict(report.counts), [note for note in report.facts["notes"] if "tags" in note]


@pytest.mark.parametrize("releases", [("5.3",), ("4.9", "5.5", "5.5")])
def test_whole_stores_have_no_findings_whoever_asks(releases: tuple[Release, ...], tmp_path: Path) -> None:
    root = served_by(tmp_path / "store", *releases)
    without = COUNT // 2 * sum(release in ("4.9", "5.3") for release in releases)

    assert ({}, []) == found_in(root, "5.3")
    for release in ("5.4", "5.5"):
        counts, notes = found_in(root, release)
        assert {} == counts
        assert [f"{without:,} records" in note for note in notes] == [True] * (without > 0)


@pytest.mark.parametrize("earlier", [(), ("5.3",)])
def test_a_wrong_entry_for_tags_is_found(earlier: tuple[Release, ...], tmp_path: Path) -> None:
    root = served_by(tmp_path / "store", *earlier, "5.5")
    (path,) = (root / "index").iterdir()
    entries = np.memmap(path, INDEX_DTYPE, "r+", 40 + 4 * CONFIG.max_hash_slot_num, (CONFIG.max_index_num,))
    tags = 1 + COUNT * len(earlier) + 3 * 7 + 2  # the record before it has a key, its own a key and tags
    entries["key_hash"][tags] ^= 1
    entries.flush()

    assert 1 == found_in(root, "5.5")[0]["index_wrong_hash"]


def test_tags_are_missed_after_those_that_are_there(tmp_path: Path) -> None:
    root = served_by(tmp_path / "store", "5.5", "5.3")

    assert {"index_missing": COUNT // 2} == found_in(root, "5.5")[0]
    assert {} == found_in(root, "5.3")[0]


def test_entries_are_read_once_for_chains_and_once_for_the_part_that_they_are_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, read, entries = served_by(tmp_path / "store", "5.5"), Counter[int](), KeyFile.entries

    def counted(file: KeyFile, first: int, stop: int) -> np.ndarray:
        read.update([first] * (stop - first == WINDOW))
        return entries(file, first, stop)

    monkeypatch.setattr(KeyFile, "entries", counted)

    assert {} == found_in(root, "5.5")[0]
    *whole, _ = sorted(read)
    assert {2, 3} == {read[first] for first in whole}  # 3 where one part ends and the next one begins
    assert sum(read[first] == 2 for first in whole) > len(whole) / 2


@given(st.permutations(range(COUNT * 3 // 2)))
@budget(0.02)
def test_entries_in_any_order_are_those_of_the_log(order: list[int]) -> None:
    with TemporaryDirectory() as name:
        root = served_by(Path(name) / "store", "5.5")
        (path,) = (root / "index").iterdir()
        entries = np.memmap(path, INDEX_DTYPE, "r+", 40 + 4 * CONFIG.max_hash_slot_num, (CONFIG.max_index_num,))
        entries[1 : 1 + len(order)] = entries[1 : 1 + len(order)][order]
        entries.flush()
        kinds = found_in(root, "5.5")[0].keys()

    assert kinds <= {"index_chain", "index_header"}


def test_an_index_that_the_broker_does_not_keep_is_not_compared(tmp_path: Path) -> None:
    root, config = served_by(tmp_path / "store", "5.3"), tmp_path / "broker.conf"
    config.write_text("messageIndexEnable=false\nmaxHashSlotNum=10\nmaxIndexNum=1000\n")

    assert [] == [note for note in check(root, release="5.5", config=config).facts["notes"] if "tags" in note]


def plainly_expected(
    every: Sequence[int], is_tag: Sequence[bool], theirs: Sequence[int], *, indexes: bool
) -> list[bool]:
    places = {number >> 31 for number in theirs if number not in every}
    expected, has_begun = [], False
    for number, tag in zip(every, is_tag, strict=True):
        is_there = number in theirs
        has_begun |= tag and (is_there or number >> 31 in places)
        expected.append(not tag or (has_begun if indexes else is_there))
    return expected


@given(st.data(), st.booleans())
@budget(0.3)
def test_entries_that_an_index_should_have_are_those_of_the_definition(data: st.DataObject, indexes: bool) -> None:
    numbers = st.integers(0, 5).map(lambda place: place << 31) | st.integers(0, 3)
    every = sorted(data.draw(st.lists(st.builds(int.__add__, numbers, st.integers(0, 3)), max_size=8)))
    is_tag = data.draw(st.lists(st.booleans(), min_size=len(every), max_size=len(every)))
    theirs = data.draw(st.lists(st.sampled_from([*every, 7, 5 << 31]), max_size=8))
    found = _expected(
        np.array(every, np.int64), np.array(is_tag, np.bool_), np.array(theirs, np.int64), indexes_tags=indexes
    )

    bare = [number for number, tag in zip(every, is_tag, strict=True) if not tag]
    if indexes and not theirs:
        assert all(found.tolist())
    elif bare != theirs:
        assert plainly_expected(every, is_tag, theirs, indexes=indexes) == found.tolist()
    else:
        assert [not tag for tag in is_tag] == found.tolist()


RELEASES: tuple[Release, ...] = ("4.3", "4.9", "5.3")


class IndexedMessage(NamedTuple):
    """What the index gets of a message.

    * `size`: How far before the next one it says that it is; a broker takes a message wherever it says that it is.
    """

    size: int
    delay: int
    hashes: list[int]


# few hashes, so that chains are long; time also goes back
messages = st.lists(
    st.builds(
        IndexedMessage,
        st.integers(100, 5000) | st.just(100) | st.integers(-300, 0),
        st.integers(-3000, 90_000),
        st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(0, 5), max_size=4),
    ),
    max_size=24,
)


def entries_of(some: list[IndexedMessage], first: int) -> MessageKeys:
    offsets = np.cumsum([0] + [message.size for message in some])[:-1] + first
    rows = [row for row, message in enumerate(some) for _ in message.hashes]
    return MessageKeys(
        offsets.astype(np.int64),
        (np.cumsum([message.delay for message in some], dtype=np.int64) + 1_600_000_000_000 + first * 7),
        np.array(rows, np.int64),
        np.array([code for message in some for code in message.hashes], np.int32),
    )


def runs_of(made: list[IndexedMessage], cuts: list[int]) -> list[MessageKeys]:
    edges = sorted({0, len(made), *(cut for cut in cuts if cut < len(made))})
    firsts = np.cumsum([0] + [message.size for message in made]).tolist()
    return [entries_of(made[start:stop], firsts[start]) for start, stop in pairwise(edges)]


def write_by_one(made: list[MessageKeys], rules: QueueRules, root: Path) -> IndexReport:
    writer = IndexWriter(rules, KeptIndex(), root, FakeClock())
    for each in made:
        writer.add(MessageKeys.of_table(unpacked(packed(each.to_table()))))
    return writer.finish()


def spilled(made: list[MessageKeys], directory: Path) -> list[SpilledRun]:
    with RunSpill(directory) as spill:
        return [spill.put(packed(each.to_table()), each) for each in made]


@given(messages, st.lists(st.integers(0, 40)), st.integers(2, 12), st.sampled_from(RELEASES), st.integers(0, 99))
def test_files_are_those_of_one_writer(
    made: list[IndexedMessage], cuts: list[int], most: int, release: Release, seed: int
) -> None:
    rules = QueueRules(release=release, max_hash_slot_num=4, max_index_num=most)
    with tempfile.TemporaryDirectory() as name:
        root, runs = Path(name), runs_of(made, cuts)
        expected = write_by_one(runs, rules, root / "one")
        with RunReader() as reader:
            slices = slice_entries(spilled(runs, root / "runs"), reader, most - 1)
        (root / "several").mkdir()
        job = pickle.loads(pickle.dumps(IndexFilesJob(tuple(slices), rules, root / "several", FakeClock())))  # noqa: S301
        parts = [part for part in job.plan() for _ in range(2)]  # each is tried twice
        random.Random(seed).shuffle(parts)  # noqa: S311 -- for variety
        reports = {part.name: job.run(part) for part in parts}
        if not slices:  # a message without keys makes an empty file; several tasks only write what has entries
            assert not expected.entries or any(message.size < 0 for message in made)
            return

        assert job.merge(reports[name] for name in sorted(reports)) == expected
        assert index_files(root / "several") == index_files(root / "one")
        names = [path.name for path in sorted((root / "several" / "index").iterdir())]
        assert names == [path.name for path in sorted((root / "one" / "index").iterdir())]


@pytest.mark.parametrize("keyless", [0, 1, 2])
def test_a_full_last_file_is_followed_by_an_empty_one_if_a_message_comes_after(keyless: int, tmp_path: Path) -> None:
    made = [IndexedMessage(100, 1, [number]) for number in range(6)]
    if keyless == 1:
        made.append(IndexedMessage(100, 1, []))
    runs = runs_of(made, [6])
    if keyless == 2:
        runs += runs_of([*made, IndexedMessage(100, 1, [])], [6])[1:]
    with RunReader() as reader:
        slices = slice_entries(spilled(runs, tmp_path), reader, 3)

    assert [3, 3] == [each.count for each in slices]
    assert [False, keyless > 0] == [each.is_followed for each in slices]
