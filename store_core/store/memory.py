# SPDX-License-Identifier: Apache-2.0
"""The machine's memory: its size, and how the C library treats memory that numpy frees."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Final

import numpy as np

_LARGEST_LEARNED: Final = 32 << 20
"""glibc learns from freed blocks up to this size (``DEFAULT_MMAP_THRESHOLD_MAX`` on 64 bits)."""

_ARENA_MAX: Final = -8
"""``M_ARENA_MAX`` of glibc's ``mallopt``."""

_ARENAS: Final = (2, 8)
"""The least and the most arenas: more threads than that hardly ever need memory at the same moment."""


@cache
def keep_freed_memory() -> None:
    """Make the C library reuse batch-sized blocks rather than return them to the system; takes effect once per process.

    glibc maps blocks above a threshold and unmaps them when they are freed; using them again then costs page faults.
    The threshold grows to the size of the largest mapped block freed so far, and the memory kept for reuse to twice
    that; both start low. Freeing one block just below the bound raises both at once; the block is never touched, so it
    takes no memory. Without this, decoding all columns of 1 GiB took 1.6 times as long.

    Each of glibc's arenas keeps what its threads ever had at once, and there may be eight for each processor: with
    twelve threads on two processors, a store that was written and read for an hour grew to 290 MiB. So there are no
    more arenas than processors, unless threads have got some before this is called.
    """
    np.empty(_LARGEST_LEARNED - (64 << 10), np.uint8)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        least, most = _ARENAS
        mallopt(_ARENA_MAX, min(max(os.cpu_count() or 1, least), most))


@cache
def physical_memory() -> int:
    """Return the machine's memory in bytes; 24 GiB if unknown, as RocketMQ assumes (``StoreUtil``)."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return 24 << 30
