# SPDX-License-Identifier: Apache-2.0
"""Checks of a target: it is not in the store that it is made of, and nothing of others is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store_core.errors import InvalidOptionError
from store_core.files.configured_root import log_directories
from store_core.files.file_system import names_in
from store_core.files.store_parts import check_is_no_url
from store_core.files.store_path import store_roots, stores_near

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from store_core.files.file_system import FileSystem
    from store_core.files.store_path import StorePaths

__all__ = ["check_nothing_else", "check_outside"]

_OF_DISK: Final = "lost+found"
"""Directory in the root of a file system of its own: a disk that has nothing else is empty."""

_MOST_SHOWN: Final = 3


def check_outside(name: str, target: Path, source: StorePaths) -> None:
    """Refuse a target that is in a store, or that a store is in.

    Parameters
    ----------
    name : str
        Of the option.
    target : Path
        Absolute, with links resolved.
    source : path or sequence of paths
        The store.

    Raises
    ------
    InvalidOptionError
        If one is in the other.
    UnsupportedStoreError
        If the target is a URL.
    """
    check_is_no_url(target)
    places = [each for root in store_roots(source) for each in (root, *log_directories(root))]
    for root in (place.resolve() for place in places):
        if target.is_relative_to(root) or root.is_relative_to(target):
            raise InvalidOptionError(
                f"{name}: expected a path outside of the store {root}, found {target}: nothing is written to it"
            )


def check_nothing_else(
    target: Path, what: str, is_it: Callable[[Collection[str]], bool], file_system: FileSystem
) -> None:
    """Refuse a directory that is not empty and not what is written there: our files would lie among those of others.

    Parameters
    ----------
    target : Path
        It need not exist.
    what : str
        What is made there, or continued.
    is_it : callable
        Returns whether it is there already, by the names in the directory.

    Raises
    ------
    InvalidOptionError
        With what is there instead, and stores nearby.
    """
    names = [name for name in names_in(target, file_system) if name != _OF_DISK]
    if not names or is_it(names):
        return
    shown = ", ".join(names[:_MOST_SHOWN]) + ", ..." * (len(names) > _MOST_SHOWN)
    raise InvalidOptionError(
        f"{target} is not empty, and is no {what}: found {shown}. Nothing was changed. Give one, an empty directory, "
        f"or a path where nothing is.{stores_near([target])}"
    )
