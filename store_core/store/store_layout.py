# SPDX-License-Identifier: Apache-2.0
"""Where the parts of a store are, by its path and its broker's configuration, and what must not be inside of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from store_core.errors import InvalidOptionError, UnsupportedStoreError
from store_core.files.file_system import OsFileSystem, names_in
from store_core.files.remote.url_path import UrlPath
from store_core.files.segment_names import start_offset_of
from store_core.files.segment_paths import SegmentPaths
from store_core.files.store_kind import (
    MEMBER_PREFIX,
    StoreUse,
    check_is_no_url,
    check_is_root,
    check_log_place,
    check_parts,
    check_store_kind,
    data_directory,
    dledger_logs,
    is_root_of,
)
from store_core.files.store_lock import StoreLock
from store_core.files.store_path import (
    ChosenPaths,
    ConfiguredRoot,
    LogPlace,
    lock_places,
    log_directories,
    path_of,
    store_roots,
    stores_near,
    without_scheme,
)
from store_core.format.releases.release import DEFAULT_RELEASE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from store_core.files.file_system import FileSystem
    from store_core.files.store_path import StorePaths
    from store_core.format.releases.release import Release
    from store_core.store.config.message_store_config import MessageStoreConfig

__all__ = [
    "check_log_is_certain",
    "check_nothing_else",
    "check_outside",
    "check_root",
    "chosen_log",
    "config_of",
    "configured_root",
    "lock_of",
    "log_paths",
    "log_place",
]

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


# ---- a store and its broker's configuration


def check_log_is_certain(
    root: Path,
    config: MessageStoreConfig | str | os.PathLike[str] | None,
    store_path_commit_log: str | os.PathLike[str] | None,
) -> None:
    """Refuse to write what follows from a log where two may be meant, see `store_core.files.store_path.LogPlace`."""
    if config is not None:
        log_place(root, config_of(config, store_path_commit_log), OsFileSystem()).check_is_certain()


def config_of(
    config: MessageStoreConfig | str | os.PathLike[str] | None,
    store_path_commit_log: str | os.PathLike[str] | None = None,
    release: Release = DEFAULT_RELEASE,
) -> MessageStoreConfig:
    """Return a configuration, or the one in a file as a release reads it, with the log that the caller means."""
    from store_core.store.config.message_store_config import MessageStoreConfig  # noqa: PLC0415 -- most give none

    if config is None:
        config = MessageStoreConfig(release=release)
    elif not isinstance(config, MessageStoreConfig):
        config = MessageStoreConfig.from_properties(config, release)
    return config if store_path_commit_log is None else config.with_log(store_path_commit_log)


def chosen_log(path: str | os.PathLike[str], config: MessageStoreConfig | str | os.PathLike[str] | None) -> str | None:
    """Return the log that a path means besides a configuration, because its caller chose it; None if it chose none."""
    log = path.log if isinstance(path, ConfiguredRoot) else ()
    configured = os.fspath(path) if config is None else configured_root(os.fspath(path), config_of(config))
    return None if not log or log == getattr(configured, "log", ()) else ",".join(map(str, log))


def configured_root(path: str | os.PathLike[str], config: MessageStoreConfig) -> str | os.PathLike[str]:
    """Return a path that knows where the log is by a configuration; one that is no root on this machine as it is.

    A path that is no root says by itself which log is meant, and a configuration changes nothing then.
    """
    root = path if isinstance(path, ConfiguredRoot) else _root(path, config)
    if root is None or isinstance(root, ConfiguredRoot):
        return path
    place = log_place(root, config, OsFileSystem())
    log, member = _with_dledger(root, place.paths.all_paths, config)
    return ConfiguredRoot.of(root, log, member, _broker_root(config), (place.note,) if place.note else ())


def _root(path: str | os.PathLike[str], config: MessageStoreConfig) -> Path | None:
    """Return the root of the store on this machine that a path may be; None if it is something else."""
    if isinstance(path_of(path), UrlPath):
        return None
    root = Path(os.path.abspath(without_scheme(os.fspath(path))))  # noqa: PTH100 -- resolve() follows links
    if not root.is_dir():
        return None
    names = names_in(root, OsFileSystem())
    is_log = (
        any(start_offset_of(name) is not None for name in names) or data_directory(root, OsFileSystem()) is not None
    )
    return root if not is_log or root in log_place(root, config, OsFileSystem()).paths.all_paths else None


def _with_dledger(
    root: Path, log: tuple[Path, ...], config: MessageStoreConfig
) -> tuple[tuple[Path, ...], Path | None]:
    """Return the directories of a log with those of a DLedger log elsewhere, if there is one, and its member's.

    As with an ordinary log, the store that was named is what is meant: what lies below its root is its own.
    """
    configured = SegmentPaths.parse(config.store_path_dledger_commit_log or "").paths
    older = tuple(path for path in log if names_in(path, OsFileSystem()))
    if not configured or any(dledger_logs(root, OsFileSystem())) or (older and not config.enable_dleger_commit_log):
        return log, None
    members = [name for name in names_in(root, OsFileSystem()) if name.startswith(MEMBER_PREFIX)]
    named = f"{MEMBER_PREFIX}{config.dleger_self_id}"
    member = named if named in members else members[0] if len(members) == 1 else None
    return (*older, *configured), None if member is None else root / member
