# SPDX-License-Identifier: Apache-2.0
"""Write buffers that are borrowed and returned."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from store_core.files.mapped_file import TransientStorePool, anonymous_memory

if TYPE_CHECKING:
    import pytest


def resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])


def test_buffers_are_lent_until_none_is_left() -> None:
    pool = TransientStorePool(2, 100)
    lent = [pool.borrow() for _ in range(3)]

    assert [buffer is None for buffer in lent] == [False, False, True]
    assert pool.available_buffers == 0
    assert lent[0] is not None
    pool.give_back(lent[0])
    assert pool.borrow() is lent[0]


def test_buffers_are_of_the_segments_size_and_writable() -> None:
    buffer = TransientStorePool(1, 1000).borrow()

    assert buffer is not None
    assert len(buffer) == 1000
    buffer[999] = 7
    assert buffer[999] == 7


def test_a_pool_that_runs_low_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    pool = TransientStorePool(5, 10)
    for _ in range(4):
        pool.borrow()

    assert [record.args for record in caplog.records] == [(1, 5)]


def test_a_destroyed_pool_has_no_buffers() -> None:
    pool = TransientStorePool(2, 10)
    pool.destroy()

    assert pool.borrow() is None


def test_memory_is_used_only_where_it_is_touched() -> None:
    before = resident_pages()
    memory = anonymous_memory(1 << 30)
    memory[-1] = 1

    assert memory[1 << 29] == 0
    assert resident_pages() - before < 1000
