# SPDX-License-Identifier: Apache-2.0
"""The directories of one queue of segments: which files are loaded from them, and which of them gets the next one."""

from __future__ import annotations

import errno
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from store_core.errors import InvalidOptionError, SegmentLayoutError
from store_core.files.mapped_file import file_name_of, offset_of
from store_core.files.names import DANGLING, TO_EXPAND, is_compressed_segment, twin_note
from store_core.format.java import hash_map_capacity, hash_map_order
from store_core.format.release import DEFAULT_RELEASE, rules_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from store_core.files.file_system import FileStatus, FileSystem, OpenFile


LOG_OPTION: Final = "option storePathCommitLog (--store-path-commit-log)"


@dataclass(frozen=True, slots=True)
class SegmentPaths:
    """Where segments are stored: one directory, or several in a multi-path commit log (RocketMQ 4.9.2 and later)."""

    paths: tuple[Path, ...]  # directories that take new files
    read_only_paths: tuple[Path, ...] = ()
    """Directories whose files are loaded, but that get no new ones (``readOnlyCommitLogStorePaths``)."""
    full_paths: Callable[[], Collection[Path]] = tuple
    """Returns the directories that are currently too full for a new file (``diskSpaceCleanForciblyRatio``)."""
    note: str = ""  # what readers are told of the choice of these; empty if there is nothing to tell
    doubt: str = ""
    """Why nothing is written before the caller has said which log is meant; empty if that is beyond doubt."""

    @classmethod
    def parse(cls, paths: str, read_only_paths: str = "") -> Self:
        """Parse ``storePathCommitLog`` and ``readOnlyCommitLogStorePaths``.

        >>> SegmentPaths.parse("/a/commitlog,/b/commitlog").paths
        (PosixPath('/a/commitlog'), PosixPath('/b/commitlog'))
        """
        return cls(_split(paths), _split(read_only_paths))

    @property
    def all_paths(self) -> tuple[Path, ...]:
        """All directories without duplicates, in the order given."""
        return tuple(dict.fromkeys(self.paths + self.read_only_paths))

    def check_is_certain(self) -> None:
        """Refuse to write where two logs may be meant."""
        if self.doubt:
            raise InvalidOptionError(f"{self.doubt}. Nothing was changed. Say which log is meant: {LOG_OPTION}")

    def candidates(self) -> list[Path]:
        """Return the directories for new files, sorted: those not full, or if all are, those not read-only."""
        writable = set(self.paths) - set(self.read_only_paths)
        return sorted(writable - set(self.full_paths()) or writable, key=str)

    def next_files(self, offset: int, file_size: int) -> tuple[Path, Path]:
        """Return the paths of the file that starts at `offset` and of the one after it, which is created ahead of time.

        Files go to the candidates round-robin by index, ``offset / file_size`` (RocketMQ:
        ``MultiPathMappedFileQueue``).
        """
        candidates = self.candidates()
        if not candidates:
            raise OSError(errno.EROFS, "no directory takes new segments: all commit log paths are read-only")
        index = offset // file_size
        first = candidates[index % len(candidates)] / file_name_of(offset)
        return first, candidates[(index + 1) % len(candidates)] / file_name_of(offset + file_size)


def _split(text: str) -> tuple[Path, ...]:
    return tuple(Path(part.strip()) for part in text.split(",") if part.strip())


_CHUNK: Final = 1 << 20


class LoadList(NamedTuple):
    """The files to load, and those left out."""

    paths: tuple[Path, ...]  # files of the right size, in order; with `twins` among them
    notes: tuple[str, ...]  # what was left out, and why
    empty_last: Path | None  # an empty last file, as a crash leaves it between creating and extending it; to be deleted
    twins: Mapping[Path, Path] = MappingProxyType({})
    """Files that are all zeros -> that of the same name in another directory, which has the data."""


def list_for_loading(
    directories: Iterable[Path],
    file_size: int,
    file_system: FileSystem,
    release: str = DEFAULT_RELEASE,
    *,
    takes_twins: bool = False,
) -> LoadList:
    """Choose the files to load, as ``MappedFileQueue.load`` does.

    The entries of all directories together, sorted by name, are treated so:

    ========  ======================  ==============================  ==========================
    release   a directory             empty, and last                 another size
    ========  ======================  ==============================  ==========================
    ``4.3``   ends the list           ends the list                   ends the list
    ``4.9``   is refused              is refused                      is refused
    ``5.3``   is skipped              is to be deleted                is refused
    ========  ======================  ==============================  ==========================

    A file of the right size whose name is not a number is refused by all releases. Two files of the same name, in two
    directories, are refused here, unless the caller takes a file of zeros beside its twin with the data: RocketMQ loads
    both, in the order in which a ``HashSet`` has the directories, and a recovery ends the log at the zeros. So is a
    compressed segment by the rules of ``4.3``, too: a log
    that ends there would be written over.
    """
    features = rules_of(release)
    given = {str(directory): directory for directory in directories}
    ordered = [given[name] for name in hash_map_order(tuple(given), hash_map_capacity(tuple(given)))]
    entries = [(directory / name) for directory in ordered for name in file_system.names(directory)]
    entries.sort(key=lambda path: path.name)
    paths: list[Path] = []
    notes: list[str] = []
    twins: dict[Path, Path] = {}
    for position, path in enumerate(entries):
        status = file_system.status(path)
        if status is None and path.is_symlink():
            raise SegmentLayoutError(f"{path} is a link: {DANGLING}")
        if status is None:
            continue  # deleted since the directory was read
        if status.is_directory and features.passes_over_directories:
            notes.append(f"skipped the directory {path}")
        elif not status.is_directory and status.size == file_size:
            offset_of(path)
            if paths and paths[-1].name == path.name:
                zeros, data = _told_apart(paths[-1], path, file_system, takes_twins=takes_twins)
                twins[zeros] = data
                notes.append(twin_note(zeros, data))
            paths.append(path)
        elif is_compressed_segment(path.name):
            does = "would end the log there" if features.ends_loading_at_odd_file else "refuses to load such a store"
            raise SegmentLayoutError(f"{_wrong(path, status, file_size)}. RocketMQ {release} {does}. {TO_EXPAND}")
        elif features.ends_loading_at_odd_file:
            left = len(entries) - position - 1
            notes.append(f"{_wrong(path, status, file_size)}: loading ends here, {left} later entries are left out")
            break
        elif status.size == 0 and position == len(entries) - 1 and features.deletes_empty_last_file:
            notes.append(f"{path} has no bytes: it was being made when the process ended")
            return LoadList(tuple(paths), tuple(notes), path, twins)
        else:
            raise SegmentLayoutError(
                f"{_wrong(path, status, file_size)}. RocketMQ {release} refuses to load such a store: open it "
                f"with the sizes it was made with (MessageStoreConfig.from_properties takes them from broker.conf), or "
                f"move what does not belong there elsewhere"
            )
    return LoadList(tuple(paths), tuple(notes), None, twins)


def _told_apart(one: Path, other: Path, file_system: FileSystem, *, takes_twins: bool) -> tuple[Path, Path]:
    """Return of two files of the same name the one that is all zeros, and the other one."""
    for zeros, data in ((other, one), (one, other)) if takes_twins else ():
        with closing(file_system.open(zeros, writable=False)) as file:
            if is_all_zeros(file, file.size()):
                return zeros, data
    raise SegmentLayoutError(
        f"two files claim offset {one.name}: {one} and {other}. One was made ahead when the process ended, "
        f"and is all zeros: move that one elsewhere"
    )


def is_all_zeros(file: OpenFile, size: int) -> bool:
    """Return whether the first bytes of a file are zeros; its holes are not read."""
    at = 0
    while at < size and (data := file.next_data(at)) is not None:
        for begin in range(data[0], min(data[1], size), _CHUNK):
            if file.read(min(_CHUNK, data[1] - begin), begin).strip(b"\0"):
                return False
        at = data[1]
    return True


def _wrong(path: Path, status: FileStatus, file_size: int) -> str:
    size = f"{status.size} bytes, compressed" if is_compressed_segment(path.name) else f"{status.size} bytes"
    found = "a directory" if status.is_directory else size
    return f"{path}: expected a segment of {file_size} bytes, found {found}"
