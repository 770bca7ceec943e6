# SPDX-License-Identifier: Apache-2.0
"""A queue of segments against a model of it: a byte string, three offsets, and a disk that fails now and then."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from store_core.files.mapped_file import MappedFile, TransientStorePool, file_name_of
from store_core.files.mapped_file_queue import AllocateMappedFileService, MappedFileQueue
from store_core.files.segment_listing import SegmentPaths
from store_core.format.message import AppendMessageResult, AppendMessageStatus
from tests.budgets import budget
from tests.store_core.fakes import FakeClock, FaultyFileSystem

PAGE = 4096


class MappedFileMachine(RuleBasedStateMachine):
    """One file; the model is what was appended and how far it is committed and flushed."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.disk = FaultyFileSystem()
        self.model = b""
        self.committed = self.flushed = 0
        self.is_flushable = True

    @initialize(
        pages=st.integers(1, 6), extra=st.integers(0, PAGE - 1), buffered=st.booleans(), start=st.integers(0, 9)
    )
    def create(self, pages: int, extra: int, buffered: bool, start: int) -> None:
        self.size = pages * PAGE + extra
        self.path = Path(self.folder.name) / file_name_of(start * self.size)
        self.pool = TransientStorePool(1, self.size) if buffered else None
        self.is_buffered = buffered
        self.file = MappedFile.create(self.path, self.size, self.disk, self.pool)

    @property
    def readable(self) -> int:
        return self.committed if self.is_buffered else len(self.model)

    def appended(self, data: bytes) -> None:
        self.model += data
        if not self.is_buffered:
            self.committed = len(self.model)

    def data(self, size: int) -> bytes:
        return bytes((len(self.model) + index) % 255 + 1 for index in range(size))

    @rule(size=st.integers(0, 3 * PAGE))
    def append(self, size: int) -> None:
        data = self.data(size)
        fits = size <= self.size - len(self.model)

        assert self.file.append(data) == fits
        if fits:
            self.appended(data)

    @rule(size=st.integers(0, 3 * PAGE), time=st.integers(1, 9))
    def append_with(self, size: int, time: int) -> None:
        room = self.size - len(self.model)
        data = self.data(min(size, room))

        def callback(offset: int, view: memoryview, given: int) -> AppendMessageResult:
            assert (offset, len(view), given) == (self.file.file_from_offset, room, room)
            view[: len(data)] = data
            return AppendMessageResult(AppendMessageStatus.PUT_OK, offset, len(data), store_timestamp=time)

        result = self.file.append_with(callback)

        assert result.status is (AppendMessageStatus.PUT_OK if room else AppendMessageStatus.UNKNOWN_ERROR)
        self.appended(data)

    @rule(size=st.integers(1, 3 * PAGE), blocks=st.integers(0, 2), erase_fails=st.booleans())
    @precondition(lambda self: not self.is_buffered and len(self.model) < self.size)
    def append_to_a_full_disk(self, size: int, blocks: int, erase_fails: bool) -> None:
        data = self.data(min(size, self.size - len(self.model)))
        self.disk.free_blocks = blocks
        if erase_fails:
            self.disk.fail("read", errno.EIO, times=9)
        try:
            self.file.append(data)
        except OSError as error:
            assert error.errno in {errno.ENOSPC, errno.EIO}  # noqa: PT017 -- it may also have found room
        else:
            self.appended(data)
        self.disk.heal()

    @rule(least_pages=st.integers(0, 5))
    def commit(self, least_pages: int) -> None:
        wrote = len(self.model)
        if self.is_buffered and self.enough(wrote, self.committed, least_pages):
            self.committed = wrote
            self.is_buffered = wrote < self.size  # committing the last byte returns the buffer, for good

        assert self.file.commit(least_pages) == (self.committed if self.pool else wrote)

    @rule(least_pages=st.integers(0, 5), fails=st.booleans())
    def flush(self, least_pages: int, fails: bool) -> None:
        is_due = self.enough(self.readable, self.flushed, least_pages)
        if fails:
            self.disk.fail("sync", errno.EIO)
        try:
            reached = self.file.flush(least_pages)
        except OSError:
            assert is_due
            assert fails or not self.is_flushable
            self.is_flushable = False
        else:
            assert not is_due or (self.is_flushable and not fails)
            if is_due:
                self.flushed = self.readable
            assert reached == self.flushed
        self.disk.heal()

    def enough(self, end: int, done: int, least_pages: int) -> bool:
        if len(self.model) == self.size:
            return True
        return end // PAGE - done // PAGE >= least_pages if least_pages else end > done

    @rule(share=st.floats(0, 1), fails=st.booleans())
    def truncate(self, share: float, fails: bool) -> None:
        position = int(share * len(self.model))
        is_due = any(self.path.read_bytes()[position:])
        synced = self.disk.count("sync")
        if fails:
            self.disk.fail("sync", errno.EIO)
        try:
            self.file.set_position(position, clear_tail=True)
        except OSError:
            assert is_due
            assert fails or not self.is_flushable
            self.is_flushable = False
        else:
            assert not is_due or (self.is_flushable and not fails)
            assert self.disk.count("sync") - synced == is_due
        self.disk.heal()
        assert not any(self.path.read_bytes()[position:])
        self.model = self.model[:position]
        self.committed = min(self.committed, position)
        self.flushed = min(self.flushed, position) if self.is_buffered else position

    @rule(position=st.integers(-1, 7 * PAGE), size=st.none() | st.integers(0, 7 * PAGE))
    def select(self, position: int, size: int | None) -> None:
        view = self.file.select(position, size)
        stop = self.readable if size is None else position + size
        is_there = 0 <= position <= stop <= self.readable and (size is not None or position < self.readable)

        assert (view is not None) == is_there
        assert view is None or bytes(view) == self.model[position:stop]

    @invariant()
    def positions_are_those_of_the_model(self) -> None:
        if not hasattr(self, "file"):
            return
        assert self.file.wrote_position == len(self.model)
        assert self.file.read_position == self.readable
        assert self.file.flushed_position == self.flushed <= self.readable
        assert self.file.is_full == (len(self.model) == self.size)

    @invariant()
    def the_file_holds_what_was_committed_and_zeros(self) -> None:
        if not hasattr(self, "file") or self.file.segment._torn_until:
            return
        assert self.path.read_bytes() == self.model[: self.readable].ljust(self.size, b"\0")

    def teardown(self) -> None:
        if hasattr(self, "file"):
            self.file.close()
        self.folder.cleanup()


class MappedFileQueueMachine(RuleBasedStateMachine):
    """Consecutive files, in one directory or three; the model is one byte string that starts at an offset."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.disk, self.clock = FaultyFileSystem(), FakeClock()
        self.model = b""
        self.flushed = 0

    @initialize(size=st.integers(1, 50), first=st.integers(0, 3), directories=st.integers(1, 3), ahead=st.booleans())
    def create(self, size: int, first: int, directories: int, ahead: bool) -> None:
        self.size, self.start = size, first * size
        root = Path(self.folder.name)
        self.paths = SegmentPaths(tuple(root / name for name in "abc"[:directories]))
        self.allocate = AllocateMappedFileService(self.disk, self.clock) if ahead else None
        self.clock.while_waiting = self.allocate.run_once if self.allocate else None
        self.queue = MappedFileQueue(self.paths, size, self.disk, self.allocate)

    @property
    def end(self) -> int:
        return self.start + len(self.model) if self.queue.mapped_files else 0

    @rule(size=st.integers(0, 120))
    def append(self, size: int) -> None:
        data = bytes((len(self.model) + index) % 255 + 1 for index in range(size))
        while data:
            file = self.queue.get_last_mapped_file(self.start)
            assert file is not None
            room = self.size - file.wrote_position
            assert file.append(data[:room])
            self.model += data[:room]
            data = data[room:]

    @rule()
    def fail_to_make_a_file(self) -> None:
        files = self.queue.mapped_files
        self.disk.fail("open", errno.EMFILE, times=9)
        is_needed = not files or files[-1].is_full
        wanted = file_name_of(files[-1].end_offset if files else self.start)
        # Another file may be there, too: one made in advance before the queue was truncated.
        is_ready = self.allocate is not None and any(
            request.mapped_file for path, request in self.allocate._requests.items() if path.name == wanted
        )
        file = self.queue.get_last_mapped_file(self.start)
        self.disk.heal()

        assert (file is None) == (is_needed and not is_ready)

    @rule()
    def flush(self) -> None:
        before, self.flushed = self.flushed, self.next_flush()

        assert self.queue.flush(0) == (self.flushed == before)

    def next_flush(self) -> int:
        """Return the end of the file that holds the flushed offset, or of the log."""
        if not self.queue.mapped_files or self.flushed == self.queue.mapped_files[-1].end_offset:
            return self.flushed
        begin = max(self.flushed, self.start)
        return min(self.end, begin - begin % self.size + self.size)

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        offset = self.start + int(share * len(self.model))
        self.queue.truncate_dirty_files(offset)
        self.flushed = min(self.flushed, offset)
        self.model = self.model[: offset - self.start]

    @rule()
    def load_again(self) -> None:
        """Shut down cleanly, and load: every file counts as full until recovery truncates."""
        if self.allocate is not None:
            self.allocate.shutdown()
        end = self.end
        self.queue.close()
        self.queue = MappedFileQueue(self.paths, self.size, self.disk, self.allocate)
        assert self.queue.load() == ()
        assert all(file.is_full for file in self.queue.mapped_files)
        if self.queue.mapped_files:
            self.queue.truncate_dirty_files(end)
            self.queue.flushed_where = self.queue.committed_where = end
        self.flushed = self.queue.flushed_where

    @rule(offset=st.integers(-10, 1000))
    def find(self, offset: int) -> None:
        files = self.queue.mapped_files
        file = self.queue.find_mapped_file_by_offset(offset)
        is_inside = bool(files) and self.start <= offset < files[-1].end_offset

        assert (file is not None) == is_inside
        assert file is None or file.file_from_offset == offset - offset % self.size

    @invariant()
    def the_queue_is_one_byte_space(self) -> None:
        if not hasattr(self, "queue"):
            return
        files = self.queue.mapped_files
        views = [file.select(0) for file in files]

        assert b"".join(bytes(view) for view in views if view is not None) == self.model
        assert self.queue.max_offset == self.queue.max_wrote_position == self.end
        assert self.queue.min_offset == (self.start if files else -1)
        assert self.queue.flushed_where == self.flushed
        assert self.queue.check_self() == ()

    @invariant()
    def files_go_round_the_directories(self) -> None:
        if not hasattr(self, "queue"):
            return
        for file in self.queue.mapped_files:
            index = file.file_from_offset // self.size % len(self.paths.paths)
            assert file.path.parent == self.paths.paths[index]

    def teardown(self) -> None:
        if hasattr(self, "queue"):
            self.queue.close()
        self.folder.cleanup()


TestMappedFile = MappedFileMachine.TestCase
TestMappedFile.settings = settings(budget(1.5), stateful_step_count=30)
TestMappedFileQueue = MappedFileQueueMachine.TestCase
TestMappedFileQueue.settings = settings(budget(1), stateful_step_count=30)
