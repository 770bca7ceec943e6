# SPDX-License-Identifier: Apache-2.0
"""The segment files of a directory, of the directories of one queue, or given by name; and what other files are."""

from __future__ import annotations

import errno
import re
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from store_core.errors import InvalidOptionError, SegmentLayoutError, StoreNotFoundError, UnsupportedStoreError
from store_core.files.mapped_file import file_name_of, offset_of
from store_core.files.names import (
    BATCH_CONSUME_QUEUE,
    CHECKPOINT_FILE,
    COMMIT_LOG,
    CONFIG_DIRECTORY,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    DANGLING,
    INDEX_DIRECTORY,
    LAST_OFFSET,
    TO_EXPAND,
    advice_on_name,
    codec_of,
    compressed_error,
    is_compressed_segment,
    packed_error,
    start_offset_of,
    twin_note,
    why_no_segment,
)
from store_core.files.segment_source import Segment, file_at, open_segment
from store_core.files.url_path import UrlPath, remote_file_of
from store_core.format.java import hash_map_capacity, hash_map_order
from store_core.format.layout import (
    BATCH_CONSUME_QUEUE_UNIT,
    CONSUME_QUEUE_UNIT,
    INDEX_HEADER,
    TIMER_LOG_UNIT,
    MagicCode,
    Unit,
    unit_dtype,
)
from store_core.format.record.scan import check_record, head_reader
from store_core.format.release import DEFAULT_RELEASE, rules_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    import numpy.typing as npt

    from store_core.files.file_system import FileStatus, FileSystem, OpenFile


_FIRST_RECORD: Final = 8 << 20
"""Bytes at the beginning of a file that are looked at for a sound record."""

_COMPRESSED: Final = "it is compressed, and segments are expected as RocketMQ writes them. Expand it first"

_read_offset: Final = head_reader("physical_offset")


def segments_in(directory: Path, notes: list[str], *, compressed: bool = False) -> Iterator[Segment]:
    """Yield the files of a directory whose names are offsets, in order; `notes` gets what is left out.

    Compressed ones are yielded if the caller reads them, with the size of the file.
    """
    for path in sorted(directory.iterdir(), key=lambda path: path.name):
        try:
            status = path.stat()
        except FileNotFoundError:
            if path.is_symlink():
                notes.append(f"ignored the link {path}: {DANGLING}.")
            continue  # otherwise deleted by retention since the directory was read
        kind = "file" if S_ISREG(status.st_mode) else "directory" if S_ISDIR(status.st_mode) else "entry"
        stem, codec = codec_of(path.name) or (path.name, None)
        start_offset = start_offset_of(stem)
        if start_offset is None or kind != "file" or start_offset + status.st_size > LAST_OFFSET:
            why = why_no_segment(stem) if kind == "file" else "a segment is a file"
            notes.append(f"ignored the {kind} {path}: {why}.{advice_on_name(path.name)}")
        elif codec is not None and not compressed:
            notes.append(f"ignored the file {path}: {_COMPRESSED}.")
        else:
            remote = path.file if isinstance(path, UrlPath) else None
            yield Segment(str(path), start_offset, status.st_size, remote=remote, codec=codec)


def single_file(path: Path, *, compressed: bool = False) -> Segment:
    """Return the segment that a file is, by its name."""
    stem, codec = codec_of(path.name) or (path.name, None)
    start_offset = start_offset_of(stem)
    if codec is not None and start_offset is not None and not compressed:
        raise compressed_error(str(path))
    try:
        size = path.stat().st_size
    except FileNotFoundError as error:
        raise StoreNotFoundError(f"no such path: {str(path)!r}") from error
    if packed := packed_error(path):
        raise packed
    if start_offset is None or start_offset + size > LAST_OFFSET:
        raise SegmentLayoutError(
            f"{path} is not named like a segment: {why_no_segment(stem)}.{_name_it_should_have(path)}"
        )
    return Segment(str(path), start_offset, size, remote=remote_file_of(path), codec=codec)


def _name_it_should_have(path: Path) -> str:
    """Return advice on a file's right name, by the offset that its first record holds if that record is sound."""
    if not path.is_file():
        return " It is not a file."
    file = file_at(path)
    with open_segment(file) as opened:
        data = opened.chunk(0, min(file.size, _FIRST_RECORD)).data
        check = check_record(data, 0, None, verify_crc=True)
        offset = _read_offset(data, 0)[0] if check.spans else -1
    if offset < 0:
        return (
            " Its first bytes are not a sound record, so the name can't be derived from them. Give the root of "
            f"a store, its {COMMIT_LOG} directory, or a segment file; if a store was packed into this one, unpack it."
        )
    return f" Its first record was written at offset {offset}: rename it to {offset:020d}."


_HEAD: Final = 4096
"""Bytes of a file that are looked at."""

_LATEST_MS: Final = 1 << 43
"""A time in the year 2248: what is later is none."""

_QUEUES: Final = {
    CONSUME_QUEUE: "consume queue",
    BATCH_CONSUME_QUEUE: "batch consume queue",
    CONSUME_QUEUE_EXT: "extension of the consume queue",
}
_TIMER_LOG: Final = "timerlog"
_DIRECTORIES: Final = {
    INDEX_DIRECTORY: "a file of the key index",
    _TIMER_LOG: "a file of the log of timers",
    CONFIG_DIRECTORY: "a file of the broker's configuration",
}
_NAMES: Final = {
    CHECKPOINT_FILE: "the checkpoint of a store",
    "timercheck": "the checkpoint of the timers",
    "timerwheel": "the wheel of the timers",
    "abort": "the mark of a store that was not closed",
    "abort.bak": "the mark of a store that was not closed",
    "lock": "the lock of a store",
}
_INDEX_NAME: Final = re.compile(r"[0-9]{17}")
_UNITS: Final[dict[str, Unit]] = {
    "a consume queue": CONSUME_QUEUE_UNIT,
    "a batch consume queue": BATCH_CONSUME_QUEUE_UNIT,
    "a file of the log of timers": TIMER_LOG_UNIT,
}


def refuse_other_file(path: Path) -> None:
    """Refuse a file that is another part of a store than its log.

    A file whose first bytes are a record's is a segment wherever it is, and so is one in ``commitlog``: this opens no
    file there.

    * `path`: A file that was given as a segment, or the first one of a directory that was given.
    """
    if path.parent.name == COMMIT_LOG or not path.is_file():
        return
    head = b"" if codec_of(path.name) else _head_of(path)
    if any(head[4:8] == int(magic).to_bytes(4, signed=True) for magic in MagicCode):
        return
    found = _by_place(path) or _by_content(path.name, head, path.stat().st_size)
    if found is not None:
        raise UnsupportedStoreError(
            f"{path} is no segment of a commit log: it is {found}. Give the root of the store, its {COMMIT_LOG} "
            f"directory, or a segment file"
        )


def _head_of(path: Path) -> bytes:
    file = file_at(path)
    with open_segment(file) as opened:
        return opened.chunk(0, min(file.size, _HEAD)).tobytes()


def _by_place(path: Path) -> str | None:
    """Return the kind of a file by its name and its directories."""
    if path.name in _NAMES:
        return _NAMES[path.name]
    if path.parent.name in _DIRECTORIES:
        return _DIRECTORIES[path.parent.name]
    *_, kind, topic, number = ("", "", "", *path.parent.parts)
    if kind in _QUEUES and number.isascii() and number.isdigit():
        what = f"the {_QUEUES[kind]}" if kind == CONSUME_QUEUE_EXT else f"a {_QUEUES[kind]}"
        return f"{what} of topic {topic!r}, queue {number} (the views consumequeue and topics show queues)"
    return None


def _by_content(name: str, head: bytes, size: int) -> str | None:
    """Return the kind of a file in a place that says nothing, by its first bytes."""
    if _INDEX_NAME.fullmatch(name) and _is_index(head, size):
        return _DIRECTORIES[INDEX_DIRECTORY]
    for what, unit in _UNITS.items():
        dtype = unit_dtype(unit)
        whole = len(head) - len(head) % dtype.itemsize
        if whole and _are_units(np.frombuffer(head[:whole], dtype), unit):
            return f"{what}, by the units that it begins with"
    return None


def _is_index(head: bytes, size: int) -> bool:
    """Return whether a file begins with a header of an index, or with zeros where one will be."""
    dtype = unit_dtype(INDEX_HEADER)
    if size < dtype.itemsize:
        return False
    (header,) = np.frombuffer(head, dtype, 1)
    times = 0 <= header["begin_timestamp"] <= header["end_timestamp"] < _LATEST_MS
    places = 0 <= header["begin_physical_offset"] <= header["end_physical_offset"]
    return bool(times and places and header["hash_slot_count"] >= 0 and header["index_count"] >= 0)


def _are_units(units: npt.NDArray[np.void], unit: Unit) -> bool:
    """Return whether bytes are units that lead to records one after another, and zeros where no unit is yet."""
    sizes, places = units["store_size"].astype(np.int64), units["physical_offset"].astype(np.int64)
    is_used = sizes != 0
    count = int(np.count_nonzero(is_used))
    if not count or not is_used[:count].all() or np.any(places[count:]) or np.any(sizes < 0) or np.any(places < 0):
        return False
    if unit is BATCH_CONSUME_QUEUE_UNIT and np.any(units["batch_size"][:count] < 1):  # as in a damaged segment
        return False
    if unit is TIMER_LOG_UNIT:
        return bool(np.all(units["size"][:count] == unit_dtype(unit).itemsize))
    follows = places[1:count] >= places[: count - 1] + sizes[: count - 1]
    return bool(np.all(follows | (sizes[: count - 1] == np.iinfo(np.int32).max)))


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
