# SPDX-License-Identifier: Apache-2.0
"""The test whether a command asked for a topic that a store does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.files.store_path import located, store_roots
from store_core.store.read.stored_topics import stored_topics

if TYPE_CHECKING:
    from store_core.files.store_path import StorePaths
    from store_core.store.read.read_options import ReadOptions

__all__ = ["has_unknown_topic"]


def has_unknown_topic(paths: StorePaths, options: ReadOptions) -> bool:
    """Return whether none of the topics that were asked for is known outside the log; false if none was asked for.

    Only for a read without rows: a log may have topics that neither queues nor configuration know.
    """
    return bool(options.topic) and not set(options.topic) & stored_topics(store_roots(located(paths, options.storage)))
