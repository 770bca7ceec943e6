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


def test_delays_ends_with_1_once_messages_are_late(tmp_path: Path) -> None:
    log = LifeLog()
    log.delayed("a", 3)
    store = log.write(tmp_path / "store")

    assert ExitCode.DONE == call("delays", store, "--at", BEGIN).code
    late = call("delays", store, "--at", BEGIN + 100_000, "--late-after", 30, "--html", tmp_path / "delays.html")
    assert (ExitCode.FINDINGS, True) == (late.code, "1 are overdue" in late.text)
    assert "delays" in (tmp_path / "delays.html").read_text()
    assert ExitCode.USAGE == call("delays", store, "--at", "soon").code
