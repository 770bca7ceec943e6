# SPDX-License-Identifier: Apache-2.0
"""Freed memory is kept for reuse, by no more arenas of the C library than are of use."""

from __future__ import annotations

import ctypes
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from store_core.store.memory import keep_freed_memory
from tests.short_lived import run_python

if TYPE_CHECKING:
    from pathlib import Path

_ARENA_MAX = -8

_ARENAS_OF_MANY_THREADS = """
import ctypes, threading
import numpy as np
from store_core.store.memory import keep_freed_memory
keep_freed_memory()
everyone = threading.Barrier(25)
def hold():
    held = np.ones(1 << 17, np.uint8)
    everyone.wait()
    everyone.wait()
threads = [threading.Thread(target=hold) for _ in range(24)]
for thread in threads:
    thread.start()
everyone.wait()
library = ctypes.CDLL(None)
library.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(library.fopen(b"arenas.xml", b"w"))
library.malloc_info(0, file)
library.fclose(file)
everyone.wait()
print(open("arenas.xml").read().count("<heap nr="))
"""


@pytest.mark.parametrize(("processors", "arenas"), [(None, 2), (1, 2), (2, 2), (6, 6), (64, 8)])
def test_there_are_no_more_arenas_than_processors(
    monkeypatch: pytest.MonkeyPatch, processors: int | None, arenas: int
) -> None:
    asked: list[tuple[int, int]] = []
    library = SimpleNamespace(mallopt=lambda *call: asked.append(call))
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    monkeypatch.setattr(os, "cpu_count", lambda: processors)

    keep_freed_memory.__wrapped__()

    assert asked == [(_ARENA_MAX, arenas)]


def test_a_c_library_without_arenas_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())

    keep_freed_memory.__wrapped__()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="the C library is not glibc")
def test_many_threads_share_few_arenas(tmp_path: Path) -> None:
    arenas = int(run_python(_ARENAS_OF_MANY_THREADS, tmp_path))

    assert 1 <= arenas <= min(max(os.cpu_count() or 1, 2), 8)
