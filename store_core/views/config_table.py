# SPDX-License-Identifier: Apache-2.0
"""The broker's configuration files for views: read as a broker reads them, with clear errors."""

from __future__ import annotations

import logging
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from store_core.broker.config_fields import ConfigFields
from store_core.broker.config_file import backup_of, read_config
from store_core.errors import StoreAccessError, StoreNotFoundError
from store_core.files.access import explained_access, kind_of_file
from store_core.files.config_paths import CONFIG_DIRECTORY
from store_core.files.file_system import OsFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store_core.broker.config_json import JsonObject
    from store_core.format.releases.release import Release
    from store_core.views.view_options import ViewOptions

__all__ = ["FoundConfig", "check_is_file", "find_config", "read_table", "without_file"]

_log: Final = logging.getLogger("store_core")

_LARGEST: Final = 256 << 20
"""Maximum bytes of a file; those of large brokers have some ten million bytes."""

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class FoundConfig(Generic[Row]):
    """What a configuration file says.

    Attributes
    ----------
    value : object
    file : str
        The file that says it, or its backup, below the store's root.
    notes : tuple of str
        That the backup was read, and why.
    """

    value: Row
    file: str
    notes: tuple[str, ...]


def read_table(
    root: Path, name: str, decode: Callable[[ConfigFields], list[Row]], options: ViewOptions
) -> FoundConfig[list[Row]]:
    """Read the rows of a configuration file that is all that a view has.

    Parameters
    ----------
    root : Path
        The store's root.
    name : str
        The file's name.
    decode : callable
        Returns the rows in the file, or raises `CorruptRecordError` if it is not as required.
    options : ViewOptions

    Raises
    ------
    StoreNotFoundError
        If neither the file nor its backup is there, unless `fail_on_data_loss` is off: no row would look like an
        empty file.
    CorruptRecordError
        If the file is broken, and the backup is broken or not there.
    StoreAccessError
        If a file may not be read, or is no file.
    """
    found = find_config(root, name, decode, options.read.release)
    if found is not None:
        return found
    without_file(_missing(root / CONFIG_DIRECTORY / name), options)
    return FoundConfig([], f"{CONFIG_DIRECTORY}/{name}", ())


def without_file(missing: StoreNotFoundError, options: ViewOptions) -> None:
    """Raise the error for a file that is not there, or log it if `fail_on_data_loss` is off.

    Raises
    ------
    StoreNotFoundError
        The one given.
    """
    if options.read.fail_on_data_loss:
        raise missing
    _log.warning("%s", missing)


def find_config(
    root: Path, name: str, decode: Callable[[ConfigFields], Row], release: str | None = None
) -> FoundConfig[Row] | None:
    """Read a configuration file or its backup as a release does, by default as any.

    None if neither is there. Errors as of `read_table`.
    """
    path = root / CONFIG_DIRECTORY / name
    found: list[Row] = []

    def keep(value: JsonObject, file: str) -> None:
        found.append(decode(ConfigFields(value, file)))

    with explained_access(root):
        for each in (path, backup_of(path)):
            check_is_file(each)
        source, notes = read_config(
            path, keep, OsFileSystem(), largest=_LARGEST, release=cast("Release | None", release)
        )
    return None if source is None else FoundConfig(found[-1], f"{CONFIG_DIRECTORY}/{source.name}", notes)


def check_is_file(path: Path) -> None:
    """Refuse what would be opened like a file, and is none: opening a pipe may never return.

    Raises
    ------
    StoreAccessError
        If something else is there.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise StoreAccessError(f"{path}: expected a file, found {kind_of_file(mode)}. Move what is there elsewhere")


def _missing(path: Path) -> StoreNotFoundError:
    return StoreNotFoundError(
        f"{path} is missing or empty, and so is {backup_of(path)}: expected the file that a broker keeps there. Copy "
        f"the broker's directory {CONFIG_DIRECTORY} into the store's root; a store that no broker has served has none. "
        f"With failOnDataLoss=false there are no rows"
    )
