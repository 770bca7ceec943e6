# SPDX-License-Identifier: Apache-2.0
"""The reader of a stream: batches are ranges of the log, planned beside the driver and read in tasks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader

from pyspark_commitlog.errors import without_traceback_at_the_end
from pyspark_commitlog.partitions import CommitLogPartition
from pyspark_commitlog.reader import CommitLogReader
from pyspark_commitlog.stream.spark_api import (
    HAS_LIMITS,
    ReadAllAvailable,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from store_core.store.read.follow.log_follower import LogFollower
from store_core.store.read.follow.log_position import LogPosition
from store_core.store.read.follow.read_limits import NO_LIMITS
from store_core.store.read.stored_topics import TopicWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

    from pyspark_commitlog.schema import ReadSchema
    from pyspark_commitlog.stream.options import StreamOptions
    from pyspark_commitlog.stream.spark_api import ReadLimit

__all__ = ["CommitLogStreamReader"]


class CommitLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a store as a stream of batches; each record is in one.

    Spark makes one when a query starts or restarts, in a Python process beside the driver that belongs to this query,
    and calls all methods but `read` there, one after the other. It pickles `read` with this object to the tasks of each
    batch. Offsets are those of `LogPosition.as_json`; Spark keeps them in the checkpoint.

    Parameters
    ----------
    clock : callable
        Returns a time in seconds that only differences are taken of.
    """

    def __init__(self, options: StreamOptions, schema: ReadSchema, clock: Callable[[], float] = time.monotonic) -> None:
        common = options.common
        self._options = options
        self._paths = common.paths
        self._rows = CommitLogReader(common.paths, common.read, schema, common.times, is_followed=True)
        self._follower = LogFollower(common.paths, common.read)
        self._clock = clock
        self._last_batch: float | None = None

    @without_traceback_at_the_end
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Return where a new query begins. Called once for it, and not after a restart.

        Raises
        ------
        StoreError
            If the options are not those of a stream, or there is no log.
        """
        self._check()
        read = self._options.common.read
        TopicWatch.of(read.configured(self._paths), read).warn_before_read()
        return self._follower.initial(at_end=self._options.starts_at_end).as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 -- Spark's name
        """Return that there is a limit, if an option sets one. Called once for each trigger (PySpark 4.2 and later).

        Spark has no limit that combines records and bytes, and only returns this one to `latestOffset`, which knows
        the options.
        """
        limits = self._options.limits
        return ReadMaxRows(limits.max_records or 1) if self._options.has_limits else ReadAllAvailable()

    @without_traceback_at_the_end
    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Return where the next batch ends. Called once for each trigger.

        PySpark 4.1 passes nothing: there a batch ends where the log ends.

        Parameters
        ----------
        start : dict
            Where the batch before ended.
        limit : ReadLimit
            What `getDefaultReadLimit` returned, or ``ReadAllAvailable``, which overrides the options.

        Returns
        -------
        dict
            `start` itself if there is nothing new, or not yet enough.

        Raises
        ------
        DataLossError
            If the log is not the one that was read so far.
        """
        self._check()
        if start is None:
            return self._follower.latest().as_json()
        position = LogPosition.from_json(start)
        is_limited = self._options.has_limits and not isinstance(limit, ReadAllAvailable)
        if is_limited and self._has_to_wait(position):
            return start
        limits = self._options.limits if is_limited else NO_LIMITS
        end = self._follower.advance(position, limits)
        if end == position:
            return start
        self._last_batch = self._clock()
        return end.as_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 -- Spark's name
        """Return where the log ended when it was last looked at: for a query's progress (PySpark 4.2 and later)."""
        end = self._follower.end
        return None if end is None else end.as_json()

    @without_traceback_at_the_end
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        """Fix where a query with ``Trigger.AvailableNow`` ends. Called once, before all others (PySpark 4.2 and later).

        PySpark 4.1 asks once for the latest offset instead, and reads up to it in one batch.
        """
        self._check()
        self._follower.fix_end()

    @without_traceback_at_the_end
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return what the tasks of a batch read, in log order.

        Called once for each batch, and again if the batch is repeated after a restart. The partitions follow from the
        two offsets and the options alone: a batch has the same rows however often it is planned.

        Raises
        ------
        DataLossError
            If the log is not the one that the offsets were taken in.
        """
        self._check()
        ranges = self._follower.ranges(LogPosition.from_json(start), LogPosition.from_json(end))
        return [CommitLogPartition((each,)) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the messages of one partition, see `CommitLogReader.read`. Called in tasks."""
        return self._rows.read(partition)

    def _check(self) -> None:
        """Refuse options here: an error while the reader is made would be followed by another one of PySpark's own."""
        self._options.check_stream(can_limit=HAS_LIMITS)

    def _has_to_wait(self, position: LogPosition) -> bool:
        """Return whether a batch has to wait for more records."""
        fewest = self._options.min_records
        if fewest is None or self._follower.has_fixed_end or self._last_batch is None:
            return False
        if self._clock() - self._last_batch >= self._options.delay:
            return False
        return self._follower.waiting_records(position, fewest) < fewest
