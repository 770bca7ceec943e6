# SPDX-License-Identifier: Apache-2.0
"""The messages that each queue must have, derived only from the rows of a log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.golden_stores import Row
    from tests.interop.rocketmq import Answer


_QUEUED: Final = ("NOT_TYPE", "COMMIT_TYPE")
_INNER_BATCH: Final = 0x80
_NO_LIGHT_QUEUES: Final = ("%RETRY%", "rmq_sys_", "SCHEDULE_TOPIC_XXXX")


@dataclass(slots=True)
class Queue:
    """What a consumer finds: the queue's end, and the physical offsets of its records in order."""

    max_offset: int = 0
    offsets: list[int] = field(default_factory=list)

    def add(self, physical_offset: int, end: int) -> None:
        self.offsets.append(physical_offset)
        self.max_offset = end


Queues = dict[tuple[str, int], Queue]


def queues_of(rows: Iterable[Row], release: str, *, light: bool = False) -> Queues:
    """Build the queues of a log: without prepared and rolled-back messages; inner batches take several indexes.

    Parameters
    ----------
    rows : iterable of dict
        In log order.
    release : str
        Release 4.9 makes light queues for system topics, too.
    light : bool
        Whether light queues are enabled in the store.
    """
    queues: Queues = {}
    for row in rows:
        if row["transaction_type"] not in _QUEUED:
            continue
        properties = row["properties"]
        places = int(properties["INNER_NUM"]) if row["sys_flag"] & _INNER_BATCH else 1
        own = queues.setdefault((row["topic"], row["queue_id"]), Queue())
        own.add(row["physical_offset"], row["queue_offset"] + places)
        if light and (release == "4.9" or not row["topic"].startswith(_NO_LIGHT_QUEUES)):
            for name, offset in _light_places(properties):
                queues.setdefault((name, 0), Queue()).add(row["physical_offset"], offset + 1)
    return queues


def _light_places(properties: dict[str, str]) -> list[tuple[str, int]]:
    names = properties.get("INNER_MULTI_DISPATCH", "")
    offsets = properties.get("INNER_MULTI_QUEUE_OFFSET", "")
    return [(name, int(offset)) for name, offset in zip(names.split(","), offsets.split(","), strict=True) if name]


def answer_queues(answer: Answer) -> Queues:
    """Return RocketMQ's queues, without the empty ones that 4.9 makes for delays."""
    found: list[dict[str, Any]] = [queue for queue in answer["queues"] if queue["max"] > 0]
    return {(queue["topic"], queue["queueId"]): Queue(queue["max"], queue["messages"]) for queue in found}
