# SPDX-License-Identifier: Apache-2.0
"""A unit that is not written to any queue."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["RefusedUnit"]


class RefusedUnit(NamedTuple):
    """A unit that is not written, although the log asks for it.

    Attributes
    ----------
    physical_offset : int
        Position of the record.
    stops_broker : bool
        Whether RocketMQ can't go on dispatching there: it does not load, or never comes up.
    """

    topic: str
    queue_id: int
    physical_offset: int
    reason: str
    stops_broker: bool = False
