# SPDX-License-Identifier: Apache-2.0
"""The command repair plans by default, and does only what a plan says."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from store_core import DefaultMessageStore, Message, MessageStoreConfig
from store_core.command.exit_code import ExitCode
from store_core.files.file_system import OsFileSystem
from store_core.files.store_lock import StoreLock
from tests.store_core.command.calls import call

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def broken(tmp_path: Path, config: Path) -> Path:
    root = tmp_path / "broken"
    with DefaultMessageStore.open(root, MessageStoreConfig.from_properties(config)) as store:
        for number in range(30):
            store.put_message(Message("orders", b"body-%d" % number, queue_id=number % 2, keys=f"k-{number}"))
    shutil.rmtree(root / "consumequeue" / "orders" / "1")
    return root


def test_a_plan_in_a_file_is_carried_out_and_then_nothing_is_left_to_do(
    broken: Path, config: Path, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    planned = call("repair", broken, "--config", config, "--plan", plan, "--json")
    applied = call("repair", broken, "--apply", plan)

    assert planned.rows == [json.loads(plan.read_text())]
    assert ExitCode.DONE == applied.code
    assert "made what was missing in 1 place: there are no old files to keep" in applied.lines
    assert ExitCode.DONE == call("check", broken, "--config", config).code
    again = call("repair", broken, "--apply", plan)
    assert (ExitCode.DONE, True) == (again.code, "queues and index are right: nothing was replaced" in again.lines)


def test_a_plan_that_does_not_fit_and_a_held_store_are_refused(broken: Path, config: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    call("repair", broken, "--config", config, "--plan", plan)
    with StoreLock(broken, OsFileSystem()):
        assert ExitCode.REFUSED == call("repair", broken, "--apply", plan).code
    shutil.rmtree(broken / "consumequeue" / "orders" / "0")
    called = call("repair", broken, "--apply", plan)

    assert ExitCode.REFUSED == called.code
    assert "another state of the store: consumequeue/orders/0" in called.errors


@pytest.mark.parametrize(
    "options", [["--release", "5.3"], ["--config", "x"], ["--index-num", "9"], ["--plan", "other.json"]]
)
def test_a_plan_is_applied_as_it_is(options: list[str], broken: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text("{}")

    assert ExitCode.USAGE == call("repair", broken, "--apply", plan, *options).code


def test_a_file_that_exists_is_not_overwritten_by_a_plan(broken: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text("mine")

    assert ExitCode.USAGE == call("repair", broken, "--plan", plan).code
    assert "mine" == plan.read_text()
