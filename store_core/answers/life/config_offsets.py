# SPDX-License-Identifier: Apache-2.0
"""Where a broker goes on: offsets of consumer groups and delay levels in its configuration files, and the delays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.answers.config_notes import config_or_note
from store_core.broker.consumer_offset import TOPIC_GROUP_SEPARATOR
from store_core.files.config_paths import CONSUMER_OFFSET_FILE, DELAY_OFFSET_FILE
from store_core.store.config.message_store_config import MessageStoreConfig

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from store_core.broker.config_fields import ConfigFields
    from store_core.format.releases.release import Release

__all__ = ["consumer_offsets", "delay_levels", "delay_offsets"]


def consumer_offsets(
    root: Path, release: str | None = None
) -> tuple[dict[tuple[str, str], dict[int, int]] | None, tuple[str, ...]]:
    """Return topic and group -> queue -> the offset that is consumed next, and what is to be said of the file.

    Returns
    -------
    dict or None
        None if neither the file nor its backup is there, or both are broken.
    tuple of str
        A note if they are broken, or if the backup was read.
    """
    return config_or_note(root, CONSUMER_OFFSET_FILE, _of_consumers, "what groups have consumed", release)


def delay_offsets(root: Path, release: str | None = None) -> tuple[dict[int, int] | None, tuple[str, ...]]:
    """Return delay level -> the offset that is delivered next, and what is to be said of the file, as above."""
    what = "what is delivered of delay levels"
    return config_or_note(root, DELAY_OFFSET_FILE, lambda fields: fields.table("offsetTable").offsets(), what, release)


def delay_levels(broker_config: str | os.PathLike[str] | None, release: Release) -> tuple[int, ...]:
    """Return the delay of each level, ms: those of a broker's file, if it sets ``messageDelayLevel``, else the usual.

    Raises
    ------
    InvalidOptionError
        If the file is not as it should be.
    """
    if broker_config is None:
        return MessageStoreConfig(release=release).delay_levels
    return MessageStoreConfig.from_properties(broker_config, release=release).delay_levels


def _of_consumers(fields: ConfigFields) -> dict[tuple[str, str], dict[int, int]]:
    found = {}
    for key, queues in fields.object("offsetTable").objects():
        topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
        found[topic, group] = queues.offsets()
    return found
