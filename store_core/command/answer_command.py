# SPDX-License-Identifier: Apache-2.0
"""The command of an answer, made of its fields and its docstring."""

from __future__ import annotations

import inspect
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from store_core.answers.answer import Kind, Option, options_of
from store_core.command.arguments import NearChoice, examples, with_config, with_log, with_storage
from store_core.command.console import warnings_shown
from store_core.command.exit_code import ExitCode
from store_core.command.new_file import check_new, write_new_json
from store_core.command.report_output import shown_engine, with_processes, with_report
from store_core.command.row_arguments import with_replayed_options
from store_core.command.spark import with_spark

if TYPE_CHECKING:
    from collections.abc import Callable

    from store_core.answers.answer import Answer
    from store_core.command.arguments import Store
    from store_core.command.report_output import ReportOutput

__all__ = ["command_of"]


def command_of(answer: type[Answer[Any]]) -> click.Command:
    """Return the command of an answer: its options, those that all answers have, and what runs it."""
    options = options_of(answer)
    name, words = answer.JSON_FILE or ("", "")
    from_config = [option.name for option in options if option.kind is Kind.FROM_CONFIG]

    def run(
        store: Store,
        output: ReportOutput,
        config: str | None = None,
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
        return ExitCode.USAGE if asked.is_mistaken(store, report) else code

    if any(option.kind is Kind.READ for option in options):
        run = with_replayed_options(run)
    in_zone = [option for option in options if option.name == "time_zone"]  # of the report's times, too
    for option in in_zone:
        run = _parameter(option)(run)
    command = _with_store(answer)(with_report(run))
    if answer.HAS_PARTS or answer.HAS_SPARK:
        command = with_processes(command) if answer.HAS_PARTS else with_spark(command)
    of_others = {Kind.FROM_CONFIG, Kind.READ}
    for option in reversed([each for each in options if each.kind not in of_others and each not in in_zone]):
        command = _parameter(option)(command)
    if name:
        file = click.Path(path_type=Path, dir_okay=False)
        command = click.option(f"--{name}", "json_file", type=file, metavar="FILE", help=words)(command)
    command = click.argument("store", metavar=answer.STORE)(command)
    return click.command(answer.NAME, help=inspect.getdoc(answer), epilog=examples(*answer.EXAMPLES))(command)


def _with_store(answer: type[Answer[Any]]) -> Callable[[Callable[..., ExitCode]], Callable[..., ExitCode]]:
    """Return what gives a command the options that say where its store is."""
    if answer.CONFIG_WORDS:
        return with_config(answer.CONFIG_WORDS, takes_url=not answer.IS_LOCAL)
    return with_log if answer.IS_LOCAL else with_storage


def _parameter(option: Option) -> Callable[[Callable[..., ExitCode]], Callable[..., ExitCode]]:
    """Return what gives a command one option."""
    if not option.flag:
        return click.argument(option.name, metavar=option.metavar)
    words = option.words + (f"  [default: {option.shown_default}]" if option.shown_default else "")
    if option.kind is Kind.FLAG:
        default = option.default and "/" in option.flag  # one without its contrary has to be given
        return click.option(option.flag, option.name, is_flag=True, default=default, help=words)
    return click.option(
        option.flag,
        option.name,
        type=_type_of(option),
        default=None if option.is_required else getattr(option.default, "value", option.default),
        required=option.is_required,
        multiple=option.is_repeated,
        metavar=option.metavar,
        help=words,
    )


def _type_of(option: Option) -> click.ParamType[Any] | type[str]:
    if option.choices:
        return NearChoice(option.choices, option.hint)
    if option.kind is not Kind.NUMBER:
        return str
    return click.INT if option.least is option.most is None else click.IntRange(option.least, option.most)
