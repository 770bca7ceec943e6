# SPDX-License-Identifier: Apache-2.0
"""The columns of another store from which its messages are made again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_commitlog.write.row_encoder import STORE_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["copied_columns", "input_names"]

_STORED: Final = "_ms"
"""How the names of columns with times as stored end."""

_REPLAYED: Final = ("body", "flag", "sys_flag", "born_timestamp_ms", "born_host", "properties")
"""Columns that a message keeps in another topic: it has not been delivered there, and has no queue yet."""

_COPIED: Final = (*_REPLAYED, "topic", "queue_id", "store_host", "reconsume_times")
"""Columns that it keeps in the same topic."""

_SAME: Final = (
    "topic",
    "queue_id",
    "body",
    "flag",
    "sys_flag",
    "born_timestamp_ms",
    "born_host",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
    "properties_string",
    f"{STORE_TIMESTAMP}{_STORED}",
)
"""Columns from which the same record can be made again."""


def copied_columns(to_topic: str | None, *, keeps_store_timestamp: bool) -> tuple[str, ...]:
    """Return the columns of messages that go to the same topics, as they are or as new ones, or to another."""
    if to_topic is not None:
        return _REPLAYED + (f"{STORE_TIMESTAMP}{_STORED}",) * keeps_store_timestamp
    return _SAME if keeps_store_timestamp else _COPIED


def input_names(names: Iterable[str]) -> list[str]:
    """Return the names under which copied columns are written: times are read as stored, since any number may be."""
    return [name.removesuffix(_STORED) for name in names]
