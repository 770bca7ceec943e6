# SPDX-License-Identifier: Apache-2.0
"""The check that a store has the topics, queues and key that a command on Spark names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

from pyspark_commitlog.options import CommitLogOptions, GivenOptions
from store_core.errors import InvalidOptionError
from store_core.format.words import did_you_mean
from store_core.store.read.option_table import READ_OPTIONS
from store_core.store.read.read_messages import hint_of, read_messages, roots_of, stored_topics

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa


_ROWS: Final = frozenset(option.name.lower() for option in READ_OPTIONS if option.scope in {"rows", "columns"})
"""Options that select rows or columns: what a store has does not depend on them."""

_MOST_SHOWN: Final = 20


def check_asked_for(path: str, options: Mapping[str, str]) -> None:
    """Refuse topics that neither the log nor the store's other files have, and a queue or key that no message has.

    The log is read only for what the directories of the store do not show, and then only a narrow column.

    * `path`: The store that is read.
    * `options`: Read options, with names in any case.
    """
    read = CommitLogOptions.from_spark({**options, "path": path}).read
    given = {name.lower(): text for name, text in options.items()}
    kept = {name: text for name, text in given.items() if name not in _ROWS}
    if read.topic:
        _check_topics(
            path,
            kept,
            read.topic,
            stored_topics(roots_of(read.stores_of(path))),
        )
    in_topics = kept | {name: given[name] for name in ("topic", "topicspattern") if name in given}
    if read.queue_id:
        _check_queues(path, in_topics, read.queue_id)
    if read.key is not None:
        _check_key(path, in_topics, read.key)


def _check_topics(path: str, options: Mapping[str, str], asked: tuple[str, ...], known: frozenset[str]) -> None:
    if known.issuperset(asked):
        return
    known |= _distinct(path, options, "topic")
    unknown = sorted(set(asked) - known)
    if unknown:
        told = "; ".join(f"{topic!r}: {hint_of(topic, known)}" for topic in unknown)
        raise InvalidOptionError(
            f"topic: expected topics of {path}, found some that its log, queues and config/topics.json lack: {told}"
        )


def _check_queues(path: str, options: Mapping[str, str], asked: tuple[int, ...]) -> None:
    found = _distinct(path, options, "queue_id")
    unknown = sorted(set(asked) - found)
    if unknown and found:
        ids = ", ".join(map(str, sorted(found)[:_MOST_SHOWN]))
        raise InvalidOptionError(
            f"queueId: no message of {path}{_of_topic(options)} is in queue {', '.join(map(str, unknown))}; "
            f"the ids are {ids}"
        )


def _check_key(path: str, options: Mapping[str, str], key: str) -> None:
    if any(batch.num_rows for batch in _read(path, {**options, "key": key}, "physical_offset")):
        return
    near = did_you_mean(key, _distinct(path, options, "keys", "unique_key"))
    hint = f"; {near}" if near else ""
    raise InvalidOptionError(f"key: no message of {path}{_of_topic(options)} has the key {key!r}{hint}")


def _distinct(path: str, options: Mapping[str, str], *columns: str) -> set[Any]:
    """Return the values of columns, and of lists in them, without null."""
    found: set[Any] = set()
    for batch in _read(path, options, ",".join(columns)):
        for column in batch.columns:
            values = column.flatten() if column.type.num_fields else column
            found.update(pc.unique(values).to_pylist())
    return found - {None}


def _read(path: str, options: Mapping[str, str], columns: str) -> pa.RecordBatchReader:
    given = GivenOptions.of({**options, "path": path, "columns": columns})
    texts: dict[str, Any] = {**given.texts}
    return read_messages(given.paths, **texts)


def _of_topic(options: Mapping[str, str]) -> str:
    return f" of topic {options['topic']}" if "topic" in options else ""
