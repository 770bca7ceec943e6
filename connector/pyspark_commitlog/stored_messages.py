# SPDX-License-Identifier: Apache-2.0
"""The check that a store has the topics, queues and key that a command on Spark names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

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

    * `options`: Read options, with names in any case.
    """
    read = CommitLogOptions.from_spark({**options, "path": path}).read
    given = {name.lower(): text for name, text in options.items()}
    every = _Messages(path, {name: text for name, text in given.items() if name not in _ROWS})
    if read.topic:
        _check_topics(every, read.topic, stored_topics(roots_of(read.stores_of(path))))
    of_topic = every.of({name: given[name] for name in ("topic", "topicspattern") if name in given})
    if read.queue_id:
        _check_queues(of_topic, read.queue_id)
    if read.key is not None:
        _check_key(of_topic, read.key)


@dataclass(frozen=True, slots=True)
class _Messages:
    """Messages of a store that read options select; as text, what an error calls them."""

    path: str
    options: Mapping[str, str]

    def of(self, options: Mapping[str, str]) -> Self:
        """Return those that more options select."""
        return replace(self, options={**self.options, **options})

    def read(self, *columns: str) -> pa.RecordBatchReader:
        """Read columns."""
        given = GivenOptions.of({**self.options, "path": self.path, "columns": ",".join(columns)})
        texts: dict[str, Any] = {**given.texts}
        return read_messages(given.paths, **texts)

    def distinct(self, *columns: str) -> set[Any]:
        """Return the values of columns, and of lists in them, without null."""
        found: set[Any] = set()
        for batch in self.read(*columns):
            for column in batch.columns:
                values = column.flatten() if column.type.num_fields else column
                found.update(pc.unique(values).to_pylist())
        return found - {None}

    def __str__(self) -> str:
        return self.path + (f" of topic {self.options['topic']}" if "topic" in self.options else "")


def _check_topics(messages: _Messages, asked: tuple[str, ...], known: frozenset[str]) -> None:
    if known.issuperset(asked):
        return
    known |= messages.distinct("topic")
    unknown = sorted(set(asked) - known)
    if unknown:
        told = "; ".join(f"{topic!r}: {hint_of(topic, known)}" for topic in unknown)
        raise InvalidOptionError(
            f"topic: expected topics of {messages}, found some that its log, queues and config/topics.json lack: {told}"
        )


def _check_queues(messages: _Messages, asked: tuple[int, ...]) -> None:
    found = messages.distinct("queue_id")
    unknown = sorted(set(asked) - found)
    if unknown and found:
        ids = ", ".join(map(str, sorted(found)[:_MOST_SHOWN]))
        raise InvalidOptionError(
            f"queueId: no message of {messages} is in queue {', '.join(map(str, unknown))}; the ids are {ids}"
        )


def _check_key(messages: _Messages, key: str) -> None:
    if any(batch.num_rows for batch in messages.of({"key": key}).read("physical_offset")):
        return
    near = did_you_mean(key, messages.distinct("keys", "unique_key"))
    hint = f"; {near}" if near else ""
    raise InvalidOptionError(f"key: no message of {messages} has the key {key!r}{hint}")
