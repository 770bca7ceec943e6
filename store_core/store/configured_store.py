# SPDX-License-Identifier: Apache-2.0
"""A store by its path and its broker's configuration, for all that reads a store, or writes what follows from its log.

A path that is no root says by itself which log is meant, and so do several paths: a configuration changes nothing then.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from store_core.files.file_system import OsFileSystem, names_in
from store_core.files.remote.url_path import UrlPath
from store_core.files.segment_names import start_offset_of
from store_core.files.segment_paths import SegmentPaths
from store_core.files.store_kind import MEMBER_PREFIX, data_directory, dledger_logs
from store_core.files.store_path import ConfiguredRoot, path_of, without_scheme
from store_core.format.releases.release import DEFAULT_RELEASE

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from store_core.files.store_path import LogPlace, StorePaths
    from store_core.format.releases.release import Release
    from store_core.store.config.message_store_config import MessageStoreConfig

Options = TypeVar("Options", bound="DataclassInstance")

__all__ = ["check_log_is_certain", "chosen_log", "config_of", "configured_paths", "configured_store", "told"]


def config_of(
    config: MessageStoreConfig | str | os.PathLike[str] | None,
    store_path_commit_log: str | os.PathLike[str] | None = None,
    release: Release = DEFAULT_RELEASE,
) -> MessageStoreConfig:
    """Return a configuration, or the one in a file as a release reads it, with the log that the caller means."""
    from store_core.store.config.message_store_config import MessageStoreConfig  # noqa: PLC0415 -- most give none

    if not isinstance(config, MessageStoreConfig):
        if config is None:
            config = MessageStoreConfig(release=release)
        else:
            config = MessageStoreConfig.from_properties(config, release)
    return config if store_path_commit_log is None else config.with_log(store_path_commit_log)


def told(options: Options, config: str | os.PathLike[str] | None) -> Options:
    """Return options of an answer that have a broker's configuration with another one, if it is given."""
    return options if config is None else replace(options, broker_config=config)


def check_log_is_certain(
    root: Path,
    config: MessageStoreConfig | str | os.PathLike[str] | None,
    store_path_commit_log: str | os.PathLike[str] | None,
) -> None:
    """Refuse to write what follows from a log where two may be meant, see `store_core.files.store_path`."""
    if config is not None:
        _place(root, config_of(config, store_path_commit_log)).check_is_certain()


def _place(root: Path, config: MessageStoreConfig) -> LogPlace:
    from store_core.store.store_layout import log_place  # noqa: PLC0415 -- most stores are given without configuration

    return log_place(root, config, OsFileSystem())


def chosen_log(path: str | os.PathLike[str], config: MessageStoreConfig | str | os.PathLike[str] | None) -> str | None:
    """Return the log that a path means besides a configuration, because its caller chose it; None if it chose none."""
    log = path.log if isinstance(path, ConfiguredRoot) else ()
    configured = configured_store(os.fspath(path), config) if log else path
    return None if log == getattr(configured, "log", ()) else ",".join(map(str, log))


def configured_paths(
    paths: StorePaths,
    config: MessageStoreConfig | str | os.PathLike[str] | None = None,
    store_path_commit_log: str | os.PathLike[str] | None = None,
) -> StorePaths:
    """Return paths as `configured_store` does if they are one; several are one log by themselves."""
    if isinstance(paths, str | os.PathLike):
        return configured_store(paths, config, store_path_commit_log)
    if isinstance(paths, list | tuple) and len(paths) == 1:
        return [configured_store(paths[0], config, store_path_commit_log)]
    return paths


def configured_store(
    path: str | os.PathLike[str],
    config: MessageStoreConfig | str | os.PathLike[str] | None = None,
    store_path_commit_log: str | os.PathLike[str] | None = None,
) -> str | os.PathLike[str]:
    """Return the path of a store as its configuration says where its log is.

    * `path`: One that is not the root of a store on this machine is returned as it is.
    * `config`: The broker's configuration.
    * `store_path_commit_log`: Which log is meant, where the store and its configuration have two: a directory, or
      several, separated by commas.
    """
    if (config is None and store_path_commit_log is None) or isinstance(path, ConfiguredRoot):
        return path
    settings = config_of(config, store_path_commit_log)
    root = _root(path, settings)
    if root is None:
        return path
    place = _place(root, settings)
    log, member = _with_dledger(root, place.paths.all_paths, settings)
    broker_root = Path(settings.store_path_root_dir) if settings.store_path_root_dir else None
    return ConfiguredRoot.of(root, log, member, broker_root, (place.note,) if place.note else ())


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
    return root if not is_log or root in _place(root, config).paths.all_paths else None


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
