# SPDX-License-Identifier: Apache-2.0
"""The topics and queues that a store knows outside its log, and warnings about requested ones it does not know."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from store_core.errors import StoreError
from store_core.files.store_path import given_paths, store_roots
from store_core.files.url_path import UrlPath
from store_core.format.columnar.arrow_slices import texts
from store_core.format.words import did_you_mean, known_names
from store_core.snapshot.config import Config, TopicConfig
from store_core.snapshot.queues import Queues
from store_core.snapshot.units import TopicFilter

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from store_core.snapshot.store import Store
    from store_core.store.read.read_options import AskedQueue, ReadOptions


_log: Final = logging.getLogger("store_core")

_MOST_QUEUES: Final = 1 << 16
_MOST_SHOWN: Final = 20


def roots_of(stores: Iterable[Store]) -> tuple[Path, ...]:
    """Return the directories that may be the roots of some stores."""
    return tuple(dict.fromkeys(root for store in stores for root in store_roots(store.paths)))


def stored_topics(roots: Iterable[Path]) -> frozenset[str]:
    """Return the topics that have a queue directory or are in ``config/topics.json``; the log is not read.

    What can't be read is skipped.

    * `roots`: Directories that may be the root of a store.
    """
    return frozenset(topic for root in roots for topic in _topics_of(root))


def stored_queues(roots: Iterable[Path], topics: Iterable[str]) -> frozenset[int]:
    """Return the ids of queues that some topics have as directories, or in ``config/topics.json``.

    What can't be read is skipped.
    """
    return frozenset(number for root in roots for number in _queues_of(root, list(topics)))


def _queues_of(root: Path, topics: Sequence[str]) -> Iterator[int]:
    with suppress(StoreError, OSError), Queues(root) as queues:
        yield from (queue_id for _, queue_id in queues.names(TopicFilter(tuple(topics))))
    configured = _configured(root)
    for config in (configured[topic] for topic in topics if topic in configured):
        yield from range(min(max(config.read_queue_nums, config.write_queue_nums, 0), _MOST_QUEUES))


def unknown_queues(roots: Sequence[Path], asked: Iterable[AskedQueue], known: frozenset[str]) -> Iterator[str]:
    """Yield a sentence on each queue that topics were asked for and do not have, though they have others.

    * `known`: The topics of these stores.
    """
    for topics, number in asked:
        ids = stored_queues(roots, topics or sorted(known))
        if ids and number not in ids:
            of_topics = f" of topic {', '.join(map(repr, topics))}" if topics else ""
            places = ", ".join(map(str, roots))
            shown = ", ".join(map(str, sorted(ids)[:_MOST_SHOWN])) + ", ..." * (len(ids) > _MOST_SHOWN)
            yield (
                f"queue {number}{of_topics}: neither the queues nor config/topics.json of {places} know it; the ids "
                f"are {shown}"
            )


def _with_queues(root: Path, topics: Collection[str]) -> Iterator[str]:
    """Yield those of some topics that have queues; others are not listed."""
    with suppress(StoreError, OSError), Queues(root) as queues:
        yield from (topic for topic, _ in queues.names(TopicFilter(tuple(topics))) if topics)


def _topics_of(root: Path) -> Iterator[str]:
    with suppress(StoreError, OSError), Queues(root) as queues:
        yield from queues.topics()
    yield from _configured(root)


def _configured(root: Path) -> Mapping[str, TopicConfig]:
    """Return the topics of a broker's topic table, by name."""
    try:
        return Config(root).topics or {}
    except (StoreError, OSError):
        return {}


def hint_of(topic: str, known: Collection[str]) -> str:
    """Return a hint which topic may have been meant, or else which topics exist."""
    return did_you_mean(topic, known) or (f"the topics are {known_names(known)}" if known else "no topic is known")


@dataclass(slots=True)
class TopicWatch:
    """Watches a read for requested topics and queues that the store does not know outside its log."""

    unseen: set[str]  # such topics of which no record has been seen yet
    roots: tuple[Path, ...]  # where the store may have queues and configuration
    known: frozenset[str]  # topics that the store knows; none if that was not needed
    queues: tuple[AskedQueue, ...]  # queues that are asked for by their ids

    @classmethod
    def of(cls, stores: Sequence[Store], options: ReadOptions) -> TopicWatch:
        """Look up the topics and queues of options beside the logs of stores; if none is named, nothing is read."""
        asked, queues = set(options.named_topics), options.asked_queues
        is_local = not any(isinstance(path, UrlPath) for store in stores for path in given_paths(store.paths))
        roots = roots_of(stores) if (asked or queues) and is_local else ()
        missing = asked - {topic for root in roots for topic in _with_queues(root, asked)}
        needs_all = missing or any(not topics for topics, _ in queues)
        known = stored_topics(roots) if needs_all else frozenset[str]()
        return cls(missing - known, roots, known, queues)

    def see(self, topics: pa.Array) -> None:
        """Note the topics of records."""
        if self.unseen:
            asked = texts(list(self.unseen))
            self.unseen.difference_update(pc.unique(topics.filter(pc.is_in(topics, value_set=asked))).to_pylist())

    def to_end(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass batches through, and at the end warn of topics found nowhere."""
        yield from batches
        self.warn_of_queues()
        for topic in sorted(self.unseen):
            _log.warning("topic %r: no record of it was read, and %s", topic, self._beside(topic))

    def warn_before_read(self) -> None:
        """Warn of topics and queues that only the log can still have, if the store knows others outside its log."""
        self.warn_of_queues()
        for topic in sorted(self.unseen) if self.known else ():
            _log.warning("topic %r has rows only if the log still has records of it: %s", topic, self._beside(topic))

    def warn_of_queues(self) -> None:
        """Warn of queues that topics do not have outside the log, though they have others there."""
        for told in unknown_queues(self.roots, self.queues, self.known):
            _log.warning("%s", told)

    def _beside(self, topic: str) -> str:
        if not self.roots:
            return "of a store that is not on this machine neither queues nor config/topics.json are read"
        places = ", ".join(map(str, self.roots))
        return f"neither the queues nor config/topics.json of {places} know it; {hint_of(topic, self.known)}"
