# SPDX-License-Identifier: Apache-2.0
"""A store without findings is served whole by RocketMQ, and a unit is missing only if a restart does not add it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core import read_messages
from store_core.answers import Check
from store_core.format.sys_flag import TRANSACTION_MASK, TransactionType
from tests.golden_stores import read_conf
from tests.store_core.store.damaged_stores import (
    RELEASES,
    batch_topics_of,
    damaged_archives,
    expected_answers,
    unpack_damaged,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.golden

A_SLICE: Final = 20
"""Every how many stores are looked at without being asked for more."""

FILLER_SIZE: Final = 2**31 - 1
UNQUEUED: Final = (TransactionType.PREPARED_TYPE.value, TransactionType.ROLLBACK_TYPE.value)
FORCED: Final = (
    "enabledAppendPropCRC=true\nforceVerifyPropCRC=true\nmappedFileSizeConsumeQueue={cq-size}\n"
    "maxHashSlotNum={slot-num}\nmaxIndexNum={index-num}\n"
)
"""What no file of a store shows: a record without a checksum of its own is none."""

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


def not_served(root: Path, release: str, answer: dict[str, Any]) -> set[tuple[str, int]]:
    """Return the records without a unit, in queues from which a consumer did not get as many messages as the log has.

    RocketMQ's units were listed from the queue's least offset on, and there are none if the file of that is gone: a
    broker deletes a queue's files one by one, and corrects the least offset only in the first that is left. Where
    nothing was pulled, such queues are not judged.
    """
    lost = not_queued(root, release, answer["units"])
    if "pull" not in answer:
        return {each for each in lost if answer["units"].get(each[0])}
    logged = Counter(queue for queue, _ in not_queued(root, release, {}))
    pulled: Counter[str] = Counter()
    for topic, queue_id, _, status, _, count in answer["pull"]:
        pulled[f"{topic}/{queue_id}"] += count * (status == "FOUND")
    return {each for each in lost if pulled[each[0]] != logged[each[0]]}


def options_of(path: Path, release: str) -> Check:
    conf = read_conf(path / "store.conf")
    if conf.get("force-propcrc") != "true":
        return Check(release=release, batch_topic=tuple(batch_topics_of(conf)))
    (path / "broker.conf").write_text(FORCED.format_map(conf))
    return Check(release=release, batch_topic=tuple(batch_topics_of(conf)), config=path / "broker.conf")


@pytest.mark.parametrize("version", RELEASES)
@pytest.mark.parametrize(
    "archive",
    [
        pytest.param(archive, id=archive.name, marks=[pytest.mark.soak] * (number % A_SLICE > 0))
        for number, archive in enumerate(damaged_archives())
    ],
)
def test_a_store_without_findings_is_served_whole(archive: Path, version: str, tmp_path: Path) -> None:
    path = unpack_damaged(archive, tmp_path)
    answer: dict[str, Any] = expected_answers(path).get(version, {})
    if "load" not in answer or not any((path / "store" / "commitlog").iterdir()):
        return  # nothing to compare with
    report = options_of(path, RELEASES[version]).ask(path / "store")
    is_of_all = not any("the log was checked, and nothing else" in note for note in report.found.notes)
    is_clean = is_of_all and set(report.counts) <= OF_THE_BASE
    if not answer["load"] or "units" not in answer:  # or its start never returned
        assert not is_clean
        return
    lost = not_served(path / "store", RELEASES[version], answer)

    assert not (is_clean and lost)
    if "unit_missing" in report.counts and not any(kind.startswith("log_") for kind in report.counts):
        assert lost or not (path / "store" / "abort").exists()
