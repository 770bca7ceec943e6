# SPDX-License-Identifier: Apache-2.0
"""Files that are all that a view has, and what becomes of the view without them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeVar

from store_core.errors import StoreNotFoundError
from store_core.files.config_paths import CONFIG_DIRECTORY
from store_core.snapshot.config import Config, backup_of

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.snapshot.config import ConfigFile, ConfigKind
    from store_core.views.view_options import ViewOptions

__all__ = ["read_table", "without_file"]

_log: Final = logging.getLogger("store_core")

T = TypeVar("T")


def read_table(root: Path, kind: ConfigKind[T], options: ViewOptions) -> ConfigFile[T] | None:
    """Read a configuration file that is all that a view has; None if `fail_on_data_loss` is off and it is not there.

    Raises
    ------
    StoreNotFoundError
        If neither the file nor its backup is there: no row would look like an empty file.
    CorruptRecordError, StoreAccessError
        As of `store_core.snapshot.config.Config.read`.
    """
    config = Config(root, options.read.release)
    found = config.read(kind)
    if found is None:
        without_file(_missing(config.path(kind)), options)
    return found


def without_file(missing: StoreNotFoundError, options: ViewOptions) -> None:
    """Raise the error for a file that is not there, or log it if `fail_on_data_loss` is off."""
    if options.read.fail_on_data_loss:
        raise missing
    _log.warning("%s", missing)


def _missing(path: Path) -> StoreNotFoundError:
    return StoreNotFoundError(
        f"{path} is missing or empty, and so is {backup_of(path)}: expected the file that a broker keeps there. Copy "
        f"the broker's directory {CONFIG_DIRECTORY} into the store's root; a store that no broker has served has none. "
        f"With failOnDataLoss=false there are no rows"
    )
