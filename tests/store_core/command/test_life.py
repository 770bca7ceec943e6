# SPDX-License-Identifier: Apache-2.0
"""The commands that tell what became of messages end with 1 where something is stuck."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.command.exit_code import ExitCode
from tests.life_logs import BEGIN, LifeLog
from tests.store_core.command.calls import call

if TYPE_CHECKING:
    from pathlib import Path


def test_transactions_ends_with_1_once_one_is_pending_for_too_long(tmp_path: Path) -> None:
    log = LifeLog()
    log.half("a")
    store = log.write(tmp_path)

    assert ExitCode.DONE == call("transactions", store, "--at", BEGIN).code
    late = call("transactions", store, "--at", "2024-01-01T00:00:00Z", "--older-than", 3600, "--json")
    (report,) = late.rows
    assert (ExitCode.FINDINGS, "commitlog-transactions/1", 1) == (late.code, report["schema"], report["old_pending"])
    assert ExitCode.USAGE == call("transactions", tmp_path / "nothing").code


def test_trace_ends_with_1_for_a_dead_letter_and_with_2_for_nothing(tmp_path: Path) -> None:
    log = LifeLog()
    log.dead(log.send("a"), "a", "billing")
    log.send("b")
    store = log.write(tmp_path)
    dead = call("trace", store, "a", "--json")

    assert (ExitCode.FINDINGS, "commitlog-trace/1", 2) == (dead.code, dead.rows[0]["schema"], dead.rows[0]["records"])
    assert ExitCode.DONE == call("trace", store, "b", "--as", "key").code
    assert ExitCode.USAGE == call("trace", store, "c").code


def test_deadletters_ends_with_1_if_there_are_any(tmp_path: Path) -> None:
    log = LifeLog()
    log.dead(log.send("a"), "a", "billing")
    store = log.write(tmp_path)
    found = call("deadletters", store, "--json")

    assert (ExitCode.FINDINGS, "commitlog-deadletters/1", 1) == (
        found.code,
        found.rows[0]["schema"],
        found.rows[0]["here"],
    )
    assert ExitCode.DONE == call("deadletters", store, "--group", "none").code


def test_replay_appends_what_filters_choose_once(tmp_path: Path) -> None:
    log = LifeLog()
    log.dead(log.send("a"), "a", "billing")
    store, words = log.write(tmp_path / "store"), ("--topic", "%DLQ%billing", "--id", "T-1", "--into", tmp_path / "new")
    dry = call("replay", store, *words, "--dry-run")
    done, again = (call("replay", store, *words, "--json") for _ in range(2))

    assert (ExitCode.DONE, True) == (dry.code, "1 message of" in dry.text)
    assert [(1, False), (1, True)] == [
        (found.rows[0]["messages"], found.rows[0]["is_repeat"]) for found in (done, again)
    ]
    assert ExitCode.USAGE == call("replay", store, "--id", "").code


def test_delays_ends_with_1_once_messages_are_late(tmp_path: Path) -> None:
    log = LifeLog()
    log.delayed("a", 3)
    store = log.write(tmp_path / "store")

    assert ExitCode.DONE == call("delays", store, "--at", BEGIN).code
    late = call("delays", store, "--at", BEGIN + 100_000, "--late-after", 30, "--html", tmp_path / "delays.html")
    assert (ExitCode.FINDINGS, True) == (late.code, "1 is overdue" in late.text)
    assert "delays" in (tmp_path / "delays.html").read_text()
    assert ExitCode.USAGE == call("delays", store, "--at", "soon").code
