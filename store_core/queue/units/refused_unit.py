# SPDX-License-Identifier: Apache-2.0
"""A unit that no queue gets."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["RefusedUnit"]


class RefusedUnit(NamedTuple):
    """A unit that is not written, whatever the log says.

    Attributes
    ----------
    topic : str
    queue_id : int
    physical_offset : int
        Position of the record.
    reason : str
    """

    topic: str
    queue_id: int
    physical_offset: int
    reason: str
