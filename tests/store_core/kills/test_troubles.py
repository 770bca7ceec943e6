# SPDX-License-Identifier: Apache-2.0
"""Whatever the system does to a writer, it says so or goes on: nothing acknowledged is lost, and the next run works."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.store_core.kills.targets import TARGETS
from tests.store_core.kills.trouble import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = pytest.mark.slow

_ROOT: Final = Path(__file__).parents[3]
_SEED: Final = 23
_SLICE: Final = ("put", "sink-stream")
_NEVER_REFUSED: Final = ("short", "signals", "clock")


def run(names: Iterable[str], runs: int, folder: Path) -> list[dict[str, Any]]:
    """Run campaigns in a process of their own."""
    command = [sys.executable, "-m", "tests.store_core.kills.troubles", str(runs), str(_SEED), str(folder)]
    command += [",".join(KINDS), ",".join(names)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=_ROOT)  # noqa: S603 -- our own
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_ends(ends: list[dict[str, Any]], runs: int) -> None:
    """Check that all went well, and that troubles were troubles where a writer can't go on."""
    assert [] == [each["failed"] for each in ends if "failed" in each]
    assert {runs} == {sum(each.get(end, 0) for end in ("done", "refused", "replaced")) for each in ends}
    assert {runs} == {each["done"] for each in ends if each["kind"] in _NEVER_REFUSED}
    assert {runs} == {each["refused"] for each in ends if each["kind"] == "read-only"}


def test_some_writers_bear_a_trouble_of_each_kind(tmp_path: Path) -> None:
    ends = run(_SLICE, 1, tmp_path)

    assert [(name, kind) for name in _SLICE for kind in KINDS] == [(each["target"], each["kind"]) for each in ends]
    check_ends(ends, 1)
    assert any("refused" in each for each in ends if each["kind"] == "errors")


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", TARGETS)
def test_each_writer_bears_many_troubles(name: str, tmp_path: Path) -> None:
    check_ends(run([name], 100, tmp_path), 100)
