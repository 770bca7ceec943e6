# SPDX-License-Identifier: Apache-2.0
"""The consume queues that options ask for, with what is missed and left out."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from store_core.errors import StoreNotFoundError
from store_core.files.configured_root import log_directories
from store_core.files.dledger_log import dledger_logs
from store_core.files.file_system import OsFileSystem
from store_core.snapshot.file_queues import DIRECTORIES
from store_core.snapshot.queues import TopicFilter
from store_core.store.read.stored_topics import hint_of, stored_topics

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from store_core.snapshot.queues import Queues
    from store_core.snapshot.units import Queue
    from store_core.store.read.read_options import ReadOptions

__all__ = ["asked_queues", "missing_queues", "topic_filter"]

_log: Final = logging.getLogger("store_core")


def topic_filter(read: ReadOptions) -> TopicFilter:
    """Return the filter that options describe."""
    return TopicFilter.of(read.topic, read.topics_pattern, read.queue_id)


def asked_queues(queues: Queues, wanted: TopicFilter, known: Collection[str] = ()) -> list[Queue]:
    """Return the queues that are asked for, by kind, topic and id; warn of topics without a queue that are not known.

    Directories that are not queues are left out with a warning.
    """
    found = list(queues.each(wanted))
    missing = set(wanted.topics) - {queue.name[0] for queue in found} - set(known)
    missing -= {topic for topic, _ in queues.names(TopicFilter(tuple(missing)))} if missing else set()
    for note in queues.notes:
        _log.warning("%s", note)
    for topic in sorted(missing):
        hint = hint_of(topic, stored_topics([queues.root]))
        _log.warning("topic %r has no queue below %s: %s", topic, queues.root, hint)
    return found


def missing_queues(root: Path) -> StoreNotFoundError:
    """Return the error that a store has no queues at all."""
    places = " nor ".join(str(root / name) for name in DIRECTORIES.values())
    can_make = any(any(log.glob("*")) for log in log_directories(root)) and not any(dledger_logs(root, OsFileSystem()))
    make = f", or make queues from the log: commitlog rebuild queues {root} --output DIRECTORY" * can_make
    return StoreNotFoundError(
        f"no consume queues: expected directories TOPIC/NUMBER, found neither {places}. Give the root of a whole "
        f"store{make}. With failOnDataLoss=false there are no rows"
    )
