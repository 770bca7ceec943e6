# SPDX-License-Identifier: Apache-2.0
"""The options of ``spark.readStream`` that a batch does not have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from pyspark_commitlog.options import CommitLogOptions
from pyspark_commitlog.session_zone import SESSION_ZONE
from store_core.errors import InvalidOptionError
from store_core.store.option import Option
from store_core.store.read.follow.log_follower import NO_LIMITS, ReadLimits
from store_core.store.read.option_values import OPTION_PARSERS

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["STREAM_OPTIONS", "StreamOptions"]

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
            ReadLimits(_count(own, "maxOffsetsPerTrigger"), _bytes(own, "maxBytesPerTrigger")),
            _count(own, "minOffsetsPerTrigger"),
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


def _count(own: Mapping[str, str], name: str) -> int | None:
    return _parsed(own, name, "min_partitions")


def _bytes(own: Mapping[str, str], name: str) -> int | None:
    return _parsed(own, name, "max_partition_bytes")


def _parsed(own: Mapping[str, str], name: str, like: str) -> int | None:
    """Parse an option as another of the same kind is parsed."""
    text = own.get(name.lower())
    number = None if text is None else OPTION_PARSERS[like](_OWN[name.lower()].field, text)
    return number if isinstance(number, int) else None


def _delay(text: str | None) -> float | None:
    if text is None:
        return None
    match = _DELAY.fullmatch(text.strip())
    if match is None:
        raise InvalidOptionError(f"option maxTriggerDelay: expected a time such as 30s, 15m or 1h, found {text!r}")
    return int(match[1]) * _SECONDS[match[2].lower()]
