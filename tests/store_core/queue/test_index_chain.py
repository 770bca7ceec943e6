# SPDX-License-Identifier: Apache-2.0
"""Walks of chains: entry by entry and by windows, in sound and in broken files."""

from __future__ import annotations

from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.queue import index_file
from store_core.queue.index_file import IndexQuery, walk_chain
from store_core.queue.index_format import INDEX_DTYPE, IndexEntries, IndexHeader, IndexSlots, build_entries

_BEGIN: Final = 1_700_000_000_000
_ALL: Final = (0, 2**63 - 1)

Entry = tuple[int, int, int, int]


def _by_the_rules(query: IndexQuery, first: int, entries: list[Entry]) -> list[int]:
    """Walk a list by the rules as documented."""
    found: list[int] = []
    if query.index_count <= 1 or not 0 < first <= query.index_count:
        return found
    index = first
    while len(found) < query.max_num and index < len(entries):
        key_hash, offset, seconds, previous = entries[index]
        if seconds < 0:
            break
        time = (query.file_begin + seconds * 1000 + 2**63) % 2**64 - 2**63
        if key_hash == query.key_hash and query.begin <= time <= query.end:
            found.append(offset)
        if not 0 < previous < index or time < query.begin:
            break
        index = previous
    return found


def _walk(query: IndexQuery, first: int, entries: list[Entry], *, short: int, window: int) -> list[int]:
    data = np.array(entries, INDEX_DTYPE).tobytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_file, "_SHORT_CHAIN", short)
        patch.setattr(index_file, "_WINDOW", window)
        return walk_chain(query, first, lambda index, count: data[index * 20 : (index + count) * 20])


_SECONDS: Final = st.sampled_from([0, 0, 1, 2, 5, -1, 2**31 - 1])
_QUERIES: Final = st.builds(
    IndexQuery,
    key_hash=st.integers(0, 5),
    slot_count=st.integers(1, 3),
    max_num=st.sampled_from([0, 1, 3, 64]),
    begin=st.sampled_from([-(2**63), 0, _BEGIN, _BEGIN + 1_000, _BEGIN + 2_500]),
    end=st.sampled_from([0, _BEGIN, _BEGIN + 1_500, 2**63 - 1]),
    file_begin=st.sampled_from([0, _BEGIN, 2**63 - 1, -(2**63)]),
    index_count=st.integers(-1, 40),
)
_SHAPES: Final = st.tuples(st.integers(0, 3), st.integers(1, 9))


@given(
    _QUERIES,
    st.integers(-1, 40),
    st.lists(
        st.tuples(st.integers(-1, 5), st.integers(0, 2**63 - 1), _SECONDS, st.integers(-1, 40)), min_size=1, max_size=40
    ),
    _SHAPES,
)
def test_walks_of_any_bytes_follow_the_rules(
    query: IndexQuery, first: int, entries: list[Entry], shape: tuple[int, int]
) -> None:
    actual = _walk(query, first, entries, short=shape[0], window=shape[1])

    assert _by_the_rules(query, first, entries) == actual


@given(
    _QUERIES,
    st.lists(st.integers(0, 5), min_size=1, max_size=60),
    st.lists(st.integers(0, 4_000), min_size=60, max_size=60),
    st.integers(0, 60),
    _SHAPES,
)
def test_walks_of_sound_files_follow_the_rules(
    query: IndexQuery, hashes: list[int], times: list[int], damaged: int, shape: tuple[int, int]
) -> None:
    count = len(hashes)
    header, slots = IndexHeader(index_count=1), IndexSlots(query.slot_count)
    stamps = np.array(times[:count], np.int64) + _BEGIN
    put = IndexEntries(np.array(hashes, np.int32), np.arange(count, dtype=np.int64), stamps)
    built = build_entries(put, header, slots, query.slot_count, counts_puts=False)
    entries: list[Entry] = [(0, 0, 0, 0), *built.tolist()]
    if damaged < count:
        entries[damaged] = (entries[damaged][0] + 1, *entries[damaged][1:])
    sound = IndexQuery(
        query.key_hash, query.slot_count, query.max_num, query.begin, query.end, header.begin_timestamp, count + 1
    )
    first = slots[query.key_hash % query.slot_count]

    expected = _by_the_rules(sound, first, entries)

    assert expected == _walk(sound, first, entries, short=shape[0], window=shape[1])


def test_a_long_chain_is_read_in_windows() -> None:
    count, reads = 200_000, 0
    entries = np.zeros(count + 1, INDEX_DTYPE)
    entries["key_hash"], entries["previous_index"] = 7, np.arange(-1, count)
    entries["physical_offset"] = np.arange(count + 1)
    entries["key_hash"][5] = 8
    data = entries.tobytes()

    def read(index: int, some: int) -> bytes:
        nonlocal reads
        reads += 1
        return data[index * 20 : (index + some) * 20]

    query = IndexQuery(8, 1, 64, *_ALL, _BEGIN, count + 1)

    assert [5] == walk_chain(query, count, read)
    assert reads < 100


@pytest.mark.parametrize("previous", [3, 4, 5, 40])
def test_a_link_that_does_not_lead_back_ends_the_walk(previous: int) -> None:
    entries = [(0, 0, 0, 0), (1, 10, 0, 0), (1, 20, 0, 1), (1, 30, 0, previous), (1, 40, 0, 3), (1, 50, 0, 4)]
    query = IndexQuery(1, 1, 64, *_ALL, _BEGIN, 6)

    assert [50, 40, 30] == _walk(query, 5, entries, short=64, window=4)
    assert [50, 40, 30] == _walk(query, 5, entries, short=1, window=4)
