# SPDX-License-Identifier: Apache-2.0
"""The commands bill and producers end with 5 where damage is not counted, and with 1 where there are findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.command.console import Console
from store_core.command.exit_code import ExitCode
from tests.builders import SIZE_AT, LogBuilder, Record
from tests.store_core.command.calls import call

if TYPE_CHECKING:
    from pathlib import Path


def test_a_bill_is_printed_as_text_and_json(store: Path, tmp_path: Path) -> None:
    called = call("bill", store, "--top", 1, "--json", "--html", tmp_path / "page")

    (report,) = called.rows
    assert ExitCode.DONE == called.code
    assert ("commitlog-bill/1", 40) == (report["schema"], report["messages"])
    assert "Bytes by topic" in (tmp_path / "page").read_text()
    assert "40 messages of" in call("bill", store).text


def test_damage_ends_with_5_and_nothing_to_read_with_2(log: LogBuilder, tmp_path: Path) -> None:
    log.flip(log.records[2].physical_offset + SIZE_AT, 1)

    assert ExitCode.DAMAGED == call("bill", log.write(tmp_path / "store")).code
    assert ExitCode.USAGE == call("bill", tmp_path / "none").code


def test_a_missing_segment_ends_with_5_and_is_told_in_the_command_s_words(log: LogBuilder, tmp_path: Path) -> None:
    store, page = log.write(tmp_path / "store"), tmp_path / "page"
    sorted((store / "commitlog").iterdir())[1].unlink()
    called = call("bill", store, "--html", page)

    assert ExitCode.DAMAGED == called.code
    for text in (called.text, page.read_text()):
        assert "is missing" in text
        assert "fail_on_data_loss" not in text
    assert ExitCode.DAMAGED == call("producers", store).code


def test_producers_who_sent_a_message_twice_are_a_finding(log: LogBuilder, store: Path, tmp_path: Path) -> None:
    assert ExitCode.DONE == call("producers", store).code
    log.append_all(b"one", b"two", properties={"UNIQ_KEY": "K1"})
    called = call("producers", log.write(tmp_path / "twice"), "--json")

    assert (ExitCode.FINDINGS, 1) == (called.code, called.rows[0]["duplicate_keys"])


def test_tables_are_narrowed_on_a_terminal_and_by_columns_only(tmp_path: Path) -> None:
    log, topic = LogBuilder(), "orders-" * 18
    log.append(Record(b"one", topic))
    store = log.write(tmp_path / "named")
    wide = call("bill", store).text
    narrow = [call("bill", store, around=around).text for around in (Console(width=80), Console(columns=80))]

    assert narrow[0] == narrow[1]
    assert topic in narrow[0]
    assert f"topic           {topic}" not in wide
    assert max(map(len, wide.splitlines())) > max(map(len, narrow[0].splitlines()))
