# SPDX-License-Identifier: Apache-2.0
"""The program: help, completion, exit codes, what it imports, and how it ends when nobody reads."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from store_core import __version__
from store_core.command.exit_code import ExitCode
from store_core.command.program import _BY_NAME, program
from store_core.store.read import read_messages as reading
from store_core.store.read.option_table import READ_OPTIONS
from tests.short_lived import run_python
from tests.store_core.command.calls import call

COMMANDS = sorted(program.list_commands(click.Context(program)))
MAIN = "import sys; from store_core.command.main import main; sys.exit(main())"


def test_help_lists_every_command_and_every_exit_code() -> None:
    called = call("--help")

    assert ExitCode.DONE == called.code
    assert all(f"\n  {name} " in called.text for name in COMMANDS)
    assert all(f"\n  {code.value} " in called.text for code in ExitCode)
    assert max(map(len, called.lines)) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_examples_that_call_it_and_fits_the_terminal(name: str) -> None:
    called = call(name, "--help")

    assert f"\n    commitlog {name}" in called.text
    assert max(map(len, called.lines)) <= 80


def test_the_options_of_the_reader_are_those_of_its_table() -> None:
    text = call("cat", "--help").text

    of_tasks = {option.name for option in READ_OPTIONS if option.scope == "speed"} | {"path", "paths", "view"}
    for option in READ_OPTIONS:
        assert (option.name not in of_tasks) == (f"--{option.field.replace('_', '-')} " in text), option.name


def test_it_says_its_version() -> None:
    assert f"commitlog, version {__version__}\n" == call("--version").text


def test_an_unknown_command_is_wrong_usage() -> None:
    assert ExitCode.USAGE == call("dog").code


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        (["chek", "STORE"], "check"),
        (["consumers"], ""),
        (["view", "STORE", "consumequeues"], "consumequeue"),
        (["view", "STORE", "Topics_"], "topics"),
        (["cat", "STORE", "--mode=permisive"], "PERMISSIVE"),
        (["cat", "STORE", "--filter-type=SQL"], "SQL92"),
        (["cat", "STORE", "--format=jsnl"], "jsonl"),
        (["get", "STORE", "k", "--as=ky"], "key"),
        (["diff", "STORE", "STORE", "--by=record"], "records"),
        (["salvage", "STORE", "--format=parket"], "parquet"),
    ],
)
def test_the_nearest_name_is_suggested_for_a_wrong_one(words: list[str], nearest: str, store: Path) -> None:
    called = call(*[str(store) if word == "STORE" else word for word in words])

    assert ExitCode.USAGE == called.code
    assert called.errors.rstrip().endswith(f"did you mean {nearest!r}?" if nearest else "lists them")


def test_an_argument_that_is_not_utf8_is_wrong_usage(store: Path) -> None:
    called = call("get", store, "k\udc80")

    assert ExitCode.USAGE == called.code
    assert "expected arguments in UTF-8" in called.errors


def test_a_bug_is_no_finding(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(reading, "read_messages", fail)
    called = call("count", store)

    assert ExitCode.FAILED == called.code
    assert called.errors.startswith("commitlog: this is a bug in the program")
    assert "ZeroDivisionError: a bug" in called.errors


def test_a_missing_permission_is_said_with_what_to_do(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise PermissionError(13, "Permission denied", "/data/store")

    monkeypatch.setattr(reading, "read_messages", refuse)
    called = call("count", store)

    assert ExitCode.FAILED == called.code
    assert "commitlog: /data/store: Permission denied. Run this as a user with permission" in called.errors


def test_completion_knows_the_commands_with_their_meanings() -> None:
    found = ShellComplete(program, {}, "commitlog", "_COMMITLOG_COMPLETE").get_completions([], "co")

    assert {"count": "count messages and bytes, in all or by columns"} == {item.value: item.help for item in found}


def test_completion_knows_the_options_of_a_command() -> None:
    found = ShellComplete(program, {}, "commitlog", "_COMMITLOG_COMPLETE").get_completions(["cat"], "--starting")

    assert ["--starting-offsets", "--starting-timestamp"] == [item.value for item in found]


# ---------------------------------------------------------------------------------------- in a process of its own


HEAVY = (
    "numpy",
    "pyarrow",
    "pyarrow.parquet",
    "pandas",
    "pyspark",
    "multiprocessing",
    "store_core.store.message_store",
    "store_core.store.read.message_reader",
    "store_core.store.read.read_plan",
)
ANSWERS = {"store_core.answers"} | {f"store_core.answers.{name}" for name in ("shown_text", "verdict")}
"""What help may import of the answers: constants, and what needs Python alone."""


def imports_of(calls: list[list[str]], directory: Path, **environment: str) -> set[str]:
    """Call the program in a process of its own, several times; return which heavy modules it imported."""
    code = (
        "import sys\n"
        "from store_core.command.main import main\n"
        f"for words in {calls!r}:\n"
        "    sys.argv[1:] = words\n"
        "    try: main()\n"
        "    except SystemExit: pass\n"
        f"wanted = {{name for name in {HEAVY!r} if sys.modules.get(name)}}\n"
        "wanted |= {name for name in sys.modules if name.startswith('store_core.answers')}\n"
        "print('\\nIMPORTED', *wanted)\n"
    )
    imported = set(run_python(code, directory, **environment).splitlines()[-1].split()[1:])
    return imported - ANSWERS


def is_answer(name: str) -> bool:
    """Return whether a command is made of the fields of an answer, so that its help has to import that."""
    return ":" in _BY_NAME[name].module


def test_help_imports_nothing_of_what_a_command_does(tmp_path: Path) -> None:
    others = [[name, "--help"] for name in COMMANDS if not is_answer(name)]
    imported = imports_of([[name, "--help"] for name in COMMANDS if is_answer(name)], tmp_path)

    assert set() == imports_of([["--help"], *others], tmp_path)
    assert {"numpy", "pyarrow"} >= {name for name in imported if not name.startswith("store_core.answers")}


def test_a_wrong_option_is_found_before_anything_is_read(tmp_path: Path) -> None:
    others = [[name, "--no-such-option"] for name in COMMANDS if not is_answer(name)]
    imported = imports_of([[name, "--no-such-option"] for name in COMMANDS if is_answer(name)], tmp_path)

    assert set() == imports_of([["dog"], *others], tmp_path)
    assert {"numpy", "pyarrow"} >= {name for name in imported if not name.startswith("store_core.answers")}


@pytest.mark.parametrize("words", ["commitlog co", "commitlog count --sto", "commitlog view /data/store consumer"])
def test_completion_imports_nothing_of_what_a_command_does(words: str, tmp_path: Path) -> None:
    last = str(len(words.split()) - 1)
    asked = {"_COMMITLOG_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": last}

    assert set() == imports_of([[]], tmp_path, **asked)


def test_the_schema_needs_no_store_to_be_imported(tmp_path: Path) -> None:
    imported = imports_of([["schema"]], tmp_path)

    assert {"numpy", "pyarrow"} == {name for name in imported if not name.startswith("store_core.answers")}


def test_reading_imports_neither_pandas_nor_spark(store: Path, tmp_path: Path) -> None:
    imported = imports_of([["count", str(store), "--by=topic"]], tmp_path)

    found = {name for name in imported if not name.startswith("store_core.answers")}
    assert {"numpy", "pyarrow", "store_core.store.read.message_reader", "store_core.store.read.read_plan"} == found


def test_without_its_library_it_says_in_one_line_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys, importlib.machinery as m\n"
        "class Without(m.PathFinder):\n"
        "    @classmethod\n"
        "    def find_spec(cls, name, path=None, target=None):\n"
        "        return None if name == 'click' else super().find_spec(name, path, target)\n"
        "sys.meta_path = [Without if f is m.PathFinder else f for f in sys.meta_path]\n"
        "sys.stderr = sys.stdout\n"
        "from store_core.command.main import main\n"
        "print(int(main()))\n"
    )
    said = run_python(code, tmp_path).splitlines()

    assert ["3"] == said[1:]
    assert said[0].startswith("commitlog: the package click is not installed for ")
    assert said[0].endswith(": pip install 'click>=8.2'")


def test_the_lowest_library_is_the_one_that_the_extra_brings(tmp_path: Path) -> None:
    del tmp_path
    project = tomllib.loads(Path(__file__).parents[3].joinpath("pyproject.toml").read_text())["project"]

    assert ["click>=8.2"] == project["optional-dependencies"]["cli"]


def test_when_nobody_reads_its_output_it_ends_quietly(store: Path) -> None:
    with subprocess.Popen(  # noqa: S603 -- our own program
        [sys.executable, "-c", MAIN, "cat", store, "--format=jsonl"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()

    assert (141, b"") == (process.returncode, errors)
