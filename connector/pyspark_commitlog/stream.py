# SPDX-License-Identifier: Apache-2.0
"""A stream of a store: its options, and its reader, whose batches end where the log ended."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_commitlog.errors import without_traceback_at_the_end
from pyspark_commitlog.options import SESSION_ZONE, CommitLogOptions
from pyspark_commitlog.reader import CommitLogPartition, CommitLogReader
from store_core.errors import InvalidOptionError, StoreError
from store_core.store.read.follow.log_follower import NO_LIMITS, Positions, ReadLimits, StoresFollower, behind
from store_core.store.read.option_table import Option
from store_core.store.read.option_values import parse_bytes, parse_count
from store_core.store.read.read_messages import TopicWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.types import StructType

__all__ = [
    "HAS_LIMITS",
    "STREAM_OPTIONS",
    "CommitLogStreamReader",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "RefusedStream",
    "StreamOptions",
    "SupportsTriggerAvailableNow",
    "bytes_behind",
]

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

    HAS_LIMITS: bool
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )

        HAS_LIMITS: Final = True
    except ImportError:  # PySpark 4.1, which never asks for a limit
        HAS_LIMITS: Final = False
        ReadLimit = ReadAllAvailable = ReadMaxRows = SupportsTriggerAvailableNow = type("Absent", (), {})

STREAM_OPTIONS: Final = (
    Option(
        "startingOffsets",
        "earliest",
        "rows",
        "as for a batch, and `latest`: only what is stored after the query began. This and `startingTimestamp` apply "
        "to a new query; one with a checkpoint goes on where it was. Queue offsets select rows, of all batches",
    ),
    Option(
        "maxOffsetsPerTrigger",
        "(all)",
        "speed",
        "maximum number of the log's records in a batch, whether or not the filters let them become rows",
    ),
    Option(
        "maxBytesPerTrigger",
        "(all)",
        "speed",
        "maximum number of the log's bytes in a batch, such as `256m`; a batch has at least one record",
    ),
    Option(
        "minOffsetsPerTrigger",
        "(any)",
        "speed",
        "wait until the log has at least this many new records, but no longer than `maxTriggerDelay`. "
        "The first batch after a start, and `Trigger.AvailableNow`, do not wait",
    ),
    Option(
        "maxTriggerDelay",
        "15m",
        "speed",
        "how long `minOffsetsPerTrigger` may hold back a batch: a number and `ms`, `s`, `m`, `min` or `h`",
    ),
    Option(
        "failOnDataLoss",
        "true",
        "damage",
        "`false` goes on if segments were deleted before they were read, or if the log was truncated or replaced, and "
        "logs a warning with the range of bytes that is lost",
    ),
)

_OWN: Final = {
    option.name.lower(): option for option in STREAM_OPTIONS if option.name not in {"startingOffsets", "failOnDataLoss"}
}
_ENDS: Final = {"endingoffsets": "endingOffsets", "endingtimestamp": "endingTimestamp", "asof": "asOf"}
_START: Final = "startingoffsets"
_LATEST: Final = "latest"
_DELAY: Final = re.compile(r"([0-9]{1,9})\s*(ms|s|m|min|h)", re.IGNORECASE)
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DEFAULT_DELAY: Final = 15 * 60.0


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The parsed options of a stream; can be pickled."""

    common: CommitLogOptions  # the options that a batch has, too
    starts_at_end: bool = False  # whether a new query begins at the log's end
    limits: ReadLimits = NO_LIMITS  # most that a batch may have
    min_records: int | None = None  # fewest new records of a batch; None for any number
    max_delay: float | None = None  # how long `min_records` may hold back a batch, in seconds, if an option says so
    end: str = ""  # the name of an option that sets an end, if there is one: a stream has none

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> Self:
        """Parse the options that Spark passes to a data source, for a batch or for a stream."""
        given = {name.lower(): value for name, value in options.items()}
        own = {key: given.pop(key) for key in _OWN if key in given}
        starts_at_end = given.get(_START, "").strip().lower() == _LATEST
        if starts_at_end:
            del given[_START]
        return cls(
            CommitLogOptions.from_spark(given),
            starts_at_end,
            ReadLimits(
                _parsed(own, "maxOffsetsPerTrigger", parse_count),
                _parsed(own, "maxBytesPerTrigger", parse_bytes),
            ),
            _parsed(own, "minOffsetsPerTrigger", parse_count),
            _delay(own.get("maxtriggerdelay")),
            next((name for key, name in _ENDS.items() if key in given), ""),
        )

    @property
    def has_limits(self) -> bool:
        """Whether batches have a limit, or have to wait for one."""
        return self.limits != NO_LIMITS or self.min_records is not None

    @property
    def delay(self) -> float:
        """How long `min_records` may hold back a batch, in seconds."""
        return _DEFAULT_DELAY if self.max_delay is None else self.max_delay

    def check_stream(self, *, can_limit: bool) -> None:
        """Refuse what a stream can't do.

        * `can_limit`: Whether this PySpark tells a source where a batch begins.
        """
        if self.end:
            raise InvalidOptionError(
                f"option {self.end}: a stream has no end. To read what is there now and stop, use "
                f"trigger(availableNow=True); for a range, spark.read"
            )
        if self.common.times is not None:
            raise InvalidOptionError(
                self.common.times.without_zone(f"{SESSION_ZONE} is not known where a stream finds its beginning")
            )
        if self.has_limits and not can_limit:
            raise InvalidOptionError(
                "options maxOffsetsPerTrigger, maxBytesPerTrigger and minOffsetsPerTrigger need PySpark 4.2 or later: "
                "older ones do not tell a source where a batch begins"
            )
        most, fewest = self.limits.max_records, self.min_records
        if most is not None and fewest is not None and fewest > most:
            raise InvalidOptionError(
                f"option minOffsetsPerTrigger: expected at most maxOffsetsPerTrigger, {most}, found {fewest}"
            )
        if self.max_delay is not None and fewest is None:
            raise InvalidOptionError(
                "option maxTriggerDelay: expected minOffsetsPerTrigger as well, found none: only a batch that waits "
                "for a number of records is delayed. For a batch every so often: trigger(processingTime=...)"
            )


def _parsed(own: Mapping[str, str], name: str, parse: Callable[[str, object], int]) -> int | None:
    text = own.get(name.lower())
    return None if text is None else parse(name, text)


def _delay(text: str | None) -> float | None:
    if text is None:
        return None
    match = _DELAY.fullmatch(text.strip())
    if match is None:
        raise InvalidOptionError(f"option maxTriggerDelay: expected a time such as 30s, 15m or 1h, found {text!r}")
    return int(match[1]) * _SECONDS[match[2].lower()]


# ---- the reader


def bytes_behind(progress: StreamingQueryProgress | Mapping[str, Any] | None) -> int | None:
    """Return how far a query was behind the end of its logs when a batch was planned, in bytes.

    Parameters
    ----------
    progress : StreamingQueryProgress or mapping
        ``query.lastProgress``, one of ``query.recentProgress``, or what a listener gets.

    Returns
    -------
    int or None
        The sum over all sources that are commit logs. None if there is none, before the first batch, and on PySpark
        4.1, which reports the batch's own end as that of the source.
    """
    if progress is None or not HAS_LIMITS:
        return None
    known = json.loads(progress.json) if hasattr(progress, "json") else progress
    distances = list(_distances(known))
    return sum(distances) if distances else None


def _distances(progress: Mapping[str, Any]) -> Iterator[int]:
    for source in progress.get("sources", ()):
        end, latest = (_offset(source.get(name)) for name in ("endOffset", "latestOffset"))
        distance = behind(end, latest)
        if distance is not None:
            yield distance


def _offset(found: object) -> Mapping[str, Any]:
    """Return an offset, which is JSON or text of it; empty for what is no object."""
    try:
        known = json.loads(found) if isinstance(found, str) else found
    except ValueError:
        return {}
    return known if isinstance(known, dict) else {}


class RefusedStream(DataSourceStreamReader):
    """Refuses a query when it asks for an offset, which is the first thing that it does.

    If ``streamReader`` raised the error, PySpark 4.1 to 4.3 would add another one, about a reader that it can't stop.
    """

    def __init__(self, reason: StoreError) -> None:
        self._reason = reason

    @without_traceback_at_the_end
    def _refuse(self, *_: object) -> NoReturn:
        raise self._reason

    initialOffset = latestOffset = partitions = read = _refuse  # type: ignore[assignment]  # noqa: N815 -- Spark's names


class CommitLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a store as a stream of batches; each record is in one.

    Spark makes one when a query starts or restarts, in a Python process beside the driver that belongs to this query,
    and calls all methods but `read` there, one after the other. It pickles `read` with this object to the tasks of each
    batch. Offsets are those of `StoresFollower.as_json`; Spark keeps them in the checkpoint.

    * `clock`: Returns a time in seconds that only differences are taken of.
    """

    def __init__(self, options: StreamOptions, schema: StructType, clock: Callable[[], float] = time.monotonic) -> None:
        common = options.common
        self._options = options
        self._rows = CommitLogReader(common, schema, is_followed=True)
        self._follower = StoresFollower(common.paths, common.read)
        self._clock = clock
        self._last_batch: float | None = None

    @without_traceback_at_the_end
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """Return where a new query begins. Called once for it, and not after a restart."""
        self._check()
        TopicWatch.of(tuple(self._follower.stores.values()), self._options.common.read).warn_before_read()
        return self._follower.as_json(self._follower.initial(at_end=self._options.starts_at_end))

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

        * `start`: Where the batch before ended.
        * `limit`: What `getDefaultReadLimit` returned, or ``ReadAllAvailable``, which overrides the options.

        Returns: `start` itself if there is nothing new, or not yet enough.
        """
        self._check()
        if start is None:
            return self._follower.as_json(self._follower.latest())
        position = self._follower.from_json(start)
        is_limited = self._options.has_limits and not isinstance(limit, ReadAllAvailable)
        if is_limited and self._has_to_wait(position):
            return start
        limits = self._options.limits if is_limited else NO_LIMITS
        end = self._follower.advance(position, limits)
        if end == position:
            return start
        self._last_batch = self._clock()
        return self._follower.as_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 -- Spark's name
        """Return where the log ended when it was last looked at: for a query's progress (PySpark 4.2 and later)."""
        end = self._follower.end
        return None if end is None else self._follower.as_json(end)

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
        """
        self._check()
        follower = self._follower
        names = {name: self._rows.name_of(store) for name, store in follower.stores.items()}
        ranges = follower.ranges(follower.from_json(start), follower.from_json(end))
        return [CommitLogPartition((each,), names[name]) for name, each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the messages of one partition, see `CommitLogReader.read`. Called in tasks."""
        return self._rows.read(partition)

    def _check(self) -> None:
        """Refuse options here: an error while the reader is made would be followed by another one of PySpark's own."""
        self._options.check_stream(can_limit=HAS_LIMITS)

    def _has_to_wait(self, position: Positions) -> bool:
        """Return whether a batch has to wait for more records."""
        fewest = self._options.min_records
        if fewest is None or self._follower.has_fixed_end or self._last_batch is None:
            return False
        if self._clock() - self._last_batch >= self._options.delay:
            return False
        return self._follower.waiting_records(position, fewest) < fewest
