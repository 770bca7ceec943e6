# SPDX-License-Identifier: Apache-2.0
"""What answers about lives of messages say where a segment is missing: they can't know what was in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from store_core import StoreNotFoundError
from store_core.answers import dead_letters, delays, lag, trace, transactions
from store_core.answers.report import Verdict
from tests.life_logs import LifeLog, write_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SIZE = 4096
"""Bytes of a segment."""


def told_of(root: Path) -> dict[str, Callable[[], Any]]:
    return {
        "trace": lambda: trace(root, "key"),
        "deadletters": lambda: dead_letters(root),
        "delays": lambda: delays(root),
        "transactions": lambda: transactions(root),
        "lag": lambda: lag(root),
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Write three segments and what a group has committed; the second segment is missing."""
    log = LifeLog(SIZE)
    log.send("key")
    log.roll()
    log.send("lost")
    log.roll()
    log.send("last")
    found = log.write(tmp_path)
    write_config(found, consumerOffset={"offsetTable": {"orders@billing": {"0": -1}}}, delayOffset={"offsetTable": {}})
    (found / "commitlog" / f"{SIZE:020}").unlink()
    return found


@pytest.mark.parametrize("name", ["trace", "deadletters", "delays", "transactions", "lag"])
def test_a_missing_segment_is_damage(name: str, root: Path) -> None:
    report = told_of(root)[name]()

    assert (Verdict.DAMAGED, SIZE) == (
        report.verdict,
        report.facts.get("missing_bytes", report.facts.get("lost_bytes")),
    )
    assert f"{SIZE:,} bytes of the log are" in "\n".join(report.lines)


def test_what_is_not_found_may_be_in_a_missing_segment(root: Path) -> None:
    with pytest.raises(StoreNotFoundError, match="4,096 bytes of its log are missing, where one may have been"):
        trace(root, "lost")


def test_an_offset_below_0_of_a_queue_that_is_not_there_is_of_an_empty_one(root: Path) -> None:
    (row,) = (row for row in lag(root).tables["queues"].to_pylist() if row["topic"] == "orders")

    assert ("empty", 0) == (row["state"], row["messages"])
