# SPDX-License-Identifier: Apache-2.0
"""The command recover shows what a start would do, and changes nothing."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest

from store_core import DefaultMessageStore, Message, MessageStoreConfig
from store_core.answers.store_recover import MOST_MESSAGES
from store_core.command.exit_code import ExitCode
from store_core.format.release import RELEASES
from tests.builders import LogBuilder
from tests.store_core.command.calls import call

if TYPE_CHECKING:
    from pathlib import Path

MESSAGES = 150


@pytest.fixture
def closed(tmp_path: Path, config: Path) -> Path:
    """Make a store that was closed cleanly."""
    root = tmp_path / "closed"
    with DefaultMessageStore.open(root, MessageStoreConfig.from_properties(config)) as store:
        for number in range(5):
            store.put_message(Message("orders", b"body-%d" % number))
    return root


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    """Make a crashed store whose second record has another magic code: the log ends before it."""
    log = LogBuilder()
    for number in range(MESSAGES + 1):
        log.append(b"body", properties=b"KEYS\x01key-%d\x02" % (number - 1))
    log.patch(log.records[1].physical_offset + 4, b"\0\0\0\0")
    root = log.write(tmp_path / "torn")
    (root / "abort").touch()
    return root


def test_a_dry_run_says_first_that_nothing_was_changed_if_something_would(closed: Path, config: Path) -> None:
    told = "nothing was changed: opening the store for writing would do this"
    whole = call("recover", closed, "--dry-run", "--config", config).lines
    shutil.rmtree(closed / "consumequeue")
    lines = call("recover", closed, "--dry-run", "--config", config).lines

    assert told not in whole
    assert told in lines[2:4]
    assert any(line.startswith("would create") for line in lines)


def test_messages_that_would_be_truncated_are_listed(torn: Path, config: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = ("recover", torn, "--dry-run", "--config", config)
    (few,) = call(*words, "--json", "--html", page).rows
    (everything,) = call(*words, "--json", "--messages").rows

    assert MESSAGES - 1 == few["truncated_messages"] == everything["truncated_messages"]
    assert MOST_MESSAGES == len(few["tables"]["messages"])
    assert [f"key-{number}" for number in range(1, MESSAGES)] == [
        row["keys"][0] for row in everything["tables"]["messages"]
    ]
    assert f"{MESSAGES - 1} sound messages would be truncated" in page.read_text()
    assert any(line.endswith("more, which the JSON has") for line in call(*words).lines)
    assert MESSAGES - 1 == sum("key-" in line for line in call(*words, "--messages").lines)


def test_a_message_says_which_releases_truncate_it(torn: Path, config: Path) -> None:
    (report,) = call("recover", torn, "--dry-run", "--config", config, "--json", "--release=all").rows
    tables = report["tables"]
    counts = {row["release"]: row["truncated_messages"] for row in tables["releases"]}

    assert MESSAGES - 1 == max(counts.values())
    for row in tables["messages"]:
        ends = {each["release"]: each["log_end"] for each in tables["releases"]}
        assert [name for name in RELEASES if row["physical_offset"] >= ends[name]] == row["truncated_by"]


def test_without_dry_run_it_is_wrong_usage(closed: Path) -> None:
    called = call("recover", closed)

    assert ExitCode.USAGE == called.code
    assert "recover never changes a store: it shows what a broker's start would" in called.errors
    assert "--dry-run" in called.errors


def test_a_dry_run_speaks_in_the_conditional_and_of_times_that_people_read(torn: Path, config: Path) -> None:
    text = call("recover", torn, "--dry-run", "--config", config).text
    done = ("deleted", "written", "removed", "created", "truncated", "ended", "cut", "indexed", "dispatched")

    assert "would end the log" in text
    assert "would write" in text
    assert not [line for line in text.splitlines() if line.startswith(done)]
    assert not re.search(r"\b1[67][0-9]{11}\b", text)
