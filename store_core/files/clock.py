# SPDX-License-Identifier: Apache-2.0
"""The clock that is passed to all code that needs the time; the only module that reads a real one."""

from __future__ import annotations

import time  # noqa: TID251 -- the one place where a real clock comes from; everything else is given a Clock
from typing import TYPE_CHECKING, Protocol

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
