# SPDX-License-Identifier: Apache-2.0
"""What commands with a report share: the release it is by, the engine that makes it, and where it goes."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from store_core.answers.shown_text import clear_line, escape_json
from store_core.command.arguments import NearChoice
from store_core.command.console import Console, shown_zone
from store_core.command.exit_code import ExitCode
from store_core.command.new_file import check_new, write_new
from store_core.command.spark import is_on_spark, spark_engine, with_spark
from store_core.format.release import DEFAULT_RELEASE, RELEASES, release_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import tzinfo

    from store_core.answers.report import Report
    from store_core.store.parts import Engine

__all__ = ["ReportOutput", "release_choice", "shown_engine", "with_processes", "with_release", "with_report"]


def release_choice(names: Iterable[str] = RELEASES) -> NearChoice:
    """Return the names of releases as a choice; a version in place of one is told which to give."""
    return NearChoice(names, release_hint)


with_release: Final = click.option(
    "--release",
    type=release_choice(),
    default=DEFAULT_RELEASE,
    help=f"RocketMQ that serves the store.  [default: {DEFAULT_RELEASE}]",
)
"""Gives a command the option that says by whose rules a store is read; it gets the argument `release`."""


@dataclass(frozen=True, slots=True)
class ReportOutput:
    """Where a report goes."""

    is_json: bool = False  # whether JSON is printed instead of text
    html: Path | None = None  # A file that does not exist yet
    zone: tzinfo | None = None  # of the times in the text; None is UTC

    def put(self, report: Report[Any]) -> ExitCode:
        """Print a report, write it as HTML, and return the exit code of the command."""
        clear_line()
        context = click.get_current_context()
        if self.is_json:
            click.echo(escape_json(json.dumps(report.to_json(), ensure_ascii=False)))
        else:
            click.echo(report.to_text(Console.of(context).table_width, self.zone))
        if self.html is not None:
            write_new(self.html, report.to_html(Console.of(context).clock.now_ms()))
        return ExitCode.of(report.verdict)


def with_report(command: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
    """Give a command the options for its report; it gets a `ReportOutput` as its argument `output`.

    Times in the text are in the zone of ``--time-zone``, which a command may have for other times, too.
    """
    has_zone = any(each.name == "time_zone" for each in getattr(command, "__click_params__", ()))

    @wraps(command)
    def run(*, is_json: bool, html: Path | None, **given: Any) -> ExitCode:  # noqa: ANN401 -- the command's own
        check_new("--html", html)
        zone = given.get("time_zone") if has_zone else given.pop("time_zone")
        return command(output=ReportOutput(is_json, html, shown_zone(zone)), **given)

    file = click.Path(path_type=Path, dir_okay=False)
    page = "Write the report to a new HTML file as well: one file, with plots, for a browser or a ticket."
    zone = "Of the times in the text: a region, an offset, or local.  [default: UTC]"
    options = [
        click.option("--html", metavar="FILE", type=file, help=page),
        click.option("--json", "is_json", is_flag=True, help="Print the report as a JSON object on one line."),
    ]
    for option in options if has_zone else [click.option("--time-zone", metavar="ZONE", help=zone), *options]:
        option(run)
    return run


def with_processes(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say who works, processes or Spark; it gets the argument `processes`."""
    help_text = "How many processes read the store.  [default: 1]"
    processes = click.option("--processes", type=click.IntRange(1), default=1, metavar="N", help=help_text)
    return processes(with_spark(command))


@contextmanager
def shown_engine(processes: int) -> Iterator[Engine]:
    """Provide the engine of a command; one of this machine shows on a terminal how many parts are done."""
    from store_core.answers.answer import processes as engine_of
    from store_core.command.console import PartsProgress

    context = click.get_current_context()
    around, name = Console.of(context), context.info_name or ""
    if is_on_spark():
        with spark_engine(f"commitlog-{name}") as engine:
            yield engine
        return
    progress = PartsProgress(name, around.progress, around.clock)
    with progress, engine_of(processes, progress) as engine:
        yield engine
