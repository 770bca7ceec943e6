# SPDX-License-Identifier: Apache-2.0
"""The arguments that commands share: places of stores, options of the reader, and where rows go."""

from __future__ import annotations

import re
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from store_core.answers.shown_text import BytesStyle
from store_core.command.console import Console, say, shown_zone, warnings_shown
from store_core.command.exit_code import ExitCode
from store_core.format.words import did_you_mean, hint_of
from store_core.store.read.option_table import READ_OPTIONS, Option
from store_core.views.view_names import ALWAYS, VIEW_PLANS

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    Store: TypeAlias = "str | os.PathLike[str]"
    from collections.abc import Container

    from store_core.command.output import Output
    from store_core.files.store_path import StorePaths


class NearChoice(click.Choice[str]):
    """Some names; the nearest is suggested for one that is none of them.

    * `hint`: What else is said of a wrong one, in place of the nearest.
    """

    def __init__(self, names: Iterable[str], hint: Callable[[str], str] | None = None) -> None:
        super().__init__(list(names), case_sensitive=False)
        self._hint = hint

    def get_invalid_choice_message(self, value: object, ctx: click.Context | None) -> str:
        """Return what is said of a value that is none of them."""
        hint = hint_of(value, self.choices) if self._hint is None else self._hint(str(value))
        text = f"{super().get_invalid_choice_message(value, ctx).rstrip('.')}{hint}"
        return text if text.endswith("?") else f"{text}."


_AS_IT_IS: Final = "\b"
"""Tells click not to fill the paragraph."""


def examples(*lines: str) -> str:
    """Return the paragraph of examples for a command's help, one command line each."""
    return "\n".join([_AS_IT_IS, "Examples:", *(f"  {line}" for line in lines)])


_STORES: Final = ("store", "b")
"""Arguments that are stores."""

_HELP: Final = "Settings of the object store or file system, if STORE is a URL, such as region=eu-west-1."
_CONFIG_HELP: Final = "The broker's configuration, which says where the log is (storePathCommitLog)"
LOG_HELP: Final = "The log that is meant, if STORE has one and --config names another; commas separate directories."


def with_places(words: str, *, takes_url: bool) -> Callable[[Callable[..., ExitCode]], Callable[..., ExitCode]]:
    """Give a command the options for the place of its store, which is in the path that it gets.

    It also gets the file of the configuration.

    * `words`: What else of that counts; empty if nothing does.
    * `takes_url`: Whether the store can be in another storage.
    """

    def decorate(command: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
        @wraps(command)
        def run(*, storage: str | None = None, store_path_commit_log: str | None, **given: Any) -> ExitCode:  # noqa: ANN401 -- the command's own
            from store_core.files.store_path import given_paths, notes_of
            from store_core.snapshot.store import store_at, stores_of

            config = given["config"]
            found: list[StorePaths] = []
            with warnings_shown():
                for name in [name for name in _STORES if name in given]:
                    if isinstance(given[name], tuple):
                        paths = given[name] if len(given[name]) > 1 else given[name][0]
                        stores = stores_of(
                            paths, storage=storage, config=config, store_path_commit_log=store_path_commit_log
                        )
                        given[name] = stores if len(stores) > 1 else stores[0].paths
                        found += [store.paths for store in stores]
                    else:
                        given[name] = store_at(given[name], storage, config, store_path_commit_log)
                        found.append(given[name])
            for note in dict.fromkeys(note for each in found for path in given_paths(each) for note in notes_of(path)):
                say(f"warning: {note}")
            return command(**given)

        click.option("--store-path-commit-log", metavar="PATH", help=LOG_HELP)(run)
        of_config = f"{_CONFIG_HELP}, and {words}." if words else f"{_CONFIG_HELP}."
        click.option("--config", metavar="FILE", help=of_config)(run)
        if takes_url:
            click.option("--storage", metavar="NAME=VALUE,...", multiple=True, callback=joined, help=_HELP)(run)
        return run

    return decorate


def joined(_context: click.Context, _option: click.Parameter, settings: tuple[str, ...]) -> str | None:
    """Return the settings of an option that is repeated as if they were given at once; None without any."""
    return ",".join(settings) or None


_OF_OTHERS: Final = frozenset({"path", "paths", "view"})
_TIMES: Final = ("starting_timestamp", "ending_timestamp", "as_of")
_OF_TASKS: Final = "speed"
"""Scope of the options that spread a read over tasks; a command reads in one."""

_ASKED: Final = tuple(option for option in READ_OPTIONS if option.name not in _OF_OTHERS and option.scope != _OF_TASKS)
_NAMES: Final = {option.name: f"--{option.field.replace('_', '-')}" for option in _ASKED}
_BOOLEANS: Final = frozenset({"true", "false"})
_QUOTED: Final = re.compile(r"`([^`]*)`")

STORES: Final = click.argument("stores", metavar="STORE...", nargs=-1, required=True)
"""Stores, each its root or a pattern; ``commitlog`` directories and segment files that form one log are one."""


def with_read_options(command: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
    """Give a command the options of the reader; it gets those that were given as a dictionary, its argument `read`.

    It ends with 5, not 0, if the reader has left out what is damaged or gone, as options let it.
    """
    return _with_options(command, frozenset())


def with_view_options(*views: str) -> Callable[[Callable[..., ExitCode]], Callable[..., ExitCode]]:
    """Give a command the same options, of which its help shows what these views take; others are refused by name."""
    taken = {*ALWAYS, *(name for view in views for name in VIEW_PLANS[view].own_options)}
    own = () if views else ("columns",)  # which a query names itself
    return lambda command: _with_options(command, {option.field for option in _ASKED} - taken, own)


def with_replayed_options(command: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
    """Give a command the same options, without those that all answers have, and its own.

    Its help shows what does not change messages.
    """
    return _with_options(command, {"columns", "decompress"}, {"release", "config", "storage", "store_path_commit_log"})


def _with_options(
    command: Callable[..., ExitCode], hidden: Container[str], left_out: Container[str] = ()
) -> Callable[..., ExitCode]:
    options = [option for option in _ASKED if option.field not in left_out]

    @wraps(command)
    def run(**given: Any) -> ExitCode:  # noqa: ANN401 -- click passes each option as the type that it declares
        asked = {option.field: given.pop(option.field) for option in options}
        read = {name: value for name, value in asked.items() if value is not None}
        with warnings_shown() as notices:
            if any(str(read.get(name, "")).startswith("-") for name in _TIMES):
                from store_core.store.read.read_options import with_absolute_times

                read = with_absolute_times(given["stores"] if "stores" in given else given["store"], read)
            code = command(read=read, **given)
        return ExitCode.DAMAGED if code is ExitCode.DONE and notices.has_left_out else code

    for option in reversed(options):
        _click_option(option, is_hidden=option.field in hidden)(run)
    return run


def _click_option(option: Option, *, is_hidden: bool) -> Callable[[Callable[..., ExitCode]], Callable[..., ExitCode]]:
    name = _NAMES[option.name]
    shown: dict[str, Any] = {"help": _help(option), "hidden": is_hidden}
    if option.default in _BOOLEANS:
        return click.option(f"{name}/--no-{name[2:]}", option.field, default=None, **shown)
    if option.name == "storage":
        shown |= {"multiple": True, "callback": joined}
    return click.option(name, option.field, metavar="TEXT", **shown)


def _help(option: Option) -> str:
    """Return an option's meaning as plain text; in the table it is Markdown."""
    meaning = _QUOTED.sub(lambda found: _NAMES.get(found[1], found[1]), option.meaning.replace("\\|", "|"))
    default = "" if option.default.startswith("(") else f"  [default: {option.default}]"
    return f"{meaning[0].upper()}{meaning[1:].rstrip('.')}.{default}"


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
            help="How bytes are printed. auto: as text where they are text; json: also as JSON.  [default: auto]",
        ),
        click.option(
            "--json-body",
            "style",
            flag_value=BytesStyle.JSON.name.lower(),
            help="--bytes json: bodies that are JSON objects or lists are printed as such, with their fields.",
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
    from store_core.command.output import Output

    target = None if target == Path("-") else target
    by_suffix = _by_suffix(target) if target is not None and format_ is None else None
    context = click.get_current_context()
    around, zone = Console.of(context), shown_zone(context.params.get("time_zone"))
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
