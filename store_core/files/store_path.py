# SPDX-License-Identifier: Apache-2.0
"""The files and directories that the paths of a store stand for, on this machine or in another storage."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from os.path import realpath
from pathlib import Path, PosixPath
from typing import Any, Final, Self
from urllib.parse import unquote  # noqa: TID251 -- decodes text, opens nothing

from store_core.errors import InvalidOptionError, StoreError, StoreNotFoundError, UnsupportedStoreError
from store_core.files.access import access_error
from store_core.files.file_system import FileSystem, OsFileSystem, names_in
from store_core.files.names import CHECKPOINT_FILE, COMMIT_LOG, CONSUME_QUEUE, NAME_RULE, SCHEME, is_archive
from store_core.files.segment_listing import LOG_OPTION, SegmentPaths
from store_core.files.storage import NO_SETTINGS, StorageSettings, parse_url
from store_core.files.store_kind import check_is_no_url, dledger_logs, has_queues, is_root, path_exists, root_of_member
from store_core.files.url_path import UrlPath

_SIGNS: Final = frozenset({CHECKPOINT_FILE, CONSUME_QUEUE})
"""What a broker makes below the root of each store that it opens."""


class ChosenPaths(str):
    """``storePathCommitLog`` as the caller gave it besides a configuration, to say which log is meant.

    It is ordinary text that ``dataclasses.replace`` preserves, so it stays known that nobody has to be asked.
    """

    __slots__ = ()


def meant_log(root: Path, configured: SegmentPaths, broker_root: Path | None, file_system: FileSystem) -> SegmentPaths:
    """Return where the log of a store is that was named, by what a configuration says of a log.

    A copy of a store is often used with the configuration of the broker that it was copied from, whose
    ``storePathCommitLog`` is an absolute path: that of the live log. So the store that was named is what is meant:

    ====================================  ===================================  ========================================
    the store that was named              is read                              is written
    ====================================  ===================================  ========================================
    no log is configured                  its ``commitlog``                    its ``commitlog``
    its ``commitlog`` is among those      those that are configured            those that are configured
    has a ``commitlog`` besides           its ``commitlog``, with a note       refused, until the caller says which
    has none                              those that are configured            the same, unless they are another store's
    ====================================  ===================================  ========================================

    * `configured`: ``storePathCommitLog`` and ``readOnlyCommitLogStorePaths``; without any path if none is configured.
    * `broker_root`: ``storePathRootDir``, if it is configured.
    """
    own = root / COMMIT_LOG
    is_among = realpath(own) in map(realpath, configured.all_paths)
    if not configured.paths and not is_among:
        return _log_below(own, configured, broker_root)
    if is_among:
        return configured if configured.paths else replace(configured, paths=(own,))
    names = ", ".join(map(str, configured.paths))
    if names_in(own, file_system):
        found = f"{root} has a commit log of its own, and the configuration names another (storePathCommitLog)"
        return replace(
            configured,
            paths=(own,),
            read_only_paths=(),
            note=f"{found}: {own} is used, and not {names}. To use the other, give it as {LOG_OPTION}",
            doubt=f"{found}, so which one is to be written is not certain: expected one of {own}, or {names}",
        )
    other = next(_others(root, configured, broker_root, file_system), None)
    if other is None:
        return configured
    return replace(
        configured,
        doubt=f"{root} has no commit log of its own, and {names}, which the configuration names "
        f"(storePathCommitLog), is that of the store at {other}",
    )


def _log_below(own: Path, configured: SegmentPaths, broker_root: Path | None) -> SegmentPaths:
    """Return the log where none is configured, but perhaps more directories of one, which are only read."""
    here = replace(configured, paths=(own,))
    if not configured.read_only_paths or broker_root is None or realpath(broker_root) == realpath(own.parent):
        return here
    names = ", ".join(map(str, configured.read_only_paths))
    found = f"the configuration is that of the store at {broker_root}, whose log is in {names}, too"
    is_own = f"{own} is used alone. If more is meant, give all of its directories as {LOG_OPTION}"
    return replace(here, read_only_paths=(), note=f"{found}: {is_own}", doubt=f"{found}, and not that of {own.parent}")


def lock_places(root: Path, log: Iterable[Path], broker_root: Path | None) -> tuple[Path, ...]:
    """Return the roots whose locks keep others from writing a log: the store's own, and where the log lies.

    Two stores may have one log: by the configuration, or because a directory or a segment is a link. A broker that
    runs on that log holds the lock of its own root, which is above the log unless the configuration says otherwise.

    * `root`: Of the store that was named; comes first.
    * `log`: The directories of its log.
    * `broker_root`: ``storePathRootDir``, if it is configured and the log lies outside of the store.
    """
    log = tuple(log)
    places = [Path(realpath(path)).parent for path in log]
    places += [link.parent.parent for path in log for link in _linked(path)]
    is_outside = any(place != Path(realpath(root)) for place in places)
    places += [broker_root] if broker_root is not None and is_outside and broker_root.is_dir() else []
    found = {realpath(root): root}
    for place in places:
        found.setdefault(realpath(place), place)
    return tuple(found.values())


def _linked(directory: Path) -> list[Path]:
    """Return the files to which links in a directory of segments lead."""
    try:
        with os.scandir(directory) as entries:
            return [Path(realpath(entry.path)) for entry in entries if entry.is_symlink()]
    except OSError:
        return []


def _others(root: Path, configured: SegmentPaths, broker_root: Path | None, file_system: FileSystem) -> Iterator[Path]:
    """Yield the roots of other stores to which configured directories belong."""
    if broker_root is not None and realpath(broker_root) != realpath(root):
        yield broker_root
    for path in configured.paths:
        above = Path(realpath(path)).parent
        if str(above) != realpath(root) and not _SIGNS.isdisjoint(names_in(above, file_system)):
            yield above


class ConfiguredRoot(PosixPath):
    """The root of a store, with what a configuration says of it. Paths below it are ordinary ones."""

    log: tuple[Path, ...] = ()  # the directories of its log, which need not all be there; empty for a path below a root
    member: Path | None = None  # the directory ``dledger-SELFID``, if that is a DLedger log elsewhere
    broker_root: Path | None = None  # ``storePathRootDir``
    notes: tuple[str, ...] = ()  # what its readers are told of the configuration

    @classmethod
    def of(
        cls,
        root: str | os.PathLike[str],
        log: tuple[Path, ...],
        member: Path | None = None,
        broker_root: Path | None = None,
        notes: tuple[str, ...] = (),
    ) -> Self:
        """Return the root of a store with such a log."""
        self = cls(root)
        self.log, self.member, self.broker_root, self.notes = log, member, broker_root, notes
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with what is known; a path below a root is pickled as an ordinary one."""
        if not self.log:
            return Path, (str(self),)
        return ConfiguredRoot.of, (str(self), self.log, self.member, self.broker_root, self.notes)


def log_directories(root: Path) -> tuple[Path, ...]:
    """Return the directories of a store's log: as it is configured, or else the one below the root."""
    return root.log if isinstance(root, ConfiguredRoot) and root.log else (root / COMMIT_LOG,)


def notes_of(root: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return what the readers of a store are told of its configuration."""
    return root.notes if isinstance(root, ConfiguredRoot) else ()


def roots_to_lock(root: Path) -> tuple[Path, ...]:
    """Return the roots whose locks say whether a store is being written, see `store_core.files.store_path`."""
    if isinstance(root, UrlPath):
        return ()
    return lock_places(root, log_directories(root), getattr(root, "broker_root", None))


StorePaths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""One path, or several that form one log together."""

_URL: Final = re.compile(f"({SCHEME}):/")
BETWEEN_PATHS: Final = re.compile(r",(?![^{}]*\})")
"""A comma between paths, and not between names in braces."""

_FILE_URL: Final = re.compile(r"file:(?://(?:localhost)?(?=/)|(?!//))(/.*)", re.DOTALL | re.IGNORECASE)
_MOST_TOLD: Final = 3
_MOST_LOOKED_AT: Final = 1000
_HIGHEST: Final = 3
"""Directories above a file of a queue, up to the root of its store."""


def located(paths: StorePaths, storage: StorageSettings = NO_SETTINGS) -> StorePaths:
    """Return paths in which each URL of an object store or another file system is a `UrlPath`.

    Called once for each plan: what is there is listed when it is first asked for, and then stays as it was.

    * `paths`: Of a `UrlPath` the settings are those with which it was made.
    """
    given = given_paths(paths)
    remote = [found for path in given if isinstance(found := path_of(path, storage), UrlPath)]
    if not remote:
        return paths
    if len(remote) < len(given):
        raise InvalidOptionError(
            f"expected paths on this machine alone, or URLs alone, found both, such as {remote[0]}: read each by itself"
        )
    return remote


def given_paths(paths: object) -> list[str | os.PathLike[str]]:
    """Return what a caller gave, one path or several, as a list; its type is only known to be right when it is run."""
    is_one = isinstance(paths, str | bytes | os.PathLike)
    several = paths if isinstance(paths, Iterable) and not is_one else [paths]
    return [_checked(path, ", or several of them that form one log") for path in several]


def _checked(path: object, more: str = "") -> str | os.PathLike[str]:
    """Return a path, unless it is none, one in bytes, or empty, which would stand for the working directory."""
    if isinstance(path, str | os.PathLike) and isinstance(os.fspath(path), str) and path != "":
        return path
    raise InvalidOptionError(f"path: expected the path of a store, as text or os.PathLike{more}, found {path!r}")


def located_now(paths: StorePaths, storage: StorageSettings = NO_SETTINGS) -> StorePaths:
    """Return paths as `located` does, with nothing known of what is there: for who looks again and again."""
    found = located(paths, storage)
    return [path.relisted() for path in given_paths(found) if isinstance(path, UrlPath)] or found


def path_of(path: str | os.PathLike[str], storage: StorageSettings = NO_SETTINGS) -> Path:
    """Return one path as it is read: a `UrlPath`, see `located`, or a local one that need not exist."""
    if isinstance(path, UrlPath | ConfiguredRoot):
        return path
    text = os.fspath(_checked(path))
    place = parse_url(text, storage)
    if place is not None:
        return UrlPath(place)
    return Path(without_scheme(text) if text[:5].lower() == "file:" else text)


def local_path_of(path: str | os.PathLike[str]) -> Path:
    """Return the path of a store that has to be on this machine, and refuse any other URL than of a file."""
    found = path_of(path)
    check_is_no_url(Path(str(found)))
    return found


def absolute_path_of(path: str | os.PathLike[str]) -> Path:
    """Return one path as `path_of` does, a local one absolute and without ``..``; links in it stay."""
    found = path_of(path)
    return found if isinstance(found, UrlPath | ConfiguredRoot) else Path(os.path.abspath(found))  # noqa: PTH100 -- resolve() follows links


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
    has_log = (directory / COMMIT_LOG).is_dir() or any(dledger_logs(directory, OsFileSystem()))
    if member_root is not None and not has_log:  # a root may be named like a member
        return member_root
    if is_root(directory, OsFileSystem()):
        return directory
    is_log = directory != place or directory.name == COMMIT_LOG or is_root(directory.parent, OsFileSystem())
    return directory.parent if is_log else directory


def places_of(paths: StorePaths) -> list[Path]:
    """Return the files and directories that paths stand for."""
    given = given_paths(paths)
    if not given:
        raise InvalidOptionError("no path is given: expected a store root, a commitlog directory or a segment file")
    return [place for path in given for place in _places_at(path)]


def _places_at(path: str | os.PathLike[str]) -> list[Path]:
    found = path_of(path)
    if isinstance(found, UrlPath) and not found.exists():
        raise StoreNotFoundError(f"no such path: {found}. Check its spelling, and that the credentials may list it")
    return [found] if isinstance(found, UrlPath | ConfiguredRoot) else _resolve(path)


def nothing_at(places: Sequence[Path], notes: Sequence[str]) -> StoreNotFoundError:
    """Return the error that there is no segment, with stores nearby, or else the first entries that were skipped."""
    configured = next((place for place in places if isinstance(place, ConfiguredRoot)), None)
    if configured is not None and log_directories(configured) != (configured / COMMIT_LOG,):
        return StoreNotFoundError(
            f"nothing to read: no segment file in {', '.join(map(str, configured.log))}, where the log of {configured} "
            f"is by its configuration, nor in {configured / COMMIT_LOG}. Copy the log, too, and give the directory "
            f"that has it as {LOG_OPTION}"
        )
    bare = next((place for place in places if _lacks_log(place)), None)
    if bare is not None:
        return StoreNotFoundError(
            f"nothing to read: {bare / COMMIT_LOG} is missing, while other parts of a store are in {bare}. Copy it, "
            f"too, or give the directory that has the segments. If it is on another disk, give the broker's "
            f"configuration as option config, or that directory as {LOG_OPTION}"
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


def absent_config(path: Path, what: str, database: Path | None, more: str) -> StoreError:
    """Return the error that neither a broker's file nor its backup is there: a RocksDB has it, or it was not copied."""
    if database is not None:
        return UnsupportedStoreError(
            f"{what} is in the RocksDB {database}, which is not read. RocketMQ's mqadmin asks a running broker, and "
            f"its rocksDBConfigToJson prints most such databases as JSON: save that as {path} in a copy"
        )
    return StoreNotFoundError(
        f"{path} is missing or empty, and so is {path}.bak: expected {what}. Copy the broker's directory "
        f"{path.parent.name} into the store's root; a store that no broker has served has none{more}"
        f"{stores_near([path.parent.parent])}"
    )


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
    """Resolve one given path of this machine to existing files and directories."""
    text = os.fspath(path)
    local = without_scheme(text)
    if path_exists(local):
        return [Path(os.path.abspath(local))]  # noqa: PTH100 -- resolve() would follow links, and change the name
    parts = [without_scheme(part.strip()) for part in BETWEEN_PATHS.split(local)]
    if len(parts) > 1 and all(parts):
        missing = next((part for part in parts if not path_exists(part)), None)
        if missing is None:
            return [Path(os.path.abspath(part)) for part in parts]  # noqa: PTH100 -- as above
        raise StoreNotFoundError(f"no such path: {missing!r}, one of the commit log paths in {text!r}")
    check_is_no_url(Path(local))
    _refuse_hidden(local)
    absolute = os.path.abspath(local)  # noqa: PTH100 -- as above
    tried, near = "" if absolute == text else f"; tried {absolute!r}", stores_near([Path(absolute).parent])
    raise StoreNotFoundError(f"no such path: {text!r}{tried}{near and f'.{near}'}")


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
        raise StoreNotFoundError(f"{text!r} names another host: expected file:///path. Mount it, and give the path")
    raise UnsupportedStoreError(
        f"{text!r}: expected a local path, or the URL of an object store or another file system, {url[1]}://..."
    )
