# SPDX-License-Identifier: Apache-2.0
"""The topics that a store knows outside its log, and warnings about requested topics it does not know."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from store_core.files.config_paths import CONFIG_DIRECTORY, TOPICS_FILE
from store_core.files.file_system import OsFileSystem
from store_core.files.remote.url_path import UrlPath
from store_core.files.store_parts import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from store_core.files.store_path import located, store_roots
from store_core.format.columnar.arrow_slices import texts
from store_core.format.near_name import did_you_mean, known_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from store_core.files.store_path import StorePaths

__all__ = ["TopicWatch", "hint_of", "stored_topics"]

_log: Final = logging.getLogger("store_core")

_MOST_NAMES: Final = 1 << 20
"""How many directories are examined; a bound for hostile stores."""

_LARGEST_FILE: Final = 64 << 20
"""Maximum bytes of a ``topics.json`` that is read."""


def stored_topics(roots: Iterable[Path]) -> frozenset[str]:
    """Return the topics that have a queue directory or are in ``config/topics.json``; the log is not read.

    What can't be read is skipped.

    Parameters
    ----------
    roots : iterable of Path
        Directories that may be the root of a store.
    """
    return frozenset(topic for root in roots for topic in _topics_of(root))


def _topics_of(root: Path) -> Iterator[str]:
    for kind in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE):
        yield from _directories(root / kind)
    yield from _configured(root / CONFIG_DIRECTORY / TOPICS_FILE)


def _directories(directory: Path) -> list[str]:
    try:
        if isinstance(directory, UrlPath):
            return [entry.name for _, entry in directory.scan() if not entry.is_file]
        with os.scandir(directory) as entries:
            return [entry.name for entry in islice(entries, _MOST_NAMES) if entry.is_dir()]
    except OSError:
        return []


def _configured(path: Path) -> list[str]:
    """Return the topics of a broker's topic table (RocketMQ: ``TopicConfigManager.configFilePath``)."""
    try:
        file = OsFileSystem().open(path, writable=False)  # refuses a named pipe, which would wait for its other end
        try:
            text = file.read(file.size(), 0) if file.size() <= _LARGEST_FILE else b""
        finally:
            file.close()
        table = json.loads(text)["topicConfigTable"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
    return list(table) if isinstance(table, dict) else []


def hint_of(topic: str, known: Collection[str]) -> str:
    """Return a hint which topic may have been meant, or else which topics exist."""
    return did_you_mean(topic, known) or (f"the topics are {known_names(known)}" if known else "no topic is known")


@dataclass(slots=True)
class TopicWatch:
    """Watches a read for requested topics that the store does not know outside its log.

    Attributes
    ----------
    unseen : set of str
        Such topics of which no record has been seen yet.
    roots : tuple of Path
        Where the store may have queues and configuration.
    known : frozenset of str
        Topics that the store knows.
    """

    unseen: set[str]
    roots: tuple[Path, ...]
    known: frozenset[str]

    @classmethod
    def of(cls, paths: StorePaths, topics: Iterable[str]) -> TopicWatch:
        """Look up topics in the stores of some paths; without topics nothing is read."""
        asked = set(topics)
        places = located(paths)
        is_local = places is paths and not isinstance(paths, UrlPath)
        roots = store_roots(paths) if asked and is_local else ()
        known = stored_topics(roots)
        return cls(asked - known, roots, known)

    def see(self, topics: pa.Array) -> None:
        """Note the topics of records."""
        if self.unseen:
            asked = texts(list(self.unseen))
            self.unseen.difference_update(pc.unique(topics.filter(pc.is_in(topics, value_set=asked))).to_pylist())

    def to_end(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass batches through, and at the end warn of topics found nowhere."""
        yield from batches
        for topic in sorted(self.unseen):
            _log.warning("topic %r: no record of it was read, and %s", topic, self._beside(topic))

    def warn_before_read(self) -> None:
        """Warn of topics that only the log can still have, if the store knows any topics outside its log."""
        for topic in sorted(self.unseen) if self.known else ():
            _log.warning("topic %r has rows only if the log still has records of it: %s", topic, self._beside(topic))

    def _beside(self, topic: str) -> str:
        if not self.roots:
            return "of a store that is not on this machine neither queues nor config/topics.json are read"
        places = ", ".join(map(str, self.roots))
        return f"neither the queues nor config/topics.json of {places} know it; {hint_of(topic, self.known)}"
