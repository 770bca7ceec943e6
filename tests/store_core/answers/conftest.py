# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the tests of answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core.store.process_pool import ProcessPool

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package")
def pool() -> Iterator[ProcessPool]:
    """Provide two processes, which start once for all tests here."""
    with ProcessPool(2) as engine:
        yield engine
