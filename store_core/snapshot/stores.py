# SPDX-License-Identifier: Apache-2.0
"""Several stores at once: which of the paths that were given are parts of one log, and how each store is called.

======================================================  ===============================================================
given                                                   are
======================================================  ===============================================================
a path, or the same place twice, also by a link         one store
roots that have more than a log: queues, ``config``     a store each; so is each archive
a root, and directories or segments below it            one store
directories or segments below a root that has more      as that root: so ``a/commitlog`` and ``b/commitlog`` of two
than a log                                              brokers are two stores
roots that have a log alone, some of which claim an     a store each; so is one without a segment
offset that another has
other directories and segments, and roots with a log    one log in several directories, together with the root, if
alone, none of which claims an offset of another        there is one
the same, where each claims an offset of each other     a log each
the same, where some do and some don't, or files        refused: the caller says which is meant
overlap whose names differ
all in directories of ``storePathCommitLog`` of the     one log
configuration
anything, with option ``store_path_commit_log``         one log
a pattern (``*``, ``?``, ``[a-c]``)                     the stores that it matches, in the order of their names; what
                                                        is none is left out with a note; nothing at all is an error
names in braces (``{a,b}``)                             a path with each; also in a pattern
======================================================  ===============================================================

The order of stores is that of their first paths.
"""

from __future__ import annotations

import logging
import os
import re
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cached_property
from glob import glob, has_magic
from itertools import combinations, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from store_core.errors import InvalidOptionError, SegmentLayoutError, StoreError, StoreNotFoundError
from store_core.files.file_system import OsFileSystem, names_in
from store_core.files.names import CHECKPOINT_FILE, COMMIT_LOG, CONFIG_DIRECTORY, INDEX_DIRECTORY, is_archive
from store_core.files.store_kind import QUEUE_DIRECTORIES, dledger_logs, has_queues, is_root
from store_core.files.store_path import (
    BETWEEN_PATHS,
    ConfiguredRoot,
    StorePaths,
    given_paths,
    path_of,
    places_of,
    root_at,
    without_scheme,
)
from store_core.files.url_path import UrlPath
from store_core.snapshot.config import TOPICS, Config, Permission, TopicConfig
from store_core.snapshot.log import Listing, without_twins

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from store_core.files.segment_source import Segment
    from store_core.files.storage import StorageSettings


_log: Final = logging.getLogger("store_core")
_FILES: Final = OsFileSystem()

_OF_BROKER: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Prefix of a topic whose name ends with the broker's (``TopicConfigManager.init``, 5.x)."""

_BESIDE_LOG: Final = frozenset({*QUEUE_DIRECTORIES, CHECKPOINT_FILE, CONFIG_DIRECTORY, INDEX_DIRECTORY})
"""What is beside the log of a store of its own."""

_Place = str | os.PathLike[str]


class _Part(NamedTuple):
    """Paths that certainly belong together: those of one root, or of one directory of segments."""

    root: str  # that has more than a log, as a real path; empty if there is none
    is_bare: bool  # whether it is a root that has a log alone
    paths: list[_Place]  # as they are passed on
    places: list[Path]


def grouped_paths(
    paths: StorePaths, storage: StorageSettings, configured: Collection[str] = ()
) -> tuple[tuple[_Place, ...], ...]:
    """Return the paths of each store, by the table above.

    * `configured`: Real paths of the directories of the log that a configuration names.
    """
    parts = list(_parts(paths, storage))
    bound = [part for part in parts if configured and {_directory(place) for place in part.places} <= set(configured)]
    if len(bound) > 1:
        together = bound[0]._replace(is_bare=False, paths=[path for part in bound for path in part.paths], places=[])
        parts = [together if part is bound[0] else part for part in parts if part is bound[0] or part not in bound]
    return tuple(tuple(path for part in group for path in part.paths) for group in _groups(parts))


def _parts(paths: StorePaths, storage: StorageSettings) -> Iterator[_Part]:
    found: dict[tuple[str, str], _Part] = {}
    for path in (each for text in given_paths(paths) for each in _matches(text, storage)):
        for place in places_of([path]):
            root = _own_root(place)
            key = (root, "" if root else _directory(place))
            is_bare = not root and (place / COMMIT_LOG).is_dir()
            part = found.setdefault(key, _Part(root, is_bare, [], []))
            if _real(place) not in map(_real, part.places):
                part.paths.append(place if isinstance(place, ConfiguredRoot | UrlPath) else str(place))
                part.places.append(place)
    yield from found.values()


def _own_root(place: Path) -> str:
    """Return the root of a place whose store is known by itself; empty for a part of a log that has no other sign."""
    if isinstance(place, ConfiguredRoot) or is_archive(place):
        return _real(place)
    root = root_at(place)
    names = names_in(root, _FILES)
    has_other_log = root == place and COMMIT_LOG not in names and is_root(root, _FILES)
    return _real(root) if has_other_log or not _BESIDE_LOG.isdisjoint(names) else ""


def _real(place: Path) -> str:
    return str(place) if isinstance(place, UrlPath) else os.path.realpath(place)


def _directory(place: Path) -> str:
    return _real(place if place.is_dir() else place.parent)


# ---- patterns


_URLS: Final = re.compile(r",\s*(?=[a-z][a-z0-9+.-]*://)", re.IGNORECASE)
"""What is in a list before each of its URLs; other commas of a URL are its own."""

_AFTER_URL: Final = re.compile(r",\s*(?=/)(?![^{}]*\})")
_BRACES: Final = re.compile(r"\{([^{}]*,[^{}]*)\}")


def _matches(path: _Place, storage: StorageSettings) -> list[_Place]:
    """Return the paths that one stands for: itself, unless it is a pattern, or a list by commas or braces."""
    given, text = path_of(path, storage), str(path)
    several = _several(text, given) if isinstance(path, str) else []
    if several:
        return [found for each in several for found in _matches(each, storage)]
    if isinstance(given, UrlPath):
        return _chosen(text, sorted(_remote_matches(given), key=str)) if has_magic(text) else [given]
    if not isinstance(path, str) or not has_magic(text) or os.path.lexists(given):
        return [path]
    return _chosen(text, list(map(Path, sorted(glob(without_scheme(text))))))  # noqa: PTH207 -- keeps links and dots


def _several(text: str, given: Path) -> list[str]:
    """Return the paths that a text names; none if it is one, or is there under this very name."""
    urls, braces, is_url = _URLS.split(text), _BRACES.search(text), isinstance(given, UrlPath)
    if len(urls) > 1:
        return urls
    parts = [part.strip() for part in (_AFTER_URL if is_url else BETWEEN_PATHS).split(text)]
    is_plain = not braces and (len(parts) == 1 if is_url else not has_magic(text))
    can_be = isinstance(given, UrlPath) and not given.place.storage.authority.endswith(",")  # which no bucket is
    if is_plain or (given.exists() if can_be else os.path.lexists(given)):
        return []
    if len(parts) > 1:
        return parts
    return [text[: braces.start()] + name + text[braces.end() :] for name in braces[1].split(",")] if braces else []


def _remote_matches(path: UrlPath) -> list[UrlPath]:
    """Return the paths in a storage that a pattern matches, level by level; only itself if that is there."""
    if path.exists():
        return [path.relisted()]
    found = [path.at("")]
    for name in path.place.relative.split("/"):
        if has_magic(name):
            directories = [each for each in found if each.is_dir()]
            found = [below for each in directories for below in each.iterdir() if fnmatchcase(below.name, name)]
        else:
            found = [each / name for each in found]
    return [each.relisted() for each in found if each.exists()]


def _chosen(text: str, found: Sequence[Path]) -> list[_Place]:
    """Return those of the paths that a pattern matches at which a store can be."""
    stores = [path for path in found if _may_be_store(path)]
    if not stores:
        others = f"{', '.join(map(str, found[:3]))}{', ...' if len(found) > 3 else ''}" if found else "nothing"  # noqa: PLR2004 -- enough to see
        raise StoreNotFoundError(
            f"{text!r} matches no store: expected roots of stores, archives or directories of segments, found {others}"
        )
    for path in found:
        if path not in stores:
            _log.warning("%s matches %s, which is no store and is left out.", text, path)
    return list(stores)


def _may_be_store(path: Path) -> bool:
    is_there = is_archive(path) or (path / COMMIT_LOG).is_dir() or has_queues(path) or any(dledger_logs(path, _FILES))
    return is_there or bool(_segments([path]))


# ---- which logs are one


def _groups(parts: Sequence[_Part]) -> list[list[_Part]]:
    """Return the parts of each store; refused if what is in one log with another is in one with that one's other."""
    if len(parts) < 2 or all(part.root for part in parts):  # noqa: PLR2004 -- nothing to compare
        return [[part] for part in parts]
    logs = [_segments(part.places) for part in parts]
    bare = [log for log, part in zip(logs, parts, strict=True) if part.is_bare]
    overlap = any(not _are_apart(first, second) for first, second in combinations(bare, 2))
    parts = [
        part._replace(root=_real(part.places[0])) if part.is_bare and (overlap or not log) else part
        for log, part in zip(logs, parts, strict=True)
    ]
    together = {
        (first, second)
        for first, second in combinations(range(len(parts)), 2)
        if not (parts[first].root and parts[second].root) and _is_one_log(logs[first], logs[second], parts)
    }
    groups: list[list[int]] = []
    for each in range(len(parts)):
        joined = [group for group in groups if any((other, each) in together for other in group)]
        if len(joined) > 1 or any((other, each) not in together for group in joined for other in group):
            raise _unclear(parts)
        if joined:
            joined[0].append(each)
        else:
            groups.append([each])
    return [[parts[each] for each in group] for group in groups]


def _segments(places: Iterable[Path]) -> list[Segment]:
    """Return the files of the log at some places; none where that can't be read, which who reads it is told."""
    with suppress(StoreError, OSError):
        return [part for place in places for part in Listing([]).at(place)]
    return []


def _are_apart(first: Sequence[Segment], second: Sequence[Segment]) -> bool:
    """Return whether no file of one part lies where one of the other does."""
    ordered = sorted((segment.start_offset, segment.end_offset) for segment in (*first, *second))
    return all(end <= start for (_, end), (start, _) in pairwise(ordered))


def _is_one_log(first: Sequence[Segment], second: Sequence[Segment], parts: Sequence[_Part]) -> bool:
    """Return whether two parts can be of one log: no offset is claimed by a file of each."""
    try:
        both = without_twins(sorted((*first, *second), key=lambda segment: (segment.start_offset, segment.path)), [])
    except SegmentLayoutError:
        return False
    paths = {segment.path for segment in first}
    joints = ((one, other) for one, other in pairwise(both) if (one.path in paths) is not (other.path in paths))
    if any(other.start_offset < one.end_offset for one, other in joints):
        raise _unclear(parts)
    return True


def _unclear(parts: Sequence[_Part]) -> InvalidOptionError:
    paths = [str(path) for part in parts for path in part.paths]
    return InvalidOptionError(
        f"whether {', '.join(paths)} are parts of one log or several stores is not certain: some have files for the "
        f"same offsets, and some have not. If they are one log, say so: option storePathCommitLog "
        f"(--store-path-commit-log) {','.join(paths)}. If they are several stores, give the root of each, which has "
        f"its segments in {COMMIT_LOG}/"
    )


# ---- names


class StoreNames:
    """What several stores are called.

    The name is the broker's, where ``config/topics.json`` tells it, as each broker has topics that are named after it;
    otherwise that part of the root's path that others don't have. No two have the same.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = roots

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names, in the order of the stores."""
        told = [_broker_name(root) for root in self._roots]
        for name in dict.fromkeys(name for name in told if name and told.count(name) > 1):
            same = [str(root) for root, each in zip(self._roots, told, strict=True) if each == name]
            _log.warning(
                "%s are stores of one broker, %s, as those of a master and its slave are: what both have is read "
                "twice. To have it once, give one of them",
                ", ".join(same),
                name,
            )
        parts = _own_parts([str(root) for root in self._roots])
        names = [name if name and told.count(name) == 1 else part for name, part in zip(told, parts, strict=True)]
        return tuple(names if len(set(names)) == len(names) else parts)


def _broker_name(root: Path) -> str | None:
    """Return the broker's name, by the topics that it makes at its start; None if they don't tell one."""
    topics, _ = Config(root).known(TOPICS)
    names = [name.removeprefix(_OF_BROKER) for name in topics or () if name.startswith(_OF_BROKER)]
    if not names:
        names = [name for name, topic in (topics or {}).items() if _is_named_after_broker(topic)]
    return names[0] if len(names) == 1 else None


def _is_named_after_broker(topic: TopicConfig) -> bool:
    """Return whether a topic is that of a broker: those of users are never inherited, others have more queues."""
    return bool(topic.perm & Permission.INHERIT) and topic.read_queue_nums == topic.write_queue_nums == 1


def _own_parts(paths: Sequence[str]) -> list[str]:
    """Return what distinguishes paths: without the directories at either end that all have."""
    parts = [[part for part in path.split("/") if part] for path in paths]
    if len(set(paths)) < len(paths) or len(paths) == 1:
        return [each[-1] if each else path for each, path in zip(parts, paths, strict=True)]
    begin, end = _common(parts), _common([each[::-1] for each in parts])
    found = ["/".join(each[begin : len(each) - end]) for each in parts]
    return found if all(found) else ["/".join(each[max(begin - 1, 0) :]) for each in parts]


def _common(parts: Sequence[Sequence[str]]) -> int:
    """Return how many parts all have at the beginning."""
    levels = zip(*parts, strict=False)
    return next((at for at, level in enumerate(levels) if len(set(level)) > 1), min(map(len, parts)))
