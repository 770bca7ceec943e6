# SPDX-License-Identifier: Apache-2.0
"""The commands lag and retention end with 1 where an offset is wrong, and where unconsumed messages go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core.command.exit_code import ExitCode
from tests.store_core.command.calls import call
from tests.viewed_store import make_viewed_store, write_config

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def consumed(tmp_path: Path) -> Path:
    return make_viewed_store(tmp_path / "store")


def test_wrong_offsets_end_with_1_and_messages_are_listed(consumed: Path, tmp_path: Path) -> None:
    options = ["--group", "billing", "--messages", "--limit", 2, "--now", "2035-01-01T00:00:00Z"]
    called = call("lag", consumed, *options, "--json", "--html", tmp_path / "page")

    (report,) = called.rows
    assert ExitCode.FINDINGS == called.code
    assert ("commitlog-lag/1", 20) == (report["schema"], report["messages"])
    assert [10, 11] == [row["queue_offset"] for row in report["tables"]["messages"]]
    assert [["k30"], ["k33"]] == [row["keys"] for row in report["tables"]["messages"]]
    assert "Messages not consumed, by group" in (tmp_path / "page").read_text()


def test_to_be_behind_ends_with_0_and_ages_are_in_words(consumed: Path) -> None:
    write_config(consumed, "consumerOffset.json", '{"offsetTable":{"orders@billing":{0:10,1:30}}}')
    called = call("lag", consumed)

    assert ExitCode.DONE == called.code
    assert "20 messages of 2,400 bytes not consumed, by 1 group in 1 queue" in called.text
    assert "Queues of groups" in called.text


def test_an_earlier_time_is_said_with_what_can_be_known(consumed: Path) -> None:
    called = call("lag", consumed, "--topic", "orders", "--as-of", "2020-01-01", "--time-zone", "UTC")

    assert "no message is known to be left to consume as of 2020-01-01T00:00:00.000Z" in called.text
    assert "offsets of the past are not on disk" in " ".join(called.text.split())


@pytest.mark.parametrize(
    "options", [["--group", "nobody"], ["--topic", "nothing"], ["--as-of", "noon"], ["--as-of", "2024-05-01"]]
)
def test_what_is_not_there_is_wrong_usage(consumed: Path, options: list[str]) -> None:
    assert ExitCode.USAGE == call("lag", consumed, *options).code


def test_retention_ends_with_1_where_messages_go_that_nobody_consumed(consumed: Path, tmp_path: Path) -> None:
    now = ["--now", "2035-01-01T00:00:00Z", "--time-zone", "UTC", "--days", 3, "--disk-size", 10**9, "--disk-used", 1]
    called = call("retention", consumed, *now, "--daily-growth", 0, "--json", "--html", tmp_path / "page")

    (report,) = called.rows
    assert ExitCode.FINDINGS == called.code
    assert ("commitlog-retention/1", 2) == (report["schema"], report["deleted_segments"])
    assert "The disk at the end of each day" in (tmp_path / "page").read_text()
    kept = call("retention", consumed, *now, "--daily-growth", 0, "--file-reserved-time", 10**6)
    assert ExitCode.DONE == kept.code
    assert "no segment will go by 2035-01-04" in kept.text
    assert ExitCode.USAGE == call("retention", consumed, *now, "--delete-when", "noon").code
