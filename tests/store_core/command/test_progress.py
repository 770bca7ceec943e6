# SPDX-License-Identifier: Apache-2.0
"""Commands show on a terminal how far they are, and leave nothing behind when they are interrupted."""

from __future__ import annotations

import io
import multiprocessing
import os
import pty
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest

from store_core.command.console import Console, PartsProgress, say
from store_core.store.parts import PartsDone, Step
from tests.builders import LogBuilder
from tests.store_core.answers.test_golden_json import life_store
from tests.store_core.command.calls import call
from tests.store_core.command.test_matrix import REPORTS, WITHOUT_PARTS, typed
from tests.store_core.fakes import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

INTERRUPTED = 130
ERASE = "\x1b[2K"
MAIN = "import sys; from store_core.command.main import main; sys.exit(main())"


class SharedTerminal(io.StringIO):
    """A terminal that has standard output, too."""

    def write(self, text: str) -> int:
        sys.stdout.flush()
        return sys.stdout.write(text)

    def flush(self) -> None:
        sys.stdout.flush()


class Interrupted(io.StringIO):
    """A terminal at which somebody types ^C when the first part is done."""

    def write(self, text: str) -> int:
        if "parts" in text:
            raise KeyboardInterrupt
        return super().write(text)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    log = LogBuilder()
    log.append_all(*(b"body %d" % number for number in range(300)))
    return log.write(tmp_path / "store")


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return life_store(tmp_path_factory.mktemp("life"))


def test_a_line_says_what_is_done_and_what_is_left_and_disappears() -> None:
    clock, terminal = FakeClock(), io.StringIO()
    shown = []
    with PartsProgress("check", terminal, clock) as progress:
        for step, done in ((Step.RUN, 1), (Step.RUN, 2), (Step.GATHER, 1), (Step.GATHER, 2)):
            clock.advance(3)
            progress(PartsDone(step, done, 2))
            shown.append(terminal.getvalue().rpartition("\r")[2])

    assert [
        "check: reading, 1 of 2 parts, 3 s left",
        "check: reading, 2 of 2 parts",
        "check: comparing, 1 of 2 parts, 3 s left",
        "check: comparing, 2 of 2 parts",
    ] == shown
    assert not terminal.getvalue().rpartition("\r")[2]
    assert terminal.getvalue().split("\r")[-2].endswith(ERASE)


def test_a_report_does_not_depend_on_the_terminal(store: Path) -> None:
    terminal = io.StringIO()

    assert call("check", store).text == call("check", store, around=Console(progress=terminal)).text
    assert "check: reading, 1 of " in terminal.getvalue()


def lines_seen(written: str) -> list[str]:
    """Return what a terminal shows after characters: the line is erased, and a carriage return goes to its begin."""
    lines = []
    for line in written.replace("\r\n", "\n").split("\n"):
        shown = ""
        for text in line.split("\r"):
            shown = "" if text.endswith(ERASE) else text + shown[len(text) :]
        lines.append(shown.rstrip())
    return lines


@pytest.mark.parametrize("command", sorted(set(REPORTS) - WITHOUT_PARTS))
def test_the_line_is_gone_when_the_report_begins(command: str, life: Path, tmp_path: Path) -> None:
    alone = call(*typed(command, life, tmp_path / "one"))
    shared = call(*typed(command, life, tmp_path / "two"), around=Console(progress=SharedTerminal()))

    assert f"{command}: reading" in shared.text
    assert [*map(str.rstrip, alone.text.replace("/one", "/two").split("\n"))] == lines_seen(shared.text)


def test_a_warning_does_not_run_into_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    with PartsProgress("check", terminal, FakeClock()) as progress:
        say("something odd")
        progress(PartsDone(Step.RUN, 1, 2))

    assert ["commitlog: something odd", ""] == lines_seen(terminal.getvalue())


@pytest.mark.parametrize("command", ["producers", "bill"])
def test_a_real_terminal_shows_the_report_alone(command: str, store: Path) -> None:
    shows, is_terminal = pty.openpty()
    program = [sys.executable, "-c", MAIN, command, str(store)]
    done = subprocess.run(program, check=False, stdout=is_terminal, stderr=is_terminal)  # noqa: S603 -- our own program
    os.close(is_terminal)
    seen = lines_seen(os.read(shows, 1 << 16).decode())
    os.close(shows)

    assert 0 == done.returncode
    assert not [line for line in seen if "reading" in line]


@pytest.mark.parametrize("command", ["check", "salvage", "diff"])
@pytest.mark.parametrize("processes", [1, 2])
def test_what_is_interrupted_leaves_nothing_behind(
    command: str, processes: int, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    more: dict[str, list[object]] = {"salvage": ["--into", tmp_path / "new"], "diff": [store], "check": []}
    terminal = Interrupted()
    page = ["--html", tmp_path / "page", "--processes", processes]
    ended = call(command, store, *more[command], *page, around=Console(progress=terminal))

    assert (INTERRUPTED, "") == (ended.code, ended.text)
    assert {"store", "scratch"} == {path.name for path in tmp_path.iterdir()}
    assert not [*scratch.iterdir()]
    assert not multiprocessing.active_children()
    assert not terminal.getvalue().rpartition("\r")[2].strip()
