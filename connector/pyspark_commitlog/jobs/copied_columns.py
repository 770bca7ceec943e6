# SPDX-License-Identifier: Apache-2.0
"""The columns of another store from which its messages are made again."""

from __future__ import annotations

from typing import Final

from pyspark_commitlog.write.row_encoder import STORE_TIMESTAMP

__all__ = ["copied_columns"]

_COPIED: Final = (
    "topic",
    "queue_id",
    "body",
    "flag",
    "sys_flag",
    "born_timestamp",
    "born_host",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
    "properties_string",
)
"""Columns from which the same message can be made again."""

_REPLAYED: Final = ("body", "flag", "sys_flag", "born_timestamp", "born_host", "properties")
"""Columns that a message keeps in another topic: it has not been delivered there, and has no queue yet."""


def copied_columns(to_topic: str | None, *, keeps_store_timestamp: bool) -> tuple[str, ...]:
    """Return the columns of messages that go to the same topics, or as new ones to another."""
    return (_COPIED if to_topic is None else _REPLAYED) + (STORE_TIMESTAMP,) * keeps_store_timestamp
