# SPDX-License-Identifier: Apache-2.0
"""The runner of the checks: some at a time, with each one's output as a whole; and the budgets of property tests."""

from __future__ import annotations

import sys
import tempfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.budgets import budget
from tools import run_checks

if TYPE_CHECKING:
    from pathlib import Path


def program(source: str) -> list[str]:
    return [sys.executable, "-c", source]


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Provide three checks: one that passes, one that fails and writes to both streams, one that ends by a signal."""
    told = "import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(3)"
    ended = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    monkeypatch.setattr(
        run_checks, "CHECKS", {"good": program("print('fine')"), "bad": program(told), "killed": program(ended)}
    )


@pytest.mark.usefixtures("checks")
def test_every_check_runs_and_one_that_fails_makes_the_whole_fail(capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == run_checks.main([])

    shown = capsys.readouterr().out
    assert "==> good\nfine\n==> good      passed" in shown
    assert "==> bad\nout\nerr\n==> bad       FAILED" in shown
    summary = shown.partition("==> summary\n")[2].splitlines()
    assert ["good passed", "bad FAILED", "killed FAILED"] == [" ".join(line.split()[:2]) for line in summary[:3]]


@pytest.mark.usefixtures("checks")
def test_named_checks_alone_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == run_checks.main(["good"])
    assert "bad" not in capsys.readouterr().out


@pytest.mark.usefixtures("checks")
def test_a_name_that_is_none_is_told_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == run_checks.main(["good", "godo"])

    told = capsys.readouterr()
    assert ("", True) == (told.out, told.err.startswith("no such check: godo; there are good, bad, killed, quick"))


@pytest.mark.usefixtures("checks")
def test_two_checks_run_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for the file that the other one makes."""
    waits = (
        "import pathlib, sys; me, other = map(pathlib.Path, sys.argv[1:]); me.touch()\nwhile not other.exists(): pass"
    )
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    both = {"one": [*program(waits), one, two], "two": [*program(waits), two, one]}
    monkeypatch.setattr(run_checks, "CHECKS", both)

    assert 0 == run_checks.main([])


@pytest.mark.usefixtures("checks")
def test_progress_is_reported_while_nothing_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check ends when the file is made, and the file is made when its progress was reported."""
    waits = "import pathlib, sys\nprint('.. [  7%]', flush=True)\nwhile not pathlib.Path(sys.argv[1]).exists(): pass"
    monkeypatch.setattr(run_checks, "CHECKS", {"slow": [*program(waits), str(tmp_path / "end")]})
    reported = []

    for outcome in run_checks.outcomes(["slow"], seconds=0.01):
        reported.append(outcome if isinstance(outcome, str) else outcome.name)
        if outcome == "slow: 7 %":
            (tmp_path / "end").touch()

    assert "slow: 7 %" in reported
    assert reported[-1] == "slow"


def test_each_check_has_a_directory_of_files_that_goes_with_it_and_some_have_it_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two runs of pytest in one directory remove the files of older ones at the same time, and one fails by it."""
    assert {*run_checks.IN_MEMORY} <= {*run_checks.CHECKS}
    makes = {"makes": program("import tempfile; print(tempfile.mkdtemp(), end='')")}
    for name, value in {"CHECKS": makes, "IN_MEMORY": makes, "MEMORY": tmp_path, "ROOM": 0}.items():
        monkeypatch.setattr(run_checks, name, value)
    monkeypatch.delitem(run_checks.ENVIRONMENT, "TMPDIR", raising=False)

    assert 0 == run_checks.main([])
    assert f"==> makes\n{tmp_path}/makes-" in capsys.readouterr().out
    assert [] == [*tmp_path.iterdir()]
    assert (tmp_path, None) == (run_checks.place_of_files("makes"), run_checks.place_of_files("others"))
    monkeypatch.setattr(run_checks, "ROOM", 1 << 60)
    assert run_checks.place_of_files("makes") is None
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert 0 == run_checks.main(["makes"])
    assert f"==> makes\n{tmp_path}/makes-" in capsys.readouterr().out
    assert [] == [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("text", "progress"),
    [("", "started"), ("one\ntwo\n", "two"), ("... [  3%]\n.... [ 12%]\n...", "12 %"), ("x" * 99, "x" * 60)],
)
def test_progress_is_the_last_percentage_or_the_last_line(text: str, progress: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(text)

    assert progress == run_checks.progress_of(tmp_path / "log")


def test_a_share_is_of_the_profile_s_budget() -> None:
    assert round(settings().max_examples * 2.5) == budget(2.5).max_examples
    assert 5 == budget(0).max_examples
    assert settings().derandomize is budget(1).derandomize
