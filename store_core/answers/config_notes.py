# SPDX-License-Identifier: Apache-2.0
"""Configuration files that an answer can do without: one that is broken becomes a note."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from store_core.errors import CorruptRecordError, StoreAccessError
from store_core.files.archive_listing import is_archive
from store_core.files.config_paths import CONFIG_DIRECTORY
from store_core.views.config_table import find_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store_core.broker.config_fields import ConfigFields

__all__ = ["config_or_note"]

T = TypeVar("T")


def config_or_note(
    root: Path, name: str, decode: Callable[[ConfigFields], T], what: str, release: str | None = None
) -> tuple[T | None, tuple[str, ...]]:
    """Return what a configuration file or its backup says, and what is to be said of the file.

    Parameters
    ----------
    root : Path
        The store's root.
    name : str
        The file's name.
    decode : callable
        As of `store_core.views.config_table.find_config`.
    what : str
        What is not known without it.
    release : str, optional
        The release that reads it; by default any.

    Returns
    -------
    object or None
        None if neither the file nor its backup is there, or both are broken.
    tuple of str
        A note if they are broken, or may not be read, or if the backup was read, which is older.
    """
    if is_archive(root):
        return None, (f"{what} is not known: {root} is an archive, of which only the messages are read",)
    try:
        found = find_config(root, name, decode, release)
    except (CorruptRecordError, StoreAccessError) as error:
        return None, (f"{what} is not known, because {CONFIG_DIRECTORY}/{name} can't be read: {error}",)
    return (None, ()) if found is None else (found.value, found.notes)
