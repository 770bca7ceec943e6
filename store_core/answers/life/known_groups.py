# SPDX-License-Identifier: Apache-2.0
"""The consumer groups that a store knows outside its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.answers.config_notes import config_or_note
from store_core.answers.life.config_offsets import consumer_offsets
from store_core.broker.topic_kind import DEAD_LETTER_PREFIX
from store_core.files.config_paths import SUBSCRIPTION_GROUP_FILE
from store_core.store.put.put_checks import RETRY_PREFIX
from store_core.store.read.stored_topics import stored_topics

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.broker.config_fields import ConfigFields

__all__ = ["known_groups"]


def known_groups(root: Path) -> frozenset[str]:
    """Return the groups that are configured, have committed offsets, or have a topic of retries or dead letters.

    Parameters
    ----------
    root : Path
        The store's root; a file that is broken is left out.
    """
    configured, _ = config_or_note(root, SUBSCRIPTION_GROUP_FILE, _names, "which groups there are")
    offsets, _ = consumer_offsets(root)
    topics = stored_topics((root,))
    of_topics = {
        topic.removeprefix(prefix)
        for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX)
        for topic in topics
        if topic.startswith(prefix)
    }
    return frozenset({*(configured or ()), *(group for _, group in offsets or ()), *of_topics})


def _names(fields: ConfigFields) -> list[str]:
    return [name for name, _ in fields.table("subscriptionGroupTable").objects()]
