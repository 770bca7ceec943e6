# SPDX-License-Identifier: Apache-2.0
"""What a read without bodies is expected to take, by what was measured of the connection."""

from __future__ import annotations

import pytest

from store_core.files.remote.narrow_forecast import Connection, is_faster_narrow, narrow_seconds, worthwhile_body

MIB = 1 << 20
SLOW = Connection(latency=0.02, burst=0.025, rate=10e6)
NEAR = Connection(latency=0.001, burst=0.02, rate=500e6)
FAR = Connection(latency=0.05, burst=0.06, rate=50e6)
PLAIN = Connection(latency=0.01, burst=0.056, rate=1e8)
"""Of which each further request at once takes 2 ms."""


@pytest.mark.parametrize(
    ("steps", "record", "expected"),
    [
        ([16 * MIB], 4 * MIB, 4 * 0.01),
        ([16 * MIB], MIB, 16 * 0.01),
        ([16 * MIB, 16 * MIB], MIB, 32 * 0.01),
        ([40 * MIB], MIB, 8 * 0.01 + (32 / 2 + 8.0056) * 0.012 + MIB / 1e8),
        ([64 * MIB], 4096, 8 * 0.01 + (16376 / 24 + 1) * 0.056 + 23 * 4096 / 1e8),
        ([], 4096, 0),
    ],
)
def test_records_take_rounds_of_requests_and_searches(steps: list[int], record: int, expected: float) -> None:
    assert expected == pytest.approx(narrow_seconds(steps, record, PLAIN), rel=1e-4)


@pytest.mark.parametrize(
    ("record", "connection", "expected"),
    [
        (4 << 10, NEAR, False),
        (256 << 10, NEAR, False),
        (MIB, NEAR, False),
        (MIB, FAR, False),
        (16 * MIB, FAR, True),
        (4 << 10, SLOW, False),
        (64 << 10, SLOW, True),
        (MIB, SLOW, True),
    ],
)
def test_64_mib_are_read_without_bodies_where_the_connection_is_slow_for_their_size(
    record: int,
    connection: Connection,
    expected: bool,
) -> None:
    assert expected == is_faster_narrow([16 * MIB, 48 * MIB], record, connection)


@pytest.mark.parametrize(
    ("burst", "rate", "expected"), [(0.048, 100e6, 400_000), (0.012, 1e9, 1_000_000), (0.48, 10e6, 400_000)]
)
def test_least_body_is_what_is_downloaded_in_twice_its_part_of_a_burst(
    burst: float, rate: float, expected: int
) -> None:
    assert expected == pytest.approx(worthwhile_body(Connection(0.01, burst, rate)), rel=1e-3)
