# SPDX-License-Identifier: Apache-2.0
"""A store that a broker keeps writing: a DataFrame shows the log as it was at its first action."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.builders import LogBuilder

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from tests.connector.stores import Reader

pytestmark = pytest.mark.spark

SEGMENT = 2048


def plan(frame: DataFrame) -> DataFrame:
    """Let Spark plan a query now, as in the first step of its first action."""
    frame._jdf.queryExecution().toRdd().getNumPartitions()
    return frame


def offsets(frame: DataFrame) -> list[int]:
    return [row.physical_offset for row in frame.collect()]


@pytest.fixture
def log() -> LogBuilder:
    log = LogBuilder(SEGMENT)
    log.fill(1)
    log.append_all(*[b"x" * 50] * 3)
    return log


def test_what_is_appended_and_rolled_behind_the_plan_is_not_read(read: Reader, log: LogBuilder, tmp_path: Path) -> None:
    root = log.write(tmp_path / "store", preallocated=1)
    planned, before = plan(read(root)), [record.physical_offset for record in log.records]
    log.fill(2)
    log.write(root)

    assert before == offsets(planned)
    assert [record.physical_offset for record in log.records] == offsets(read(root))


def test_a_second_action_reads_the_same_log(read: Reader, log: LogBuilder, tmp_path: Path) -> None:
    root = log.write(tmp_path / "store")
    frame = read(root)
    first = offsets(frame)
    log.append(b"later")
    log.write(root)

    assert first == offsets(frame)
