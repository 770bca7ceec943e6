# SPDX-License-Identifier: Apache-2.0
"""The options by which a command's rows are printed or written."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from store_core.answers.shown_text import BytesStyle
from store_core.command.arguments import NearChoice
from store_core.command.surroundings import Surroundings, shown_zone
from store_core.format.words import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from store_core.command.exit_code import ExitCode
    from store_core.command.output.output import Output

__all__ = ["FORMATS", "with_output"]

FORMATS: Final = {
    "table": "columns that fit the terminal",
    "fields": "a line per field",
    "jsonl": "an object per line",
    "csv": "lines with a header",
    "arrow": "an Arrow IPC stream",
    "parquet": "a Parquet file",
}
"""Format -> what it is."""

_SUFFIXES: Final = {f".{name}": name for name in ("jsonl", "csv", "parquet", "arrow")} | {
    ".txt": "table",
    ".json": "jsonl",
    ".ndjson": "jsonl",
    ".ipc": "arrow",
    ".arrows": "arrow",
}
"""Suffix of a file -> its format."""

_FORMATS_HELP: Final = "; ".join(f"{name}: {meaning}" for name, meaning in FORMATS.items())
_COLOURS: Final = ("auto", "always", "never")


def with_output(default: str = "table") -> Callable[[Callable[..., ExitCode]], Callable[..., ExitCode]]:
    """Give a command the options for its rows; it gets an `Output` as its argument `output`.

    * `default`: The format on standard output if none is given.
    """

    def decorate(command: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
        @wraps(command)
        def run(**given: Any) -> ExitCode:  # noqa: ANN401 -- click passes each option as the type that it declares
            asked = {name: given.pop(name) for name in ("format_", "target", "style", "color", "no_color")}
            output = _output(default, **asked)
            output.check()
            return command(output=output, **given)

        for option in reversed(_options(default)):
            option(run)
        return run

    return decorate


def _options(default: str) -> list[Callable[[Callable[..., ExitCode]], Callable[..., ExitCode]]]:
    return [
        click.option(
            "--format",
            "format_",
            type=NearChoice(FORMATS),
            help=f"{_FORMATS_HELP}.  [default: by the suffix of --output, else {default}]",
        ),
        click.option(
            "-o",
            "--output",
            "target",
            metavar="FILE",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Write to a new file; `-` is standard output, the default.",
        ),
        click.option(
            "--bytes",
            "style",
            type=NearChoice([style.name.lower() for style in BytesStyle]),
            default=BytesStyle.AUTO.name.lower(),
            help="How bytes are printed. auto: as text where they are text.  [default: auto]",
        ),
        click.option(
            "--color",
            type=NearChoice(_COLOURS),
            default="auto",
            help="auto: on a terminal, unless NO_COLOR is set.  [default: auto]",
        ),
        click.option("--no-color", envvar="NO_COLOR", hidden=True),
    ]


def _output(  # noqa: PLR0913 -- an argument for each option
    default: str, *, format_: str | None, target: Path | None, style: str, color: str, no_color: str
) -> Output:
    from store_core.command.output.output import Output

    target = None if target == Path("-") else target
    by_suffix = _by_suffix(target) if target is not None and format_ is None else None
    context = click.get_current_context()
    around, zone = Surroundings.of(context), shown_zone(context.params.get("time_zone"))
    is_terminal = around.width is not None
    is_coloured = color == "always" or (color == "auto" and is_terminal and not no_color)
    shown = BytesStyle[style.upper()]
    return Output(format_ or by_suffix or default, target, shown, around.table_width, is_terminal, is_coloured, zone)


def _by_suffix(target: Path) -> str | None:
    """Return the format that a file's suffix names; None without a suffix."""
    suffix = target.suffix.lower().rstrip(".")
    if not suffix or suffix in _SUFFIXES:
        return _SUFFIXES.get(suffix)
    question = did_you_mean(suffix, _SUFFIXES)
    found = f"{target.suffix!r}; {question}" if question else f"{target.suffix!r}."
    raise click.UsageError(
        f"--output {target}: expected no suffix, or one of {', '.join(_SUFFIXES)}, found {found} Other names need "
        f"--format"
    )
