# SPDX-License-Identifier: Apache-2.0
"""Texts of the core name options as the table of options does, and programs with options that they have."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import click

import store_core
from store_core.command.exit_code import ExitCode
from store_core.command.program import program
from store_core.errors import WITHOUT_SEGMENT
from store_core.store.read.option_table import READ_OPTIONS
from tests.store_core.command.calls import call

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(store_core.__file__).parent
CONTEXT: Final = click.Context(program)
COMMANDS: Final = {
    name: cast("click.Command", program.get_command(CONTEXT, name)) for name in program.list_commands(CONTEXT)
}
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
