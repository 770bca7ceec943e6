# SPDX-License-Identifier: Apache-2.0
"""Where replayed messages go: to which topics, and to which of their queues."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Final

from store_core.broker.topic_kind import TopicKind, kind_of_topic, send_refusal
from store_core.errors import InvalidOptionError
from store_core.queue.queue_path import refusal_of
from store_core.snapshot.config import TOPICS, Config

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from store_core.format.releases.release import Release

__all__ = ["TargetQueues", "check_targets", "is_kept_by_broker"]

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

    Parameters
    ----------
    into : Path
        The store that they are appended to.
    count : int or None
        Queues of each topic; by default as many as ``config/topics.json`` of the store lets producers use, or 4 of a
        topic that it does not have.
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
    found, _ = Config(root).known(TOPICS, "how many queues topics have")
    numbers = {name: topic.write_queue_nums for name, topic in (found or {}).items()}
    return {name: min(number, _MOST_QUEUES) for name, number in numbers.items() if number > 0}
