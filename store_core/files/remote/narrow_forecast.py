# SPDX-License-Identifier: Apache-2.0
"""A forecast of how long a remote segment takes with all of its bytes, and without the bodies of its records."""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING, Final, NamedTuple

from store_core.files.remote.record_lanes import FIRST, LANES, PROBE, lane_count

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Connection", "is_faster_narrow", "narrow_seconds", "worthwhile_body"]

_GAIN: Final = 2
"""How much faster leaving bodies out has to be: a measurement of a moment is not exact, and requests cost money."""


class Connection(NamedTuple):
    """What was measured of a storage.

    Attributes
    ----------
    latency : float
        Seconds of one small request.
    burst : float
        Seconds of `LANES` small requests at once.
    rate : float
        Bytes a second of large requests, all together.
    """

    latency: float
    burst: float
    rate: float

    def round(self, requests: int) -> float:
        """Return the seconds of some small requests at once."""
        return self.latency + max(self.burst - self.latency, 0) * (requests - 1) / (LANES - 1)


def narrow_seconds(steps: Sequence[int], record: int, connection: Connection) -> float:
    """Return how long it takes to follow records of equal size without their bodies, as `RecordLanes` does.

    Parameters
    ----------
    steps : sequence of int
        Bytes that are followed at once, step by step.
    record : int
        Size of a record, in bytes.
    connection : Connection
    """
    return sum(_step_seconds(length, record, connection) for length in steps)


def _step_seconds(length: int, record: int, connection: Connection) -> float:
    """Return the time of the first records, one after another, and of all lanes: each searches, then walks."""
    records = length / record
    first = min(records, FIRST)
    left = records - first
    lanes = max(lane_count(int(left * record), record), 1)
    searched = log2(record / PROBE + 1) if lanes > 1 else 0
    bytes_searched = record * (lanes - 1)
    return (
        first * connection.latency
        + (left / lanes + searched) * connection.round(lanes)
        + bytes_searched / connection.rate
    )


def is_faster_narrow(steps: Sequence[int], record: int, connection: Connection) -> bool:
    """Return whether leaving the bodies out is surely faster, by the parameters of `narrow_seconds`."""
    return _GAIN * narrow_seconds(steps, record, connection) <= sum(steps) / connection.rate


def worthwhile_body(connection: Connection) -> int:
    """Return the bytes from which on it is surely faster to leave a body out than to download it."""
    return int(_GAIN * connection.burst / LANES * connection.rate)
