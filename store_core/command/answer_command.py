# SPDX-License-Identifier: Apache-2.0
"""The commands of answers, made of their fields and docstrings, with what all that have a report share."""

from __future__ import annotations

import inspect
import json
from contextlib import nullcontext
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from store_core.answers.answer import Answer, AnswerOption, Kind, options_of
from store_core.answers.shown_text import clear_line, escape_json
from store_core.command.arguments import NearChoice, examples, with_places, with_replayed_options
from store_core.command.console import (
    Console,
    say,
    shown_engine,
    shown_zone,
    warnings_shown,
    with_processes,
    with_spark,
)
from store_core.command.exit_code import ExitCode, failure_of
from store_core.command.new_file import check_new, write_new, write_new_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo

    from store_core.answers.report import Report
    from store_core.command.arguments import Store


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
    zone = "Time zone of the times in the text: a region, an offset, or local.  [default: UTC]"
    options = [
        click.option("--html", metavar="FILE", type=file, help=page),
        click.option("--json", "is_json", is_flag=True, help="Print the report as a JSON object on one line."),
    ]
    for option in options if has_zone else [click.option("--time-zone", metavar="ZONE", help=zone), *options]:
        option(run)
    return run


_TO_ACT_ON: Final = (
    ExitCode.DONE, ExitCode.DAMAGED, ExitCode.FINDINGS, ExitCode.USAGE, ExitCode.REFUSED, ExitCode.FAILED
)  # fmt: skip
"""Of several stores the code is that of what is to be acted on first, the last of these."""


def command_of(answer: type[Answer[Any]]) -> click.Command:
    """Return the command of an answer: its options, those that all answers have, and what runs it."""
    options = options_of(answer)
    name, words = answer.JSON_FILE or ("", "")
    from_config = [option.name for option in options if option.kind is Kind.FROM_CONFIG]

    def run(
        store: Store,
        output: ReportOutput,
        config: str | None,
        json_file: Path | None = None,
        **given: Any,  # noqa: ANN401 -- the options' own
    ) -> ExitCode:
        processes = given.pop("processes", 1)
        check_new(f"--{name}", json_file)
        if json_file is not None and any(each.name == name for each in fields(answer)):
            given[name] = json_file
        asked = answer(**given, **dict.fromkeys(from_config, config))
        with warnings_shown() if answer.SHOWS_WARNINGS else nullcontext(), shown_engine(processes) as engine:
            report = asked.ask(store, engine=engine)
        write_new_json(json_file, report.to_json())
        code = output.put(report)
        for each in report.stores:
            if each.error is not None and not each.is_miss:
                failed, text = failure_of(each.error)
                say(f"error: {each.name}: {text}")
                code = max(code, failed, key=_TO_ACT_ON.index)
        return ExitCode.USAGE if asked.is_mistaken(store, report) else code

    if any(option.kind is Kind.READ for option in options):
        run = with_replayed_options(run)
    in_zone = [option for option in options if option.name == "time_zone"]  # of the report's times, too
    for option in in_zone:
        run = _parameter(option)(run)
    command = with_places(answer.CONFIG_WORDS, takes_url=not answer.IS_LOCAL)(with_report(run))
    if answer.HAS_PARTS or answer.HAS_SPARK:
        command = with_processes(command) if answer.HAS_PARTS else with_spark(command)
    of_others = {Kind.FROM_CONFIG, Kind.READ}
    for option in reversed([each for each in options if each.kind not in of_others and each not in in_zone]):
        command = _parameter(option)(command)
    if name:
        file = click.Path(path_type=Path, dir_okay=False)
        command = click.option(f"--{name}", "json_file", type=file, metavar="FILE", help=words)(command)
    several: dict[str, Any] = {"nargs": -1, "required": True} if answer.TAKES_SEVERAL else {}
    metavar = f"{answer.STORE}..." if answer.TAKES_SEVERAL else answer.STORE
    command = click.argument("store", metavar=metavar, **several)(command)
    return click.command(answer.NAME, help=inspect.getdoc(answer), epilog=examples(*answer.EXAMPLES))(command)


def _parameter(option: AnswerOption) -> Callable[[Callable[..., ExitCode]], Callable[..., ExitCode]]:
    """Return what gives a command one option."""
    if not option.flag:
        return click.argument(option.name, metavar=option.metavar)
    words = option.words + (f"  [default: {option.shown_default}]" if option.shown_default else "")
    if option.kind is Kind.FLAG:
        default = option.default and "/" in option.flag  # one without its contrary has to be given
        return click.option(option.flag, option.name, is_flag=True, default=default, help=words)
    value = getattr(option.default, "value", option.default)
    given: dict[str, Any] = {"required": True} if value is MISSING else {"default": value}  # None would be one, too
    return click.option(
        *["-n"] * (option.name == "rows"),  # as in `head` and `tail`
        option.flag,
        option.name,
        type=_type_of(option),
        **given,
        multiple=option.is_repeated,
        metavar=option.metavar,
        help=words,
    )


def _type_of(option: AnswerOption) -> click.ParamType[Any] | type[str]:
    if option.choices:
        return NearChoice(option.choices, option.hint)
    if option.kind is not Kind.NUMBER:
        return str
    return click.INT if option.least is option.most is None else click.IntRange(option.least, option.most)
