# SPDX-License-Identifier: Apache-2.0
"""The services that flush the commit log to disk, after or before the producer is answered."""

from __future__ import annotations

import logging
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final

from store_core.files.service_thread import ServiceThread
from store_core.format.message import PutMessageStatus
from store_core.format.release import DEFAULT_RELEASE, rules_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from store_core.files.machine import Clock
    from store_core.files.mapped_file_queue import MappedFileQueue


_LOG: Final = logging.getLogger("store_core")
_MS: Final = 1000
_SLOW_SECONDS: Final = 0.5
"""Steps that take longer are logged (RocketMQ: 500 ms)."""

_WATCH_SECONDS: Final = 1.0


class _LogService(ServiceThread):
    """Base class of the three services.

    * `on_flushed`: Receives the queue's `store_timestamp` after a flush, if it is known: the checkpoint's
      physic_msg_timestamp.
    * `on_error`: Receives each system error; the commit log then stops accepting messages.
    """

    def __init__(
        self,
        queue: MappedFileQueue,
        clock: Clock,
        on_flushed: Callable[[int], None] = lambda _: None,
        on_error: Callable[[OSError], None] | None = None,
    ) -> None:
        super().__init__(clock, on_error)
        self._queue = queue
        self._on_flushed = on_flushed

    def _timed(self, step: Callable[[int], bool], least_pages: int) -> bool:
        begin = self._clock.monotonic()
        unchanged = step(least_pages)
        seconds = self._clock.monotonic() - begin
        if seconds > _SLOW_SECONDS:
            _LOG.warning("%s: one step took %.0f ms", self.service_name, seconds * 1000)
        return unchanged

    def _repeat(self, step: Callable[[int], bool]) -> None:
        """Repeat a step until nothing changes; each crosses at most one file border. RocketMQ gives up after ten."""
        while not step(0):
            pass

    def _tell_checkpoint(self) -> None:
        if self._queue.store_timestamp > 0:
            self._on_flushed(self._queue.store_timestamp)


@dataclass(frozen=True, slots=True)
class Pace:
    """How often a service works, and how much has to be pending."""

    interval: float  # seconds between steps
    least_pages: int  # 4 KiB pages that have to be pending for a step to do anything
    thorough_interval: float  # seconds after which a step takes everything pending, as the first step does
    timed: bool = False  # sleep for the whole interval even if woken


class _PacedService(_LogService):
    """A service that flushes or commits by the page rule at intervals, and everything when that is due.

    The due time is measured on the monotonic clock: a wall clock that steps back does not postpone it.
    """

    _last_thorough: float | None = None

    def __init__(
        self,
        queue: MappedFileQueue,
        clock: Clock,
        pace: Pace,
        on_flushed: Callable[[int], None] = lambda _: None,
        on_error: Callable[[OSError], None] | None = None,
    ) -> None:
        super().__init__(queue, clock, on_flushed, on_error)
        self.pace = pace

    def pause(self) -> None:
        """Wait for the interval; without `timed`, a wakeup cuts it short."""
        if self.pace.timed:
            self.wait_until_stopped(self.pace.interval)
        else:
            self.wait_for_running(self.pace.interval)

    def _least_pages(self) -> int:
        now = self._clock.monotonic()
        if self._last_thorough is not None and now < self._last_thorough + self.pace.thorough_interval:
            return self.pace.least_pages
        self._last_thorough = now
        return 0


class FlushRealTimeService(_PacedService):
    """Flushes at intervals, for stores with asynchronous flush (RocketMQ: ``CommitLog.FlushRealTimeService``).

    Only a thorough flush advances the checkpoint.
    """

    def run_once(self) -> None:
        """Flush by the page rule, or thoroughly when that is due; then update the checkpoint."""
        self._timed(self._queue.flush, self._least_pages())
        self._tell_checkpoint()

    def finish(self) -> None:
        """Flush everything."""
        self._repeat(self._queue.flush)
        self._tell_checkpoint()


class CommitRealTimeService(_PacedService):
    """Copies the write buffer to the file at intervals (RocketMQ: ``CommitLog.CommitRealTimeService``).

    * `on_committed`: Called after a step that committed something: wakes the flush service and dispatching.
    """

    def __init__(
        self,
        queue: MappedFileQueue,
        clock: Clock,
        on_committed: Callable[[], None],
        pace: Pace,
        on_error: Callable[[OSError], None] | None = None,
    ) -> None:
        super().__init__(queue, clock, pace, on_error=on_error)
        self._on_committed = on_committed

    def run_once(self) -> None:
        """Commit by the page rule, or thoroughly when that is due; then call `on_committed` if anything changed."""
        if not self._timed(self._queue.commit, self._least_pages()):
            self._last_thorough = self._clock.monotonic()
            self._on_committed()

    def finish(self) -> None:
        """Commit everything."""
        self._repeat(self._queue.commit)


@dataclass(frozen=True, slots=True, eq=False)
class GroupCommitRequest:
    """A put that waits for its record to be on disk (RocketMQ: ``CommitLog.GroupCommitRequest``)."""

    next_offset: int  # offset after the record: `flushed_where` must reach it
    deadline: float  # time on the clock's `monotonic` at which the answer becomes FLUSH_DISK_TIMEOUT
    future: Future[PutMessageStatus] = field(default_factory=Future)  # the answer: PUT_OK or FLUSH_DISK_TIMEOUT

    def answer(self, status: PutMessageStatus) -> None:
        """Answer, unless already answered."""
        with suppress(InvalidStateError):
            self.future.set_result(status)


class GroupCommitService(_LogService):
    """Flushes once for all producers that wait, with one ``fsync`` (RocketMQ: ``CommitLog.GroupCommitService``).

    A request is answered PUT_OK when the flushed offset has reached it. It is tried twice, since a record may be the
    first of a new file (releases up to 5.1), or up to 1,000 times 1 ms apart, so that a write buffer may be committed
    in between (5.2 and later). If the system fails to flush, `on_error` is called, and then all waiting requests get
    FLUSH_DISK_TIMEOUT at once.

    * `release`: One of `RELEASES`; decides how often a request is tried.
    * `on_moved`: Called after a step that flushed more of the log: wakes dispatching, which release 5.3 holds back
      until then.
    """

    interval: Final = 0.01

    def __init__(  # noqa: PLR0913 -- what is flushed, and its callbacks
        self,
        queue: MappedFileQueue,
        clock: Clock,
        release: str = DEFAULT_RELEASE,
        on_flushed: Callable[[int], None] = lambda _: None,
        on_error: Callable[[OSError], None] | None = None,
        on_moved: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(queue, clock, on_flushed, on_error)
        self._on_moved = on_moved
        features = rules_of(release)
        self._attempts, self._attempt_interval = features.group_commit_attempts, features.group_commit_pause_ms / _MS
        self._lock = Lock()
        self._requests: list[GroupCommitRequest] = []
        self._is_finished = False

    def start(self) -> None:
        """Start the thread, unless it is running."""
        self._is_finished = False
        super().start()

    def put_request(self, request: GroupCommitRequest) -> None:
        """Add a request for the service to answer; after shutdown the answer is FLUSH_DISK_TIMEOUT."""
        with self._lock:
            is_late = self._is_finished
            if not is_late:
                self._requests.append(request)
        if is_late:
            request.answer(PutMessageStatus.FLUSH_DISK_TIMEOUT)
        self.wakeup()

    def pause(self) -> None:
        """Wait for a request."""
        self.wait_for_running(self.interval)

    def run_once(self) -> None:
        """Answer all pending requests; flush even if there are none, for puts that don't wait."""
        with self._lock:
            requests, self._requests = self._requests, []
        before = self._queue.flushed_where
        try:
            self._serve(requests)
        except OSError as error:
            # Before the answers: a producer that gets the timeout and puts again must find the log closed to messages.
            self.report(error)
        finally:
            for request in requests:
                request.answer(PutMessageStatus.FLUSH_DISK_TIMEOUT)
        if self._queue.flushed_where != before:
            self._on_moved()

    def _serve(self, requests: list[GroupCommitRequest]) -> None:
        if not requests:
            self._queue.flush(0)
            return
        for request in requests:
            request.answer(self._flush_to(request.next_offset))
        self._tell_checkpoint()

    def _flush_to(self, offset: int) -> PutMessageStatus:
        for attempt in range(self._attempts):
            if self._queue.flushed_where >= offset:
                break
            if attempt and self._attempt_interval:
                self._clock.sleep(self._attempt_interval)
            self._timed(self._queue.flush, 0)
        return PutMessageStatus.PUT_OK if self._queue.flushed_where >= offset else PutMessageStatus.FLUSH_DISK_TIMEOUT

    def finish(self) -> None:
        """Answer the last requests, and flush everything."""
        with self._lock:
            self._is_finished = True
        self.run_once()
        self._repeat(self._queue.flush)


class FlushDiskWatcher(ServiceThread):
    """Answers FLUSH_DISK_TIMEOUT to puts whose deadline passes while a flush hangs (RocketMQ: ``FlushDiskWatcher``)."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._lock = Lock()
        self._requests: list[GroupCommitRequest] = []

    def add(self, request: GroupCommitRequest) -> None:
        """Watch a request."""
        with self._lock:
            self._requests.append(request)
            is_first = len(self._requests) == 1
        if is_first:
            self.wakeup()

    def pause(self) -> None:
        """Wait for the first deadline, at most a second so as to drop answered requests; or for a first request."""
        with self._lock:
            first = min((request.deadline for request in self._requests), default=None)
        left = None if first is None else first - self._clock.monotonic()
        self.wait_for_running(None if left is None else min(max(left, 0.0), _WATCH_SECONDS))

    def run_once(self) -> None:
        """Answer requests whose deadline has passed, and drop the answered ones."""
        now = self._clock.monotonic()
        with self._lock:
            waiting = [request for request in self._requests if not request.future.done()]
            self._requests = [request for request in waiting if request.deadline > now]
        for request in waiting:
            if request.deadline <= now:
                request.answer(PutMessageStatus.FLUSH_DISK_TIMEOUT)
