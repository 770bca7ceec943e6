# SPDX-License-Identifier: Apache-2.0
"""The rows that a broker appends to a log after it was read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.errors import InvalidOptionError
from store_core.store.read.follow.log_follower import NO_LIMITS, LogFollower
from store_core.store.read.message_reader import read_range

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from store_core.files.clock import Clock
    from store_core.files.store_path import StorePaths
    from store_core.store.read.read_options import ReadOptions

__all__ = ["Follower"]


class Follower:
    """Follows a log from where it ends when this is made.

    Raises `InvalidOptionError`: If the options end the read before the log's end.
    """

    def __init__(self, paths: StorePaths, options: ReadOptions, clock: Clock) -> None:
        times = (options.ending_timestamp, options.as_of)
        if times != (None, None) or options.end.physical is not None or options.end.queues:
            names = "ending_offsets, ending_timestamp and as_of"
            raise InvalidOptionError(f"a log is followed without an end: leave out {names}")
        self._log = LogFollower(paths, options)
        self._options = options
        self._clock = clock
        self._at = self._log.initial(at_end=True)

    @property
    def physical_offset(self) -> int:
        """Physical offset up to which the log has been read."""
        return self._at.physical_offset

    def batches(self, seconds: float) -> Iterator[pa.RecordBatch]:
        """Yield what was appended, forever, with a pause of `seconds` before each look.

        Raises `DataLossError`: If the log is not the one that was followed, unless the options tolerate that.
        """
        while True:
            self._clock.sleep(seconds)
            end = self._log.advance(self._at, NO_LIMITS)
            for part in self._log.ranges(self._at, end):
                yield from read_range(part, self._options)
            self._at = end
