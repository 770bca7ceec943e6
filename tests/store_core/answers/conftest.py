# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the tests of answers."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from store_core.store.parts import InProcess
from store_core.store.process_pool import ProcessPool
from tests.life_logs import LifeLog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store_core.store.parts import Engine
    from tests.golden_stores import Golden


class LastingPool(ProcessPool):
    """A pool whose processes go on when an answer is done, which would end them."""

    def __exit__(self, *_: object) -> None:
        pass

    def end(self) -> None:
        super().__exit__()


@pytest.fixture(scope="package")
def pool() -> Iterator[ProcessPool]:
    """Provide two processes, which start once for all tests here."""
    engine = LastingPool(2)
    yield engine
    engine.end()


@pytest.fixture(params=["this process", "a pool"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Run the test without further processes, and in the shared pool."""
    pool: ProcessPool | None = request.getfixturevalue("pool") if request.param == "a pool" else None
    return pool or InProcess()


@pytest.fixture
def store(golden: Golden, tmp_path: Path) -> Path:
    """Provide a copy of a store that RocketMQ wrote, which the test may change; some modules have another."""
    return shutil.copytree(golden("5.3.3/propcrc").root, tmp_path / "store")


@pytest.fixture
def log() -> LifeLog:
    """Provide an empty log; some modules have another."""
    return LifeLog()
