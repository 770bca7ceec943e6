# SPDX-License-Identifier: Apache-2.0
"""Writes of many records are in such an order that a kill leaves whole records, and nothing after them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.files.mapped_file import OS_PAGE_SIZE, RECORD_SEAL, commit_steps

SIZES = st.lists(st.one_of(st.integers(8, 300), st.integers(300, 3 * OS_PAGE_SIZE)), min_size=1, max_size=40)


def records_of(sizes: list[int]) -> bytes:
    return b"".join(size.to_bytes(RECORD_SEAL, "big") + b"x" * (size - RECORD_SEAL) for size in sizes)


def writes_of(data: bytes, position: int) -> list[tuple[int, bytes]]:
    """Return the calls of ``pwrite``: where, and what."""
    calls = []
    for part, seal in commit_steps(memoryview(data), position):
        piece = data[part]
        if seal:
            calls.append((position + part.start + seal, piece[seal:]))
        calls.append((position + part.start, piece[:seal] if seal else piece))
    return calls


@given(SIZES, st.integers(0, 3 * OS_PAGE_SIZE), st.data())
def test_a_kill_at_any_page_of_any_write_leaves_whole_records_and_nothing_that_looks_like_one(
    sizes: list[int], position: int, data: st.DataObject
) -> None:
    records = records_of(sizes)
    calls = writes_of(records, position)
    last = data.draw(st.integers(0, len(calls) - 1))
    file = bytearray(position + len(records))
    for where, what in calls[:last]:
        file[where : where + len(what)] = what
    where, what = calls[last]
    pages = range(where - where % OS_PAGE_SIZE + OS_PAGE_SIZE, where + len(what), OS_PAGE_SIZE)
    done = data.draw(st.sampled_from([0, len(what), *(page - where for page in pages)]))
    file[where : where + done] = what[:done]

    at, number = position, 0
    while number < len(sizes) and file[at : at + sizes[number]] == records_of([sizes[number]]):
        at += sizes[number]
        number += 1
    begun = sizes[number] if number < len(sizes) else 0

    assert not any(file[at + begun :])
    is_split = at // OS_PAGE_SIZE != (at + RECORD_SEAL - 1) // OS_PAGE_SIZE  # of its size, a part may be there
    assert is_split or not any(file[at : at + min(begun, RECORD_SEAL)])


@given(SIZES, st.integers(0, 3 * OS_PAGE_SIZE))
def test_all_is_written_once(sizes: list[int], position: int) -> None:
    records = records_of(sizes)
    file = bytearray(position + len(records))
    calls = writes_of(records, position)
    for where, what in calls:
        file[where : where + len(what)] = what

    assert file[position:] == records
    assert len(records) == sum(len(what) for _, what in calls)


@pytest.mark.parametrize("data", [b"abc", b"\0\0\0\0rest", b"\0\0\0\x09end", b"\xff\xff\xff\xffrest", b""])
def test_what_is_no_record_is_one_write(data: bytes) -> None:
    assert [data] if data else [] == [data[part] for part, _ in commit_steps(memoryview(data), 0)]


def test_small_records_are_written_by_pages() -> None:
    calls = writes_of(records_of([100] * 1000), 0)

    assert len(calls) < 3.5 * 100_000 / OS_PAGE_SIZE
