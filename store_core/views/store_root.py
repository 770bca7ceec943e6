# SPDX-License-Identifier: Apache-2.0
"""The root of the store that a view is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.errors import InvalidOptionError
from store_core.files.file_system import OsFileSystem
from store_core.files.store_kind import StoreUse, check_store_kind
from store_core.files.store_parts import check_is_root
from store_core.files.store_path import store_roots

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.store_path import StorePaths

__all__ = ["root_of"]


def root_of(paths: StorePaths, use: StoreUse = StoreUse.READ_LOG) -> Path:
    """Return the root of the one store at some paths, checked to be of a kind that can be read.

    Parameters
    ----------
    paths : path or sequence of paths
        A store's root, its ``commitlog`` directory, or a segment.
    use : StoreUse
        What is going to be read.

    Raises
    ------
    StoreNotFoundError
        If nothing exists at a path.
    InvalidOptionError
        If the paths have several roots, or one is another part of a store.
    UnsupportedStoreError
        As of `store_core.files.store_kind.check_store_kind`.
    """
    roots = store_roots(paths)
    if len(roots) > 1:
        raise InvalidOptionError(
            f"expected the root of one store, found {', '.join(map(str, roots))}: queues, index and configuration are "
            f"below one root (storePathRootDir), wherever the segments are. Give that"
        )
    check_is_root(roots[0], OsFileSystem())
    check_store_kind(roots[0], OsFileSystem(), use)
    return roots[0]
