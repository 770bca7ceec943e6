# SPDX-License-Identifier: Apache-2.0
"""A store by its URL, with the settings of the storage that it is in, for all that takes a path."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from store_core.files.remote.url_path import UrlPath
from store_core.files.store_path import path_of
from store_core.store.configured_store import configured_store
from store_core.store.read.option_values import OPTION_PARSERS

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from store_core.files.remote.storage import StorageSettings

__all__ = ["store_at"]


def store_at(
    url: str | os.PathLike[str],
    storage: Mapping[str, str] | str | None = None,
    config: str | os.PathLike[str] | None = None,
    store_path_commit_log: str | os.PathLike[str] | None = None,
) -> str | os.PathLike[str]:
    """Return a path that stands for a store in another storage, with its settings, or for one whose log is elsewhere.

    All functions that read a store take it. Of another storage, what is there is listed when it is first asked for, and
    then stays as it was, so that an answer is about one state: make a new one to see what is there later.

    * `url`: Such as ``"s3://bucket/store"``; a local path is returned as it is, if no configuration is given.
    * `storage`: As of option `storage`. Settings are never shown.
    * `config`, `store_path_commit_log`: As of the options `config` and `store_path_commit_log`: where the log of a
      store on this machine is.

    Examples
    --------
    >>> from store_core import store_at
    >>> from store_core.answers import check
    >>> check(store_at("s3://backup/broker-a/store", {"region": "eu-west-1"})).verdict  # doctest: +SKIP
    """
    settings = cast("StorageSettings", OPTION_PARSERS["storage"]("storage", storage or {}))
    found = path_of(url, settings)
    return found if isinstance(found, UrlPath) else configured_store(url, config, store_path_commit_log)
