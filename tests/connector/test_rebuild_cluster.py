# SPDX-License-Identifier: Apache-2.0
"""Rebuilds by workers that are separate processes, some of which die."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.connector.cluster_rebuild import RULES
from tests.connector.rebuilding import rebuild_here
from tests.connector.submitting import SECONDS, environment
from tests.store_core.rebuilt import index_files, queue_files

if TYPE_CHECKING:
    from tests.golden_stores import Golden

pytestmark = [pytest.mark.golden, pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("cluster_rebuild.py")


def run(master: str, store: Path, scratch: Path, *accidents: str) -> str:
    command: list[str | Path] = [sys.executable, PROGRAM, master, store, scratch / "target", scratch, *accidents]
    done = subprocess.run(  # noqa: S603 -- our own program
        command, env=environment(), cwd=scratch, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert 0 == done.returncode, done.stderr[-4000:]
    return done.stdout


def test_the_result_is_the_same_when_an_executor_dies_and_a_task_fails_after_writing(
    golden: Golden, tmp_path: Path
) -> None:
    store = golden("5.3.3/propcrc")
    told = run("local-cluster[2,1,1024]", store.root, tmp_path, "kill", "fail", "speculate")

    assert "462 records" in told
    assert (tmp_path / "kill").exists()
    assert (tmp_path / "fail").exists()
    rebuild_here(store.root, tmp_path / "expected", RULES)
    assert queue_files(tmp_path / "expected") == queue_files(tmp_path / "target")
    assert index_files(tmp_path / "expected") == index_files(tmp_path / "target")
    assert {"consumequeue", "index"} == {path.name for path in (tmp_path / "target").iterdir()}
