# SPDX-License-Identifier: Apache-2.0
"""Where the parts of a store are, and what must not be inside of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from store_core.errors import InvalidOptionError, UnsupportedStoreError
from store_core.files.file_system import names_in
from store_core.files.segment_paths import SegmentPaths
from store_core.files.store_kind import (
    StoreUse,
    check_is_no_url,
    check_is_root,
    check_log_place,
    check_parts,
    check_store_kind,
    is_root_of,
)
from store_core.files.store_lock import StoreLock
from store_core.files.store_path import ChosenPaths, LogPlace, lock_places, log_directories, store_roots, stores_near

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from store_core.files.file_system import FileSystem
    from store_core.files.store_path import StorePaths
    from store_core.store.config.message_store_config import MessageStoreConfig

__all__ = ["check_nothing_else", "check_outside", "check_root", "lock_of", "log_paths", "log_place"]

_OF_DISK: Final = "lost+found"
"""Directory in the root of a file system of its own: a disk that has nothing else is empty."""

_MOST_SHOWN: Final = 3


def check_outside(name: str, target: Path, source: StorePaths) -> None:
    """Refuse a target that is in a store, or that a store is in.

    * `name`: Of the option.
    * `target`: Absolute, with links resolved.
    * `source`: The store.
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

    * `target`: It need not exist.
    * `what`: What is made there, or continued.
    * `is_it`: Returns whether it is there already, by the names in the directory.
    """
    names = [name for name in names_in(target, file_system) if name != _OF_DISK]
    if not names or is_it(names):
        return
    shown = ", ".join(names[:_MOST_SHOWN]) + ", ..." * (len(names) > _MOST_SHOWN)
    raise InvalidOptionError(
        f"{target} is not empty, and is no {what}: found {shown}. Nothing was changed. Give one, an empty directory, "
        f"or a path where nothing is.{stores_near([target])}"
    )


def _none_full() -> Collection[Path]:
    return ()


def log_place(
    root: Path,
    config: MessageStoreConfig,
    file_system: FileSystem,
    full_paths: Callable[[], Collection[Path]] = _none_full,
) -> LogPlace:
    """Return where a store's log is, by the configuration and by what is there; see `store_core.files.store_path`.

    Commas separate directories in the configuration alone. RocketMQ also splits a root that has one.

    * `full_paths`: Returns the directories that currently get no new segments: `DiskSpace.full_paths`.
    """
    given = config.store_path_commit_log
    configured = SegmentPaths.parse(given or "", config.read_only_commit_log_store_paths or "", full_paths)
    if isinstance(given, ChosenPaths):
        return LogPlace(configured)
    return LogPlace.of(root, configured, _broker_root(config), file_system)


def log_paths(
    root: Path,
    config: MessageStoreConfig,
    file_system: FileSystem,
    full_paths: Callable[[], Collection[Path]] = _none_full,
) -> SegmentPaths:
    """Return the commit log's directories, see `log_place`."""
    return log_place(root, config, file_system, full_paths).paths


def lock_of(root: Path, config: MessageStoreConfig, file_system: FileSystem) -> StoreLock:
    """Return the lock of a store that is written, with those of the roots above its log."""
    first, *others = lock_places(root, log_paths(root, config, file_system).paths, _broker_root(config))
    return StoreLock(first, file_system, others)


def _broker_root(config: MessageStoreConfig) -> Path | None:
    return Path(config.store_path_root_dir) if config.store_path_root_dir else None


def check_root(
    root: Path,
    config: MessageStoreConfig,
    file_system: FileSystem,
    use: StoreUse = StoreUse.OPEN_QUEUES,
    *,
    writes: bool = True,
) -> None:
    """Raise if a store can't be opened or created at a path, or is of an unsupported kind; nothing is written."""
    place = log_place(root, config, file_system)
    paths = place.paths.all_paths
    check_is_root(root, file_system, paths)
    check_parts(root, file_system)
    check_store_kind(root, file_system, use)
    for path in paths:
        if path.parent != root:
            check_log_place(path, file_system)
    if config.enable_dleger_commit_log:
        raise UnsupportedStoreError(
            f"enableDLegerCommitLog is true: the store at {root} is a DLedger store, whose log has another format "
            f"(storePathDLedgerCommitLog says where it is), which is not supported. Expected false. Nothing was changed"
        )
    if writes:
        place.check_is_certain()
    if use is StoreUse.OPEN_QUEUES:
        _check_nothing_else(root, paths, file_system)


def _check_nothing_else(root: Path, log_paths: Collection[Path], file_system: FileSystem) -> None:
    """Refuse to make a store in a directory that has other files, unless its log is configured to be there."""
    inside = [path for path in log_paths if path.absolute().is_relative_to(root.absolute())]
    if not any(file_system.status(path) is not None for path in inside):
        check_nothing_else(root, "store", is_root_of, file_system)
