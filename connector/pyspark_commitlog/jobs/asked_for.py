# SPDX-License-Identifier: Apache-2.0
"""Checks that a store has the topics, queues and key that a command names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow.compute as pc

from pyspark_commitlog.options import CommitLogOptions, GivenOptions
from store_core.errors import InvalidOptionError
from store_core.files.store_path import store_roots
from store_core.format.near_name import did_you_mean
from store_core.store.read.option_table import READ_OPTIONS
from store_core.store.read.read_messages import read_messages
from store_core.store.read.stored_topics import hint_of, stored_topics

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["LocalMessages", "SparkMessages", "StoredMessages", "check_asked_for"]

_ROWS: Final = frozenset(option.name.lower() for option in READ_OPTIONS if option.scope in {"rows", "columns"})
"""Options that select rows or columns: what a store has does not depend on them."""

_MOST_SHOWN: Final = 20
_MOST_CHANGES: Final = 3
"""How many characters a key may differ in from the one that an error suggests."""


class StoredMessages(Protocol):
    """The messages of a store, read with options that have the names of read options in lower case."""

    def distinct(self, options: Mapping[str, str], column: str) -> set[Any]:
        """Return the values of a column, without null."""

    def has_any(self, options: Mapping[str, str]) -> bool:
        """Return whether there is any message."""

    def near_key(self, options: Mapping[str, str], key: str) -> str:
        """Return a question that suggests the nearest key; empty if none is near."""


class SparkMessages:
    """Messages read by Spark.

    Parameters
    ----------
    spark : SparkSession
    path : str
        The store that is read.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path

    def distinct(self, options: Mapping[str, str], column: str) -> set[Any]:
        """Return the values of a column, without null."""
        return {row[0] for row in self._frame(options, column).distinct().dropna().collect()}

    def has_any(self, options: Mapping[str, str]) -> bool:
        """Return whether there is any message."""
        return not self._frame(options, "physical_offset").isEmpty()

    def near_key(self, options: Mapping[str, str], key: str) -> str:
        """Return a question that suggests the nearest key; empty if none is near."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 -- Spark's own convention; it need not be installed

        keys = self._frame(options, "keys,unique_key")
        names = keys.select(F.explode("keys").alias("name")).union(keys.select("unique_key"))
        distance = F.levenshtein("name", F.lit(key), _MOST_CHANGES)
        near = names.where("name IS NOT NULL").distinct().withColumn("distance", distance).where("distance >= 0")
        found = near.orderBy("distance", "name").head()
        return "" if found is None else f"did you mean {found.name!r}?"

    def _frame(self, options: Mapping[str, str], columns: str) -> DataFrame:
        return self._spark.read.format("commitlog").options(**options, columns=columns).load(self._path)


class LocalMessages:
    """Messages read in this process.

    Parameters
    ----------
    path : str
        The store that is read.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def distinct(self, options: Mapping[str, str], column: str) -> set[Any]:
        """Return the values of a column, without null."""
        found: set[Any] = set()
        for batch in self._read(options, column):
            found.update(pc.unique(batch.column(0)).to_pylist())
        return found - {None}

    def has_any(self, options: Mapping[str, str]) -> bool:
        """Return whether there is any message."""
        return any(batch.num_rows for batch in self._read(options, "physical_offset"))

    def near_key(self, options: Mapping[str, str], key: str) -> str:
        """Return a question that suggests the nearest key; empty if none is near."""
        found: set[str] = set()
        for batch in self._read(options, "keys,unique_key"):
            keys, unique = batch.columns
            found.update(keys.flatten().to_pylist(), unique.drop_null().to_pylist())
        return did_you_mean(key, found)

    def _read(self, options: Mapping[str, str], columns: str) -> pa.RecordBatchReader:
        given = GivenOptions.of({**options, "path": self._path, "columns": columns})
        texts: dict[str, Any] = {**given.texts}
        return read_messages(given.paths, **texts)


def check_asked_for(messages: StoredMessages, path: str, options: Mapping[str, str]) -> None:
    """Refuse topics that neither the log nor the store's other files have, and a queue or key that no message has.

    The log is read only for what the directories of the store do not show, and then only a narrow column.

    Parameters
    ----------
    messages : StoredMessages
        Of the store.
    path : str
        The store that is read.
    options : mapping of str to str
        Read options, with names in any case.

    Raises
    ------
    InvalidOptionError
        If there is no such topic, queue or key; the message suggests the nearest name.
    """
    read = CommitLogOptions.from_spark({**options, "path": path}).read
    given = {name.lower(): text for name, text in options.items()}
    kept = {name: text for name, text in given.items() if name not in _ROWS}
    known = stored_topics(store_roots(read.located(path))) if read.topic else frozenset()
    _check_topics(messages, path, kept, read.topic, known)
    in_topics = kept | {name: given[name] for name in ("topic", "topicspattern") if name in given}
    if read.queue_id:
        _check_queues(messages, path, in_topics, read.queue_id)
    if read.key is not None:
        _check_key(messages, path, in_topics, read.key)


def _check_topics(
    messages: StoredMessages, path: str, options: Mapping[str, str], asked: tuple[str, ...], known: frozenset[str]
) -> None:
    if known.issuperset(asked):
        return
    known |= messages.distinct(options, "topic")
    unknown = sorted(set(asked) - known)
    if unknown:
        told = "; ".join(f"{topic!r}: {hint_of(topic, known)}" for topic in unknown)
        raise InvalidOptionError(f"topic: in neither the log, the queues nor config/topics.json of {path}: {told}")


def _check_queues(messages: StoredMessages, path: str, options: Mapping[str, str], asked: tuple[int, ...]) -> None:
    found = messages.distinct(options, "queue_id")
    unknown = sorted(set(asked) - found)
    if unknown and found:
        ids = ", ".join(map(str, sorted(found)[:_MOST_SHOWN]))
        raise InvalidOptionError(
            f"queueId: no message of {path}{_of_topic(options)} is in queue {', '.join(map(str, unknown))}; "
            f"the ids are {ids}"
        )


def _check_key(messages: StoredMessages, path: str, options: Mapping[str, str], key: str) -> None:
    if messages.has_any({**options, "key": key}):
        return
    near = messages.near_key(options, key)
    hint = f"; {near}" if near else ""
    raise InvalidOptionError(f"key: no message of {path}{_of_topic(options)} has the key {key!r}{hint}")


def _of_topic(options: Mapping[str, str]) -> str:
    return f" of topic {options['topic']}" if "topic" in options else ""
