# SPDX-License-Identifier: Apache-2.0
"""The consume queues of a store, in files or in a RocksDB, of which only what is asked for is read."""

from __future__ import annotations

import logging
import re
from bisect import bisect_left
from contextlib import ExitStack, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from store_core.errors import WITHOUT_SEGMENT, SegmentLayoutError, SegmentVanishedError
from store_core.files.access import explained_access
from store_core.files.file_system import FileSystem, OpenFile, OsFileSystem, names_in
from store_core.files.mapped_file import offset_of
from store_core.files.names import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, advice_on_name, start_offset_of, why_no_segment
from store_core.files.segment_listing import list_for_loading
from store_core.files.segment_source import unseen_error
from store_core.files.store_kind import queue_database
from store_core.files.url_path import UrlPath
from store_core.queue.queue_path import QueueRules, is_light, refusal_of
from store_core.snapshot.units import (
    EVERY_QUEUE,
    Queue,
    QueueBounds,
    QueueDoubtError,
    QueueKind,
    QueueName,
    TopicFilter,
    UnitRange,
    Units,
    leading,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store_core.queue.rocksdb_queues import RocksdbQueues
    from store_core.snapshot.units import QueuedLog, Unflushed


_log: Final = logging.getLogger("store_core")

DIRECTORIES: Final = {QueueKind.SIMPLE: CONSUME_QUEUE, QueueKind.BATCH: BATCH_CONSUME_QUEUE}
"""Of the kinds that are files, the directory of all their queues below the root."""

_FILES: Final = OsFileSystem()
_QUEUE_ID: Final = re.compile("0|[1-9][0-9]{0,9}")
"""How RocketMQ writes the name of a queue's directory (``String.valueOf``)."""

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


class UnitFile:
    """A file of units, opened when one is asked for; one on another machine is read in blocks. It can be pickled.

    Errors are `SegmentVanishedError` if the file is gone, or shorter than it was when it was listed, and those of
    `explained_access`.

    * `start`: Place of its first byte in the queue, by its name.
    * `size`: Bytes, when its directory was listed.
    * `first`: Number of the first unit in the queue.
    * `count`: Number of units that it has room for.
    """

    def __init__(self, path: Path, start: int, size: int, kind: QueueKind, file_system: FileSystem = _FILES) -> None:
        self.path, self.start, self.size, self.kind = path, start, size, kind
        self._dtype = kind.dtype
        self.first, self.count = start // self._dtype.itemsize, size // self._dtype.itemsize
        self._files = file_system
        self._is_far = isinstance(path, UrlPath)
        self._opened: OpenFile | None = None
        self._block: tuple[int, bytes] = (0, b"")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what the directory listed."""
        return UnitFile, (self.path, self.start, self.size, self.kind)

    def close(self) -> None:
        """Close the file; it is opened again when another unit is asked for."""
        if self._opened is not None:
            self._opened.close()
            self._opened, self._block = None, (0, b"")

    def read(self, begin: int, end: int) -> Units:
        """Return units by their places in the file."""
        size = self._dtype.itemsize
        stored = np.frombuffer(self._bytes(begin * size, (end - begin) * size), self._dtype)
        return Units.of(self.kind, stored, self.first + begin)

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
        size, count = self._dtype.itemsize, self.count
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
        while position < self.size:
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
        for units in self.windows(0, min(-(-stop // self._dtype.itemsize), self.count), _FIRST_STEP):
            sound = units.are_sound
            if not sound.all():
                return found + int(sound.argmin())
            found += len(units)
        return found

    @property
    def _file(self) -> OpenFile:
        if self._opened is None:
            try:
                self._opened = self._files.open(self.path, writable=False)
            except FileNotFoundError as error:
                # A file that retention has deleted leaves a directory; a worker that does not see the store has none.
                queues = self.path.parents[2]
                is_there = queues.is_dir()
                raise (self._vanished("it is gone") if is_there else unseen_error(queues, str(self.path))) from error
            except OSError as error:
                with explained_access(self.path):
                    raise error from None
            size = self._opened.size()
            if size < self.size:
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

    def _vanished(self, found: str) -> SegmentVanishedError:
        return SegmentVanishedError(
            f"{self.path} ({self.size} bytes) was there when its queue was listed, and {found}: a broker's retention "
            f"deletes old files, and whole topics"
        ).advised(WITHOUT_SEGMENT)


def _unit_files(directory: Path, kind: QueueKind, file_system: FileSystem) -> list[UnitFile]:
    """List the files of a queue, in order; empty files are left out, other names with a warning."""
    found: list[UnitFile] = []
    with explained_access(directory):
        listed = [(name, file_system.status(directory / name)) for name in file_system.names(directory)]
    for name, status in listed:
        path, start = directory / name, start_offset_of(name)
        if status is None:
            continue  # deleted by retention since the directory was read, or a dangling link
        if start is None or status.is_directory:
            what = "directory" if status.is_directory else "file"
            _log.warning("ignored the %s %s: %s.%s", what, path, why_no_segment(name), advice_on_name(name))
        elif status.size:
            found.append(UnitFile(path, start, status.size, kind, file_system))
    return sorted(found, key=lambda file: file.start)


class FileQueue:
    """A queue in files, which are listed when it is asked for anything, and opened when a unit of theirs is."""

    def __init__(self, name: QueueName, kind: QueueKind, root: Path, file_system: FileSystem = _FILES) -> None:
        self.name = name
        self.kind = kind
        self._root = root  # the store's
        self._files = file_system
        self._listed: list[UnitFile] | None = None
        self._is_numbered = False

    @property
    def directory(self) -> Path:
        """Where its files are."""
        return self._root.joinpath(DIRECTORIES[self.kind], self.name[0], str(self.name[1]))

    @property
    def listed(self) -> list[UnitFile]:
        """Its files, in order, as they were when they were asked for first."""
        if self._listed is None:  # not a `cached_property`, whose lock costs more than all else here
            self._listed = _unit_files(self.directory, self.kind, self._files)
        return self._listed

    @property
    def files(self) -> int:
        """Number of files that it is in."""
        return len(self.listed)

    @property
    def exists(self) -> bool:
        """Whether there is a directory for it."""
        return bool(self.listed) or self.directory.is_dir()

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
        last = self.listed[index].read(count - 1, count)
        end, place = int(last.ends[0]), last.place(0)
        first = None
        if place[0] >= log_start and not last.are_fillers[0]:
            first = self._first_live(index, count, log_start)
        return QueueBounds(end, end) if first is None else QueueBounds(first[0], end, first[1], place)

    def _loaded(self) -> tuple[int, int]:
        """Return the file that holds the last unit when a broker loads the queue, and how many units it takes of it."""
        start = max(len(self.listed) - _FILES_LOOKED_AT, 0)
        found = (0, 0)
        for index, file in enumerate(self.listed[start:], start):
            count = file.sound()
            if count:
                found = index, count
            if count < file.count:
                break
        return found if found[1] or not start else (start - 1, self.listed[start - 1].count)

    def _first_live(self, index: int, count: int, log_start: int) -> tuple[int, tuple[int, int]] | None:
        """Return offset and place of the first unit that is in the log, up to a place in a file; None without one."""
        for file in self.listed[: index + 1]:
            stop = count if file is self.listed[index] else file.count
            for units in file.windows(0, stop, 1):
                is_live = (units.stored["physical_offset"] >= log_start) & (units.stored["store_size"] > 0)
                is_live &= ~units.are_fillers
                if is_live.any():
                    row = int(is_live.argmax())
                    return int(units.offsets[row]), units.place(row)
            if file is not self.listed[index]:
                file.close()
        return None

    def units(self, begin: int = 0, end: int | None = None) -> Iterator[Units]:
        """Yield the units of messages between two queue offsets, file by file, in windows, with whatever is wrong.

        Without an end they are all up to the last that was written. Of a batch queue there may be some more.
        """
        firsts = self._first_offsets
        for file, first, following in zip(self.listed, firsts, [*firsts[1:], None], strict=True):
            if following is not None and following <= begin:
                continue
            if end is not None and first >= end:
                return
            is_batch = self.kind is QueueKind.BATCH
            stop = file.written() if is_batch or end is None else min(end - first, file.count)
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
        for file in self.listed:
            found.append(int(file.read(0, 1).offsets[0]) if file.count else 0)
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
        queue._listed = files = [UnitFile(path, offset_of(path), size, self.kind, self._files) for path in paths]
        index, count = queue._loaded()
        try:
            for file in files[: index + 1]:
                yield from file.windows(0, count if file is files[index] else file.count)
                file.close()
        finally:
            for file in files:
                file.close()

    # ---- what look-ups ask

    def range(self, position: int, begin: int, end: int) -> UnitRange:
        """Return the units of records at or after a physical offset, and of a range of queue offsets."""
        self._check_names()
        if not self.listed:
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
        for file in self.listed:
            first = file.first
            stop = min(wanted.end, first + file.count)
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
        for file in reversed(self.listed):
            written = bisect_left(range(file.count), 1, key=lambda number: file.place(number)[1] <= 0)
            if written or file is self.listed[0]:
                return file.first + written
        return 0

    def _place(self, number: int) -> tuple[int, int]:
        file = self._file_of(number)
        return file.place(number - file.first)

    def _batch_offset(self, number: int) -> int:
        file = self._file_of(number)
        return int(file.read(number - file.first, number - file.first + 1).offsets[0])

    def _file_of(self, number: int) -> UnitFile:
        file = next((each for each in reversed(self.listed) if each.first <= number), None)
        if file is None or number - file.first >= file.count:
            raise QueueDoubtError(f"{self.directory} has no unit {number}")
        return file


class NamedQueue(NamedTuple):
    """One queue of a store.

    Attributes
    ----------
    queues : Queues
        Where it is one of.
    topic : str
    queue_id : int
    """

    queues: Queues
    topic: str
    queue_id: int

    @property
    def bounds(self) -> QueueBounds:
        """Where it begins and ends: the queue offsets of its first message, and of the one after its last."""
        found = self.queues.bounds(self.topic, self.queue_id)
        return self.stored.bounds(0) if found is None else found

    @property
    def stored(self) -> Queue:
        """The queue as it is stored, with whatever is wrong.

        Raises
        ------
        SegmentVanishedError
            If it is gone since it was asked for.
        """
        found = self.queues.get(self.topic, self.queue_id)
        if found is None:
            raise SegmentVanishedError(
                f"{self.queues.root}: queue {self.queue_id} of topic {self.topic!r} is gone since it was asked for"
            ).advised("Open the store again, or refresh it, to see what there is now")
        return found

    def units(self, begin: int | None = None, end: int | None = None) -> pa.Table:
        """Return its units between two queue offsets, by default all, that lead to records.

        Columns are `queue_offset`, `physical_offset` and `store_size`, all int64; a unit of a batch has the offset of
        its first message.
        """
        bounds = self.bounds
        first = bounds.min_offset if begin is None else max(begin, bounds.min_offset)
        last = bounds.max_offset if end is None else min(end, bounds.max_offset)
        found = list(self.queues.units(self.topic, self.queue_id, first, last))
        arrays = [np.concatenate([getattr(each, name) for each in found] or [_NONE]) for name in _ARRAYS]
        return pa.table(dict(zip(_COLUMNS, arrays, strict=True)))


_COLUMNS: Final = ("queue_offset", "physical_offset", "store_size")
_ARRAYS: Final = ("offsets", "starts", "sizes")
_NONE: Final = np.empty(0, np.int64)


class Queues:
    """The consume queues of one store; nothing is written or locked, and files are opened when they are needed.

    A RocksDB stays open until the block of a ``with`` statement ends, or `close`. Queues can be pickled: another
    process opens what it needs, on its own disk.

    Parameters
    ----------
    root : Path
        The store's root.
    log : QueuedLog, optional
        The log that they lead into. With it, bounds end where the log does, and the queues of a RocksDB have what was
        not flushed, which is read now; without it they are as their files have them.
    file_system : FileSystem, optional
    end : int, optional
        Physical offset: bounds are as if the log had ended there.

    Attributes
    ----------
    database : Path or None
        The RocksDB that all queues are in; None if they are files.
    unflushed : dict
        By topic and queue id: what only the log has, as of now.
    notes : dict of str to None
        What was left out when queues were listed, in order.

    Raises
    ------
    CorruptDatabaseError, UnsupportedStoreError
        If the queues are in a RocksDB that is damaged, or whose library is missing.

    Examples
    --------
    >>> with Queues(Path("/data/store")) as queues:  # doctest: +SKIP
    ...     queues.bounds("orders", 0)
    QueueBounds(min_offset=0, max_offset=7, first=(0, 312), last=(2184, 312))
    """

    def __init__(
        self,
        root: Path,
        log: QueuedLog | None = None,
        file_system: FileSystem = _FILES,
        *,
        end: int | None = None,
    ) -> None:
        self.root = root
        self.log = log
        self.end = end
        self.database = queue_database(root, file_system)
        self.unflushed: dict[QueueName, Unflushed] = {}
        self.notes: dict[str, None] = {}
        self._files = file_system
        self._start()
        if self.database is not None and log is not None:
            from store_core.snapshot.units import unflushed_of  # noqa: PLC0415 -- few have a RocksDB

            with self:
                self.unflushed = unflushed_of(log, self._stored(self.database).dispatched_offset)

    def _start(self) -> None:
        self._resources = ExitStack()
        self._databases: dict[Path, RocksdbQueues] = {}
        self._asked: tuple[QueueName, Queue | None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is open."""
        fields = ("root", "log", "end", "database", "unflushed", "notes")
        return {name: getattr(self, name) for name in fields}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin with nothing open, on the files of the process."""
        self.__dict__.update(state)
        self._files = _FILES
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what is open; it is opened again when it is needed."""
        self._resources.close()
        self._start()

    # ---- which queues there are

    @property
    def exist(self) -> bool:
        """Whether there is a place for queues at all."""
        return self.database is not None or any((self.root / name).is_dir() for name in DIRECTORIES.values())

    @property
    def dispatched(self) -> int | None:
        """Physical offset up to which a RocksDB has all units; None for files, or if it is not known."""
        found = -1 if self.database is None else self._stored(self.database).dispatched_offset
        return found if found >= 0 else None

    def names(self, wanted: TopicFilter = EVERY_QUEUE) -> Iterator[QueueName]:
        """Yield the names of the queues that are asked for; see `each`."""
        return (queue.name for queue in self.each(wanted))

    def each(self, wanted: TopicFilter = EVERY_QUEUE) -> Iterator[Queue]:
        """Yield the queues that are asked for, by kind, topic and id. None of their files is listed or opened.

        Directories that can't be those of queues are left out, with a note. Light queues that only a RocksDB has,
        beside other queues that are files, are found if they are asked for by name.
        """
        if self.database is not None:
            yield from self._in_database(self.database, wanted)
            return
        yield from self.in_files(wanted)
        if any(map(is_light, wanted.topics)) and self.light_database is not None:
            yield from self._in_database(self.light_database, wanted)

    def in_files(self, wanted: TopicFilter = EVERY_QUEUE) -> Iterator[FileQueue]:
        """Yield those of the queues that `each` yields which have a directory, also beside a RocksDB."""
        for kind in DIRECTORIES:
            yield from (FileQueue(name, kind, self.root, self._files) for name in self._names_in(kind, wanted))

    def _in_database(self, database: Path, wanted: TopicFilter) -> Iterator[Queue]:
        for name in self._stored(database).names:
            if wanted.takes(*name) and (database == self.database or is_light(name[0])):
                yield self._queue_in(database, name)

    def _queue_in(self, database: Path, name: QueueName) -> Queue:
        from store_core.snapshot.units import DatabaseQueue  # noqa: PLC0415 -- few have a RocksDB

        return DatabaseQueue(self._stored(database), name, self.unflushed.get(name), self.log)

    def topics(self) -> set[str]:
        """Return the topics that have a place for queues, without looking at their queues; a file there is refused."""
        if self.database is not None:
            return {topic for topic, _ in self.names()}
        with explained_access(self.root):
            return {
                topic
                for name in DIRECTORIES.values()
                for topic in self._files.names(self.root / name)
                if refusal_of(topic, 0) is None and (self.root / name / topic).is_dir()
            }

    def _names_in(self, kind: QueueKind, wanted: TopicFilter) -> Iterator[QueueName]:
        directory = self.root / DIRECTORIES[kind]
        with explained_access(self.root):
            topics = self._topics(directory, wanted)
        for topic in topics:
            queue_ids = []
            with explained_access(self.root):
                names = names_in(directory / topic, self._files)
            for name in names:
                queue_id = int(name) if _QUEUE_ID.fullmatch(name) else -1
                if refusal_of(topic, queue_id) is not None:
                    self.notes[f"ignored {directory / topic / name}: expected a number, the queue's id"] = None
                elif not wanted.queue_ids or queue_id in wanted.queue_ids:
                    queue_ids.append(queue_id)
            yield from ((topic, queue_id) for queue_id in sorted(queue_ids))

    def _topics(self, directory: Path, wanted: TopicFilter) -> list[str]:
        """Return the topics that may have a directory; those that are asked for by name are not searched for."""
        if wanted.topics:
            named = (topic for topic in dict.fromkeys(wanted.topics) if refusal_of(topic, 0) is None)
            return sorted(topic for topic in named if wanted.takes_topic(topic) and (directory / topic).is_dir())
        return [topic for topic in names_in(directory, self._files) if wanted.takes_topic(topic)]

    def reached(self) -> int:
        """Return one past the last record of which any readable queue has a unit; -1 without units."""
        reached = -1
        for name in self.names():
            with suppress(SegmentLayoutError, OSError):
                bounds = self.bounds(*name)
                reached = max(reached, -1 if bounds is None or bounds.last is None else sum(bounds.last))
        return reached

    # ---- one queue

    def __getitem__(self, name: QueueName) -> NamedQueue:
        """Return a queue by its topic and id.

        Raises `KeyError`: If there is none.
        """
        if self.get(*name) is None:
            raise KeyError(name)
        return NamedQueue(self, *name)

    def get(self, topic: str, queue_id: int) -> Queue | None:
        """Return a queue; None if there is none, or can't be. Asked for again, it is the same, files and all."""
        name = topic, queue_id
        if self._asked is None or self._asked[0] != name:
            self._asked = name, self._found(name)
        return self._asked[1]

    def _found(self, name: QueueName) -> Queue | None:
        database = self.database
        if database is None:
            if refusal_of(*name) is not None:
                return None
            for kind in DIRECTORIES:
                queue = FileQueue(name, kind, self.root, self._files)
                if queue.exists:
                    return queue
            database = self.light_database if is_light(name[0]) else None
        if database is None or (name not in self._stored(database) and name not in self.unflushed):
            return None
        return self._queue_in(database, name)

    @cached_property
    def light_database(self) -> Path | None:
        """The RocksDB that alone has the light queues, where other queues are files."""
        from store_core.queue.rocksdb_queues import light_queue_database  # noqa: PLC0415 -- few have one

        return light_queue_database(self.root, self._files) if self.database is None else None

    def _stored(self, database: Path) -> RocksdbQueues:
        from store_core.queue.rocksdb_queues import RocksdbQueues  # noqa: PLC0415 -- few have one

        if database not in self._databases:
            self._databases[database] = self._resources.enter_context(RocksdbQueues.open(database))
        return self._databases[database]

    # ---- where queues begin and end

    def bounds(self, topic: str, queue_id: int, log_end: int | None = None) -> QueueBounds | None:
        """Return where a queue begins and ends as a broker that loads the store has it; None if there is none.

        That is its offsets in ``getMinOffsetInQueue`` and ``getMaxOffsetInQueue``. Units of records that the log does
        not have, because they begin at or after its end, are left out
        (RocketMQ: ``ConsumeQueue.truncateDirtyLogicFiles``, after the log is recovered).

        Parameters
        ----------
        topic, queue_id
        log_end : int or None
            Physical offset: as if the log had ended there.

        Raises
        ------
        SegmentVanishedError
            If a file is gone since the queue was listed.
        CorruptDatabaseError
            If the RocksDB is damaged.
        """
        queue = self.get(topic, queue_id)
        found = None if queue is None else queue.bounds(0 if self.log is None else self.log.start)
        if found is None or found.last is None:
            return found
        end = None if self.log is None else self.log.end_before(*found.last)
        most = self.end if log_end is None else log_end
        return self.before(topic, queue_id, self.before(topic, queue_id, found, end), most)

    def before(self, topic: str, queue_id: int, bounds: QueueBounds | None, log_end: int | None) -> QueueBounds | None:
        """Return the bounds of a queue without the units of records from a position in the log on; None for all."""
        if bounds is None or log_end is None or bounds.last is None or bounds.last[0] < log_end:
            return bounds
        end = self.first_at(topic, queue_id, log_end, bounds.min_offset, bounds.max_offset)
        last = next(self.units(topic, queue_id, end - 1, end), None) if end > bounds.min_offset else None
        if last is None:
            return QueueBounds(bounds.min_offset, bounds.min_offset)
        return QueueBounds(bounds.min_offset, end, bounds.first, last.place(-1))

    def first_at(self, topic: str, queue_id: int, position: int, begin: int, end: int) -> int:
        """Return the queue offset of the first unit of a record at or after a position in the log; else the end.

        Parameters
        ----------
        topic, queue_id
        position : int
            Physical offset.
        begin, end : int
            Queue offsets, between which the units' records ascend.
        """
        queue = self.get(topic, queue_id)
        return end if queue is None else queue.first_at(position, begin, end)

    def units(self, topic: str, queue_id: int, begin: int, end: int) -> Iterator[Units]:
        """Yield the units of messages between two queue offsets that lead to records, some thousands at a time.

        Raises
        ------
        SegmentVanishedError
            If a file is gone since the queue was listed.
        """
        queue = self.get(topic, queue_id) if begin < end else None
        return leading(() if queue is None else queue.units(begin, end), begin, end)
