# SPDX-License-Identifier: Apache-2.0
"""Times without a zone: they are in ``spark.sql.session.timeZone``, which only tasks know.

The processes in which Python sources parse options and plan (PySpark 4.1 to 4.3) know no setting of the session. Tasks
know those that are set, as local properties of the query. So planning leaves room for every zone, and tasks narrow
what they read.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Final

from store_core.errors import InvalidOptionError
from store_core.store.read.option_table import shown_option
from store_core.store.read.read_options import ReadOptions
from store_core.store.read.store_time import local_time

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from typing import Self

__all__ = ["SESSION_ZONE", "SessionTimes"]

SESSION_ZONE: Final = "spark.sql.session.timeZone"

_TIMES: Final = {"starting_timestamp": -1, "ending_timestamp": 1}
"""The options, and the direction in which planning moves each from the same time in UTC, to keep all rows."""

_LARGEST_OFFSET: Final = timedelta(hours=18)
"""The largest difference from UTC that Spark accepts for a zone."""


@dataclass(frozen=True, slots=True)
class SessionTimes:
    """Options of which at least one is a time in the session's zone; can be pickled."""

    texts: Mapping[str, str]  # all arguments of `ReadOptions.parse`
    local: Mapping[str, datetime]  # the times that are in the session's zone, by name

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> Self | None:
        """Return the options if a time has no zone and no option names one; else None."""
        times = {name: local_time(name, texts[name]) for name in _TIMES if name in texts}
        local = {name: time for name, time in times.items() if time is not None and time.utcoffset() is None}
        return cls(texts, local) if local and "time_zone" not in texts else None

    def for_planning(self) -> ReadOptions:
        """Return options that cover the times in every zone."""
        return ReadOptions.parse(**{**self.texts, **{name: _widest(name, time) for name, time in self.local.items()}})

    def for_task(self) -> ReadOptions:
        """Return the options with times in the session's zone. To be called in a task."""
        from pyspark import TaskContext  # noqa: PLC0415 -- options are parsed without PySpark, too (ADR 0014)

        context = TaskContext.get()
        zone = None if context is None else context.getLocalProperty(SESSION_ZONE)
        if zone is None:
            raise InvalidOptionError(self.without_zone(f"{SESSION_ZONE} is not set, or is not passed on, as with .rdd"))
        try:
            return ReadOptions.parse(**self.texts, time_zone=zone)
        except InvalidOptionError as error:
            raise InvalidOptionError(f"{error} ({SESSION_ZONE} is {zone!r})") from None

    def without_zone(self, why: str) -> str:
        """Return the text of the error for times whose zone is not known, and why."""
        name, time = next((name, time.isoformat()) for name, time in self.local.items())
        return (
            f"{shown_option(name)}: {self.texts[name]!r} has no time zone, and {why}. "
            f"Write '{time}Z' for UTC or '{time}+08:00' for that offset, or name the zone by "
            f"option timeZone, such as Asia/Shanghai"
        )


def _widest(name: str, time: datetime) -> datetime:
    utc = time.replace(tzinfo=UTC)
    try:
        return utc + _TIMES[name] * _LARGEST_OFFSET
    except OverflowError:
        return utc
