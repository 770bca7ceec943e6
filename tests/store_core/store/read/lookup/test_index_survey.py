# SPDX-License-Identifier: Apache-2.0
"""What a pass over an index file finds equals what its entries say one by one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.format.java import positive_hash
from store_core.queue.index.index_build import INDEX_DTYPE
from store_core.queue.index.index_header import INDEX_HEADER_SIZE
from store_core.store.config.index_listing import ListedIndexFile, index_paths
from store_core.store.read.lookup import index_entries
from store_core.store.read.lookup.file_state import FileState
from store_core.store.read.lookup.index_entries import IndexDoubtError, IndexEntries
from store_core.store.read.lookup.index_survey import IndexFileInStore, Stretch, survey_index
from store_core.store.read.lookup.proofs import ProofsOfStore
from store_core.store.read.lookup.survey import digest, digest_of_distinct
from tests.budgets import budget
from tests.store_core.queue.index_builders import index_service, rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.store.read.lookup.index_survey import IndexSurvey

_SPANS = [(0, 1000), (1000, 2000), (2000, 3000)]
_entries = st.lists(st.tuples(st.integers(0, 3500), st.integers(-50, 50)), min_size=1, max_size=60)


def _index(directory: Path, entries: Sequence[tuple[int, int]], slots: int = 5) -> ListedIndexFile:
    """Write one index file with entries of offsets and hashes."""
    offsets, hashes = np.array(sorted(entries), np.int64).T
    index = index_service(directory, rules(slots, 100))
    index.put_entries(offsets, offsets, np.arange(offsets.size), hashes.astype(np.int32))
    index.close()
    return ListedIndexFile.read(index_paths(directory)[0], (slots, 100), is_full=False)


def _survey(file: ListedIndexFile) -> IndexSurvey:
    listed = IndexFileInStore(file, FileState.of(file.path.stat()), is_last=True)
    return survey_index(listed, _SPANS, ProofsOfStore(file.path.parent, None))


@budget(0.3)
@given(_entries, st.sets(st.integers(0, 50), min_size=1, max_size=20))
def test_a_pass_in_parts_finds_what_entries_say(entries: list[tuple[int, int]], hashes: set[int]) -> None:
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_entries, "_BLOCK", 7)
        file = _index(Path(directory), entries)
        found = _survey(file)
        hits = IndexEntries(file).in_chains(hashes, 1000)
        named = {span: np.concatenate(list(found.named(span))) for span in found.stretches}

    offsets = np.array(sorted(offset for offset, _ in entries))
    for begin, end in _SPANS:
        mine = offsets[(offsets >= begin) & (offsets < end)]
        assert ((begin, end) in named) == (mine.size > 0)
        if mine.size:
            stretch = found.stretches[begin, end]
            assert named[begin, end].tolist() == mine.tolist()
            assert (stretch.first, stretch.last) == (mine[0], mine[-1])
            assert stretch.digest == digest(np.unique(mine))
    slots = {code % 5 for code in hashes}
    pairs = [(offset, positive_hash(code)) for offset, code in entries]
    near = sorted(pair for pair in pairs if pair[1] % 5 in slots)
    assert sorted(zip(hits["physical_offset"].tolist(), hits["key_hash"].tolist(), strict=True)) == near


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=40).map(sorted))
def test_the_digest_of_distinct_numbers_is_that_of_their_set(numbers: list[int]) -> None:
    offsets = np.array(numbers, np.int64)

    assert digest_of_distinct(offsets) == digest(np.unique(offsets))


@given(st.lists(st.integers(0, 2**40), min_size=2, max_size=40).map(sorted), st.data())
def test_two_stretches_are_one(numbers: list[int], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(numbers) - 1))
    parts = [np.array(part, np.int64) for part in (numbers[:cut], numbers[cut:])]
    whole = Stretch.of(np.array(numbers, np.int64), 1)

    assert Stretch.of(parts[0], 1).and_then(Stretch.of(parts[1], 1 + cut)) == whole


def test_entries_that_a_broker_puts_meanwhile_are_passed_over(tmp_path: Path) -> None:
    """Slots already lead to entries that the header, which was read before, does not count."""
    file = _index(tmp_path, [(number * 100, number % 3) for number in range(30)])
    older = replace(file, header=file.header.copy())
    older.header.index_count -= 7

    found = _survey(older)

    assert found.count == 23
    assert (found.first, found.last) == (0, 2200)
    assert IndexEntries(older).in_chains([1], 1000)["physical_offset"].max() <= 2200


def test_uncounted_entries_that_lead_to_themselves_are_followed_for_a_bounded_time(tmp_path: Path) -> None:
    file = _index(tmp_path, [(number * 100, number % 3) for number in range(30)])
    data = bytearray(file.path.read_bytes())
    np.frombuffer(data, INDEX_DTYPE, 30, file.position(1))["previous_index"][29] = 30
    file.path.write_bytes(data)
    older = replace(file, header=file.header.copy())
    older.header.index_count -= 7

    with pytest.raises(IndexDoubtError, match="does not count"):
        _survey(older)


@pytest.mark.parametrize(
    ("at", "field", "value", "says"),
    [
        (5, "physical_offset", 99_999, "not in the order of the log"),
        (0, "physical_offset", -1, "not in the order of the log"),
        (20, "previous_index", 20, "not every entry of"),
        (20, "previous_index", 0, "not every entry of"),
        (20, "key_hash", 1, "not every entry of"),
        (20, "key_hash", -3, "not every entry of"),
    ],
)
def test_a_file_that_contradicts_itself_is_doubted(tmp_path: Path, at: int, field: str, value: int, says: str) -> None:
    file = _index(tmp_path, [(number * 100, number % 3) for number in range(30)])
    data = bytearray(file.path.read_bytes())
    np.frombuffer(data, INDEX_DTYPE, 30, file.position(1))[field][at] = value
    file.path.write_bytes(data)

    with pytest.raises(IndexDoubtError, match=says):
        _survey(file)


def _each_is_in_its_chain(file: ListedIndexFile) -> bool:
    """Return whether following the chains of all slots finds each entry, in that of its own slot, and nothing else."""
    stored, count = IndexEntries(file), file.header.index_count
    entries = stored.read(1, count - 1)
    slots = (entries["key_hash"].astype(np.int64) % file.slots).tolist()
    found: dict[int, int] = {}
    for slot, number in enumerate(np.concatenate([block for _, block in stored.slots()]).tolist()):
        at = number
        while at:
            if not 0 < at < count or at in found:
                return False
            found[at] = slot
            at = int(entries["previous_index"][at - 1])
    return found == dict(zip(range(1, count), slots, strict=True))


@pytest.mark.parametrize("swapped", [(3, 9), (9, 3), (0, 27)])
def test_a_file_whose_links_form_a_circle_is_doubted(tmp_path: Path, swapped: tuple[int, int]) -> None:
    """Two entries of a slot that have each other's link lead to each entry once, but the older one to itself."""
    file = _index(tmp_path, [(number * 100, number % 3) for number in range(30)])
    data = bytearray(file.path.read_bytes())
    links = np.frombuffer(data, INDEX_DTYPE, 30, file.position(1))["previous_index"]
    links[[*swapped]] = links[[*reversed(swapped)]]
    file.path.write_bytes(data)

    with pytest.raises(IndexDoubtError, match="leads to itself, or to a later one"):
        _survey(file)


@budget(0.3)
@given(
    _entries,
    st.integers(0, 59),
    st.sampled_from(["key_hash", "previous_index", "slot", "links"]),
    st.integers(-(2**31), 2**31 - 1) | st.integers(-1, 60),
)
def test_a_file_is_doubted_if_and_only_if_an_entry_is_not_in_the_chain_of_its_slot(
    entries: list[tuple[int, int]], at: int, field: str, value: int
) -> None:
    with TemporaryDirectory() as directory:
        file = _index(Path(directory), entries)
        data = bytearray(file.path.read_bytes())
        stored = np.frombuffer(data, INDEX_DTYPE, len(entries), file.position(1))
        if field == "slot":
            np.frombuffer(data, ">i4", 5, INDEX_HEADER_SIZE)[at % 5] = min(value, len(entries))
        elif field == "links":
            pair = [at % len(entries), value % len(entries)]
            stored["previous_index"][pair] = stored["previous_index"][pair[::-1]]
        else:
            stored[field][at % len(entries)] = value
        file.path.write_bytes(data)
        if field == "key_hash" and value < 0:
            return  # hashes are not negative, and a slot of one that is has no meaning
        is_sound = _each_is_in_its_chain(file)
        try:
            _survey(file)
        except IndexDoubtError:
            assert not is_sound
        else:
            assert is_sound


def test_a_key_of_very_many_messages_is_not_looked_up(tmp_path: Path) -> None:
    file = _index(tmp_path, [(number * 100, 1) for number in range(30)])

    with pytest.raises(IndexDoubtError, match="or to too many entries"):
        IndexEntries(file).in_chains([1], 20)
