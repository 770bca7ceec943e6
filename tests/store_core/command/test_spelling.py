# SPDX-License-Identifier: Apache-2.0
"""Messages name the options of the command that says them, as it spells them."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import click
import pytest

import store_core
from store_core.command.exit_code import ExitCode
from store_core.command.program import program
from store_core.command.spelling import spelled
from store_core.errors import WITHOUT_SEGMENT
from store_core.format.releases.release import DEFAULT_RELEASE
from store_core.store.read.option_table import READ_OPTIONS
from tests.store_core.command.calls import call

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(store_core.__file__).parent
CONTEXT: Final = click.Context(program)
COMMANDS: Final = {
    name: cast("click.Command", program.get_command(CONTEXT, name)) for name in program.list_commands(CONTEXT)
}
every_command = pytest.mark.parametrize("name", list(COMMANDS))
FIELDS: Final = frozenset(option.field for option in READ_OPTIONS)
OF_PROGRAMS: Final = re.compile(r"(?<![\w/-])(commitlog(?:-[a-z-]+| [a-z]+)|tar)(?= )")

NOT_OF_THE_COMMAND: Final = (
    "store/rebuild",
    "store/sink",
    "store/recovery",
    "store/put",
    "command",
    "answers/html",
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
        if place.startswith(NOT_OF_THE_COMMAND) or place.endswith("_document.py"):
            continue
        found |= {
            text
            for text in constants(ast.parse(path.read_text()))
            if " " in text and (flags(text) or settings(text) or "in Spark" in text)
        }
    return tuple(sorted(found))


def flags(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


def settings(text: str) -> frozenset[str]:
    return FIELDS & set(re.findall(r"(?<![\w-])([a-z_]+)=[A-Za-z]", text))


def flags_of(command: click.Command) -> set[str]:
    return {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)}


def wrong_flags(text: str, command: click.Command) -> set[str]:
    """Return the options in a text that belong neither to a command nor to the program that the text says to run."""
    wrong: set[str] = set()
    for sentence in re.split(r"(?<=\.) |; ", text):
        before, *others = OF_PROGRAMS.split(sentence)
        wrong |= flags(before) - flags_of(command)
        for named, words in zip(others[::2], others[1::2], strict=True):
            other = COMMANDS.get(named.removeprefix("commitlog "))
            wrong |= set() if other is None else flags(words) - flags_of(other)
    return wrong


def test_texts_that_name_options_are_found() -> None:
    assert WITHOUT_SEGMENT in advice()
    assert len(advice()) > 25


@every_command
def test_advice_names_options_that_the_command_has_in_its_spelling(name: str) -> None:
    command = COMMANDS[name]
    shown = {text: spelled(f"a problem. {text}", command) for text in advice()}

    assert {} == {text: each for text, each in shown.items() if "in Spark" in each or settings(each)}
    assert {} == {text: found for text, each in shown.items() if (found := wrong_flags(each, command))}


def test_what_a_command_lacks_is_not_advised() -> None:
    text = f"a segment is gone. {WITHOUT_SEGMENT}"

    assert "a segment is gone. To continue without it: --no-fail-on-data-loss." == spelled(text, COMMANDS["cat"])
    assert "a segment is gone" == spelled(text, COMMANDS["lag"])


def test_other_programs_may_have_other_options() -> None:
    text = "no queues. Make some: commitlog-rebuild-consume-queue STORE --output DIRECTORY"

    assert text == spelled(text, COMMANDS["lag"])


def test_an_error_names_the_option_of_the_command(store: Path) -> None:
    called = call("view", store, "segments", "--queue-id", "1")

    assert ExitCode.USAGE == called.code
    assert (
        "commitlog: --queue-id does not apply to view 'segments', which takes --columns, --starting-offsets, "
        in called.errors
    )
    assert "Spark" not in called.errors


def test_times_in_the_wrong_order_are_shown_as_times(store: Path) -> None:
    bounds = ("--starting-timestamp", "2023-11-14T22:14:00Z", "--ending-timestamp", "2023-11-14T22:13:00Z")
    called = call("count", store, *bounds)

    text = "at most --ending-timestamp, 2023-11-14T22:13:00.000Z, found 2023-11-14T22:14:00.000Z"
    assert (ExitCode.USAGE, f"commitlog: --starting-timestamp: expected {text}\n") == (called.code, called.errors)


def test_a_version_that_is_no_name_of_a_release_is_told_what_to_give(store: Path) -> None:
    for words in (["cat"], ["check"], ["repair"], ["recover", "--dry-run"]):
        called = call(*words, store, "--release", "5.3.3")

        assert ExitCode.USAGE == called.code
        assert "; RocketMQ 5.3.3 is served by the rules of 5.3, so give 5.3" in called.errors
    assert "did you mean '5.3'?\n" in call("check", store, "--release", "v5.3").errors


def test_what_is_no_option_stays_as_it_is() -> None:
    assert "a: /data/a" == spelled("a: /data/a", COMMANDS["diff"])
    assert "read 3 of 5.5: x=1" == spelled("read 3 of 5.5: x=1", COMMANDS["cat"])


def test_the_options_that_a_view_takes_are_those_of_the_command(store: Path) -> None:
    taken = call("view", store, "segments", "--queue-id", "1").errors.partition("which takes ")[2].partition(";")[0]

    assert set(taken.split(", ")) <= flags_of(COMMANDS["view"])


def test_notes_of_a_report_are_spelled_like_errors(store: Path) -> None:
    (store / "abort.bak").touch()
    text = " ".join(call("trace", store, "orders/0/0", "--release", "4.3").text.split())

    assert "the store looks as if" in text
    assert f"write --release {DEFAULT_RELEASE}." in text
