# SPDX-License-Identifier: Apache-2.0
"""The names of the views and of their options, for those who only name them: the columns of a view need Arrow."""

from __future__ import annotations

from typing import Final

__all__ = ["ALWAYS", "OWN_OPTIONS", "VIEW_NAMES"]

VIEW_NAMES: Final = (
    "consumequeue",
    "index",
    "segments",
    "topics",
    "consumer_offsets",
    "subscription_groups",
    "delay_offsets",
    "checkpoint",
    "timerlog",
    "timerwheel",
    "rocksdbstore",
)
"""All views but that of the messages, in the order of `store_core.views.view_columns.VIEWS`."""

ALWAYS: Final = (
    "columns",
    "max_records_per_batch",
    "fail_on_data_loss",
    "release",
    "storage",
    "config",
    "store_path_commit_log",
)
"""Options that every view takes."""

_QUEUES: Final = ("topic", "topics_pattern", "queue_id")
_OFFSETS: Final = ("starting_offsets", "ending_offsets")
_AS_OF: Final = ("as_of", "time_zone")
OWN_OPTIONS: Final = {
    "consumequeue": (*_QUEUES, *_OFFSETS, *_AS_OF, "max_partition_bytes"),
    "index": ("topic", "key", *_OFFSETS, "starting_timestamp", "ending_timestamp", *_AS_OF, "max_partition_bytes"),
    "segments": (*_OFFSETS, *_AS_OF, "verify_crc"),
    "topics": (*_QUEUES, *_AS_OF),
    "consumer_offsets": (*_QUEUES, *_AS_OF),
}
"""View -> the options that it takes besides these, by their names in Python."""
