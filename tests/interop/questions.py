# SPDX-License-Identifier: Apache-2.0
"""Random questions to a store from a seed, in one notation for RocketMQ and for us, and our answers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from store_core import BoundaryType, DefaultMessageStore, InvalidOptionError, MessageSelector

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from store_core import MessageStoreConfig
    from tests.golden_stores import Row
    from tests.interop.rocketmq import Answer


_FILTERS: Final = (
    ("TAG", "*"),
    ("TAG", "TagA"),
    ("TAG", "TagA || TagB"),
    ("TAG", "a||b"),
    ("TAG", "nobody"),
    ("TAG", " 标签 || Z||"),
    ("SQL92", "TAGS = 'TagA'"),
    ("SQL92", "TAGS IS NOT NULL AND a IS NULL"),
    ("SQL92", "KEYS IN ('k1', 'ключ 键') OR KEYS2 > 0"),
    ("SQL92", "Aa BETWEEN 0 AND 2"),
    ("SQL92", "NOT WAIT"),
)
_EVER: Final = (1 << 63) - 1
_UNKNOWN: Final = ("nobody", 0)
NEW_QUEUE: Final = 77
"""Id of an empty queue of an existing topic."""

_NO_KEY: Final = ("orders", "k1")


class RandomQuestions:
    """Questions that fit the records of a store, and its queues as RocketMQ reports them."""

    def __init__(self, seed: int, rows: Sequence[Row], queues: list[Answer]) -> None:
        self._random = random.Random(seed)  # noqa: S311 -- reproducible, not secret
        self._queues = [(queue["topic"], queue["queueId"], queue["min"], queue["max"]) for queue in queues]
        self._queues += [(*_UNKNOWN, 0, 0), *((queue["topic"], NEW_QUEUE, 0, 0) for queue in queues[:2])]
        self._keys = [(row["topic"], key) for row in rows for key in (*(row["keys"] or ()), row["unique_key"]) if key]
        self._times = sorted({row["store_timestamp"] for row in rows})

    def take(self, count: int) -> list[Answer]:
        """Return this number of questions."""
        kinds = (self._get, self._get, self._get, self._time, self._key, self._bounds, self._earliest, self._place)
        return [self._random.choice(kinds)() for _ in range(count)]

    def _place_in_queue(self) -> Answer:
        topic, queue_id, first, end = self._random.choice(self._queues)
        near = (first - 1, first, first + 1, end - 1, end, end + 1, end + 100, -1, self._random.randint(first, end))
        return {"topic": topic, "queueId": queue_id, "offset": self._random.choice(near)}

    def _get(self) -> Answer:
        draw = self._random
        kind, text = draw.choice(_FILTERS) if draw.random() < 0.5 else (None, None)
        most = draw.choice((32, 32, 1, 2, 0, 7, 100, -1, 5000))
        return {"kind": "get", **self._place_in_queue(), "most": most, "filterType": kind, "filter": text}

    def _time(self) -> Answer:
        draw = self._random
        near = draw.choice(self._times) + draw.choice((-1, 0, 0, 1, 1000))
        time = draw.choice((near, near, near, 0, -1, self._times[-1] + 10_000_000))
        boundary = draw.choice(("LOWER", "UPPER"))
        return {"kind": "time", **self._place_in_queue(), "time": time, "boundary": boundary}

    def _key(self) -> Answer:
        draw = self._random
        topic, key = draw.choice(self._keys or [_NO_KEY])
        if draw.random() < 0.2:
            topic, key = draw.choice(((topic, "nobody"), ("nobody", key), (topic, "")))
        first, last = self._times[0], self._times[-1]
        begin, end = draw.choice(
            ((0, _EVER), (0, _EVER), (first, last), (last, last), (0, first), (last + 5000, _EVER))
        )
        return {
            "kind": "key", "topic": topic, "key": key, "most": draw.choice((1, 3, 32, 64, 200)),
            "begin": begin, "end": end,
        }  # fmt: skip

    def _bounds(self) -> Answer:
        return {"kind": "bounds", **self._place_in_queue()}

    def _earliest(self) -> Answer:
        return {"kind": "earliest", **self._place_in_queue()}

    def _place(self) -> Answer:
        return {"kind": "place", **self._place_in_queue()}


def our_answers(
    store: Path, config: MessageStoreConfig, questions: Sequence[Answer], topics: Sequence[str] = ()
) -> list[Any]:
    """Answer questions about a store, which is not changed, in the harness's form."""
    with DefaultMessageStore.open(store, config, read_only=True, batch_topics=topics) as opened:
        return [our_answer(opened, question) for question in questions]


def our_answer(store: DefaultMessageStore, question: Answer) -> Any:  # noqa: ANN401 -- what RocketMQ's answer compares with
    """Answer a question in the harness's form."""
    topic, queue_id, offset = question["topic"], question.get("queueId", 0), question.get("offset", 0)
    match question["kind"]:
        case "get":
            return _get(store, question)
        case "key":
            return _by_key(store, question)
        case "time":
            boundary = BoundaryType[question["boundary"]]
            return store.get_offset_in_queue_by_time(topic, queue_id, question["time"], boundary)
        case "bounds":
            return [
                store.get_min_offset_in_queue(topic, queue_id),
                store.get_max_offset_in_queue(topic, queue_id),
                store.get_message_total_in_queue(topic, queue_id),
            ]
        case "earliest":
            return store.get_earliest_message_time(topic, queue_id)
        case _:
            return [
                store.get_message_store_timestamp(topic, queue_id, offset),
                store.get_commit_log_offset_in_queue(topic, queue_id, offset),
            ]


def _get(store: DefaultMessageStore, question: Answer) -> Answer:
    kind, text = question["filterType"], question["filter"]
    selector = None if kind is None else MessageSelector.of(kind, text, store.config.release)
    place = question["topic"], question["queueId"], question["offset"]
    try:
        found = store.get_message("interop", *place, question["most"], selector)
    except InvalidOptionError:
        return {"thrown": "IllegalArgumentException"}
    assert found is not None
    return {
        "status": found.status.name,
        "next": found.next_begin_offset,
        "min": found.min_offset,
        "max": found.max_offset,
        "count": found.message_count,
        "size": found.buffer_total_size,
        "suggest": found.suggest_pulling_from_slave,
        "queueOffsets": [int.from_bytes(record[20:28], signed=True) for record in found.message_buffers],
        "physicalOffsets": [int.from_bytes(record[28:36], signed=True) for record in found.message_buffers],
    }


def _by_key(store: DefaultMessageStore, question: Answer) -> Answer:
    fields = (question[name] for name in ("topic", "key", "most", "begin", "end"))
    found = store.query_message(*fields)
    return {
        "physicalOffsets": [int.from_bytes(record[28:36], signed=True) for record in found.message_buffers],
        "lastTime": found.index_last_update_timestamp,
        "lastOffset": found.index_last_update_physical_offset,
    }
