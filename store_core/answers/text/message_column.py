# SPDX-License-Identifier: Apache-2.0
"""Messages named in one column as ``TOPIC/QUEUE/OFFSET``, which ``commitlog get`` takes."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

__all__ = ["message_name", "with_message_column"]

_PARTS: Final = ("topic", "queue_id", "queue_offset")


def message_name(topic: str | None, queue_id: int | None, queue_offset: int | None) -> str | None:
    """Return the name of a message, or as much of it as is known; None without a topic.

    Examples
    --------
    >>> message_name("orders", 1, 42), message_name("orders", 1, None)
    ('orders/1/42', 'orders/1')
    """
    known = [str(part) for part in (queue_id, queue_offset) if part is not None]
    return None if topic is None else "/".join([topic, *known])


def with_message_column(table: pa.Table) -> pa.Table:
    """Return a table with one column ``message`` in place of topic, queue and queue offset."""
    parts = (table[name].to_pylist() for name in _PARTS)
    names = pa.array([message_name(*each) for each in zip(*parts, strict=True)], pa.string())
    return table.set_column(table.column_names.index(_PARTS[0]), "message", names).drop_columns(list(_PARTS[1:]))
