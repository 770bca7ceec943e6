# SPDX-License-Identifier: Apache-2.0
"""Printing the report of an answer, as text or as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from store_core.answers.text.shown_text import escape_json
from store_core.command.exit_code import ExitCode
from store_core.command.surroundings import Surroundings

if TYPE_CHECKING:
    from collections.abc import Callable

    from store_core.answers.report import Report

__all__ = ["print_report", "with_processes", "with_report"]

_WIDTH: Final = 80
"""Columns of text that goes to no terminal."""


def with_report(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the option by which its report is printed; it gets the argument `is_json`."""
    return click.option("--json", "is_json", is_flag=True, help="Print the report as a JSON object on one line.")(
        command
    )


def with_processes(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the option that says how many processes work; it gets the argument `processes`."""
    help_text = "How many processes read the store.  [default: 1]"
    return click.option("--processes", type=click.IntRange(1), default=1, metavar="N", help=help_text)(command)


def print_report(report: Report[Any], *, is_json: bool) -> ExitCode:
    """Print a report, and return the exit code of the command."""
    if is_json:
        click.echo(escape_json(json.dumps(report.to_json(), ensure_ascii=False)))
    else:
        width = Surroundings.of(click.get_current_context()).width
        click.echo(report.to_text(width or _WIDTH))
    return ExitCode.of(report.verdict)
