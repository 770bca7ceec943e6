# SPDX-License-Identifier: Apache-2.0
"""Consume queues in files: of each only the units are read that are asked for."""

from __future__ import annotations

import logging
import os
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.errors import WITHOUT_SEGMENT, SegmentVanishedError, StoreNotFoundError
from store_core.files.access import access_error, explained_access
from store_core.files.file_system import OsFileSystem
from store_core.files.remote.url_path import remote_file_of
from store_core.files.segment_file import offset_of
from store_core.files.segment_listing import list_for_loading
from store_core.files.segment_names import advice_on_name, start_offset_of, why_no_segment
from store_core.queue.queue_path import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from store_core.snapshot.units import QueueBounds, QueueDoubtError, QueueKind, UnitRange, Units, leading

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store_core.files.file_system import FileSystem, OpenFile
    from store_core.queue.queue_path import QueueRules
    from store_core.snapshot.units import QueueName

__all__ = ["DIRECTORIES", "FileQueue", "OpenUnits", "UnitFile", "unit_files"]

_log: Final = logging.getLogger("store_core")

DIRECTORIES: Final = {QueueKind.SIMPLE: CONSUME_QUEUE, QueueKind.BATCH: BATCH_CONSUME_QUEUE}
"""Of the kinds that are files, the directory of all their queues below the root."""

_FILES: Final = OsFileSystem()
_FILES_LOOKED_AT: Final = 3
"""How many files a broker checks for the queue's end (RocketMQ: ``ConsumeQueue.recover``)."""

_BLOCK: Final = 64 << 10
"""Bytes of a file on another machine that are read at once, for the units near one that is asked for."""

_FIRST_STEP: Final = 3 << 10
"""Units read first where it is not known how many are needed; each further step is four times as long."""

_WINDOW: Final = 1 << 16
"""Units read at once."""

_PLACE_BYTES: Final = 12
"""Bytes of physical offset and size, with which a unit of every kind begins."""


@dataclass(frozen=True, slots=True)
class UnitFile:
    """A file of units, as its directory listed it; can be pickled."""

    path: Path
    start: int  # place of its first byte in the queue, by its name
    size: int  # bytes
    kind: QueueKind

    @property
    def first(self) -> int:
        """Number of the first unit in the queue."""
        return self.start // self.kind.dtype.itemsize

    @property
    def count(self) -> int:
        """Number of units that it has room for."""
        return self.size // self.kind.dtype.itemsize


def unit_files(directory: Path, kind: QueueKind, file_system: FileSystem = _FILES) -> tuple[UnitFile, ...]:
    """List the files of a queue, in order; empty files are left out, other names with a warning."""
    found = []
    try:
        names = file_system.names(directory)
    except NotADirectoryError:
        return ()
    except PermissionError as error:
        raise access_error(directory, error) from error
    for name in names:
        path, start = directory / name, start_offset_of(name)
        status = file_system.status(path)
        if status is None:
            continue  # deleted by retention since the directory was read, or a dangling link
        if start is None or status.is_directory:
            what = "directory" if status.is_directory else "file"
            _log.warning("ignored the %s %s: %s.%s", what, path, why_no_segment(name), advice_on_name(name))
        elif status.size:
            found.append(UnitFile(path, start, status.size, kind))
    return tuple(sorted(found, key=lambda file: file.start))


class OpenUnits:
    """The units of one file, which is opened when one is asked for; one on another machine is read in blocks.

    Errors are `SegmentVanishedError` if the file is gone, or shorter than it was when it was listed, and those of
    `explained_access`.
    """

    def __init__(self, file: UnitFile, file_system: FileSystem = _FILES) -> None:
        self.file = file
        self._files = file_system
        self._dtype = file.kind.dtype
        self._is_far = remote_file_of(file.path) is not None
        self._opened: OpenFile | None = None
        self._block: tuple[int, bytes] = (0, b"")

    def close(self) -> None:
        """Close the file; it is opened again when another unit is asked for."""
        if self._opened is not None:
            self._opened.close()
            self._opened, self._block = None, (0, b"")

    def read(self, begin: int, end: int) -> Units:
        """Return units by their places in the file."""
        size = self._dtype.itemsize
        stored = np.frombuffer(self._bytes(begin * size, (end - begin) * size), self._dtype)
        return Units.of(self.file.kind, stored, self.file.first + begin)

    def windows(self, begin: int, end: int, step: int = _WINDOW) -> Iterator[Units]:
        """Yield units by their places in the file; each window is longer than the one before, up to a limit."""
        while begin < end:
            stop = min(begin + step, end)
            yield self.read(begin, stop)
            begin, step = stop, min(step * 4, _WINDOW)

    def place(self, number: int) -> tuple[int, int]:
        """Return physical offset and size in the unit at a place in the file."""
        data = self._bytes(number * self._dtype.itemsize, _PLACE_BYTES)
        return int.from_bytes(data[:8], "big", signed=True), int.from_bytes(data[8:12], "big", signed=True)

    def written(self) -> int:
        """Return the number of units up to the last that has a size: those after it were never written.

        Holes of a sparse file are skipped. Zeros between units are counted: they are lost units.
        """
        size, count = self._dtype.itemsize, self.file.count
        for begin, end in reversed(list(self._data())):
            first, last = begin // size, min(-(-end // size), count)
            for stop in range(last, first, -_FIRST_STEP):
                start = max(stop - _FIRST_STEP, first)
                are_written = self.read(start, stop).stored["store_size"] != 0
                if are_written.any():
                    return stop - int(are_written[::-1].argmax())
        return 0

    def _data(self) -> Iterator[tuple[int, int]]:
        """Yield begin and end of the stretches of the file that are no holes."""
        position = 0
        while position < self.file.size:
            found = self._file.next_data(position)
            if found is None:
                return
            yield found
            position = found[1]

    def sound(self) -> int:
        """Return the number of units before the first that ends a queue when a broker loads it.

        A hole is not read: the rest of a queue's last file was never written.
        """
        begin, stop = next(self._data(), (0, 0))
        if begin:
            return 0
        found = 0
        for units in self.windows(0, min(-(-stop // self._dtype.itemsize), self.file.count), _FIRST_STEP):
            sound = units.are_sound
            if not sound.all():
                return found + int(sound.argmin())
            found += len(units)
        return found

    @property
    def _file(self) -> OpenFile:
        if self._opened is None:
            try:
                self._opened = self._files.open(self.file.path, writable=False)
            except FileNotFoundError as error:
                raise self._gone() from error
            except OSError as error:
                with explained_access(self.file.path):
                    raise error from None
            size = self._opened.size()
            if size < self.file.size:
                raise self._vanished(f"it has {size} bytes now")
        return self._opened

    def _bytes(self, begin: int, size: int) -> bytes:
        at, data = self._block
        if not at <= begin <= begin + size <= at + len(data):
            at, more = begin, size
            if self._is_far and size < _BLOCK:
                at = max(begin - _BLOCK // 2, 0)
                more = max(_BLOCK, begin + size - at)
            data = self._file.read(more, at)
            self._block = at, data
        found = data[begin - at :][:size] if len(data) != size else data
        if len(found) < size:
            raise self._vanished(f"it ends at byte {begin + len(found)} now")
        return found

    def _gone(self) -> Exception:
        """Tell a worker that does not see the store from a file that retention has deleted: that leaves a directory."""
        directory = self.file.path.parent
        queues = directory.parents[1]
        if queues.is_dir():
            return self._vanished("it is gone")
        return StoreNotFoundError(
            f"{queues} was there when the read was planned, and does not exist on {os.uname().nodename}, which was to "
            f"read {self.file.path}. Every worker has to see the store under the path that was given: mount it there, "
            f"or give the URL of a store"
        )

    def _vanished(self, found: str) -> SegmentVanishedError:
        return SegmentVanishedError(
            f"{self.file.path} ({self.file.size} bytes) was there when its queue was listed, and {found}: a broker's "
            f"retention deletes old files, and whole topics"
        ).advised(WITHOUT_SEGMENT)


class FileQueue:
    """A queue in files, which are listed when it is asked for anything, and opened when a unit of theirs is.

    * `root`: The store's root.
    """

    def __init__(self, name: QueueName, kind: QueueKind, root: Path, file_system: FileSystem = _FILES) -> None:
        self.name = name
        self.kind = kind
        self._root = root
        self._files = file_system
        self._opened_files: list[OpenUnits] | None = None
        self._is_numbered = False

    @property
    def directory(self) -> Path:
        """Where its files are."""
        return self._root.joinpath(DIRECTORIES[self.kind], self.name[0], str(self.name[1]))

    @property
    def listed(self) -> list[UnitFile]:
        """Its files, in order, as they were when they were asked for first."""
        return [opened.file for opened in self._opened]

    @property
    def files(self) -> int:
        """Number of files that it is in."""
        return len(self._opened)

    @property
    def exists(self) -> bool:
        """Whether there is a directory for it."""
        return bool(self._opened) or self.directory.is_dir()

    @property
    def _opened(self) -> list[OpenUnits]:
        if self._opened_files is None:  # not a `cached_property`, whose lock costs more than all else here
            listed = unit_files(self.directory, self.kind, self._files)
            self._opened_files = [OpenUnits(file, self._files) for file in listed]
        return self._opened_files

    # ---- what a broker sees

    def bounds(self, log_start: int) -> QueueBounds:
        """Return where it begins and ends when a broker loads it, in a log that starts at a position.

        It ends before the first invalid unit in its last three files (RocketMQ: ``ConsumeQueue.recover``). It begins at
        the first unit that is no filler, and whose record the log still has (``correctMinOffset``, which gives up where
        that unit is not in the queue's first file).
        """
        index, count = self._loaded()
        if not count:  # a broker leaves a queue at its number where only files without a unit are left
            begin = self.listed[0].first if self.listed and self.kind is not QueueKind.BATCH else 0
            return QueueBounds(begin, begin)
        last = self._opened[index].read(count - 1, count)
        end, place = int(last.ends[0]), last.place(0)
        first = None
        if place[0] >= log_start and not last.are_fillers[0]:
            first = self._first_live(index, count, log_start)
        return QueueBounds(end, end) if first is None else QueueBounds(first[0], end, first[1], place)

    def _loaded(self) -> tuple[int, int]:
        """Return the file that holds the last unit when a broker loads the queue, and how many units it takes of it."""
        start = max(len(self.listed) - _FILES_LOOKED_AT, 0)
        found = (0, 0)
        for index, file in enumerate(self._opened[start:], start):
            count = file.sound()
            if count:
                found = index, count
            if count < file.file.count:
                break
        return found if found[1] or not start else (start - 1, self.listed[start - 1].count)

    def _first_live(self, index: int, count: int, log_start: int) -> tuple[int, tuple[int, int]] | None:
        """Return offset and place of the first unit that is in the log, up to a place in a file; None without one."""
        for file in self._opened[: index + 1]:
            stop = count if file is self._opened[index] else file.file.count
            for units in file.windows(0, stop, 1):
                is_live = (units.stored["physical_offset"] >= log_start) & (units.stored["store_size"] > 0)
                is_live &= ~units.are_fillers
                if is_live.any():
                    row = int(is_live.argmax())
                    return int(units.offsets[row]), units.place(row)
            if file is not self._opened[index]:
                file.close()
        return None

    def units(self, begin: int = 0, end: int | None = None) -> Iterator[Units]:
        """Yield the units of messages between two queue offsets, file by file, in windows, with whatever is wrong.

        Without an end they are all up to the last that was written. Of a batch queue there may be some more.
        """
        firsts = self._first_offsets
        for file, first, following in zip(self._opened, firsts, [*firsts[1:], None], strict=True):
            if following is not None and following <= begin:
                continue
            if end is not None and first >= end:
                return
            is_batch = self.kind is QueueKind.BATCH
            stop = file.written() if is_batch or end is None else min(end - first, file.file.count)
            yield from file.windows(0 if is_batch else max(begin - first, 0), stop)
            if following is not None:
                file.close()

    def first_at(self, position: int, begin: int, end: int) -> int:
        """Return the queue offset of the first unit of a record at or after a position in the log; else the end."""

        def position_of(offset: int) -> int:
            ranges = (offset, offset + 1), (offset, end)  # the second one where a unit was lost
            found = next((units for each in ranges for units in leading(self.units(*each), *each)), None)
            return position if found is None else int(found.starts[0])

        return bisect_left(range(end), position, begin, end, key=position_of) if begin < end else end

    @property
    def _first_offsets(self) -> list[int]:
        """The queue offset at which each file begins."""
        if self.kind is not QueueKind.BATCH:
            return [file.first for file in self.listed]
        found = []
        for file in self._opened:
            found.append(int(file.read(0, 1).offsets[0]) if file.file.count else 0)
            file.close()
        return found

    def loaded(self, rules: QueueRules) -> Iterator[Units]:
        """Yield the units that a release has when it has loaded the queue: up to where its recovery ends it."""
        unit = self.kind.dtype.itemsize
        is_batch = self.kind is QueueKind.BATCH
        configured = rules.batch_consume_queue_file_size if is_batch else rules.consume_queue_file_size
        size = -(-configured // unit) * unit
        paths = list_for_loading((self.directory,), size, self._files, rules.release).paths
        queue = FileQueue(self.name, self.kind, self._root, self._files)
        files = (UnitFile(path, offset_of(path), size, self.kind) for path in paths)
        queue._opened_files = opened = [OpenUnits(file, self._files) for file in files]
        index, count = queue._loaded()
        try:
            for file in opened[: index + 1]:
                yield from file.windows(0, count if file is opened[index] else file.file.count)
                file.close()
        finally:
            for file in opened:
                file.close()

    # ---- what look-ups ask

    def range(self, position: int, begin: int, end: int) -> UnitRange:
        """Return the units of records at or after a physical offset, and of a range of queue offsets."""
        self._check_names()
        if not self._opened:
            return UnitRange(0, 0)
        whole = range(self.listed[0].first, self._end)
        if self.kind is QueueKind.BATCH:
            first, stop = (bisect_left(whole, offset, key=self._batch_offset) for offset in (begin, end))
        else:
            first, stop = (min(max(offset - whole.start, 0), len(whole)) for offset in (begin, end))
        if position and first < stop:
            first = bisect_left(whole, position, first, stop, key=lambda number: self._place(number)[0])
        return UnitRange(whole.start + first, whole.start + stop)

    def picked(self, wanted: UnitRange) -> Units:
        """Read units for a look-up; see `store_core.snapshot.units.Queue`."""
        self._check_names()
        pieces = []
        reached = wanted.begin
        for file in self._opened:
            first = file.file.first
            stop = min(wanted.end, first + file.file.count)
            if first <= reached < stop:
                pieces.append(file.read(reached - first, stop - first))
                reached = stop
        if reached < wanted.end:
            raise QueueDoubtError(f"{self.directory} has no unit {reached}")
        return Units.joined(self.kind, pieces).checked()

    def last(self) -> Units:
        """Return the last unit; none if there is none."""
        self._check_names()
        begin = self.listed[0].first if self.listed else 0
        end = self._end
        return self.picked(UnitRange(max(begin, end - 1), end))

    def unit_at(self, queue_offset: int) -> tuple[int, int] | None:
        """Return position and size in the unit of a queue offset; None if the queue has no such unit."""
        found = self.range(0, queue_offset, queue_offset + 1)
        return self._place(found.begin) if found.begin < found.end else None

    def _check_names(self) -> None:
        for file in () if self._is_numbered else self.listed:
            if file.start % self.kind.dtype.itemsize:
                raise QueueDoubtError(f"{file.path}: no unit of a queue begins at byte {file.start}")
        self._is_numbered = True

    @cached_property
    def _end(self) -> int:
        """The number after the last unit; the last file was made in its full size, with zeros after the units."""
        for file in reversed(self._opened):
            written = bisect_left(range(file.file.count), 1, key=lambda number: file.place(number)[1] <= 0)
            if written or file is self._opened[0]:
                return file.file.first + written
        return 0

    def _place(self, number: int) -> tuple[int, int]:
        file = self._file_of(number)
        return file.place(number - file.file.first)

    def _batch_offset(self, number: int) -> int:
        file = self._file_of(number)
        return int(file.read(number - file.file.first, number - file.file.first + 1).offsets[0])

    def _file_of(self, number: int) -> OpenUnits:
        file = next((each for each in reversed(self._opened) if each.file.first <= number), None)
        if file is None or number - file.file.first >= file.file.count:
            raise QueueDoubtError(f"{self.directory} has no unit {number}")
        return file
