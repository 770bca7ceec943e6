# SPDX-License-Identifier: Apache-2.0
"""A service that creates segments ahead of time, so that appends need not wait for a file."""

from __future__ import annotations

import errno
import heapq
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import TYPE_CHECKING, Final

from store_core.files.mapped_file import MappedFile
from store_core.files.segment_file import offset_of
from store_core.files.service_thread import ServiceThread

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem
    from store_core.files.mapped_file import TransientStorePool

__all__ = ["AllocateMappedFileService", "AllocateRequest"]

_WAIT_SECONDS: Final = 5.0
"""How long an append waits for its file (RocketMQ: ``AllocateMappedFileService.waitTimeOut``)."""


@dataclass(slots=True, eq=False)
class AllocateRequest:
    """A requested file, and the result."""

    path: Path
    file_size: int
    done: Event = field(default_factory=Event)
    mapped_file: MappedFile | None = None
    error: OSError | None = None

    def __lt__(self, other: AllocateRequest) -> bool:
        """Larger files first, then those earlier in their queue (RocketMQ: ``AllocateRequest.compareTo``)."""
        return (-self.file_size, offset_of(self.path)) < (-other.file_size, offset_of(other.path))


class AllocateMappedFileService(ServiceThread):
    """Creates the file that is requested, and the next one after it (RocketMQ: ``AllocateMappedFileService``).

    RocketMQ retries a file that can't be created every millisecond, lets the first append wait 5 s and refuses later
    ones at once. Here the waiting append gets the error at once, and the next append tries again.

    * `pool`: Its buffers are assigned to the files, while there are any.
    * `fail_fast_without_buffer`: Refuse a file rather than create it without a buffer
      (``fastFailIfNoBufferInStorePool``).
    * `reserve_from_size`: Files of at least this size have their disk blocks allocated (``warmMapedFileEnable``: the
      commit log's size).
    """

    def __init__(
        self,
        file_system: FileSystem,
        clock: Clock,
        pool: TransientStorePool | None = None,
        *,
        fail_fast_without_buffer: bool = False,
        reserve_from_size: int | None = None,
    ) -> None:
        super().__init__(clock)
        self._file_system = file_system
        self._pool = pool
        self._fail_fast = fail_fast_without_buffer
        self._reserve_from_size = reserve_from_size
        self._lock = Lock()
        self._requests: dict[Path, AllocateRequest] = {}
        self._queue: list[AllocateRequest] = []

    def put_request_and_return_mapped_file(self, path: Path, next_path: Path, file_size: int) -> MappedFile:
        """Return the file at `path`, ideally created ahead of time, and request the one at `next_path`."""
        with self._lock:
            self._give_up_elsewhere(path, next_path)
            request = self._submit(path, file_size)
            self._submit(next_path, file_size)
        if request is None:
            raise OSError(errno.ENOBUFS, "the transient store pool has no buffer left", str(path))
        self.wakeup()
        if not self._clock.wait(request.done, _WAIT_SECONDS):
            raise TimeoutError(errno.ETIMEDOUT, f"the file was not made within {_WAIT_SECONDS:.0f} s", str(path))
        with self._lock:
            self._requests.pop(path, None)
        if request.mapped_file is None:
            raise request.error or OSError(errno.ECANCELED, "the file was given up at shutdown", str(path))
        return request.mapped_file

    def _submit(self, path: Path, file_size: int) -> AllocateRequest | None:
        request = self._requests.get(path)
        if request is not None and request.error is None:
            return request
        if self._fail_fast and self._pool is not None and self._pool.available_buffers <= len(self._queue):
            return None
        request = self._requests[path] = AllocateRequest(path, file_size)
        heapq.heappush(self._queue, request)
        return request

    def _give_up_elsewhere(self, *paths: Path) -> None:
        """Discard a file created ahead in another directory: two of the same name would claim the same offset.

        That happens when a directory of a multi-path log has become too full since.
        """
        names = {path.name for path in paths}
        for path in [path for path in self._requests if path.name in names and path not in paths]:
            self._discard(self._requests.pop(path))

    def pause(self) -> None:
        """Wait for a request."""
        self.wait_for_running(None)

    def run_once(self) -> None:
        """Create all requested files."""
        while (request := self._next()) is not None:
            self._make(request)

    def _next(self) -> AllocateRequest | None:
        with self._lock:
            while self._queue:
                request = heapq.heappop(self._queue)
                if self._requests.get(request.path) is request:
                    return request
        return None

    def _make(self, request: AllocateRequest) -> None:
        reserve = self._reserve_from_size is not None and request.file_size >= self._reserve_from_size
        try:
            request.mapped_file = MappedFile.create(
                request.path, request.file_size, self._file_system, self._clock, self._pool, reserve=reserve
            )
        except OSError as error:
            request.error = error
            self.report(error)
        with self._lock:
            if self._requests.get(request.path) is not request:
                self._discard(request)
        request.done.set()

    def _discard(self, request: AllocateRequest) -> None:
        """Delete an unused file; one that existed before the request is only closed."""
        mapped_file = request.mapped_file
        if mapped_file is not None and mapped_file.is_new:
            mapped_file.destroy()
        elif mapped_file is not None:
            mapped_file.close()

    def finish(self) -> None:
        """Delete the files that were created ahead and not used."""
        with self._lock:
            requests = list(self._requests.values())
            self._requests.clear()
            self._queue.clear()
        for request in requests:
            self._discard(request)
            request.done.set()
