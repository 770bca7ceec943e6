# SPDX-License-Identifier: Apache-2.0
"""The program: help, completion, exit codes, imports, options that texts name, and how it ends when nobody reads."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import click
import pytest
from click.shell_completion import ShellComplete

import store_core
from store_core import __version__
from store_core.command.exit_code import ExitCode
from store_core.command.program import _BY_NAME, program
from store_core.errors import WITHOUT_SEGMENT
from store_core.store.read import read_messages as reading
from store_core.store.read.option_table import READ_OPTIONS
from tests.short_lived import run_python
from tests.store_core.command.calls import call

if TYPE_CHECKING:
    from collections.abc import Iterator


CONTEXT: Final = click.Context(program)
COMMANDS: Final = {
    name: cast("click.Command", program.get_command(CONTEXT, name)) for name in program.list_commands(CONTEXT)
}
MAIN = "import sys; from store_core.command.main import main; sys.exit(main())"


def test_help_lists_every_command_and_every_exit_code() -> None:
    called = call("--help")

    assert ExitCode.DONE == called.code
    assert all(f"\n  {name} " in called.text for name in COMMANDS)
    assert all(f"\n  {code.value} " in called.text for code in ExitCode)
    assert max(map(len, called.lines)) <= 80


@pytest.mark.parametrize("name", ["bill", "check", "count", "info", "retention", "salvage"])
def test_a_working_directory_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    called = call(name, ".")

    assert ExitCode.FAILED == called.code
    assert called.errors.endswith(
        "the working directory is gone: No such file or directory. Change to one that exists\n"
    )


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


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ZeroDivisionError("a bug"), r"^commitlog: this is a bug in the program(.|\n)*ZeroDivisionError: a bug"),
        (
            PermissionError(13, "Permission denied", "/data/store"),
            "commitlog: /data/store: Permission denied. Run this as a user with permission",
        ),
    ],
)
def test_a_failure_is_no_finding_and_is_told(
    error: Exception, told: str, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr(reading, "read_messages", fail)
    called = call("count", store)

    assert ExitCode.FAILED == called.code
    assert re.search(told, called.errors)


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


@pytest.mark.parametrize(("option", "alone"), [("--help", "--help"), ("--no-such-option", "dog")])
def test_help_and_a_wrong_option_import_nothing_of_what_a_command_does(option: str, alone: str, tmp_path: Path) -> None:
    others = [[name, option] for name in COMMANDS if not is_answer(name)]
    imported = imports_of([[name, option] for name in COMMANDS if is_answer(name)], tmp_path)

    assert set() == imports_of([[alone], *others], tmp_path)
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


def test_the_lowest_library_is_the_one_that_the_extra_brings() -> None:
    project = tomllib.loads(Path(__file__).parents[3].joinpath("pyproject.toml").read_text())["project"]

    assert ["click>=8.2"] == project["optional-dependencies"]["cli"]


@pytest.mark.parametrize(
    "words", [["cat", "--format=jsonl"], ["cat", "--help"], ["--help"], ["--version"]], ids=" ".join
)
def test_when_nobody_reads_its_output_it_ends_quietly(store: Path, words: list[str]) -> None:
    with subprocess.Popen(  # noqa: S603 -- our own program
        [sys.executable, "-c", MAIN, *words, *([store] if "cat" in words else [])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()

    assert (141, b"") == (process.returncode, errors)


# ---- options that texts name


ROOT: Final = Path(store_core.__file__).parent
FIELDS: Final = frozenset(option.field for option in READ_OPTIONS if option.field != option.name)
OF_PROGRAMS: Final = re.compile(r"(?<![\w/-])(commitlog(?:-[a-z-]+| [a-z]+)|tar)(?= )")

NOT_OF_THE_COMMAND: Final = (
    "store/rebuild",
    "store/sink",
    "store/recovery",
    "store/put",
    "command",
    "answers/plots",
    "store/read/option_table",
)
"""What only `commitlog-rebuild-...` and writers say, the texts of the commands, style sheets, the table of options."""


def constants(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a module, with X for what is filled in; without docstrings."""
    documents = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)} - {
        id(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents | parts:
            yield node.value


@cache
def advice() -> tuple[str, ...]:
    """Return the texts of the core that name an option as Python, Spark or a shell does, and say something."""
    found: set[str] = set()
    for path in ROOT.rglob("*.py"):
        place = path.relative_to(ROOT).as_posix()
        if place.startswith(NOT_OF_THE_COMMAND):
            continue
        found |= {
            text
            for text in constants(ast.parse(path.read_text()))
            if " " in text and (flags(text) or settings(text) or "=false" in text)
        }
    return tuple(sorted(found))


def flags(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


def settings(text: str) -> frozenset[str]:
    return FIELDS & set(re.findall(r"(?<![\w-])([a-z_]+)=[A-Za-z]", text))


def flags_of(command: click.Command) -> set[str]:
    return {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)}


def wrong_flags(text: str) -> set[str]:
    """Return the options in a text that do not belong to the program that the text says to run."""
    wrong: set[str] = set()
    for sentence in re.split(r"(?<=\.) |; ", text):
        _, *others = OF_PROGRAMS.split(sentence)
        for named, words in zip(others[::2], others[1::2], strict=True):
            other = COMMANDS.get(named.removeprefix("commitlog "))
            wrong |= set() if other is None else flags(words) - flags_of(other)
    return wrong


def test_texts_that_name_options_are_found() -> None:
    assert WITHOUT_SEGMENT in advice()
    assert len(advice()) > 25


def test_texts_name_options_as_the_table_does() -> None:
    assert {} == {text: found for text in advice() if (found := settings(text))}


def test_programs_have_the_options_with_which_texts_name_them() -> None:
    assert {} == {text: found for text in advice() if (found := wrong_flags(text))}


def test_an_option_that_tolerates_an_error_is_named_where_the_command_has_it(store: Path) -> None:
    sorted((store / "commitlog").iterdir())[1].unlink()
    here, there = call("cat", store), call("lag", store)

    assert ExitCode.FAILED == here.code
    assert "is missing" in here.errors
    assert here.errors.endswith(". To read what is there: --no-fail-on-data-loss\n")
    assert "failOnDataLoss" not in here.errors + there.errors
    assert "fail-on-data-loss" not in there.errors


def test_times_in_the_wrong_order_are_shown_as_times(store: Path) -> None:
    bounds = ("--starting-timestamp", "2023-11-14T22:14:00Z", "--ending-timestamp", "2023-11-14T22:13:00Z")
    called = call("count", store, *bounds)

    text = "at most option endingTimestamp, 2023-11-14T22:13:00.000Z, found 2023-11-14T22:14:00.000Z"
    assert (ExitCode.USAGE, f"commitlog: option startingTimestamp: expected {text}\n") == (called.code, called.errors)


def test_a_version_that_is_no_name_of_a_release_is_told_what_to_give(store: Path) -> None:
    for words in (["cat"], ["check"], ["repair"], ["recover", "--dry-run"]):
        called = call(*words, store, "--release", "5.3.3")

        assert ExitCode.USAGE == called.code
        assert "; RocketMQ 5.3.3 is served by the rules of 5.3, so give 5.3" in called.errors
    assert "did you mean '5.3'?\n" in call("check", store, "--release", "v5.3").errors
