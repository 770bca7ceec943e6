# SPDX-License-Identifier: Apache-2.0
"""The segment files that a path stands for, and checks that they form one log."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias
from urllib.parse import unquote  # noqa: TID251 -- decodes text, opens nothing

from store_core.errors import InvalidOptionError, SegmentLayoutError, StoreNotFoundError, UnsupportedStoreError
from store_core.files.access import access_error, explained_access
from store_core.files.archive_listing import archive_at, archive_segments, is_archive
from store_core.files.compressed_bytes import CompressedFile, expanded_size
from store_core.files.configured_root import ConfiguredRoot, log_directories
from store_core.files.dledger_log import (
    MEMBER_DATA,
    MEMBER_PREFIX,
    begins_with_entry,
    data_directory,
    dledger_error,
    dledger_logs,
    entry_log_of,
    root_of_member,
    several_members_error,
)
from store_core.files.file_system import OsFileSystem
from store_core.files.local_listing import segments_in, single_file
from store_core.files.other_file import refuse_other_file
from store_core.files.packed_name import archive_error, compressed_error
from store_core.files.remote.storage import parse_url
from store_core.files.remote.storage_settings import NO_SETTINGS
from store_core.files.remote.url_path import UrlPath
from store_core.files.segment_listing import twin_note
from store_core.files.segment_names import NAME_RULE
from store_core.files.segment_source import open_pages
from store_core.files.store_kind import StoreUse, check_log_place, check_store_kind, has_queues
from store_core.files.store_parts import CHECKPOINT_FILE, COMMIT_LOG, check_is_no_url, path_exists
from store_core.format.columnar.entries import EntryLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.files.remote.storage_settings import StorageSettings
    from store_core.files.segment_source import Segment

__all__ = [
    "SegmentListing",
    "StorePaths",
    "absolute_path_of",
    "check_plain",
    "layout_problems",
    "list_segments",
    "located",
    "located_now",
    "missing_ranges",
    "nothing_at",
    "path_of",
    "store_roots",
    "stores_near",
    "usual_size",
    "without_scheme",
]

StorePaths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""One path, or several that form one log together."""

_Compressed: TypeAlias = Literal["left out", "read", "refused"]

_log: Final = logging.getLogger("store_core")

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_FILE_URL: Final = re.compile(r"file:(?://(?:localhost)?(?=/)|(?!//))(/.*)", re.DOTALL | re.IGNORECASE)
_MULTI_PATH_SPLITTER: Final = ","
_MOST_TOLD: Final = 3
_MOST_LOOKED_AT: Final = 1000
_CHUNK: Final = 1 << 20
_HIGHEST: Final = 3
"""Directories above a file of a queue, up to the root of its store."""

_WAY_ON: Final = "To read what is there: failOnDataLoss=false, or mode=DROPMALFORMED or PERMISSIVE."
_MEMBER_UNKNOWN: Final = (
    f"the segments are those of a DLedger log (storePathDLedgerCommitLog): which of its entries are committed is not "
    f"known, as that is in the directory {MEMBER_PREFIX}* below the root of the store."
)


class SegmentListing(NamedTuple):
    """The segments of one log in order of their offsets, and notes for the user."""

    segments: tuple[Segment, ...]
    notes: tuple[str, ...]


def list_segments(
    paths: StorePaths,
    *,
    reads_entries: bool = False,
    storage: StorageSettings | None = None,
    compressed: _Compressed = "left out",
    told: set[str] | None = None,
) -> SegmentListing:
    """Return the segment files that one path or several stand for.

    Parameters
    ----------
    paths : path or sequence of paths
        A store root, a ``commitlog`` directory, a segment file, or several of these that form one log together, as in a
        store with several commit log paths (RocketMQ 4.9.2 and later: ``MultiPathMappedFileQueue``). Also RocketMQ's
        notation for these, ``/a/commitlog,/b/commitlog``, if no file has that name; and ``file://`` URLs.
    reads_entries : bool
        Whether the caller reads DLedger logs, too: those of a root, a directory ``dledger-SELFID``, or what is in it.
    storage : StorageSettings, optional
        Settings of object stores and other file systems, for paths that are URLs as text. Callers that give them read
        archives and segments that are compressed as a whole, too; others refuse archives, and leave such segments out.
    compressed : str
        What becomes of segments that are compressed as a whole if the caller reads no archives. They are "left out";
        "read"; or "refused", for callers that answer for the whole log and need its segments as RocketMQ writes them:
        what is left out would count as lost, or at either end of the log as never written.
    told : set of str, optional
        Notes that were logged before, to which new ones are added: for who lists again and again.

    Returns
    -------
    SegmentListing
        Files whose names are not offsets, and empty files at the end, are left out with a note.

    Raises
    ------
    StoreNotFoundError
        If nothing exists at a path, or there is no segment at any of them.
    SegmentLayoutError
        If a file given by its own name is not named like a segment, or two files claim the same offset.
    UnsupportedStoreError
        If a path is a URL of another scheme, or a store that is not supported, see `store_core.files.store_kind`; also
        for an archive, or a compressed segment, that the caller does not read.
    StoreAccessError
        If a directory may not be read.
    """
    notes: list[str] = []
    places = places_of(located(paths, storage or NO_SETTINGS))
    with explained_access(places[0]):
        if storage is None:
            _check_no_archive(places)
        is_listed = compressed != "left out" or storage is not None
        found = sorted(
            (
                segment
                for place in places
                for segment in _segments_at(place, notes, reads_entries=reads_entries, compressed=is_listed)
            ),
            key=_order,
        )
    if not found:
        raise nothing_at(places, notes)
    if compressed == "refused":
        check_plain(found)
    segments = _without_empty_tail(_with_expanded_sizes(_without_twins(found, notes)), notes)
    for note in notes:
        if told is None or note not in told:
            _log.warning(note)
    if told is not None:
        told.update(notes)
    return SegmentListing(tuple(segments), tuple(notes))


def located(paths: StorePaths, storage: StorageSettings = NO_SETTINGS) -> StorePaths:
    """Return paths in which each URL of an object store or another file system is a `UrlPath`.

    Called once for each plan: what is there is listed when it is first asked for, and then stays as it was.

    Parameters
    ----------
    paths : path or sequence of paths
        Of a `UrlPath` the settings are those with which it was made.
    storage : StorageSettings
        For those that are text.

    Raises
    ------
    InvalidOptionError
        If only some of them are URLs, a URL has a password or a query, or what is given is no path.
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
    """Return one path as it is read: a `UrlPath`, see `located`, or a local one that need not exist.

    Raises
    ------
    InvalidOptionError
        If it is no path.
    """
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

    Raises
    ------
    StoreNotFoundError
        If nothing exists at a path.
    """
    return tuple(dict.fromkeys(map(_root_at, places_of(paths))))


def _root_at(place: Path) -> Path:
    """Return the root that a place is, or is a log of, or a segment."""
    if isinstance(place, ConfiguredRoot) or is_archive(place):
        return place
    directory = place if place.is_dir() else place.parent
    is_root = (directory / COMMIT_LOG).is_dir() or any(dledger_logs(directory, OsFileSystem()))
    return directory if is_root else root_of_member(directory) or directory.parent


def places_of(paths: StorePaths) -> list[Path]:
    """Return the files and directories that paths stand for.

    Raises
    ------
    StoreNotFoundError
        If nothing exists at a path.
    InvalidOptionError
        If no path is given, or something else.
    """
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
    """Refuse a path of which nobody can say whether it exists, as a directory above it may not be searched.

    Raises
    ------
    StoreAccessError
        If it is one.
    """
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


def _order(segment: Segment) -> tuple[int, str]:
    return segment.start_offset, segment.path


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


def _segments_at(place: Path, notes: list[str], *, reads_entries: bool, compressed: bool) -> list[Segment]:
    archive = archive_at(place)
    if archive is not None:
        return archive_segments(archive, notes)
    if isinstance(place, ConfiguredRoot):
        notes += place.notes
        if log_directories(place) != (place / COMMIT_LOG,):
            notes += check_store_kind(place, OsFileSystem(), StoreUse.READ_LOG, reads_entries=reads_entries)
            return _configured_segments(place, notes, reads_entries=reads_entries, compressed=compressed)
    data = data_directory(place, OsFileSystem()) if reads_entries else None
    if data is not None:
        entries = entry_log_of(data, notes)
        found = (
            [single_file(place, compressed=compressed)]
            if place.parent == data and not place.is_dir()
            else segments_in(data, notes)
        )
        return _in_entries(found, entries)
    if not place.is_dir():
        check_log_place(place, OsFileSystem())
        refuse_other_file(place)
        file = single_file(place, compressed=compressed)
        return _with_entries([file], place.parent, notes, None, reads_entries=reads_entries)
    notes += check_store_kind(place, OsFileSystem(), StoreUse.READ_LOG, reads_entries=reads_entries)
    logs = list(dledger_logs(place, OsFileSystem()))
    if len(logs) > 1:
        raise several_members_error(place, logs)
    below = place / COMMIT_LOG
    if below.is_dir() or logs:
        ordinary = list(segments_in(below, notes, compressed=compressed)) if below.is_dir() else []
        return ordinary + [
            part for log in logs for part in _segments_at(log, notes, reads_entries=True, compressed=compressed)
        ]
    check_log_place(place, OsFileSystem())
    return _segments_of(place, notes, None, reads_entries=reads_entries, compressed=compressed)


def _configured_segments(
    root: ConfiguredRoot, notes: list[str], *, reads_entries: bool, compressed: bool
) -> list[Segment]:
    """Return the segments in the directories that a configuration names."""
    found: list[Segment] = []
    for directory in root.log:
        if not directory.is_dir():
            notes.append(f"there is no directory {directory}, where the configuration says that a part of the log is.")
            continue
        check_log_place(directory, OsFileSystem())
        found += _segments_of(directory, notes, root.member, reads_entries=reads_entries, compressed=compressed)
    return found


def _segments_of(
    directory: Path, notes: list[str], member: Path | None, *, reads_entries: bool, compressed: bool
) -> list[Segment]:
    found = list(segments_in(directory, notes, compressed=compressed))
    if found:
        refuse_other_file(directory / Path(found[0].path).name)
    return _with_entries(found, directory, notes, member, reads_entries=reads_entries)


def _with_entries(
    found: list[Segment], directory: Path, notes: list[str], member: Path | None, *, reads_entries: bool
) -> list[Segment]:
    """Return segments as those of a DLedger log, if they are, which the name of their directory does not say.

    If there are several directories (``storePathDLedgerCommitLog``), they have any names, and the checkpoint is in that
    of their `member`.
    """
    if not any(map(begins_with_entry, found[:1])):
        return found
    if not reads_entries:
        raise dledger_error(directory.parent, directory, OsFileSystem())
    if member is not None:
        return _in_entries(found, entry_log_of(member / MEMBER_DATA, notes))
    if _MEMBER_UNKNOWN not in notes:
        notes.append(_MEMBER_UNKNOWN)
    return _in_entries(found, EntryLog())


def _in_entries(segments: Iterable[Segment], entries: EntryLog) -> list[Segment]:
    return [replace(segment, entries=entries) for segment in segments]


def _check_no_archive(places: Iterable[Path]) -> None:
    for place in places:
        if is_archive(place):
            raise archive_error(place)


def check_plain(segments: Iterable[Segment]) -> None:
    """Refuse segments that are compressed as a whole.

    Raises
    ------
    UnsupportedStoreError
        With the first of them, and what to do.
    """
    names = [segment.path for segment in segments if segment.codec is not None]
    if names:
        raise compressed_error(names[0], more=len(names) - 1)


def _without_twins(segments: Iterable[Segment], notes: list[str]) -> list[Segment]:
    """Drop a file that was given twice, and one of zeros whose twin has the data; refuse others of the same offset."""
    kept: list[Segment] = []
    for segment in segments:
        if not kept or kept[-1].start_offset != segment.start_offset:
            kept.append(segment)
        elif _is_same(kept[-1], segment):
            notes.append(f"{segment.path} is given twice, and read once.")
        elif _is_all_zeros(segment):
            notes.append(f"{twin_note(segment.path, kept[-1].path)}.")
        elif _is_all_zeros(kept[-1]):
            notes.append(f"{twin_note(kept[-1].path, segment.path)}.")
            kept[-1] = segment
        else:
            raise SegmentLayoutError(
                f"two files claim offset {segment.start_offset}: {kept[-1].path} ({kept[-1].size} bytes) and "
                f"{segment.path} ({segment.size} bytes); expected one. Give the paths of one log only, and move the "
                f"wrong copy elsewhere; logs of several brokers are read one by one."
            )
    return kept


def _is_all_zeros(segment: Segment) -> bool:
    """Return whether a file has no data; of one on another machine only the beginning is looked at."""
    if segment.codec is not None or segment.archive:
        return False
    end = segment.size if segment.is_mapped else min(segment.size, _CHUNK)
    with open_pages(segment) as opened:
        at = 0
        while (at := opened.next_data(at)) < end:
            opened.load(at, min(_CHUNK, end - at))
            if opened.raw[at : min(at + _CHUNK, end)].any():
                return False
            at = min(at + _CHUNK, end)
    return True


def _with_expanded_sizes(segments: list[Segment]) -> list[Segment]:
    """Set the sizes of compressed segments: up to where the next one begins, or else what the file expands to."""
    if all(segment.codec is None or segment.archive for segment in segments):
        return segments
    distances = Counter(after.start_offset - before.start_offset for before, after in pairwise(segments))
    usual = max(distances, key=lambda size: (distances[size], -size), default=0)
    sizes = [*(after.start_offset - before.start_offset for before, after in pairwise(segments)), 0]
    return [
        segment if segment.codec is None or segment.archive else _expanded(segment, size if size == usual else 0)
        for segment, size in zip(segments, sizes, strict=True)
    ]


def _expanded(segment: Segment, known_size: int) -> Segment:
    codec = segment.codec or ""
    return replace(segment, size=known_size or expanded_size(CompressedFile(segment.path, codec, segment.remote)))


def _is_same(one: Segment, other: Segment) -> bool:
    is_plain = one.remote is None and not one.archive and not other.archive
    return one.path == other.path or (is_plain and Path(one.path).samefile(other.path))


def _without_empty_tail(segments: list[Segment], notes: list[str]) -> list[Segment]:
    while segments and not segments[-1].size:
        notes.append(f"ignored the empty file {segments[-1].path}.")
        segments = segments[:-1]
    return segments


def usual_size(segments: Sequence[Segment]) -> int:
    """Return the segment size of the store, in bytes: the commonest among file sizes and distances between names.

    RocketMQ takes it from its configuration (``mappedFileSizeCommitLog``), which may not be at hand.
    """
    votes = Counter(segment.size for segment in segments)
    votes.update(after.start_offset - before.start_offset for before, after in pairwise(segments))
    return max(votes, key=lambda size: (votes[size], size), default=0)


def layout_problems(segments: Sequence[Segment]) -> tuple[SegmentLayoutError, ...]:
    """Return an error for each place where consecutive files do not join as those of one log do.

    RocketMQ refuses to load a log with a file of another size (4.5 and later, ``MappedFileQueue.load``). A last file
    that is too short is not a layout problem: it can be a copy that was cut where a record ends.
    """
    size = usual_size(segments)
    problems = [_pair_problem(before, after, size) for before, after in pairwise(segments)]
    if segments and segments[-1].size > size:
        problems.append(_error(f"segment {_shown(segments[-1])} is too long: expected {size} bytes as the others have"))
    return tuple(problem for problem in problems if problem is not None)


def missing_ranges(segments: Sequence[Segment]) -> tuple[tuple[int, int], ...]:
    """Return the physical offsets between consecutive segments that none of them has; the ends are exclusive."""
    bounds = ((before.end_offset, after.start_offset) for before, after in pairwise(segments))
    return tuple((begin, end) for begin, end in bounds if begin < end)


def _pair_problem(before: Segment, after: Segment, size: int) -> SegmentLayoutError | None:
    distance = after.start_offset - before.start_offset
    if before.size == distance:
        return None
    shown = f"{_shown(before)} is followed by {_shown(after)}"
    if before.size > distance:
        return _error(f"{shown}, which begins inside it: expected {distance} bytes, found {before.size}")
    if before.size < size:
        return _error(f"segment {before.path} is too short: expected {size} bytes, found {before.size}; {shown}")
    missing = f"{before.end_offset:020d}"
    return _error(
        f"segment {missing} is missing: expected {missing} next, found {after.name}; "
        f"{distance - before.size} bytes of the log are not there; {shown}"
    )


def _shown(segment: Segment) -> str:
    return f"{segment.path} (offset {segment.start_offset}, {segment.size} bytes)"


def _error(problem: str) -> SegmentLayoutError:
    return SegmentLayoutError(problem).advised(_WAY_ON)
