# SPDX-License-Identifier: Apache-2.0
"""The machine: its clock, passed to all code that needs the time, which only this module reads; and its memory."""

from __future__ import annotations

import ctypes
import os
import time  # noqa: TID251 -- the one place where a real clock comes from; everything else is given a Clock
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from threading import Event


class Clock(Protocol):
    """What the store needs of a clock.

    Stored timestamps come from `now_ms`, which may step back when the clock is set. Durations come from `monotonic`,
    which never does: RocketMQ takes both from ``System.currentTimeMillis``, so that a clock set back by an hour stops
    its thorough flushes for an hour.
    """

    def now_ms(self) -> int:
        """Wall clock, ms since 1970."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment; never decreases."""

    def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`."""

    def wait(self, event: Event, seconds: float | None) -> bool:
        """Wait until `event` is set, at most `seconds` (None: forever), and return whether it is."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Wall clock, ms since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment; never decreases."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`."""
        time.sleep(seconds)

    def wait(self, event: Event, seconds: float | None) -> bool:
        """Wait until `event` is set, at most `seconds`."""
        return event.wait(seconds)


class WaitlessClock:
    """A clock that tells the time of another one, but does not sleep: for stores in memory, and for jobs.

    No waiting changes the first, and who runs a job would rather know at once that it fails.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now_ms(self) -> int:
        """Wall clock, ms since 1970."""
        return self._clock.now_ms()

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment; never decreases."""
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        """Return at once."""

    def wait(self, event: Event, seconds: float | None) -> bool:
        """Wait until `event` is set, at most `seconds`."""
        return self._clock.wait(event, seconds)


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
    import numpy as np  # noqa: PLC0415 -- whoever only needs the clock, as help does, has no numpy

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
