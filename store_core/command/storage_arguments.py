# SPDX-License-Identifier: Apache-2.0
"""The option of commands about whole stores that says how a storage is opened."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from store_core.command.exit_code import ExitCode

    Store: TypeAlias = "str | os.PathLike[str]"

__all__ = ["joined", "with_storage"]

_STORES: Final = ("store", "a", "b")
"""Arguments that are stores."""

_HELP: Final = "Settings of the object store or file system, if STORE is a URL, such as region=eu-west-1."


def with_storage(command: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
    """Give a command the option ``--storage``; where its store is a URL, it gets a path with these settings."""

    @wraps(command)
    def run(*, storage: str | None, **given: Any) -> ExitCode:  # noqa: ANN401 -- the command's own
        from store_core.store.read.store_at import store_at

        given |= {name: store_at(given[name], storage) for name in _STORES if name in given}
        return command(**given)

    return click.option("--storage", metavar="NAME=VALUE,...", multiple=True, callback=joined, help=_HELP)(run)


def joined(_context: click.Context, _option: click.Parameter, settings: tuple[str, ...]) -> str | None:
    """Return the settings of an option that is repeated as if they were given at once; None without any."""
    return ",".join(settings) or None
