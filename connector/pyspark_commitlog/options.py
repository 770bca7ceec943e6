# SPDX-License-Identifier: Apache-2.0
"""The options of a DataFrame, parsed once from what Spark passes to a data source."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from store_core.errors import InvalidOptionError, UnsupportedStoreError
from store_core.files.storage import SETTING_PREFIX
from store_core.store.read.option_table import READ_OPTIONS, shown_option, unknown_option
from store_core.store.read.option_values import local_time
from store_core.store.read.read_options import ReadOptions, with_absolute_times
from store_core.store.store_layout import config_of
from store_core.views.view_columns import MESSAGES, find_view, is_messages

if TYPE_CHECKING:
    from collections.abc import Mapping


_BY_KEY: Final = {option.name.lower(): option for option in READ_OPTIONS}
_NOT_PARSED: Final = frozenset({"path", "paths", "view"})
_OF_STREAMS: Final = {
    name.lower(): name
    for name in ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
}


class GivenOptions(NamedTuple):
    """The options of one DataFrame, known by name and not parsed yet."""

    view: str  # as given
    paths: tuple[str, ...]  # what to read, in the order given
    texts: dict[str, str]  # the arguments of `ReadOptions.parse`, or of `ViewOptions.parse`

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Sort the options that Spark passes to a data source. Errors as of `CommitLogOptions.from_spark`."""
        given = {name.lower(): value for name, value in options.items()}
        if "provider" in given:  # a property that Spark 4.3 adds, which gives none of them back to a query
            raise UnsupportedStoreError(
                "CREATE TABLE ... USING commitlog does not work: Spark forgets the path and the options of such a "
                "table; use CREATE TEMPORARY VIEW name USING commitlog OPTIONS (path '...')"
            )
        # The options storage.NAME are parsed as one.
        settings = {
            name.removeprefix(SETTING_PREFIX): text for name, text in given.items() if name.startswith(SETTING_PREFIX)
        }
        rest = {name: text for name, text in given.items() if not name.startswith(SETTING_PREFIX)}
        if settings and "storage" in rest:
            raise InvalidOptionError(
                "expected option storage, or options storage.NAME, found both; leave one of them out"
            )
        given = {**rest, "storage": json.dumps(settings)} if settings else rest
        for name in sorted(given.keys() - _BY_KEY.keys()):
            if name in _OF_STREAMS:
                raise InvalidOptionError(
                    f"option {_OF_STREAMS[name]} belongs to spark.readStream: a batch reads all that is there"
                )
            names = [option.name for option in READ_OPTIONS]
            raise unknown_option(name, [*names, *_OF_STREAMS.values()], "format 'commitlog'")
        texts = {_BY_KEY[key].field: given[key] for key in given.keys() - _NOT_PARSED}
        return cls(given.get("view", MESSAGES), _paths(given), texts)


@dataclass(frozen=True, slots=True)
class CommitLogOptions:
    """The parsed options of one DataFrame; can be pickled."""

    paths: tuple[str, ...]  # what to read, in the order given
    read: ReadOptions  # where times have no zone, the range covers all zones
    columns: tuple[str, ...] | None  # canonical names from option ``columns``; None without it
    times: SessionTimes | None = None  # what tasks use to narrow `read`, if times have no zone

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> Self:
        """Parse the options that Spark passes to a data source.

        * `options`: Names in any case; Spark passes them in lower case.
        """
        view, paths, texts = GivenOptions.of(options)
        if not is_messages(view):
            raise InvalidOptionError(
                f"view {find_view(view).name!r} is read by spark.read: expected 'messages', the only view that is "
                f"written, or read as a stream"
            )
        texts = absolute_times(paths, texts)
        times = SessionTimes.of(texts)
        read = ReadOptions.parse(**texts) if times is None else times.for_planning()
        return cls(paths, read, read.columns if "columns" in texts else None, times)


def absolute_times(paths: tuple[str, ...], texts: dict[str, str]) -> dict[str, str]:
    """Return options with times in ms where relative ones were given; see `store_core.store.read.read_options`."""
    return {name: str(value) for name, value in with_absolute_times(paths, texts).items()}


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    paths = ([given["path"]] if "path" in given else []) + _listed_paths(given.get("paths", "[]"))
    if not paths and "config" in given:
        root = config_of(given["config"]).store_path_root_dir
        paths = [] if root is None else [root]
    if not paths:
        raise InvalidOptionError(
            "no path is given: load('/path/to/store') or, in SQL, CREATE TEMPORARY VIEW name USING commitlog "
            "OPTIONS (path '/path/to/store'). Tables that were made with CREATE TABLE have lost theirs"
        )
    return tuple(paths)


def _listed_paths(text: str) -> list[str]:
    try:
        paths = json.loads(text)
    except (ValueError, RecursionError):
        paths = None
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise InvalidOptionError(
            f"option paths: expected a JSON list of strings, found {text!r}; load([...]) makes one"
        )
    return paths


# ---- times in the session's zone


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
            f"{shown_option(name)}: {self.texts[name]!r} has no time zone, and {why}. Write '{time}Z' for UTC "
            f"or '{time}+08:00' for that offset, or name the zone by option timeZone, such as Asia/Shanghai"
        )


def _widest(name: str, time: datetime) -> datetime:
    utc = time.replace(tzinfo=UTC)
    try:
        return utc + _TIMES[name] * _LARGEST_OFFSET
    except OverflowError:
        return utc
