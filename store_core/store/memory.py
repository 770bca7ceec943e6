# SPDX-License-Identifier: Apache-2.0
"""The machine's memory: how much there is, and what the C library does with what numpy gives back."""

from __future__ import annotations

import os
from functools import cache
from typing import Final

import numpy as np

__all__ = ["keep_freed_memory", "physical_memory"]

_LARGEST_LEARNED: Final = 32 << 20
"""glibc learns from freed blocks up to this size (``DEFAULT_MMAP_THRESHOLD_MAX`` on 64 bits)."""


@cache
def keep_freed_memory() -> None:
    """Have blocks of a batch's size reused, rather than returned to the system and faulted in again; once a process.

    glibc maps blocks above a threshold and unmaps them when they are freed. The threshold grows to the size of the
    largest mapped block that was freed, and memory that is kept for reuse to twice that; both start low. Freeing one
    block just below the bound, which is never touched and so never takes memory, teaches it what decoding a few
    batches would teach it bit by bit. Without it, decoding all columns of 1 GiB took 1.6 times as long.
    """
    np.empty(_LARGEST_LEARNED - (64 << 10), np.uint8)


@cache
def physical_memory() -> int:
    """Return the bytes of memory of the machine; 24 GiB if it can't be told, as RocketMQ assumes (``StoreUtil``)."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return 24 << 30
