# SPDX-License-Identifier: Apache-2.0
"""The options of reading: one table, behind the parser, its errors and ``docs/options.md``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from pyspark_commitlog.option import Option, unknown_option
from store_core.errors import InvalidOptionError, UnsupportedStoreError
from store_core.format.near_name import did_you_mean
from store_core.store.read_options import ReadOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["OPTIONS", "CommitLogOptions"]


OPTIONS: Final = (
    Option("path", "(required)", "what", "store root, `commitlog` directory or segment file; `load(path)` sets it"),
    Option("paths", "(none)", "what", "several that together are one log, as a JSON list; `load([path, ...])` sets it"),
    Option("view", "messages", "what", "`messages` is the only one so far"),
    Option(
        "release",
        "5.3",
        "what",
        "RocketMQ that wrote the store: `4.3`, `4.9` or `5.3`; they parse properties differently",
    ),
    Option("topic", "(all)", "rows", "comma list of topics; not together with `topicsPattern`"),
    Option("topicsPattern", "(all)", "rows", "regular expression (Python's) for the whole topic"),
    Option("queueId", "(all)", "rows", "comma list of queue ids"),
    Option("tag", "(all)", "rows", "tag expression as consumers give it: `TagA \\|\\| TagB`, or `*` for all"),
    Option("key", "(all)", "rows", "one of the words in property KEYS, or the UNIQ_KEY"),
    Option(
        "filter",
        "(none)",
        "rows",
        "a consumer's filter, with the rows that RocketMQ gives such a consumer: tags, or an SQL92 expression such as "
        "`a > 5 AND TAGS IS NOT NULL` on the properties",
    ),
    Option(
        "filterType",
        "TAG",
        "rows",
        "language of `filter`: `TAG` or `SQL92`. Messages that an expression fails on do not match, as `price < 20` "
        "fails on the property `19.99`: beside a whole number RocketMQ reads a property as one. With `price < 20.0` "
        "both are decimals",
    ),
    Option("startingOffsets", "earliest", "rows", 'physical offset, or queue offsets as JSON: `{"topic":{"0":12}}`'),
    Option("endingOffsets", "latest", "rows", "the same; the end is exclusive"),
    Option("startingTimestamp", "(none)", "rows", "store time, epoch ms or ISO 8601; wins over the offsets"),
    Option("endingTimestamp", "(none)", "rows", "the same; the end is exclusive"),
    Option(
        "columns", "(the default ones)", "columns", "comma list; only these are decoded. `.schema(...)` does the same"
    ),
    Option("decompress", "false", "columns", "unpack compressed bodies, with a bound on the expanded size"),
    Option(
        "mode",
        "FAILFAST",
        "damage",
        "`DROPMALFORMED` resumes at the next sound record; `PERMISSIVE` also gives each damaged range a row, with its "
        "bytes in the column `_corrupt_record`, which is then read by default",
    ),
    Option("verifyCrc", "true", "damage", "check each body that is read against its checksum"),
    Option("failOnDataLoss", "true", "damage", "`false` goes on when a segment is missing or vanishes"),
    Option("useIndexFiles", "auto", "speed", "`never` scans the log where an index would do; the rows are the same"),
    Option("maxPartitionBytes", "(a segment)", "speed", "split segments, at record starts; `128m` is 128 MiB"),
    Option("minPartitions", "(one a segment)", "speed", "split segments until there are so many partitions"),
    Option("maxRecordsPerBatch", "16384", "speed", "most rows of an Arrow batch"),
)

_BY_KEY: Final = {option.name.lower(): option for option in OPTIONS}
_NOT_PARSED: Final = frozenset({"path", "paths", "view"})
_LATER: Final = {"maxoffsetspertrigger": "maxOffsetsPerTrigger", "maxbytespertrigger": "maxBytesPerTrigger"}
_LATER_VIEWS: Final = ("consumequeue", "index", "segments", "checkpoint", "consumer_offsets", "topics")


@dataclass(frozen=True, slots=True)
class CommitLogOptions:
    """The options of one DataFrame, parsed; it pickles.

    Attributes
    ----------
    paths : tuple of str
        What to read, in the order given.
    read : ReadOptions
    columns : tuple of str or None
        Canonical names from option ``columns``; None without it.
    """

    paths: tuple[str, ...]
    read: ReadOptions
    columns: tuple[str, ...] | None

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> Self:
        """Parse what Spark hands to a data source.

        Parameters
        ----------
        options : mapping of str to str
            Names in any case; Spark hands them over in lower case.

        Raises
        ------
        InvalidOptionError
            If an option is unknown (the nearest one is named), or has a value that can't be used, or there is no path.
        UnsupportedStoreError
            If this version does not support what is asked for.
        """
        given = {name.lower(): value for name, value in options.items()}
        _refuse_table(given)
        for name in sorted(given.keys() - _BY_KEY.keys()):
            _refuse_option(name)
        _check_view(given.get("view", "messages"))
        paths = _paths(given)
        read = ReadOptions.parse(**{_BY_KEY[key].field: given[key] for key in given.keys() - _NOT_PARSED})
        return cls(paths, read, read.columns if "columns" in given else None)


def _refuse_table(given: Mapping[str, str]) -> None:
    """Refuse CREATE TABLE, known by the properties that Spark 4.3 adds, of which it hands none back to a query."""
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
