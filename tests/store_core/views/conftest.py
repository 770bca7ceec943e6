# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of views."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(viewed: Path) -> Path:
    return viewed
