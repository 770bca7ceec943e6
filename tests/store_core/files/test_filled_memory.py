# SPDX-License-Identifier: Apache-2.0
"""Memory that stands for a segment takes only what is filled and not given back."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from store_core.files.local_bytes import FilledMemory

MEBIBYTE: Final = 1 << 20


def resident() -> int:
    """Return the process's anonymous resident memory, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def test_what_is_not_filled_is_zeros() -> None:
    memory = FilledMemory(10_000)
    memory.fill(5_000, b"abc")
    assert b"\0abc\0" == memory.raw[4_999:5_004].tobytes()
    assert memory.raw.size == 10_000
    assert not memory.raw[:5_000].any()


def test_array_is_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        FilledMemory(10).raw[0] = 1


def test_empty_segment_has_an_empty_array() -> None:
    assert FilledMemory(0).raw.size == 0


def test_pages_that_are_freed_take_no_memory_and_are_zeros() -> None:
    memory = FilledMemory(64 * MEBIBYTE)
    before = resident()
    memory.fill(0, b"x" * (64 * MEBIBYTE))
    filled = resident()
    memory.free(0, 60 * MEBIBYTE)
    assert filled - before > 50 * MEBIBYTE
    assert resident() - before < 20 * MEBIBYTE
    assert not memory.raw[: 60 * MEBIBYTE].any()
    assert memory.raw[60 * MEBIBYTE :].all()


def test_only_whole_pages_are_freed() -> None:
    memory = FilledMemory(20_000)
    memory.fill(0, b"x" * 20_000)
    memory.free(100, 10_000)
    assert memory.raw[:100].all()
    assert memory.raw[10_000:].all()


def test_zeros_take_no_memory() -> None:
    memory = FilledMemory(64 * MEBIBYTE)
    before = resident()
    for begin in range(0, 64 * MEBIBYTE, MEBIBYTE):
        memory.fill(begin, bytes(MEBIBYTE))
    assert resident() - before < 20 * MEBIBYTE


def test_zeros_that_a_function_writes_take_no_memory() -> None:
    memory = FilledMemory(64 * MEBIBYTE)
    before = resident()
    for begin in range(0, 64 * MEBIBYTE, MEBIBYTE):
        memory.fill_by(begin, begin + MEBIBYTE, lambda target: target.fill(0))
    assert resident() - before < 20 * MEBIBYTE


def test_function_writes_into_its_place() -> None:
    memory = FilledMemory(20_000)
    memory.fill_by(5_000, 15_000, lambda target: target.fill(7))
    assert not memory.raw[:5_000].any()
    assert (memory.raw[5_000:15_000] == 7).all()
    assert not memory.raw[15_000:].any()
