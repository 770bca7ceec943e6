# SPDX-License-Identifier: Apache-2.0
"""The command recover shows what a start would do, and changes nothing."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from store_core import DefaultMessageStore, Message, MessageStoreConfig
from store_core.command.exit_code import ExitCode
from store_core.format.releases.release import RELEASES
from tests.store_core.command.calls import call

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def closed(tmp_path: Path, config: Path) -> Path:
    """Make a store that was closed cleanly."""
    root = tmp_path / "closed"
    with DefaultMessageStore.open(root, MessageStoreConfig.from_properties(config)) as store:
        for number in range(5):
            store.put_message(Message("orders", b"body-%d" % number))
    return root


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_a_store_that_was_closed_needs_nothing(closed: Path, config: Path) -> None:
    before = contents(closed)

    called = call("recover", closed, "--dry-run", "--config", config)

    assert ExitCode.DONE == called.code
    assert called.text.startswith("RocketMQ 5.3: the store was closed\n")
    assert before == contents(closed)


def test_a_store_that_was_not_closed_is_a_finding_and_stays_as_it_is(closed: Path, config: Path) -> None:
    (closed / "abort").write_bytes(b"")
    shutil.rmtree(closed / "consumequeue")
    before = contents(closed)

    called = call("recover", closed, "--dry-run", "--config", config, "--json")

    (report,) = called.rows
    assert ExitCode.FINDINGS == called.code
    assert ("commitlog-recover/1", False, None) == (report["schema"], report["was_closed"], report["refusal"])
    assert report["changes"]
    assert before == contents(closed)


def test_all_releases_are_shown_one_after_the_other(closed: Path, config: Path) -> None:
    called = call("recover", closed, "--dry-run", "--config", config, "--release=all", "--json")

    assert list(RELEASES) == [json.loads(line)["release"] for line in called.lines]


def test_without_dry_run_it_is_wrong_usage(closed: Path) -> None:
    called = call("recover", closed)

    assert ExitCode.USAGE == called.code
    assert "--dry-run" in called.errors


def test_a_missing_store_is_wrong_usage(tmp_path: Path) -> None:
    assert ExitCode.USAGE == call("recover", tmp_path / "none", "--dry-run").code
