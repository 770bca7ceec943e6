# SPDX-License-Identifier: Apache-2.0
"""Standard output that can't be written, which only a process of its own can have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from store_core.command.exit_code import ExitCode

MAIN = "import sys; from store_core.command.main import main; sys.exit(main())"
FULL = Path("/dev/full")
NO_SPACE = "commitlog: standard output can't be written: No space left on device. Free some space, and run this again\n"
CLOSED = "commitlog: standard output can't be written: it is closed. Open it for writing, as by > FILE, "

needs_full = pytest.mark.skipif(not FULL.exists(), reason="only Linux has a device that is full")


def ended(to: str, *words: object, unbuffered: bool = False) -> tuple[int, str]:
    """Run the program with a redirection of a shell, and return its exit code and what it said."""
    flags = ["-u"] if unbuffered else []
    program = [sys.executable, *flags, "-c", MAIN, *map(str, words)]
    shell = ["sh", "-c", f'"$@" {to}', "sh", *program]
    done = subprocess.run(shell, check=False, capture_output=True, text=True)  # noqa: S603 -- our own program
    assert not done.stdout
    return done.returncode, done.stderr


@needs_full
@pytest.mark.parametrize("form", ["table", "arrow", "parquet"])
def test_rows_that_can_not_be_written_are_a_failure_of_standard_output(store: Path, form: str) -> None:
    assert (ExitCode.FAILED, NO_SPACE) == ended(">/dev/full", "cat", store, "--format", form)


@needs_full
@pytest.mark.parametrize("words", [["count"], ["check", "--json"]])
def test_every_command_says_so(store: Path, words: list[str]) -> None:
    assert (ExitCode.FAILED, NO_SPACE) == ended(">/dev/full", *words, store)


@needs_full
def test_so_does_help() -> None:
    assert (ExitCode.FAILED, NO_SPACE) == ended(">/dev/full", "--help")


@needs_full
def test_a_stream_without_buffer_says_so_too(store: Path) -> None:
    assert (ExitCode.FAILED, NO_SPACE) == ended(">/dev/full", "cat", store, unbuffered=True)


@pytest.mark.parametrize("words", [["cat"], ["cat", "--format=arrow"], ["check"]])
def test_a_closed_one_is_a_failure(store: Path, words: list[str]) -> None:
    code, text = ended(">&-", *words, store)

    assert ExitCode.FAILED == code
    assert text.startswith(CLOSED)
    assert 1 == text.count("\n")


def test_a_closed_one_does_not_matter_to_who_writes_a_file(store: Path, tmp_path: Path) -> None:
    assert (ExitCode.DONE, "") == ended(">&-", "cat", store, "--output", tmp_path / "x.csv")
    assert 41 == len((tmp_path / "x.csv").read_text().splitlines())


def test_one_that_is_only_open_for_reading_is_a_failure(store: Path) -> None:
    code, text = ended("1</dev/null", "count", store)

    assert ExitCode.FAILED == code
    assert text.startswith("commitlog: standard output can't be written: Bad file descriptor. Open it for writing")
