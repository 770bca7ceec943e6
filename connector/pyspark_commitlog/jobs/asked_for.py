# SPDX-License-Identifier: Apache-2.0
"""Checks that a store has the topics, queues and key that a command names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from pyspark_commitlog.options import CommitLogOptions
from store_core.errors import InvalidOptionError
from store_core.files.store_path import store_roots
from store_core.store.read.option_table import READ_OPTIONS
from store_core.store.read.stored_topics import hint_of, stored_topics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["check_asked_for"]

_ROWS: Final = frozenset(option.name.lower() for option in READ_OPTIONS if option.scope in {"rows", "columns"})
"""Options that select rows or columns: what a store has does not depend on them."""

_MOST_SHOWN: Final = 20
_MOST_CHANGES: Final = 3
"""How many characters a key may differ in from the one that an error suggests."""


def check_asked_for(spark: SparkSession, path: str, options: Mapping[str, str]) -> None:
    """Refuse topics that neither the log nor the store's other files have, and a queue or key that no message has.

    The log is read only for what the directories of the store do not show, and then only a narrow column.

    Parameters
    ----------
    spark : SparkSession
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
    _check_topics(spark, path, kept, read.topic)
    in_topics = kept | {name: given[name] for name in ("topic", "topicspattern") if name in given}
    if read.queue_id:
        _check_queues(spark, path, in_topics, read.queue_id)
    if read.key is not None:
        _check_key(spark, path, in_topics, read.key)


def _check_topics(spark: SparkSession, path: str, options: Mapping[str, str], asked: tuple[str, ...]) -> None:
    known = stored_topics(store_roots(path)) if asked else frozenset()
    if known.issuperset(asked):
        return
    known |= {row.topic for row in _frame(spark, path, options, "topic").distinct().dropna().collect()}
    unknown = sorted(set(asked) - known)
    if unknown:
        told = "; ".join(f"{topic!r}: {hint_of(topic, known)}" for topic in unknown)
        raise InvalidOptionError(f"topic: neither in the log, the queues nor config/topics.json of {path} is {told}")


def _check_queues(spark: SparkSession, path: str, options: Mapping[str, str], asked: tuple[int, ...]) -> None:
    found = {row.queue_id for row in _frame(spark, path, options, "queue_id").distinct().dropna().collect()}
    unknown = sorted(set(asked) - found)
    if unknown and found:
        ids = ", ".join(map(str, sorted(found)[:_MOST_SHOWN]))
        raise InvalidOptionError(
            f"queueId: no message of {path}{_of_topic(options)} is in queue {', '.join(map(str, unknown))}; "
            f"the ids are {ids}"
        )


def _check_key(spark: SparkSession, path: str, options: Mapping[str, str], key: str) -> None:
    if not _frame(spark, path, {**options, "key": key}, "physical_offset").isEmpty():
        return
    keys = _frame(spark, path, options, "keys,unique_key")
    names = keys.select(F.explode("keys").alias("name")).union(keys.select("unique_key"))
    distance = F.levenshtein("name", F.lit(key), _MOST_CHANGES)
    near = names.where("name IS NOT NULL").distinct().withColumn("distance", distance).where("distance >= 0")
    found = near.orderBy("distance", "name").head()
    hint = "" if found is None else f"; did you mean {found.name!r}?"
    raise InvalidOptionError(f"key: no message of {path}{_of_topic(options)} has the key {key!r}{hint}")


def _of_topic(options: Mapping[str, str]) -> str:
    return f" of topic {options['topic']}" if "topic" in options else ""


def _frame(spark: SparkSession, path: str, options: Mapping[str, str], columns: str) -> DataFrame:
    return spark.read.format("commitlog").options(**options, columns=columns).load(path)
