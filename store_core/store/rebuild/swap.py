# SPDX-License-Identifier: Apache-2.0
"""Replacing queues and index by rebuilt ones, so that a crash at any step can be repaired afterwards.

Also the directories that tasks write new ones to before, and the checkpoint that is written after.

The journal of a swap is a file of a store, and so may be anybody's: which directories it may move is decided here.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sys
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from store_core.errors import StoreError, UnsupportedStoreError
from store_core.files.file_sync import WholeSync, sync_files
from store_core.files.file_system import FileSystem, read_file, write_file
from store_core.files.names import INDEX_DIRECTORY, QUEUE_KINDS, SWAP_JOURNAL
from store_core.files.store_lock import StoreLock
from store_core.snapshot.config import LOG_OFFSETS
from store_core.store.store_state import StoreCheckpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from store_core.format.release import Release


def why_foreign(root: Path, source: Path, kept: Path, places: Iterable[str]) -> str | None:
    """Return why a swap must not be made, as what was found; None if all its directories are the store's.

    New directories may come from the store, reached without a link, or from a directory that a rebuild of this store
    has marked as its output. No directory above a place may be a link, on either side.

    * `root`: The store's root.
    * `source`, `kept`: As of `store_core.store.rebuild.swap.RebuildSwap`.
    * `places`: Relative paths without ``..``.
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
    """Return the symbolic links on the way from a directory to a path below it."""
    found = []
    for part in parts:
        directory /= part
        if directory.is_symlink():
            found.append(directory)
    return found


def _is_output_of(source: Path, root: Path) -> bool:
    store = store_of_output(source)
    return store is not None and store.resolve() == root.resolve()


_KEPT: Final = re.compile(r"replaced-[0-9]+")
_MARK: Final = "replaced-by-rebuild"
_FORM: Final = 1


class SwapError(StoreError):
    """An interrupted swap can be neither finished nor undone, because its directories have since been moved."""


@contextmanager
def locked_for_swap(root: Path, file_system: FileSystem) -> Iterator[RebuildSwap | None]:
    """Hold a store's lock, so that no broker starts meanwhile; first finish an interrupted swap, and yield it."""
    with StoreLock(root, file_system):
        yield RebuildSwap.resume(root, file_system)


def kept_directories(root: Path, file_system: FileSystem) -> list[Path]:
    """List the directories in which earlier swaps kept the old files, oldest first."""
    names = [name for name in file_system.names(root) if _KEPT.fullmatch(name)]
    found = [root / name for name in names if file_system.status(root / name / _MARK) is not None]
    return sorted(found, key=lambda path: int(path.name.partition("-")[2]))


@dataclass(frozen=True, slots=True)
class RebuildSwap:
    """Moves directories of a store away, and new ones into their places.

    Steps: 1. the directory for the old ones is created, if there are any; 2. the journal is written, with all moves;
    3. for each place, the old directory is renamed away, then the new one is renamed into place; 4. the journal is
    removed. Each step is on disk before the next. Before step 2 nothing has changed. After it `resume` continues: where
    the directories are shows what has been moved. A broker must not start meanwhile: the caller holds the store's lock,
    and after a crash calls `resume` first.
    """

    root: Path  # the store's root
    source: Path  # directory with the new directories, on the same file system
    kept: Path  # directory to which the old ones are moved
    places: tuple[str, ...]  # paths below the root and, if there is a replacement, below `source`
    removed: tuple[str, ...] = ()  # places that are only emptied

    @classmethod
    def plan(
        cls, root: Path, source: Path, places: Iterable[str], removed: Iterable[str], file_system: FileSystem
    ) -> RebuildSwap:
        """Make a swap, choosing a name for the directory of the old files.

        An empty directory is used: a run that was killed before it wrote its journal has left it.
        """
        taken = [int(name.partition("-")[2]) for name in file_system.names(root) if _KEPT.fullmatch(name)]
        last = root / f"replaced-{max(taken, default=0)}"
        is_left = taken and last.is_dir() and not last.is_symlink() and not _contents(last, file_system)
        kept = last if is_left else root / f"replaced-{max(taken, default=0) + 1}"
        return cls(root, source, kept, tuple(places), tuple(removed))

    def kept_by(self, file_system: FileSystem) -> Path | None:
        """Return the directory with what was replaced; None if there was nothing in the places."""
        return self.kept if _contents(self.kept, file_system) else None

    def run(self, file_system: FileSystem) -> None:
        """Swap."""
        if any(file_system.status(self.root / place) is not None for place in self.places + self.removed):
            file_system.make_directories(self.kept)
            _write(self.kept / _MARK, b"", file_system)
        fields = {
            "form": _FORM,
            "source": str(self.source.absolute()),
            "kept": self.kept.name,
            "places": self.places,
            "removed": self.removed,
        }
        _write(self.root / SWAP_JOURNAL, json.dumps(fields).encode(), file_system)
        self.move_all(file_system)

    @classmethod
    def resume(cls, root: Path, file_system: FileSystem) -> RebuildSwap | None:
        """Finish an interrupted swap and return it; None if there is none.

        If a new directory disappeared before it was moved into place, the old one is moved back.
        """
        if file_system.status(root / SWAP_JOURNAL) is None:
            return None
        swap = cls._read(root, file_system)
        if swap is None:
            file_system.remove(root / SWAP_JOURNAL)  # torn while being written: nothing was moved
            file_system.sync_directory(root)
            return None
        swap.move_all(file_system)
        return swap

    @classmethod
    def _read(cls, root: Path, file_system: FileSystem) -> RebuildSwap | None:
        path = root / SWAP_JOURNAL
        try:
            fields: Any = json.loads(read_file(path, sys.maxsize, file_system) or b"")
        except (ValueError, RecursionError):
            return None
        try:
            places, removed = tuple(map(str, fields["places"])), tuple(map(str, fields["removed"]))
            is_sound = fields["form"] == _FORM and _KEPT.fullmatch(fields["kept"]) is not None
            source = type(root)(fields["source"])
        except (KeyError, TypeError) as error:
            raise SwapError(_strange(path)) from error
        if not is_sound or any(".." in place.split("/") or place.startswith("/") for place in places + removed):
            raise SwapError(_strange(path))
        foreign = why_foreign(root, source, root / fields["kept"], places + removed)
        if foreign is not None:
            raise SwapError(
                f"{path}: expected directories of this store, or of a rebuild of it, found {foreign}. Nothing was "
                f"moved. If the store was moved or copied, or you don't trust it, remove the journal and rebuild"
            )
        return cls(root, source, root / fields["kept"], places, removed)

    def move_all(self, file_system: FileSystem) -> None:
        """Make the remaining moves of an existing journal, and remove it."""
        for place in self.places:
            self._check(place, file_system)
        for place in self.places:
            self._move(place, file_system, is_replaced=True)
        for place in self.removed:
            self._move(place, file_system, is_replaced=False)
        file_system.remove(self.root / SWAP_JOURNAL)
        file_system.sync_directory(self.root)

    def _check(self, place: str, file_system: FileSystem) -> None:
        """Check that there is a directory for a place: the new one, or at least the old one."""
        if all(file_system.status(above / place) is None for above in (self.source, self.root, self.kept)):
            raise SwapError(
                f"the swap that {self.root / SWAP_JOURNAL} tells of can't go on: expected {place} below {self.source}, "
                f"{self.root} or {self.kept}, found it nowhere. Put it back from wherever it was moved to, or remove "
                f"the journal and rebuild"
            )

    def _move(self, place: str, file_system: FileSystem, *, is_replaced: bool) -> None:
        source, target, kept = self.source / place, self.root / place, self.kept / place
        is_waiting = is_replaced and file_system.status(source) is not None
        if (is_waiting or not is_replaced) and file_system.status(target) is not None:
            if file_system.status(kept) is not None:
                raise SwapError(
                    f"expected {target} or {kept}, found both: move the one elsewhere that is not to be kept"
                )
            file_system.make_directories(kept.parent)
            self._rename(target, kept, file_system)
        if is_waiting:
            file_system.make_directories(target.parent)
            self._rename(source, target, file_system)
        elif is_replaced and file_system.status(target) is None:
            self._rename(kept, target, file_system)  # the new one is gone, so move the old one back

    @staticmethod
    def _rename(source: Path, target: Path, file_system: FileSystem) -> None:
        file_system.rename(source, target)
        for directory in {source.parent, target.parent}:
            file_system.sync_directory(directory)


def _contents(kept: Path, file_system: FileSystem) -> set[str]:
    """Return the names of what is in a directory for old files, besides its mark."""
    return set(file_system.names(kept)) - {_MARK}


def _strange(path: Path) -> str:
    return (
        f"{path} is not a journal of this version: finish the swap with the version that began it, or look where "
        f"consumequeue and index are, put them in place, and remove the file"
    )


def _write(path: Path, data: bytes, file_system: FileSystem) -> None:
    """Write a small file durably."""
    write_file(path, data, file_system)
    with suppress(FileNotFoundError):
        file_system.sync_directory(path.parent)


_OUTPUT_MARK: Final = "rebuilt.json"
"""File that marks a directory as ours, so that a rebuild may delete what is in it."""

_LARGEST_MARK: Final = 1 << 16


def store_of_output(path: Path) -> Path | None:
    """Return the store whose rebuild has marked a directory as its output; None if none has."""
    mark = path / _OUTPUT_MARK
    try:
        if mark.is_symlink() or not mark.is_file() or mark.stat().st_size > _LARGEST_MARK:
            return None
        return type(path)(json.loads(mark.read_bytes())["store"])
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return None


class OutputDirectory:
    """A directory with a mark, by which a later run knows that it may delete what is in it."""

    def __init__(self, path: Path, file_system: FileSystem) -> None:
        self.path = path
        self._file_system = file_system

    def claim(self, store: Path) -> None:
        """Create the directory for files of a store, if it may be written to."""
        files, mark = self._file_system, self.path / _OUTPUT_MARK
        if files.names(self.path) and files.status(mark) is None:
            raise UnsupportedStoreError(
                f"{self.path} is not empty, and was not made by a rebuild: move what is there elsewhere, or give "
                f"another output directory"
            )
        files.make_directories(self.path)
        write_file(mark, json.dumps({"store": str(store)}).encode(), files)

    def remove_if_empty(self) -> None:
        """Remove the directory, unless this or another run has left something there."""
        with suppress(OSError):
            if self._file_system.names(self.path) == [_OUTPUT_MARK]:
                shutil.rmtree(self.path)

    def remove(self) -> None:
        """Remove the directory's content, and the mark last: a run that is killed can be repeated."""
        files = self._file_system
        if files.status(self.path / _OUTPUT_MARK) is None:
            if files.status(self.path) is not None and not files.names(self.path):
                files.remove_directory(self.path)  # a run was killed before it had a mark, or when it had it no more
            return
        for name in files.names(self.path):
            path = self.path / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif name != _OUTPUT_MARK:
                files.remove(path)
        files.remove(self.path / _OUTPUT_MARK)
        files.remove_directory(self.path)


def update_checkpoint(  # noqa: PLR0913 -- one argument per fact
    root: Path,
    file_system: FileSystem,
    release: Release,
    *,
    last_store_timestamp: int,
    end_offset: int,
    are_queues_whole: bool,
    index_timestamp: int | None,
) -> StoreCheckpoint:
    """Write the checkpoint of a store whose rebuilt queues or index are on disk.

    After a crash a broker starts recovery at a segment older than the checkpoint, so a time that is too late would make
    it miss records, and one that is too early only costs time; from 5.5 on the same is true of an offset. The log's own
    time is never raised, as nothing was written to the log; no time may be later than the log's last record.

    * `last_store_timestamp`: Store time of the log's last record, ms.
    * `end_offset`: Physical offset of the log's end: no offset may be greater.
    * `are_queues_whole`: Whether all queues were rebuilt to the log's end; their time is then that of its last record,
      as after a broker's flush.
    * `index_timestamp`: End time of the last full index file, ms, or 0 if there is none; after a crash a broker deletes
      and rebuilds the files after it. None if the index was not rebuilt.
    """
    checkpoint = StoreCheckpoint(root, file_system, release).load()
    checkpoint.physic_msg_timestamp = max(min(checkpoint.physic_msg_timestamp, last_store_timestamp), 0)
    queues = last_store_timestamp if are_queues_whole else checkpoint.logics_msg_timestamp
    checkpoint.logics_msg_timestamp = max(min(queues, last_store_timestamp), 0)
    index = checkpoint.index_msg_timestamp if index_timestamp is None else index_timestamp
    checkpoint.index_msg_timestamp = max(min(index, last_store_timestamp), 0)
    for name in LOG_OFFSETS:
        setattr(checkpoint, name, min(getattr(checkpoint, name), end_offset))
    checkpoint.flush()
    checkpoint.close()
    return checkpoint


ATTEMPTS: Final = ".attempts"
"""Directory below the target with one directory per writing task."""

_ALREADY_THERE: Final = (errno.ENOTEMPTY, errno.EEXIST)


class RebuildAttempt:
    """The private directory of one attempt of a task; `settle` moves each queue into place when all are on disk.

    So a task that fails, or runs twice, leaves each queue either complete or absent. Which attempt comes first makes no
    difference: all write the same bytes.
    """

    def __init__(self, target_root: Path) -> None:
        self.root = target_root / ATTEMPTS / uuid.uuid4().hex
        self._target_root = target_root
        self._whole = WholeSync(target_root)

    def __enter__(self) -> Self:
        self._whole.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._whole.__exit__(None, None, None)
        shutil.rmtree(self.root, ignore_errors=True)

    def settle(self) -> None:
        """Sync all files, then move queues and index into place.

        Directory entries are not durable afterwards: whoever started the tasks syncs the directories, once.
        """
        sync_files(self.root, self._whole)
        for kind in QUEUE_KINDS:
            for topic in _names(self.root / kind):
                if not self._move(f"{kind}/{topic}"):  # others of the topic are in place
                    for queue_id in _names(self.root / kind / topic):
                        self._move(f"{kind}/{topic}/{queue_id}")
        if (self.root / INDEX_DIRECTORY).is_dir():
            self._move(INDEX_DIRECTORY)

    def settle_index_files(self) -> None:
        """Sync all files, then move those of the index into place, each in the place of the same file if it is there.

        Several tasks write files of one index; who names the files sees to it that attempts of a task use one name.
        """
        sync_files(self.root, self._whole)
        source, target = self.root / INDEX_DIRECTORY, self._target_root / INDEX_DIRECTORY
        target.mkdir(parents=True, exist_ok=True)
        for name in _names(source):
            (source / name).replace(target / name)

    def _move(self, place: str) -> bool:
        """Move a directory, and return whether there was nothing in its place."""
        source, target = f"{self.root}/{place}", f"{self._target_root}/{place}"
        try:
            return _is_renamed(source, target)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120 -- text
            return _is_renamed(source, target)


def _is_renamed(source: str, target: str) -> bool:
    """Rename a directory unless there is something in its place; return whether it was."""
    try:
        os.rename(source, target)  # noqa: PTH104 -- Path.rename would silently replace a file
    except OSError as error:
        if error.errno not in _ALREADY_THERE:
            raise
        return False
    return True


def _names(directory: Path) -> list[str]:
    return os.listdir(directory) if directory.is_dir() else []  # noqa: PTH208 -- names are wanted, not paths
