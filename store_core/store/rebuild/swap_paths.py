# SPDX-License-Identifier: Apache-2.0
"""Which directories the journal of a swap may move: it is a file of a store, and so may be anybody's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.store.rebuild.output_directory import store_of_output

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["why_foreign"]


def why_foreign(root: Path, source: Path, kept: Path, places: Iterable[str]) -> str | None:
    """Return why a swap must not be made, as what was found; None if all its directories are the store's.

    New directories may come from the store, reached without a link, or from a directory that a rebuild of this store
    has marked as its output. No directory above a place may be a link, on either side.

    Parameters
    ----------
    root : Path
        The store's root.
    source, kept : Path
        As of `store_core.store.rebuild.swap.RebuildSwap`.
    places : iterable of str
        Relative paths without ``..``.
    """
    if not source.is_absolute() or ".." in source.parts:
        return f"{source}, which is not an absolute path"
    if source.is_relative_to(root.absolute()):
        links = _links(root, source.relative_to(root.absolute()).parts)
    else:
        links = [source] if source.is_symlink() else []
        if source.exists() and not links and not _is_output_of(source, root):
            return f"{source}, which no rebuild of {root} has made"
    links += [kept] if kept.is_symlink() else []
    for place in places:
        above = place.split("/")[:-1]
        links += [link for directory in (source, root, kept) for link in _links(directory, above)]
    return f"{links[0]}, which is a link" if links else None


def _links(directory: Path, parts: Iterable[str]) -> list[Path]:
    """Return the links among the directories that lead from one to what is below it."""
    found = []
    for part in parts:
        directory /= part
        if directory.is_symlink():
            found.append(directory)
    return found


def _is_output_of(source: Path, root: Path) -> bool:
    store = store_of_output(source)
    return store is not None and store.resolve() == root.resolve()
