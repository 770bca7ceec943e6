# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of queues: the fake clock and the fake disk."""

from __future__ import annotations

import pytest

from tests.store_core.fakes import FakeClock, FaultyFileSystem


@pytest.fixture
def disk() -> FaultyFileSystem:
    return FaultyFileSystem()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()
