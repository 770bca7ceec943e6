# SPDX-License-Identifier: Apache-2.0
"""The root of the store that a view is about."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from store_core.errors import InvalidOptionError, StoreNotFoundError, UnsupportedStoreError
from store_core.files.access import explained_access
from store_core.files.archive_listing import is_archive
from store_core.files.configured_root import ConfiguredRoot, log_directories
from store_core.files.dledger_log import dledger_logs, root_of_member
from store_core.files.file_system import OsFileSystem
from store_core.files.local_listing import single_file
from store_core.files.store_kind import StoreUse, check_store_kind
from store_core.files.store_parts import COMMIT_LOG, check_is_root, is_root
from store_core.files.store_path import places_of
from store_core.snapshot.log import Log

if TYPE_CHECKING:
    from store_core.files.segment_source import Segment
    from store_core.files.store_path import StorePaths

__all__ = ["queue_notes", "root_of", "whole_log"]


def root_of(paths: StorePaths, use: StoreUse = StoreUse.READ_LOG) -> Path:
    """Return the root of the one store at some paths, checked to be of a kind that can be read.

    Parameters
    ----------
    paths : path or sequence of paths
        A store's root, its ``commitlog`` directory, that of a DLedger log, or a segment.
    use : StoreUse
        What is going to be read.

    Raises
    ------
    StoreNotFoundError
        If nothing exists at a path.
    SegmentLayoutError
        If a path is a file that is no segment.
    StoreAccessError
        If a part of the store may not be looked into.
    InvalidOptionError
        If the paths have several roots, or one is another part of a store.
    UnsupportedStoreError
        If it is an archive, and as of `store_core.files.store_kind.check_store_kind`.
    """
    places = places_of(paths)
    with explained_access(places[0]):
        for place in places:
            _check_place(place)
        roots = tuple(dict.fromkeys(map(_root_at, places)))
        if len(roots) > 1:
            raise InvalidOptionError(
                f"expected the root of one store, found {', '.join(map(str, roots))}: queues, index and configuration "
                f"are below one root (storePathRootDir), wherever the segments are. Give that"
            )
        check_is_root(roots[0], OsFileSystem(), log_directories(roots[0]))
        check_store_kind(roots[0], OsFileSystem(), use, reads_entries=True)
        return roots[0]


def _check_place(place: Path) -> None:
    """Refuse a file beside which the rest of its store can't be."""
    if is_archive(place):
        raise UnsupportedStoreError(
            f"{place} is an archive: only the messages in it can be read, and this needs the store's queues, index or "
            f"configuration. Unpack it, and give the directory"
        )
    if not place.is_dir():
        single_file(place, compressed=True)


def queue_notes(paths: StorePaths) -> tuple[str, ...]:
    """Return notes on what is beside the log of a store, or of stores, and that listing the log does not tell."""
    notes: list[str] = []
    for root in dict.fromkeys(_root_at(place) for place in places_of(paths) if not is_archive(place)):
        with suppress(OSError):  # who lists the log need not be allowed to look elsewhere
            told, known = (
                check_store_kind(root, OsFileSystem(), use, reads_entries=True)
                for use in (StoreUse.READ_QUEUES, StoreUse.READ_LOG)
            )
            notes += [note for note in told if note not in known]
    return tuple(notes)


def _root_at(place: Path) -> Path:
    """Return the root that a path stands for: itself, unless it is a log's directory or in one."""
    if isinstance(place, ConfiguredRoot):
        return place
    directory = place if place.is_dir() else place.parent
    member_root = root_of_member(directory)
    if member_root is not None:
        return member_root
    if is_root(directory, OsFileSystem()):
        return directory
    is_log = directory != place or directory.name == COMMIT_LOG or is_root(directory.parent, OsFileSystem())
    return directory.parent if is_log else directory


def whole_log(root: Path, paths: StorePaths, *, compressed: bool = False) -> tuple[Segment, ...]:
    """Return all segments of a store's log; none if only other parts of the store are there.

    Parameters
    ----------
    root : Path
        The store's root.
    paths : path or sequence of paths
        Where the segments are if not below the root.
    compressed : bool
        Whether segments that are compressed as a whole are among them.
    """
    try:
        is_there = any(map(Path.is_dir, log_directories(root))) or any(dledger_logs(root, OsFileSystem()))
        return Log.of(
            root if is_there else paths, reads_entries=True, compressed="read" if compressed else "left out"
        ).segments
    except StoreNotFoundError:
        return ()
