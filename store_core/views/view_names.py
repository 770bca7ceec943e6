# SPDX-License-Identifier: Apache-2.0
"""The names of the views, for those who only name them: the columns of a view need Arrow."""

from __future__ import annotations

from typing import Final

__all__ = ["VIEW_NAMES"]

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
