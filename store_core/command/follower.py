# SPDX-License-Identifier: Apache-2.0
"""The rows that a broker appends to a log after it was read."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from store_core.errors import InvalidOptionError
from store_core.store.read.message_reader import read_range
from store_core.store.read.read_plan import plan_and_walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from store_core.files.clock import Clock
    from store_core.files.store_path import StorePaths
    from store_core.store.read.read_options import ReadOptions
    from store_core.store.read.read_plan import ReadPlan

__all__ = ["Follower"]

_log: Final = logging.getLogger("store_core")


class Follower:
    """Follows a log from the end that a plan found.

    Parameters
    ----------
    paths : path or sequence of paths
    options : ReadOptions
    plan : ReadPlan
        Of these paths and options.
    clock : Clock

    Raises
    ------
    InvalidOptionError
        If the options end the read before the log's end.
    """

    def __init__(self, paths: StorePaths, options: ReadOptions, plan: ReadPlan, clock: Clock) -> None:
        if plan.end is None or options.ending_timestamp is not None or options.end.physical is not None:
            raise InvalidOptionError("a log is followed without an end: leave out ending_offsets and ending_timestamp")
        self._paths = paths
        self._options = options
        self._clock = clock
        self._at = plan.end.end_offset

    def batches(self, seconds: float) -> Iterator[pa.RecordBatch]:
        """Yield what was appended, forever, with a pause of `seconds` before each look."""
        while True:
            self._clock.sleep(seconds)
            yield from self._appended()

    def _appended(self) -> Iterator[pa.RecordBatch]:
        """Read what is in the log from where the last look ended."""
        plan, walked = plan_and_walk(self._paths, self._options)
        for part in plan.ranges:
            if part.end > self._at:
                yield from read_range(
                    replace(part, begin=max(part.begin, self._at), walk_start=None), self._options, walked
                )
        end = self._at if plan.end is None else plan.end.end_offset
        if end < self._at:
            _log.warning("the log was truncated from offset %d to %d while it was followed", self._at, end)
        self._at = end
