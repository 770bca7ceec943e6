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

__all__ = ["with_storage"]

_STORES: Final = ("store", "a", "b")
"""Arguments that are stores."""

_HELP: Final = "Settings of the object store or file system, if STORE is a URL, such as region=eu-west-1."


def with_storage(command: Callable[..., ExitCode]) -> Callable[..., ExitCode]:
    """Give a command the option ``--storage``; where its store is a URL, it gets a path with these settings."""

    @wraps(command)
    def run(*, storage: tuple[str, ...], **given: Any) -> ExitCode:  # noqa: ANN401 -- the command's own
        from store_core.store.read.store_at import store_at

        settings = ",".join(storage) or None
        given |= {name: store_at(given[name], settings) for name in _STORES if name in given}
        return command(**given)

    return click.option("--storage", metavar="NAME=VALUE,...", multiple=True, help=_HELP)(run)
