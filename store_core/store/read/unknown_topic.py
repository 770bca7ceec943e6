# SPDX-License-Identifier: Apache-2.0
"""The test whether a read asked for a topic or a queue that a store does not have."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from store_core.files.store_path import store_roots
from store_core.store.read.message_reader import read_range
from store_core.store.read.read_options import ReadOptions
from store_core.store.read.read_plan import plan_ranges
from store_core.store.read.stored_topics import TopicWatch, stored_queues, stored_topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from store_core.files.store_path import StorePaths

__all__ = ["has_unknown_topic", "is_nowhere"]

_log: Final = logging.getLogger("store_core")

_ASKED: Final = ("topic", "queue_id", "storage", "config", "store_path_commit_log")
"""Options that say which topics and queues of which store are meant."""


def has_unknown_topic(paths: StorePaths, options: ReadOptions) -> bool:
    """Return whether none of the topics, or of the queues, that were asked for is known outside the log.

    False if none was asked for. Only for a read without rows: a log may have topics and queues that neither queues nor
    configuration know.
    """
    if not options.topic and not options.queue_id:
        return False
    roots = store_roots(options.store_of(paths).paths)
    known = stored_topics(roots)
    if options.topic and known.isdisjoint(options.topic):
        return True
    if not options.queue_id:
        return False
    stored = stored_queues(roots, options.topic or known)
    if stored:
        return stored.isdisjoint(options.queue_id)
    logged = _logged_queues(paths, options)
    if logged.isdisjoint(options.queue_id):
        _log.warning("queue %s: no message is in it; the ids are %s", *map(_shown, (options.queue_id, sorted(logged))))
    return logged.isdisjoint(options.queue_id)


def _logged_queues(paths: StorePaths, options: ReadOptions) -> frozenset[int]:
    """Return the queues of the topics in a log beside which there is nothing that says which there are."""
    whole = replace(
        ReadOptions.parse(columns=["queue_id"], mode="DROPMALFORMED", fail_on_data_loss=False),
        topic=options.topic, storage=options.storage, config=options.config,
        store_path_commit_log=options.store_path_commit_log,
    )  # fmt: skip
    ranges = plan_ranges(paths, whole).ranges
    return frozenset(each for part in ranges for batch in read_range(part, whole) for each in batch[0].to_pylist())


def _shown(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids))


def is_nowhere(paths: StorePaths, read: Mapping[str, Any]) -> bool:
    """Return whether none of the topics, or of the queues, that were asked for is in a store, and warn of queues.

    False if none was asked for. For a command that does not read messages: the log is read only if queues and
    configuration know none of them.
    """
    chosen = {name: read[name] for name in _ASKED if name in read}
    options = ReadOptions.parse(columns=["physical_offset"], mode="DROPMALFORMED", fail_on_data_loss=False, **chosen)
    if not has_unknown_topic(paths, options):
        return False
    TopicWatch.of(options.store_of(paths).paths, options).warn_of_queues()
    plan = plan_ranges(paths, options)
    return not any(batch.num_rows for part in plan.ranges for batch in read_range(part, options))
