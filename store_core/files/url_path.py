# SPDX-License-Identifier: Apache-2.0
"""A path of a URL, and the tree of names below it.

Queues, index, configuration and what else is beside the log is found and read by `pathlib.Path` and
`store_core.files.file_system.FileSystem`. A `UrlPath` is such a path, so that those readers know nothing of storages:
directories come from a listing (`StorageTree`), and files are read when they are needed, large ones in ranges.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from contextlib import closing
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Self

from store_core.errors import SegmentLayoutError, UnsupportedStoreError
from store_core.files.names import CONFIG_DIRECTORY
from store_core.files.remote_bytes import RemoteFile, RemoteReader
from store_core.files.storage import Attempts, RemotePath, Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from pyarrow.fs import FileInfo, FileSelector, FileSystem


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
    """A file or directory as it was listed."""

    is_file: bool
    size: int = 0  # in bytes; 0 for a directory
    modified: int = 0  # when it was written last, in ns since 1970; 0 if the storage does not tell


_DIRECTORY: Final = TreeEntry(is_file=False)


class StorageTree:
    """A part of a storage as it was when it was first looked at. Paths in it are those of `RemotePath.relative`.

    * `top`: What a user gave. Directories above it are listed only if their entries are asked for.

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
        """Return what is at a path; None if nothing is."""
        if self._listed.get(relative) or relative in self._above:
            return _DIRECTORY
        parent = self._listed.get(_parent(relative))
        if parent is None and not (not relative or relative == self.top or self.top.startswith(f"{relative}/")):
            parent = self.entries(_parent(relative))
        if parent is not None and relative:
            return parent.get(_name(relative))
        if relative not in self._seen:
            self._seen[relative] = _DIRECTORY if self._list(relative) else self._asked(relative)
        return self._seen[relative]

    def entries(self, relative: str) -> dict[str, TreeEntry]:
        """Return what is in a directory, by name, in order; empty if it is none, or not there."""
        if relative not in self._listed:
            parent = self._listed.get(_parent(relative)) if relative else None
            found = None if parent is None else parent.get(_name(relative))
            if parent is not None and (found is None or found.is_file):
                return {}
            self._list(relative)
        return self._listed.get(relative, {})

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
                listed[directory][name] = _DIRECTORY
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
        # Where a storage does not answer, asking again would only wait as long again.
        is_silent = any(sign in str(error) for sign in ("UNAVAILABLE", "NETWORK_CONNECTION", "Could not resolve"))
        if is_silent or file_system.get_file_info(selector.base_dir).type.name != "File":
            raise
        return []
    return found


def _entry(info: FileInfo) -> TreeEntry:
    return TreeEntry(info.is_file, info.size or 0, info.mtime_ns or 0)


def _parent(relative: str) -> str:
    return relative.rpartition("/")[0]


def _name(relative: str) -> str:
    return relative.rpartition("/")[2]


_BLOCK: Final = 512
_READ_WHOLE: Final = 1 << 20
"""Bytes up to which a file is read by one request, whatever part of it is asked for first."""


class UrlPath(PosixPath):
    """A path in a storage. Nothing can be written through it.

    As text it is its URL. Its parts begin with the URL's scheme and authority, so that what takes them for a local
    path finds nothing there, and names the URL.

    * `tree`: What is known of the storage; is not pickled.
    """

    place: RemotePath
    tree: StorageTree

    def __new__(cls, place: RemotePath, tree: StorageTree | None = None) -> Self:
        """Make a path."""
        self = super().__new__(cls, f"{place.storage.scheme}://{place.storage.authority}", place.relative)
        self.place = place
        self.tree = StorageTree(place.storage, place.relative) if tree is None else tree
        return self

    if sys.version_info >= (3, 12):

        def __init__(self, place: RemotePath, tree: StorageTree | None = None) -> None:  # noqa: ARG002 -- as `__new__`
            super().__init__(f"{place.storage.scheme}://{place.storage.authority}", place.relative)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without what is known of the storage."""
        return UrlPath, (self.place,)

    def __str__(self) -> str:
        """Return the URL."""
        return self.place.url

    def __fspath__(self) -> str:
        """Return the URL, which no call of the system finds."""
        return self.place.url

    def __repr__(self) -> str:
        """Return the URL in words; no setting is shown."""
        return f"UrlPath({self.place.url!r})"

    def __eq__(self, other: object) -> bool:
        """Return whether both are the same place, with the same settings."""
        return isinstance(other, UrlPath) and self.place == other.place

    def __hash__(self) -> int:
        """Return a hash of the place."""
        return hash(self.place)

    def relisted(self) -> UrlPath:
        """Return the same path with nothing known of the storage: what is there now will be listed."""
        return UrlPath(self.place)

    def at(self, relative: str) -> UrlPath:
        """Return another path of the same storage."""
        return UrlPath(self.place._replace(relative=relative), self.tree)

    # ---- other paths

    def __truediv__(self, key: str | os.PathLike[str]) -> UrlPath:
        """Return a path below this one."""
        return self.at(f"{self.place.relative}/{os.fspath(key)}".strip("/"))

    def joinpath(self, *others: str | os.PathLike[str]) -> UrlPath:
        """Return a path below this one."""
        found = self
        for other in others:
            found /= other
        return found

    @property
    def name(self) -> str:
        """The last part."""
        return self.place.relative.rpartition("/")[2]

    @property
    def parent(self) -> UrlPath:
        """The path above; itself at the top."""
        return self.at(self.place.relative.rpartition("/")[0])

    @property
    def parents(self) -> Sequence[UrlPath]:
        """All paths above."""
        found = []
        path = self
        while path.place.relative:
            path = path.parent
            found.append(path)
        return tuple(found)

    def with_name(self, name: str) -> UrlPath:
        """Return the path of another name beside this one."""
        return self.parent / name

    def is_absolute(self) -> bool:
        """Return true."""
        return True

    def absolute(self) -> UrlPath:
        """Return the path itself."""
        return self

    def resolve(self, strict: bool = False) -> UrlPath:  # noqa: ARG002, FBT001, FBT002 -- the protocol's
        """Return the path itself: a storage has no links."""
        return self

    # ---- what is there

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:  # noqa: ARG002 -- the protocol's
        """Return size, time and kind, as listed."""
        found = self.tree.entry(self.place.relative)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        mode = stat.S_IFREG | 0o444 if found.is_file else stat.S_IFDIR | 0o555
        seconds = found.modified // 10**9
        fields = (mode, hash(self) & (2**63 - 1), 0, 1, 0, 0, found.size, seconds, seconds, seconds)
        return os.stat_result(fields, {"st_mtime_ns": found.modified, "st_blocks": -(-found.size // _BLOCK)})

    def exists(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002 -- the protocol's
        """Return whether anything is there."""
        return self.tree.entry(self.place.relative) is not None

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002 -- the protocol's
        """Return whether a directory is there."""
        found = self.tree.entry(self.place.relative)
        return found is not None and not found.is_file

    def is_file(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002 -- the protocol's
        """Return whether a file is there."""
        found = self.tree.entry(self.place.relative)
        return found is not None and found.is_file

    def iterdir(self) -> Generator[UrlPath, None, None]:
        """Yield the paths in a directory, in the order of the names."""
        found = self.tree.entry(self.place.relative)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        if found.is_file:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(self))
        for name in self.tree.entries(self.place.relative):
            yield self / name

    # ---- bytes

    @property
    def file(self) -> RemoteFile:
        """The file as it was listed."""
        found = self.stat()
        if not stat.S_ISREG(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(self))
        return RemoteFile(self.place, found.st_size, found.st_mtime_ns)

    def open(self, mode: str = "r", *_args: Any, **_options: Any) -> Any:  # noqa: ANN401 -- the protocol's
        """Open a file with all of its bytes, for reading alone."""
        if mode != "rb":
            self.refuse_writing()
        with closing(UrlFile(self.file)) as opened:
            return io.BytesIO(opened.read(opened.size(), 0))

    def refuse_writing(self) -> NoReturn:
        """Refuse to write."""
        raise UnsupportedStoreError(
            f"{self}: nothing is written to an object store or another file system. Write to a local disk, and copy it "
            f"there"
        )

    def mkdir(self, *_args: Any, **_options: Any) -> NoReturn:  # noqa: ANN401 -- as all below
        """Refuse."""
        self.refuse_writing()

    unlink = rmdir = rename = replace = touch = write_bytes = write_text = symlink_to = hardlink_to = chmod = mkdir


class UrlFile:
    """An open file of a storage, as `store_core.files.file_system.OpenFile`, of which nothing can be written.

    A small one is read by one request, of a larger one what is asked for.
    """

    def __init__(self, file: RemoteFile) -> None:
        self._file = file
        self._reader = RemoteReader(file) if file.size else None
        self._whole: bytes | None = None if file.size else b""

    def size(self) -> int:
        """Return the size when it was listed, in bytes."""
        return self._file.size

    def read(self, size: int, offset: int) -> bytes:
        """Read at most `size` bytes at `offset`."""
        end = min(offset + size, self._file.size)
        if self._whole is None and self._reader is not None:
            if self._file.size > _READ_WHOLE:
                return self._reader.read(offset, end) if offset < end else b""
            self._whole = self._reader.read(0, self._file.size)
        return (self._whole or b"")[offset:end] if offset < end else b""

    def viewer(self, size: int) -> Callable[[int, int], memoryview]:  # noqa: ARG002 -- the protocol's
        """Return what reads bytes: the extension of a queue is read so."""
        return lambda begin, end: memoryview(self.read(end - begin, begin))

    def next_data(self, offset: int) -> tuple[int, int] | None:
        """Return the rest of the file: a storage knows no holes."""
        return (offset, self._file.size) if offset < self._file.size else None

    def close(self) -> None:
        """Close the connection."""
        if self._reader is not None:
            self._reader.close()

    def write(self, *_args: Any, **_options: Any) -> NoReturn:  # noqa: ANN401 -- as all below
        """Refuse what needs a file of this machine: its descriptor, or writing."""
        raise UnsupportedStoreError(
            f"{self._file.path.url}: expected a file of this machine, found one that can only be read"
        )

    fileno = sync = grow = truncate = reserve = source = write


def remote_file_of(path: Path) -> RemoteFile | None:
    """Return what is at a path if that is not on this machine; None if it is."""
    return path.file if isinstance(path, UrlPath) else None
