# SPDX-License-Identifier: Apache-2.0
"""The test whether a command asked for a topic that a store does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from store_core.files.store_path import store_roots
from store_core.store.read.message_reader import read_range
from store_core.store.read.read_options import ReadOptions
from store_core.store.read.read_plan import plan_ranges
from store_core.store.read.stored_topics import stored_topics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store_core.files.store_path import StorePaths

__all__ = ["has_unknown_topic", "is_nowhere"]

_ASKED: Final = ("topic", "storage", "config", "store_path_commit_log")
"""Options that say which topics of which store are meant."""


def has_unknown_topic(paths: StorePaths, options: ReadOptions) -> bool:
    """Return whether none of the topics that were asked for is known outside the log; false if none was asked for.

    Only for a read without rows: a log may have topics that neither queues nor configuration know.
    """
    return bool(options.topic) and not set(options.topic) & stored_topics(store_roots(options.located(paths)))


def is_nowhere(paths: StorePaths, read: Mapping[str, Any]) -> bool:
    """Return whether none of the topics that were asked for is in a store; false if none was asked for.

    For a command that does not read messages: the log is read only if queues and configuration know none of them.
    """
    chosen = {name: read[name] for name in _ASKED if name in read}
    options = ReadOptions.parse(columns=["physical_offset"], mode="DROPMALFORMED", fail_on_data_loss=False, **chosen)
    if not has_unknown_topic(paths, options):
        return False
    plan = plan_ranges(paths, options)
    return not any(batch.num_rows for part in plan.ranges for batch in read_range(part, options))
