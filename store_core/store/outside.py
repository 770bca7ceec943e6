# SPDX-License-Identifier: Apache-2.0
"""The check that a target is not in the store that it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.errors import InvalidOptionError
from store_core.files.store_parts import check_is_no_url
from store_core.files.store_path import store_roots

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.store_path import StorePaths

__all__ = ["check_outside"]


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
    for root in (root.resolve() for root in store_roots(source)):
        if target.is_relative_to(root) or root.is_relative_to(target):
            raise InvalidOptionError(
                f"{name}: expected a path outside of the store {root}, found {target}: nothing is written to it"
            )
