# SPDX-License-Identifier: Apache-2.0
"""Where a broker goes on: offsets of consumer groups and delay levels in its configuration files, and the delays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.broker.consumer_offset import TOPIC_GROUP_SEPARATOR
from store_core.files.config_paths import CONSUMER_OFFSET_FILE, DELAY_OFFSET_FILE
from store_core.store.config.message_store_config import MessageStoreConfig
from store_core.views.config_table import find_config

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from store_core.broker.config_fields import ConfigFields
    from store_core.format.releases.release import Release

__all__ = ["consumer_offsets", "delay_levels", "delay_offsets"]


def consumer_offsets(root: Path) -> dict[tuple[str, str], dict[int, int]] | None:
    """Return topic and group -> queue -> the offset that is consumed next; None without the file.

    Raises
    ------
    CorruptRecordError
        If the file is broken, and its backup is broken or not there.
    """
    return find_config(root, CONSUMER_OFFSET_FILE, _of_consumers)


def delay_offsets(root: Path) -> dict[int, int] | None:
    """Return delay level -> the offset that is delivered next; None without the file. Errors as above."""
    return find_config(root, DELAY_OFFSET_FILE, lambda fields: fields.object("offsetTable").offsets())


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
