# SPDX-License-Identifier: Apache-2.0
"""What is in a storage below some path, listed once, as far as it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from store_core.errors import SegmentLayoutError
from store_core.files.config_paths import CONFIG_DIRECTORY
from store_core.files.remote.attempts import Attempts

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSelector, FileSystem

    from store_core.files.remote.storage import Storage

__all__ = ["StorageTree", "TreeEntry"]

_MOST_FILES: Final = 1 << 20
"""How many entries of a directory are accepted; a bound for hostile stores."""

_PATIENCE: Final = 20.0
"""Seconds after which a listing that fails is not tried again: somebody waits for it, and clients have tried, too."""
_KEYS: Final = 1000
"""Entries that an object store lists by one request."""

_WHOLE: Final = frozenset(
    {"commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue", "index", "timerlog", CONFIG_DIRECTORY}
)
"""Parts of a store, which are listed with all that is below them: a request for each queue would be too many."""


class TreeEntry(NamedTuple):
    """A file or directory as it was listed.

    Attributes
    ----------
    size : int
        In bytes; 0 for a directory.
    modified : int
        When it was written last, in ns since 1970; 0 if the storage does not tell.
    """

    name: str
    is_file: bool
    size: int = 0
    modified: int = 0


class StorageTree:
    """A part of a storage as it was when it was first looked at. Paths in it are those of `RemotePath.relative`.

    Parameters
    ----------
    top : str
        What a user gave. Directories above it are listed only if their entries are asked for.

    Notes
    -----
    A directory named like a part of a store is listed with what is below it, by one request for a thousand files in an
    object store; others are listed alone. What is not in a listing costs no request.
    """

    def __init__(self, storage: Storage, top: str) -> None:
        self.storage = storage
        self.top = top
        self._listed: dict[str, dict[str, TreeEntry]] = {}
        self._above: set[str] = set()
        self._seen: dict[str, TreeEntry | None] = {}

    def entry(self, relative: str) -> TreeEntry | None:
        """Return what is at a path; None if nothing is.

        Raises
        ------
        StoreAccessError
            If it can't be looked up.
        """
        if self._listed.get(relative) or relative in self._above:
            return TreeEntry(_name(relative), is_file=False)
        parent = self._listed.get(_parent(relative))
        if parent is None and not self._is_above_or_at_top(relative):
            parent = self.entries(_parent(relative))
        if parent is not None and relative:
            return parent.get(_name(relative))
        if relative not in self._seen:
            is_directory = bool(self._list(relative))
            self._seen[relative] = TreeEntry(_name(relative), is_file=False) if is_directory else self._asked(relative)
        return self._seen[relative]

    def entries(self, relative: str) -> dict[str, TreeEntry]:
        """Return what is in a directory, by name, in order; empty if it is none, or not there.

        Raises
        ------
        StoreAccessError
            If it can't be listed.
        SegmentLayoutError
            If it has more entries than a store can have.
        """
        if relative not in self._listed:
            parent = self._listed.get(_parent(relative)) if relative else None
            found = None if parent is None else parent.get(_name(relative))
            if parent is not None and (found is None or found.is_file):
                return {}
            self._list(relative)
        return self._listed.get(relative, {})

    def _is_above_or_at_top(self, relative: str) -> bool:
        return not relative or relative == self.top or self.top.startswith(f"{relative}/")

    def _asked(self, relative: str) -> TreeEntry | None:
        """Ask for one path."""
        opened = self.storage.opened()
        path = opened.path_of(relative)
        self.storage.traffic.count(1)
        info = self._attempts(relative).make("look it up", lambda: opened.file_system.get_file_info(path))
        return None if info.type.name == "NotFound" else _entry(info)

    def _list(self, relative: str) -> dict[str, TreeEntry]:
        from pyarrow import fs  # noqa: PLC0415 -- takes long to import, and most stores are local

        opened = self.storage.opened()
        path = opened.path_of(relative)
        selector = fs.FileSelector(path, allow_not_found=True, recursive=_name(relative) in _WHOLE)
        try:
            found = self._attempts(relative).make("list it", lambda: _listed(opened.file_system, selector))
        except FileNotFoundError:
            found = []
        self.storage.traffic.count(1 + len(found) // _KEYS)
        if len(found) > _MOST_FILES:
            raise SegmentLayoutError(
                f"{self.storage.url_of(relative)} has {len(found)} entries: expected at most {_MOST_FILES} files of a "
                f"store"
            )
        self._keep(relative, path, found, is_whole=selector.recursive)
        return self._listed.get(relative, {})

    def _attempts(self, relative: str) -> Attempts:
        return Attempts(self.storage.url_of(relative), self.storage.settings, seconds=_PATIENCE)

    def _keep(self, relative: str, path: str, found: list[FileInfo], *, is_whole: bool) -> None:
        """Sort what was found into directories; in an object store these may have no entry of their own."""
        if not found:
            return
        listed: dict[str, dict[str, TreeEntry]] = {relative: {}}
        for info in sorted(found, key=lambda info: info.path.strip("/")):
            below = info.path.strip("/").removeprefix(path.strip("/")).strip("/").split("/")
            if not all(below):
                continue  # a key with an empty name in it
            directory = relative
            for name in below[:-1]:
                listed[directory][name] = TreeEntry(name, is_file=False)
                directory = f"{directory}/{name}".lstrip("/")
                listed.setdefault(directory, {})
            kept = listed[directory].get(below[-1])
            if kept is None or kept.is_file:
                listed[directory][below[-1]] = _entry(info)
                if is_whole and not info.is_file:
                    listed.setdefault(f"{directory}/{below[-1]}".lstrip("/"), {})
        self._above |= {_parent(relative)} if relative else set()
        self._listed |= {place: dict(sorted(entries.items())) for place, entries in listed.items()}


def _listed(file_system: FileSystem, selector: FileSelector) -> list[FileInfo]:
    """List a directory; a file has no entries, which some storages say by an error of their own."""
    try:
        found: list[FileInfo] = file_system.get_file_info(selector)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        if _is_unreachable(error) or file_system.get_file_info(selector.base_dir).type.name != "File":
            raise
        return []
    return found


def _is_unreachable(error: OSError) -> bool:
    """Return whether a storage does not answer, so that asking again would only wait as long again."""
    return any(sign in str(error) for sign in ("UNAVAILABLE", "NETWORK_CONNECTION", "Could not resolve"))


def _entry(info: FileInfo) -> TreeEntry:
    return TreeEntry(info.base_name, info.is_file, info.size or 0, info.mtime_ns or 0)


def _parent(relative: str) -> str:
    return relative.rpartition("/")[0]


def _name(relative: str) -> str:
    return relative.rpartition("/")[2]
