# SPDX-License-Identifier: Apache-2.0
"""Whatever writer is killed or troubled, at any call: nothing told is lost or half there, and the next run works."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.store_core.kills.targets import TARGETS
from tests.store_core.kills.troubles import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence


pytestmark = pytest.mark.slow

_ROOT: Final = Path(__file__).parents[3]
_SEED: Final = 23
_KILLS: Final = 3
_SLICE: Final = ("put", "append-batch", "rebuild", "sink-stream", "config-files")
_ANSWERS: Final = ("repair", "redact", "export", "replay", "replay-new")


def run(kind: str, number: int, folder: Path, *words: str) -> list[dict[str, Any]]:
    """Run campaigns of kills or troubles in a process of their own."""
    command = [sys.executable, "-m", f"tests.store_core.kills.{kind}", str(number), str(_SEED), str(folder), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=_ROOT)  # noqa: S603 -- our own
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("names", [_SLICE, _ANSWERS], ids=["stores", "answers"])
def test_a_few_kills_of_some_writers_lose_nothing(names: Sequence[str], tmp_path: Path) -> None:
    done = run("targets", _KILLS, tmp_path, *names)

    assert list(names) == [each["target"] for each in done]
    assert all(each["killed"] == _KILLS and each["calls"] > 40 for each in done)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", TARGETS)
def test_a_thousand_kills_of_each_writer_lose_nothing(name: str, tmp_path: Path) -> None:
    (done,) = run("targets", 1000, tmp_path, name)

    assert done["killed"] == 1000


def test_a_process_dies_at_the_call_that_was_chosen(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from tests.store_core.kills.campaign import Fate\n"
        "folder, last = Path(sys.argv[1]), int(sys.argv[2])\n"
        "fate = Fate(folder, last); fate.watch()\n"
        "file = os.open(folder / 'f', os.O_CREAT | os.O_RDWR)\n"
        "os.pwrite(file, b'x' * 1000, 0); os.fsync(file); os.rename(folder / 'f', folder / 'g')\n"
        "print(fate.calls)\n"
    )

    def died(last: int) -> tuple[str, dict[str, int]]:
        folder = tmp_path / str(last)
        folder.mkdir()
        command = [sys.executable, "-c", script, str(folder), str(last)]
        told = subprocess.run(command, capture_output=True, text=True, check=False, cwd=_ROOT).stdout  # noqa: S603 -- our own
        return told, {path.name: path.stat().st_size for path in folder.iterdir()}

    assert ("4\n", {"g": 1000}) == died(0)
    assert ("", {}) == died(1)
    told, left = died(2)
    assert told == ""
    assert left["f"] in (0, 1000)
    assert ("", {"f": 1000}) == died(3)
    assert ("", {"f": 1000}) == died(4)


_TROUBLED: Final = ("put", "sink-stream")
_NEVER_REFUSED: Final = ("short", "signals", "clock")


def check_ends(ends: list[dict[str, Any]], runs: int) -> None:
    """Check that all went well, and that troubles were troubles where a writer can't go on."""
    assert [] == [each["failed"] for each in ends if "failed" in each]
    assert {runs} == {sum(each.get(end, 0) for end in ("done", "refused", "replaced")) for each in ends}
    assert {runs} == {each["done"] for each in ends if each["kind"] in _NEVER_REFUSED}
    assert {runs} == {each["refused"] for each in ends if each["kind"] == "read-only"}


def test_some_writers_bear_a_trouble_of_each_kind(tmp_path: Path) -> None:
    ends = run("troubles", 1, tmp_path, ",".join(KINDS), ",".join(_TROUBLED))

    assert [(name, kind) for name in _TROUBLED for kind in KINDS] == [(each["target"], each["kind"]) for each in ends]
    check_ends(ends, 1)
    assert any("refused" in each for each in ends if each["kind"] == "errors")


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", TARGETS)
def test_each_writer_bears_many_troubles(name: str, tmp_path: Path) -> None:
    check_ends(run("troubles", 100, tmp_path, ",".join(KINDS), name), 100)
