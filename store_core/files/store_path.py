# SPDX-License-Identifier: Apache-2.0
"""The files and directories that the paths of a store stand for, on this machine or in another storage."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote  # noqa: TID251 -- decodes text, opens nothing

from store_core.errors import InvalidOptionError, StoreNotFoundError, UnsupportedStoreError
from store_core.files.access import access_error
from store_core.files.archive_listing import is_archive
from store_core.files.dledger_log import dledger_logs, root_of_member
from store_core.files.file_system import OsFileSystem
from store_core.files.log_place import ConfiguredRoot, log_directories
from store_core.files.remote.storage import NO_SETTINGS, parse_url
from store_core.files.remote.url_path import UrlPath
from store_core.files.segment_names import NAME_RULE
from store_core.files.store_kind import has_queues
from store_core.files.store_parts import CHECKPOINT_FILE, COMMIT_LOG, check_is_no_url, is_root, path_exists

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.files.remote.storage import StorageSettings

__all__ = [
    "StorePaths",
    "absolute_path_of",
    "located",
    "located_now",
    "nothing_at",
    "path_of",
    "places_of",
    "root_at",
    "store_roots",
    "stores_near",
    "without_scheme",
]

StorePaths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""One path, or several that form one log together."""

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_FILE_URL: Final = re.compile(r"file:(?://(?:localhost)?(?=/)|(?!//))(/.*)", re.DOTALL | re.IGNORECASE)
_MULTI_PATH_SPLITTER: Final = ","
_MOST_TOLD: Final = 3
_MOST_LOOKED_AT: Final = 1000
_HIGHEST: Final = 3
"""Directories above a file of a queue, up to the root of its store."""


def located(paths: StorePaths, storage: StorageSettings = NO_SETTINGS) -> StorePaths:
    """Return paths in which each URL of an object store or another file system is a `UrlPath`.

    Called once for each plan: what is there is listed when it is first asked for, and then stays as it was.

    * `paths`: Of a `UrlPath` the settings are those with which it was made.
    * `storage`: For those that are text.
    """
    given = _given(paths)
    found = [path if isinstance(path, UrlPath) else _of_url(os.fspath(path), storage) for path in given]
    remote = [path for path in found if path is not None]
    if not remote:
        return paths
    if len(remote) < len(found):
        raise InvalidOptionError(f"some of the paths are on this machine, and {remote[0]} is not: expected one kind")
    return remote


def _given(paths: object) -> list[str | os.PathLike[str]]:
    """Return what a caller gave, one path or several, as a list; its type is only known to be right when it is run."""
    is_one = isinstance(paths, str | bytes | os.PathLike)
    several = paths if isinstance(paths, Iterable) and not is_one else [paths]
    return [_checked(path, ", or several of them that form one log") for path in several]


def _checked(path: object, more: str = "") -> str | os.PathLike[str]:
    """Return a path, unless it is none, or one in bytes."""
    if isinstance(path, str | os.PathLike) and isinstance(os.fspath(path), str):
        return path
    raise InvalidOptionError(f"path: expected the path of a store, as text or os.PathLike{more}, found {path!r}")


def located_now(paths: StorePaths, storage: StorageSettings = NO_SETTINGS) -> StorePaths:
    """Return paths as `located` does, with nothing known of what is there: for who looks again and again."""
    found = located(paths, storage)
    return [path.relisted() for path in _given(found) if isinstance(path, UrlPath)] or found


def path_of(path: str | os.PathLike[str], storage: StorageSettings = NO_SETTINGS) -> Path:
    """Return one path as it is read: a `UrlPath`, see `located`, or a local one that need not exist."""
    if isinstance(path, UrlPath | ConfiguredRoot):
        return path
    found = _of_url(os.fspath(_checked(path)), storage)
    return Path(path) if found is None else found


def absolute_path_of(path: str | os.PathLike[str]) -> Path:
    """Return one path as `path_of` does, a local one absolute and without ``..``; links in it stay."""
    found = path_of(path)
    return found if isinstance(found, UrlPath | ConfiguredRoot) else Path(os.path.abspath(path))  # noqa: PTH100 -- resolve() follows links


def _of_url(text: str, storage: StorageSettings) -> UrlPath | None:
    place = parse_url(text, storage)
    return None if place is None else UrlPath(place)


def store_roots(paths: StorePaths) -> tuple[Path, ...]:
    """Return the directories that may be the roots of the stores at some paths, with queues and configuration.

    An archive is its own root, below which there is nothing: what lies beside it is not of its store.
    """
    return tuple(dict.fromkeys(map(root_at, places_of(paths))))


def root_at(place: Path) -> Path:
    """Return the root that a place stands for: itself, unless it is a log's directory or in one."""
    if isinstance(place, ConfiguredRoot) or is_archive(place):
        return place
    directory = place if place.is_dir() else place.parent
    member_root = root_of_member(directory)
    if member_root is not None and not _has_log(directory):  # a root may be named like a member
        return member_root
    if is_root(directory, OsFileSystem()):
        return directory
    is_log = directory != place or directory.name == COMMIT_LOG or is_root(directory.parent, OsFileSystem())
    return directory.parent if is_log else directory


def _has_log(directory: Path) -> bool:
    return (directory / COMMIT_LOG).is_dir() or any(dledger_logs(directory, OsFileSystem()))


def places_of(paths: StorePaths) -> list[Path]:
    """Return the files and directories that paths stand for."""
    given = _given(paths)
    if not given:
        raise InvalidOptionError("no path is given: expected a store root, a commitlog directory or a segment file")
    return [place for path in given for place in _places_at(path)]


def _places_at(path: str | os.PathLike[str]) -> list[Path]:
    if isinstance(path, ConfiguredRoot):
        return [path]
    return [_there(path)] if isinstance(path, UrlPath) else _resolve(path)


def _there(path: UrlPath) -> UrlPath:
    if not path.exists():
        raise StoreNotFoundError(f"no such path: {path}. Check its spelling, and that the credentials may list it")
    return path


def nothing_at(places: Sequence[Path], notes: Sequence[str]) -> StoreNotFoundError:
    """Return the error that there is no segment, with stores nearby, or else the first entries that were skipped."""
    configured = next((place for place in places if isinstance(place, ConfiguredRoot)), None)
    if configured is not None and log_directories(configured) != (configured / COMMIT_LOG,):
        return StoreNotFoundError(
            f"nothing to read: no segment file in {', '.join(map(str, configured.log))}, where the log of {configured} "
            f"is by its configuration, nor in {configured / COMMIT_LOG}. Copy the log, too, and give the directory "
            f"that has it as option storePathCommitLog (--store-path-commit-log)"
        )
    bare = next((place for place in places if _lacks_log(place)), None)
    if bare is not None:
        return StoreNotFoundError(
            f"nothing to read: {bare / COMMIT_LOG} is missing, while other parts of a store are in {bare}. Copy it, "
            f"too, or give the directory that has the segments. If it is on another disk, give the broker's "
            f"configuration as option config, or that directory as option storePathCommitLog (--store-path-commit-log)"
        )
    empty = next((place for place in places if _is_without_messages(place)), None)
    if empty is not None:
        return StoreNotFoundError(
            f"nothing to read: {empty} is a store without messages: no segment file in {empty / COMMIT_LOG}"
        )
    text = (
        f"nothing to read: no segment file in {', '.join(map(str, places))} ({NAME_RULE}; a store root has them in "
        f"{COMMIT_LOG}/)."
    )
    near = stores_near(places)
    return StoreNotFoundError(f"{text}{near}" if near else f"{text} {_first_of(notes, ' ')}".rstrip())


def _refuse_hidden(path: str) -> None:
    """Refuse a path of which nobody can say whether it exists, as a directory above it may not be searched."""
    try:
        os.stat(path)  # noqa: PTH116 -- as in `path_exists`
    except PermissionError as error:
        raise access_error(Path(path), error) from error
    except (OSError, ValueError):
        return


def _lacks_log(place: Path) -> bool:
    """Return whether a directory has parts of a store that nothing else has, but no log."""
    return not isinstance(place, UrlPath) and not (place / COMMIT_LOG).exists() and has_queues(place)


def _is_without_messages(place: Path) -> bool:
    """Return whether a directory is the root of a store to which nothing was appended yet."""
    if isinstance(place, UrlPath) or not (place / CHECKPOINT_FILE).is_file():
        return False
    return not any((place / COMMIT_LOG).glob("*"))


def stores_near(places: Iterable[Path]) -> str:
    """Return a sentence on which stores are around some places; empty if none are, or the places are elsewhere."""
    stores = [store for place in places if not isinstance(place, UrlPath) for store in _stores_near(place)]
    return f" A store may be at {_first_of(stores, ', ')}" if stores else ""


def _stores_near(place: Path) -> Iterator[str]:
    """Yield the roots of stores directly above a path, and among the first entries of two levels below it."""
    above = [] if place.name == COMMIT_LOG else place.parents[:_HIGHEST]
    below = (sorted(islice(place.glob(level), _MOST_LOOKED_AT)) for level in ("*", "*/*"))
    near = (path for paths in (above, *below) for path in paths if path.name != COMMIT_LOG)
    return (str(path) for path in near if os.path.isdir(path / COMMIT_LOG))  # noqa: PTH112 -- no error without permission


def _first_of(texts: Sequence[str], separator: str) -> str:
    more = f"{separator}... and {len(texts) - _MOST_TOLD} more" if len(texts) > _MOST_TOLD else ""
    return separator.join(texts[:_MOST_TOLD]) + more


def _resolve(path: str | os.PathLike[str]) -> list[Path]:
    """Resolve one given path to existing files and directories."""
    text = os.fspath(path)
    remote = _of_url(text, NO_SETTINGS)
    if remote is not None:
        return [_there(remote)]
    local = without_scheme(text)
    if local and path_exists(local):
        return [Path(os.path.abspath(local))]  # noqa: PTH100 -- resolve() would follow links, and change the name
    parts = local.split(_MULTI_PATH_SPLITTER)
    if len(parts) > 1 and all(map(str.strip, parts)):
        missing = next((part for part in parts if not path_exists(part.strip())), None)
        if missing is None:
            return [Path(os.path.abspath(part.strip())) for part in parts]  # noqa: PTH100 -- as above
        raise StoreNotFoundError(f"no such path: {missing.strip()!r}, one of the commit log paths in {text!r}")
    check_is_no_url(Path(local))
    _refuse_hidden(local)
    raise StoreNotFoundError(
        f"no such path: {text!r}{_tried(text, local)}"
        if local
        else "the path is empty: expected a store root, a commitlog directory or a segment file"
    )


def _tried(text: str, local: str) -> str:
    """Return the path that was tried as an addition to an error, if it differs from the one given."""
    absolute = os.path.abspath(local)  # noqa: PTH100 -- as above
    return "" if absolute == text else f"; tried {absolute!r}"


def without_scheme(text: str) -> str:
    """Return the path in a ``file:`` URL, and refuse URLs of other schemes.

    Percent signs are decoded if the decoded path exists: Hadoop writes URLs without encoding them.
    """
    url = _URL.match(text)
    if url is None or path_exists(text):
        return text
    local = _FILE_URL.fullmatch(text)
    if local is not None:
        decoded = unquote(local[1])
        return decoded if path_exists(decoded) else local[1]
    if url[1].lower() == "file":
        raise StoreNotFoundError(f"{text!r} names another host: expected file:///path")
    raise UnsupportedStoreError(
        f"{text!r}: expected a local path, or the URL of an object store or another file system, {url[1]}://..."
    )
