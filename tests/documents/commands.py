# SPDX-License-Identifier: Apache-2.0
"""Runs the command lines of the documents, with the test's Spark session where they need one."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyspark
from click.testing import CliRunner

from pyspark_commitlog.command import main
from store_core.command.console import Console
from store_core.command.program import program
from tests.connector.called import append, rebuild_consume_queue, rebuild_index
from tests.documents.blocks import ROOT
from tests.short_lived import sample_demo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.documents.runners import World


# Command lines that are not run as written: how they begin, how they are checked, and why.
EXCEPTIONS: Final = (
    ("make venv", "target", "changes the environment that the tests run in"),
    ("make demo", "demo", "the program behind it is run, without the step that brings the environment up to date"),
    ("make", "target", "checks and benchmarks: the tests would run themselves, or for minutes"),
    ("SPARK_CONF_DIR=spark-conf spark-submit", "submit", "as below"),
    ("spark-submit --packages", "none", "needs jars and a Spark that they are built for; tests/interop has both"),
    ("spark-submit", "submit", "the job runs in the tests' session; a submitted one is in tests/connector"),
    ("python3 -m venv", "none", "an environment for the reader's shell; the tests have theirs"),
    (
        "pip install",
        "install",
        "changes the environment that the tests run in; a wheel is installed by tools/check_wheel.py",
    ),
    (
        'eval "$(_COMMITLOG_COMPLETE=bash_source commitlog)"',
        "none",
        "is for the reader's shell; tests/store_core/command completes words",
    ),
    (".venv/bin/python -m", "none", "a campaign, for minutes; a part of each is among the tests"),
    (
        'rm "$(python -c',
        "none",
        "changes the installed PySpark; tools/make_venv.sh has done so in the tests' environment",
    ),
    ("venv-pack", "none", "no part of the project; it is the packer that Spark's own guide names"),
)

_JOBS: Final[dict[str, Callable[[Sequence[str]], int]]] = {
    "pyspark-commitlog-rebuild-consume-queue.py": rebuild_consume_queue,
    "append.py": append,
    "commitlog.py": main,
    "rebuild_consume_queue.py": rebuild_consume_queue,
    "rebuild_index.py": rebuild_index,
}
_SYSTEM: Final = ("tar", "cp", "rm", "ls", "mkdir", "du", "cat", "python")
"""Programs that are run as written, only in the test's directory."""

_EXIT_CODE: Final = re.compile(r"# exit code (\d)")
_COMMENT: Final = re.compile(r"(^|\s)#.*$")
_SWITCHES: Final = ("--help", "--verbose", "--version", "--supervise")
"""Options of spark-submit that take no value."""

_SECONDS: Final = 240


def commands_of(text: str) -> list[str]:
    """Split a block into command lines: a backslash continues a line, and comment lines are left out."""
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def exception_for(command: str) -> tuple[str, str, str] | None:
    """Return the exception that applies to a command line."""
    return next((entry for entry in EXCEPTIONS if command == entry[0] or command.startswith(f"{entry[0]} ")), None)


def run_command(command: str, world: World) -> None:
    """Run a command line, or check it as its exception says; it ends by code 0 unless a comment names another."""
    exception = exception_for(command)
    if exception is not None:
        _CHECKS[exception[1]](command, world)
        return
    code = _EXIT_CODE.search(command)
    words = _words(world.inside(command))
    with world.listening():
        found = _run(words, world)
    assert found == (int(code[1]) if code else 0), f"{command}\nexit code {found}\n{world.printed}"


def _words(command: str) -> list[str]:
    """Split a command line as a shell does, without its comment."""
    return shlex.split(_COMMENT.sub("", command))


def _run(words: list[str], world: World) -> int:
    name, *arguments = words
    if name == "commitlog":
        return _run_commitlog(arguments)
    if name in _JOBS:
        return _run_job(name, arguments)
    if name not in _SYSTEM:
        raise AssertionError(f"{name} is no program that documents may run; see EXCEPTIONS")
    done = _run_process([name, *(_in_repository(word) for word in arguments)], world.directory)
    sys.stdout.write(done.stdout + done.stderr)
    return done.returncode


def _run_job(name: str, arguments: Sequence[str]) -> int:
    try:
        return int(_JOBS[name](arguments))
    except SystemExit as ended:  # as argparse does
        return int(ended.code or 0)


def _run_commitlog(arguments: Sequence[str]) -> int:
    """Run the program in this process, with standard output as a pipe."""
    ended = CliRunner().invoke(program, arguments, obj=Console(), prog_name="commitlog")
    sys.stdout.write(ended.output)
    return ended.exit_code


def _in_repository(word: str) -> str:
    """Resolve names of files in the repository; readers run commands in its root."""
    return str(ROOT / word) if not word.startswith(("-", "/", ".")) and ROOT.joinpath(word).exists() else word


def _run_process(words: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    program = sys.executable if words[0] == "python" else shutil.which(words[0]) or words[0]
    for word in words[1:]:
        absolute = Path(word).is_absolute()
        assert not absolute or Path(word).is_relative_to(directory) or Path(word).is_relative_to(ROOT), word
    return subprocess.run(  # noqa: S603 -- what the documents say, in a directory of the test's
        [program, *words[1:]], cwd=directory, capture_output=True, text=True, timeout=_SECONDS, check=False
    )


# --------------------------------------------------------------------------------------------------------- the checks


def _check_target(command: str, _world: World) -> None:
    """Check that `make -n` finds all targets."""
    words = [word for word in _words(command)[1:] if not word.startswith(("STORE=", "BENCH_ARGS="))]
    done = _run_process(["make", "-n", "-C", str(ROOT), *words], ROOT)
    assert 0 == done.returncode, done.stderr


def _check_demo(command: str, world: World) -> None:
    """Show the store with the program that `make demo` starts."""
    _check_target(command, world)
    words = _words(world.inside(command))[2:]
    stores = tuple(word.removeprefix("STORE=") for word in words)
    store = stores[0] if stores and not stores[0].endswith("/path") else ""
    world.printed = world.outside(_demo(store))


@cache
def _demo(store: str) -> str:
    words = ["python", "-m", "pyspark_commitlog.demo", store]
    done = _run_process(words, Path(store)) if store else sample_demo()
    assert 0 == done.returncode, done.stderr
    return done.stdout


def _check_submit(command: str, world: World) -> None:
    """Check that Spark knows the options, and run the job in the tests' session."""
    words = _words(world.inside(command))
    words = words[words.index("spark-submit") + 1 :]
    taking = _submit_options()
    while words[0].startswith("--"):
        assert words[0] in taking, f"spark-submit does not know {words[0]}"
        words = words[2:] if taking[words[0]] else words[1:]
    program, *arguments = words
    name = program.rpartition("/")[2]
    assert name in _JOBS, program
    assert ROOT.joinpath("jobs", name).exists() or name in _installed_jobs(), program
    with world.listening():
        code = _run_job(name, arguments)
    assert 0 == code, world.printed


@cache
def _submit_options() -> dict[str, bool]:
    """Return the options of spark-submit, from its own help, and whether each takes a value."""
    program = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    done = subprocess.run([program, "--help"], capture_output=True, text=True, check=False)  # noqa: S603 -- Spark's own
    names = re.findall(r"^ +(--[a-z-]+)", done.stderr + done.stdout, re.MULTILINE)
    assert names, done.stderr
    return {name: name not in _SWITCHES for name in names}


def _check_install(command: str, _world: World) -> None:
    """Check that installs from this repository name its directory and existing extras."""
    for word in (word for word in _words(command)[2:] if word.startswith(".")):
        path, _, extras = word.rstrip("]").partition("[")
        assert path == ".", word
        assert set(filter(None, extras.split(","))) <= _pyproject()["project"]["optional-dependencies"].keys(), word


def _installed_jobs() -> set[str]:
    """Return the names under which the wheel installs the jobs."""
    return set(_pyproject()["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-scripts"].values())


@cache
def _pyproject() -> dict[str, Any]:
    return tomllib.loads(ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8"))


def _check_nothing(_command: str, _world: World) -> None:
    """Do nothing: this can't be checked here."""


_CHECKS: Final = {
    "target": _check_target,
    "demo": _check_demo,
    "submit": _check_submit,
    "install": _check_install,
    "none": _check_nothing,
}
