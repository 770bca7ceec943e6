# SPDX-License-Identifier: Apache-2.0
"""Dead letters are counted by group and origin, joined to their first messages, and say why they died."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import pytest

from store_core.answers import DeadLettersReport, dead_letters
from store_core.answers.report import Verdict
from tests.builders import Record
from tests.life_logs import LifeLog, message_id, write_config

if TYPE_CHECKING:
    from pathlib import Path


LIMITS = {"subscriptionGroupTable": {"billing": {"groupName": "billing", "retryMaxTimes": 16}}}


def told(root: Path, **options: Any) -> DeadLettersReport:  # noqa: ANN401 -- options
    return dead_letters(root, **options)


def column(report: DeadLettersReport, name: str) -> list[Any]:
    values: list[Any] = report.tables["letters"][name].to_pylist()
    return values


def test_letters_are_joined_to_their_first_messages(tmp_path: Path) -> None:
    log = LifeLog()
    log.send("before")
    sent = log.send("a", queue_id=2)
    log.dead(sent, "a", "billing", 17)
    report = told(log.write(tmp_path))

    assert (["here"], ["orders/2/0"]) == (column(report, "origin"), column(report, "origin_message"))
    assert [sent.physical_offset] == column(report, "origin_offset")
    assert (Verdict.FINDINGS, 1, 1) == (report.verdict, report.found.letters, report.found.here)
    assert "%DLQ%billing/0/0" in report.to_text(200)


@pytest.mark.parametrize("packed", [[0], [1], [0, 2]])
def test_letters_are_in_log_order_whichever_segments_are_compressed(packed: list[int], tmp_path: Path) -> None:
    log = LifeLog(1024)
    for number in range(12):
        log.dead(log.send(f"k{number}"), f"k{number}", "billing")
    root = log.write(tmp_path)
    expected = column(told(root), "physical_offset")
    segments = sorted((root / "commitlog").iterdir())
    for at in packed:
        segments[at].with_name(f"{segments[at].name}.gz").write_bytes(gzip.compress(segments[at].read_bytes()))
        segments[at].unlink()

    assert expected == sorted(expected) == column(told(root), "physical_offset")


def test_a_first_message_that_is_not_there_says_why(tmp_path: Path) -> None:
    log = LifeLog(start_offset=8192)
    other = log.send("other")
    log.dead(other, "other key", "billing")
    log.dead(Record(topic="orders", physical_offset=10), "deleted", "billing")
    log.dead(Record(topic="orders", physical_offset=8193), "inside", "billing")
    elsewhere = {"ORIGIN_MESSAGE_ID": message_id(other).replace("C0A80102", "0A000001")}
    log.dead(other, "elsewhere", "billing", 16, **elsewhere)
    log.dead(other, "odd", "billing", ORIGIN_MESSAGE_ID="none")
    log.append(b"-", topic="%DLQ%billing")

    assert ["missing", "deleted", "missing", "elsewhere", "unknown", "unknown"] == column(
        told(log.write(tmp_path)), "origin"
    )


def test_the_properties_of_release_5_name_the_first_message_as_well(tmp_path: Path) -> None:
    log = LifeLog()
    sent = log.send("a")
    origin = {"DLQ_ORIGIN_TOPIC": "orders", "DLQ_ORIGIN_MESSAGE_ID": message_id(sent), "UNIQ_KEY": "U-a"}
    log.append(b"-", topic="%DLQ%billing", properties=origin)
    report = told(log.write(tmp_path))

    assert (["here"], ["orders"]) == (column(report, "origin"), column(report, "origin_topic"))


def test_attempts_are_compared_with_what_the_group_allows(tmp_path: Path) -> None:
    log = LifeLog()
    sent = log.send("a")
    for key, group, attempts in (("a", "billing", 17), ("b", "billing", 3), ("c", "other", 17)):
        log.dead(sent, key, group, attempts)
    root = log.write(tmp_path)
    assert {"unknown"} == set(column(told(root), "why"))
    write_config(root, subscriptionGroup=LIMITS)
    report = told(root)

    assert ["exhausted", "early", "unknown"] == column(report, "why")
    assert (1, 1, 2) == (report.found.exhausted, report.found.early, report.found.groups)
    groups = {row["group"]: row for row in report.tables["groups"].to_pylist()}
    assert (2, 16, 3, 17) == tuple(
        groups["billing"][name] for name in ("letters", "retry_max_times", "least_failures", "most_failures")
    )


def test_a_letter_whose_store_time_no_table_holds_is_counted(tmp_path: Path) -> None:
    log = LifeLog()
    log.dead(log.send("a"), "a", "billing")
    log.send("b", "%DLQ%billing", store_timestamp=2**60, properties={"RETRY_TOPIC": "orders"})
    report = told(log.write(tmp_path))

    [group] = report.tables["groups"].to_pylist()
    [first, none] = column(report, "store_timestamp")
    assert (2, None) == (group["letters"], none)
    assert first == group["first_timestamp"] == group["last_timestamp"]


def test_groups_can_be_chosen_and_rows_cut(tmp_path: Path) -> None:
    log = LifeLog()
    sent = log.send("a")
    for group in ("one", "two", "two"):
        log.dead(sent, "a", group)
    root = log.write(tmp_path)

    assert (2, 1) == (
        told(root, group=("two",)).found.letters,
        told(root, group=("two",), rows=1).tables["letters"].num_rows,
    )
    assert "two" in told(root).to_html()
    assert Verdict.CLEAN is told(root, group=("none",)).verdict
