# SPDX-License-Identifier: Apache-2.0
"""Rows of replayed messages: without properties of the first delivery, and with queues of the target."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from store_core.answers.message_reads import REPLAY_ID, REPLAY_ORIGIN_MESSAGE_ID, REPLAY_ORIGIN_TOPIC
from store_core.broker.topic_kind import TopicKind, kind_of_topic, send_refusal
from store_core.errors import InvalidOptionError
from store_core.format.columnar.property_columns import without_names
from store_core.format.layout import TRANSACTION_MASK, MessageSysFlag
from store_core.format.properties import PROPERTY_CRC, REAL_TOPIC, RETRY_TOPIC
from store_core.format.record.delayed import OF_WAITING, SCHEDULE_TOPIC, TIMER_TOPIC
from store_core.queue.queue_path import refusal_of
from store_core.snapshot.config import TOPICS, Config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from store_core.format.release import Release


_QUEUES: Final = 4
"""Queues of a topic that is not configured: RocketMQ's default of producers (``defaultTopicQueueNums``)."""

_MOST_QUEUES: Final = 1 << 10
"""Queues of a topic that messages are spread over, however many are configured."""

_LONGEST_NAME: Final = 100
"""Characters of a topic that are shown."""

_OWN: Final = frozenset({TopicKind.HALF, TopicKind.OP, TopicKind.SCHEDULE, TopicKind.TIMER, TopicKind.SYSTEM})
"""Topics whose messages a broker acts on."""


class TargetQueues:
    """Spreads messages over the queues of their topics.

    * `count`: Queues of each topic; by default as many as ``config/topics.json`` of the store lets producers use, or 4
      of a topic that it does not have.
    """

    def __init__(self, into: Path, count: int | None) -> None:
        self._count = count
        self._configured = {} if count is not None else _configured_queues(into)
        self._cycles: dict[str, Iterator[int]] = {}

    def count_of(self, topic: str) -> int:
        """Return over how many queues messages to a topic are spread."""
        return self._count or self._configured.get(topic, _QUEUES)

    def least_of(self, topics: Iterable[str]) -> int:
        """Return the least of these counts: consumers of each of the topics see that many queues."""
        return min(map(self.count_of, topics), default=self._count or _QUEUES)

    def next_of(self, topic: str) -> int:
        """Return the queue of the next message to a topic."""
        if topic not in self._cycles:
            self._cycles[topic] = cycle(range(self.count_of(topic)))
        return next(self._cycles[topic])


def is_kept_by_broker(topic: str) -> bool:
    """Return whether a broker keeps a topic for itself, and acts on its messages."""
    return kind_of_topic(topic) in _OWN


def check_targets(topics: Iterable[str], queues: TargetQueues, release: Release) -> None:
    """Refuse topics that no broker accepts, or no directory can hold, or that a broker keeps for itself."""
    for topic in sorted(topics):
        if is_kept_by_broker(topic):
            raise InvalidOptionError(
                f"messages of topic {topic!r} can't be replayed to it: a broker keeps there "
                f"{kind_of_topic(topic).value}. Choose others by topic, or name another target: option to_topic"
            )
        reason = send_refusal(topic, release) or refusal_of(topic, queues.count_of(topic) - 1)
        if reason is not None:
            raise InvalidOptionError(f"topic {topic[:_LONGEST_NAME]!r}: {reason}")


def _configured_queues(root: Path) -> dict[str, int]:
    """Return how many queues producers use of each topic that a store's ``config/topics.json`` has."""
    found, _ = Config(root).known(TOPICS)
    numbers = {name: topic.write_queue_nums for name, topic in (found or {}).items()}
    return {name: min(number, _MOST_QUEUES) for name, number in numbers.items() if number > 0}


OF_DELIVERY: Final = (*OF_WAITING, RETRY_TOPIC)
"""Properties by which a broker delivers a message elsewhere; a message that is sent again has none of them."""

WAITING_TOPICS: Final = (SCHEDULE_TOPIC, TIMER_TOPIC)
"""Topics in which a broker keeps messages of others, which they name as ``REAL_TOPIC``, until their time."""

REPLAYED_COLUMNS: Final = (
    *("topic", "body", "flag", "sys_flag", "born_timestamp_ms", "born_host"),
    *("msg_id", "properties"),
)
OF_RECORD: Final = (
    TRANSACTION_MASK | int(MessageSysFlag.BORNHOST_V6_FLAG) | int(MessageSysFlag.STOREHOSTADDRESS_V6_FLAG)
)
"""Bits of ``sys_flag`` that say what a record was and how wide its hosts are, which the new record says for itself."""

_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("body", pa.binary()),
        ("flag", pa.int32()),
        ("sys_flag", pa.int32()),
        ("born_timestamp", pa.int64()),
        ("born_host", pa.string()),
        ("properties", pa.map_(pa.string(), pa.string())),
    ]
)


def undelivered(batch: pa.RecordBatch, left_out: tuple[str, ...] = OF_DELIVERY) -> pa.RecordBatch:
    """Return messages without properties and flags of their first delivery and their records.

    * `batch`: With `properties` and `sys_flag`; other columns stay as they are.
    """
    names = batch.schema.names
    columns = dict(zip(names, batch.columns, strict=True))
    columns["properties"] = without_names(columns["properties"], (*left_out, PROPERTY_CRC))
    columns["sys_flag"] = pc.bit_wise_and(columns["sys_flag"], pa.scalar(~OF_RECORD, pa.int32()))
    return pa.RecordBatch.from_arrays([columns[name] for name in names], names)


def copied_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return messages as new ones of the same topics and queues; those that wait go to their own topics, in turn.

    * `batch`: With `topic`, `queue_id`, `properties` and `sys_flag`; other columns stay as they are.
    """
    real = pc.map_lookup(batch["properties"], pa.scalar(REAL_TOPIC), "last")
    is_waiting = pc.and_(pc.is_in(batch["topic"], pa.array(WAITING_TOPICS)), pc.is_valid(real))
    changed = {
        "topic": pc.if_else(is_waiting, real, batch["topic"]),
        "queue_id": pc.if_else(is_waiting, pa.scalar(None, pa.int32()), batch["queue_id"]),
    }
    columns = dict(zip(batch.schema.names, batch.columns, strict=True)) | changed
    return undelivered(pa.RecordBatch.from_pydict(columns), OF_WAITING)


def replayed_batch(
    batch: pa.RecordBatch, replay_id: str, to_topic: str | None, queue_of: Callable[[str], int]
) -> pa.RecordBatch:
    """Return messages, read with `REPLAYED_COLUMNS`, as new ones: never failed, and not part of a transaction.

    * `to_topic`: If None, they go to the topic that they were sent to at first.
    * `queue_of`: Returns the queue of the next message to a topic.
    """
    targets = [to_topic] * len(batch) if to_topic is not None else _first_topics(batch)
    batch = batch.rename_columns({"born_timestamp_ms": "born_timestamp"})
    rows = undelivered(batch).to_pylist()
    replayed = [_replayed(row, replay_id, topic, queue_of(topic)) for row, topic in zip(rows, targets, strict=True)]
    return pa.RecordBatch.from_pylist(replayed, _SCHEMA)


def _first_topics(batch: pa.RecordBatch) -> list[str]:
    """Return the topics that messages were sent to at first, as far as the records tell."""
    firsts, reals = (
        pc.map_lookup(batch["properties"], pa.scalar(name), "last").to_pylist() for name in (RETRY_TOPIC, REAL_TOPIC)
    )
    topics = batch["topic"].to_pylist()
    return [
        first or (real if topic in WAITING_TOPICS and real else topic)
        for first, real, topic in zip(firsts, reals, topics, strict=True)
    ]


def _replayed(row: dict[str, Any], replay_id: str, topic: str, queue_id: int) -> dict[str, Any]:
    origin = {REPLAY_ID: replay_id, REPLAY_ORIGIN_MESSAGE_ID: row["msg_id"], REPLAY_ORIGIN_TOPIC: row["topic"]}
    properties = dict(row["properties"] or ()) | origin
    return row | {"topic": topic, "queue_id": queue_id, "properties": list(properties.items())}
