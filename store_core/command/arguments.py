# SPDX-License-Identifier: Apache-2.0
"""What arguments of commands share: choices, examples, settings of storages."""

from __future__ import annotations

from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from store_core.command.console import say, warnings_shown
from store_core.format.words import hint_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from store_core.command.exit_code import ExitCode

    Store: TypeAlias = "str | os.PathLike[str]"

__all__ = ["LOG_HELP", "NearChoice", "examples", "joined", "with_config", "with_log", "with_storage"]


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


_STORES: Final = ("store", "a", "b")
"""Arguments that are stores."""

_HELP: Final = "Settings of the object store or file system, if STORE is a URL, such as region=eu-west-1."
_CONFIG_HELP: Final = "The broker's configuration, which says where the log is (storePathCommitLog)"
LOG_HELP: Final = "The log that is meant, if STORE has one and --config names another; commas separate directories."


def with_storage(command: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
    """Give a command the options that say where its store is; it gets a path that knows that."""
    return _with_places(command, f"{_CONFIG_HELP}.", passes_config=False)


def with_config(what: str, *, takes_url: bool = True) -> Callable[[Callable[..., ExitCode]], Callable[..., ExitCode]]:
    """As `with_storage`, for a command that also gets the file with the configuration, since more in it counts."""
    return partial(_with_places, help_of_config=f"{_CONFIG_HELP}, and {what}.", passes_config=True, takes_url=takes_url)


def with_log(command: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
    """As `with_storage`, for a command whose store has to be on this machine."""
    return _with_places(command, f"{_CONFIG_HELP}.", passes_config=False, takes_url=False)


def _with_places(
    command: Callable[..., ExitCode], help_of_config: str, *, passes_config: bool, takes_url: bool = True
) -> Callable[..., ExitCode]:
    @wraps(command)
    def run(
        *,
        storage: str | None = None,
        config: str | None,
        store_path_commit_log: str | None,
        **given: Any,  # noqa: ANN401 -- the command's own
    ) -> ExitCode:
        from store_core.files.store_path import notes_of
        from store_core.snapshot.store import store_at

        with warnings_shown():
            stores = {name: given[name] for name in _STORES if name in given}
            given |= {name: store_at(store, storage, config, store_path_commit_log) for name, store in stores.items()}
        for note in dict.fromkeys(note for name in stores for note in notes_of(given[name])):
            say(f"warning: {note}")
        return command(**given, **({"config": config} if passes_config else {}))

    click.option("--store-path-commit-log", metavar="PATH", help=LOG_HELP)(run)
    click.option("--config", metavar="FILE", help=help_of_config)(run)
    if takes_url:
        click.option("--storage", metavar="NAME=VALUE,...", multiple=True, callback=joined, help=_HELP)(run)
    return run


def joined(_context: click.Context, _option: click.Parameter, settings: tuple[str, ...]) -> str | None:
    """Return the settings of an option that is repeated as if they were given at once; None without any."""
    return ",".join(settings) or None
