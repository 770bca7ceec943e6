# SPDX-License-Identifier: Apache-2.0
"""The read options: one table for the parser, its errors and ``docs/options.md``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from pyspark_commitlog.option import Option, unknown_option
from pyspark_commitlog.session_zone import SessionTimes
from store_core.errors import InvalidOptionError, UnsupportedStoreError
from store_core.format.near_name import did_you_mean
from store_core.format.releases.release import DEFAULT_RELEASE, shown_releases
from store_core.store.read.read_options import ReadOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["OPTIONS", "CommitLogOptions"]


OPTIONS: Final = (
    Option(
        "path",
        "(required)",
        "what",
        "the store: its root, its `commitlog` directory, or one segment file. `load(path)` sets it",
    ),
    Option(
        "paths",
        "(none)",
        "what",
        "several paths that together make up one log, as a JSON list. `load([path, ...])` sets it",
    ),
    Option("view", "messages", "what", "what a row is. So far there is only `messages`"),
    Option(
        "release",
        DEFAULT_RELEASE,
        "what",
        f"the RocketMQ that serves the store: {shown_releases()}; `4.3` stands for all up to 4.9.0. They read some "
        "properties differently; a warning says so if the store seems to be of the other kind",
    ),
    Option("topic", "(all)", "rows", "topics, separated by commas. Not together with `topicsPattern`"),
    Option("topicsPattern", "(all)", "rows", "a Python regular expression that must match the whole topic"),
    Option("queueId", "(all)", "rows", "queue ids, separated by commas"),
    Option(
        "tag",
        "(all)",
        "rows",
        "tags, written as consumers write them: `TagA \\|\\| TagB`, or `*` for all messages",
    ),
    Option(
        "key", "(all)", "rows", "a key: one of the words in property KEYS, or the message's id in property UNIQ_KEY"
    ),
    Option(
        "filter",
        "(none)",
        "rows",
        "a consumer's filter: the rows are the messages that RocketMQ delivers to such a consumer. Either tags, or an "
        "SQL92 expression on the properties such as `a > 5 AND TAGS IS NOT NULL`",
    ),
    Option(
        "filterType",
        "TAG",
        "rows",
        "the language of `filter`: `TAG` or `SQL92`. A message on which an expression fails does not match. For "
        "example, `price < 20` fails on the property `19.99`, because RocketMQ compares a whole number with whole "
        "numbers only; write `price < 20.0`",
    ),
    Option(
        "startingOffsets",
        "earliest",
        "rows",
        'where to start: a physical offset, or queue offsets as JSON such as `{"topic":{"0":12}}`',
    ),
    Option("endingOffsets", "latest", "rows", "where to stop, in the same forms. The end itself is not read"),
    Option(
        "startingTimestamp",
        "(none)",
        "rows",
        "read messages stored at this time or later: ms since 1970, or ISO 8601 such as `2024-05-01T12:00:00+08:00`. A "
        "time without an offset is in `timeZone`. This option takes precedence over `startingOffsets`",
    ),
    Option(
        "endingTimestamp",
        "(none)",
        "rows",
        "read messages stored before this time, in the same forms. This option takes precedence over `endingOffsets`",
    ),
    Option(
        "timeZone",
        "(the session's)",
        "rows",
        "the time zone of `startingTimestamp` and `endingTimestamp` if they have no offset: a region such as "
        "`Asia/Shanghai`, or an offset such as `+08:00`. The default is `spark.sql.session.timeZone`; if that "
        "is not set, or without Spark, a time without an offset is "
        "rejected",
    ),
    Option(
        "columns",
        "(the default ones)",
        "columns",
        "columns, separated by commas. Only these are decoded. `.schema(...)` does the same",
    ),
    Option("decompress", "false", "columns", "`true` decompresses bodies, up to a maximum size"),
    Option(
        "mode",
        "FAILFAST",
        "damage",
        "what to do at damage. `FAILFAST` stops with an error. `DROPMALFORMED` continues at the next sound record. "
        "`PERMISSIVE` does too, and adds a row for each damaged range, with its bytes in the column `_corrupt_record`, "
        "which is then read by default",
    ),
    Option("verifyCrc", "true", "damage", "check each body that is read against its checksum"),
    Option(
        "failOnDataLoss", "true", "damage", "`false` continues if a segment is missing, or is deleted during the read"
    ),
    Option(
        "maxPartitionBytes",
        "(a segment)",
        "speed",
        "split segments into partitions of at most this size, at record starts. `128m` is 128 MiB",
    ),
    Option(
        "minPartitions", "(one per segment)", "speed", "split segments until there are at least this many partitions"
    ),
    Option("maxRecordsPerBatch", "16384", "speed", "maximum number of rows in one Arrow batch"),
)

_BY_KEY: Final = {option.name.lower(): option for option in OPTIONS}
_NOT_PARSED: Final = frozenset({"path", "paths", "view"})
_LATER: Final = {"maxoffsetspertrigger": "maxOffsetsPerTrigger", "maxbytespertrigger": "maxBytesPerTrigger"}
_LATER_VIEWS: Final = ("consumequeue", "index", "segments", "checkpoint", "consumer_offsets", "topics")


@dataclass(frozen=True, slots=True)
class CommitLogOptions:
    """The parsed options of one DataFrame; can be pickled.

    Attributes
    ----------
    paths : tuple of str
        What to read, in the order given.
    read : ReadOptions
        Where times have no zone, the range covers all zones.
    columns : tuple of str or None
        Canonical names from option ``columns``; None without it.
    times : SessionTimes or None
        What tasks use to narrow `read`, if times have no zone.
    """

    paths: tuple[str, ...]
    read: ReadOptions
    columns: tuple[str, ...] | None
    times: SessionTimes | None = None

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> Self:
        """Parse the options that Spark passes to a data source.

        Parameters
        ----------
        options : mapping of str to str
            Names in any case; Spark passes them in lower case.

        Raises
        ------
        InvalidOptionError
            If an option is unknown (the message suggests the nearest one) or has an invalid value, or there is no path.
        UnsupportedStoreError
            If this version does not support an option, its value, or CREATE TABLE.
        """
        given = {name.lower(): value for name, value in options.items()}
        _refuse_table(given)
        for name in sorted(given.keys() - _BY_KEY.keys()):
            _refuse_option(name)
        _check_view(given.get("view", "messages"))
        paths = _paths(given)
        texts = {_BY_KEY[key].field: given[key] for key in given.keys() - _NOT_PARSED}
        times = SessionTimes.of(texts)
        read = ReadOptions.parse(**texts) if times is None else times.for_planning()
        return cls(paths, read, read.columns if "columns" in given else None, times)


def _refuse_table(given: Mapping[str, str]) -> None:
    """Refuse CREATE TABLE, recognised by properties that Spark 4.3 adds; it passes none of them back to a query."""
    if "provider" in given:
        raise UnsupportedStoreError(
            "CREATE TABLE ... USING commitlog does not work: Spark forgets the path and the options of such a table; "
            "use CREATE TEMPORARY VIEW name USING commitlog OPTIONS (path '...')"
        )


def _refuse_option(name: str) -> None:
    """Raise the error for an option that is not in the table."""
    if name.startswith("storage."):
        raise UnsupportedStoreError(
            f"option {name} configures an object store; this version reads local and mounted paths only"
        )
    if name == "useindexfiles":
        raise UnsupportedStoreError(
            "option useIndexFiles has been removed: reads do not use index files yet. Leave it out"
        )
    if name in _LATER:
        raise UnsupportedStoreError(f"option {_LATER[name]} belongs to spark.readStream, which is not supported yet")
    raise unknown_option(name, OPTIONS, "format 'commitlog'")


def _check_view(view: str) -> None:
    name = view.strip().lower()
    if name == "messages":
        return
    if name in _LATER_VIEWS:
        raise UnsupportedStoreError(f"view {name!r} is not supported yet; 'messages' is")
    hint = did_you_mean(name, ("messages", *_LATER_VIEWS)) or "'messages' is the only one so far"
    raise InvalidOptionError(f"unknown view {view!r}; {hint}")


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    paths = ([given["path"]] if "path" in given else []) + _listed_paths(given.get("paths", "[]"))
    if not paths:
        raise InvalidOptionError(
            "no path is given: load('/path/to/store') or, in SQL, CREATE TEMPORARY VIEW name USING commitlog "
            "OPTIONS (path '/path/to/store'). Tables that were made with CREATE TABLE have lost theirs"
        )
    return tuple(paths)


def _listed_paths(text: str) -> list[str]:
    try:
        paths = json.loads(text)
    except ValueError:
        paths = None
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise InvalidOptionError(
            f"option paths: expected a JSON list of strings, found {text!r}; load([...]) makes one"
        )
    return paths
