# SPDX-License-Identifier: Apache-2.0
"""Fixtures for reading through Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.connector.stores import Reader, WrittenStore, mixed_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def read(spark: SparkSession) -> Reader:
    return Reader(spark)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> WrittenStore:
    """Return a store of three segments. All tests share it; those that write make their own."""
    log = mixed_log()
    return WrittenStore(log.write(tmp_path_factory.mktemp("mixed") / "store"), log)
