# SPDX-License-Identifier: Apache-2.0
"""What a crash left is a finding exactly if RocketMQ's restart does not make up for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core import read_messages
from store_core.answers import CheckOptions, check
from store_core.format.sys_flag import TRANSACTION_MASK, TransactionType
from tests.store_core.store.damaged_stores import (
    RELEASES,
    batch_topics_of,
    damaged_archives,
    expected_answers,
    read_conf,
    unpack_damaged,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.golden

CRASHED: Final = [archive for archive in damaged_archives() if archive.name.startswith("fz") or "-a." in archive.name]
A_SLICE: Final = 12
"""Every how many stores are looked at without being asked for more."""

FILLER_SIZE: Final = 2**31 - 1
UNQUEUED: Final = (TransactionType.PREPARED_TYPE.value, TransactionType.ROLLBACK_TYPE.value)
OF_THE_BASE: Final = {"unit_wrong_tags_code"}
"""The store that most of these were made from has one such unit."""


def not_queued(root: Path, release: str, units: dict[str, list[list[int]]]) -> set[tuple[str, int]]:
    """Return the records of the log that have no unit among these."""
    columns = ["topic", "queue_id", "physical_offset", "sys_flag"]
    logged = read_messages(root, columns=columns, mode="DROPMALFORMED", release=release, verify_crc=False).read_all()
    there = {(queue, unit[1]) for queue, found in units.items() for unit in found if unit[2] != FILLER_SIZE}
    return {
        (f"{row['topic']}/{row['queue_id']}", row["physical_offset"])
        for row in logged.to_pylist()
        if row["sys_flag"] & TRANSACTION_MASK not in UNQUEUED
    } - there


@pytest.mark.parametrize("version", RELEASES)
@pytest.mark.parametrize(
    "archive",
    [
        pytest.param(archive, id=archive.name, marks=[pytest.mark.soak] * (number % A_SLICE > 0))
        for number, archive in enumerate(CRASHED)
    ],
)
def test_missing_units_are_a_finding_exactly_if_a_restart_does_not_add_them(
    archive: Path, version: str, tmp_path: Path
) -> None:
    path = unpack_damaged(archive, tmp_path)
    answer: dict[str, Any] = expected_answers(path).get(version, {})
    if answer.get("load") is not True or not (path / "store" / "abort").exists():
        return  # nothing to compare with
    if not any((path / "store" / "commitlog").iterdir()):
        return
    options = CheckOptions(release=RELEASES[version], batch_topic=batch_topics_of(read_conf(path / "store.conf")))
    report = check(path / "store", options)
    lost = not_queued(path / "store", RELEASES[version], answer["units"])
    is_noted = any("records without a unit" in note for note in report.facts["notes"])

    if set(report.counts) <= OF_THE_BASE and is_noted:
        assert not lost
    if "unit_missing" in report.counts and not any(kind.startswith("log_") for kind in report.counts):
        assert lost
