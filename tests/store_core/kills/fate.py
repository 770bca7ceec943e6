# SPDX-License-Identifier: Apache-2.0
"""A process that kills itself at one of its system calls."""

from __future__ import annotations

import os
import random
import signal
import sys
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


_EVENTS: Final = frozenset(
    {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.link", "os.symlink", "shutil.rmtree"}
)
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_PAGE: Final = 4096
_WITHOUT_EVENT: Final = ("pwrite", "fsync", "fdatasync", "posix_fallocate", "copy_file_range", "sendfile")


class Fate:
    """Counts the calls by which a process changes files in a directory, and kills it at one of them, or never.

    It dies just before the call; a ``pwrite`` is done in part, up to the end of a page, as a kill leaves it on Linux.

    * `directory`: Calls that name a path count if it lies below this one; those on descriptors always count.
    * `last`: The number of the last call, from 1; 0 for never.
    """

    refusals: tuple[type[Exception], ...] = ()
    """What the writer may end with."""

    def __init__(self, directory: Path, last: int) -> None:
        self.calls = 0
        self.directory = directory
        self.last = last
        self.tell: Callable[[int], None] = lambda _: None
        self._lock = RLock()  # no call of another thread may come between the last one and the end

    def watch(self) -> None:
        """Begin to count, for the rest of the process's life."""
        for name in _WITHOUT_EVENT:
            setattr(os, name, self._counting(name, getattr(os, name)))
        sys.addaudithook(self._hear)

    def _counting(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(descriptor: int, *given: Any, **named: Any) -> Any:  # noqa: ANN401 -- whatever the call takes
            with self._lock:
                self.calls += 1
                if name == "pwrite":
                    given = self.before_write(lambda *part: call(descriptor, *part), *given)
                else:
                    self.before(name, descriptor)
            return call(descriptor, *given, **named)

        return counting

    def _hear(self, event: str, given: tuple[Any, ...]) -> None:
        is_ours = event in _EVENTS or (event == "open" and bool(given[2] & _WRITES))
        if is_ours and (isinstance(given[0], int) or os.fsdecode(given[0]).startswith(str(self.directory))):
            with self._lock:
                self.calls += 1
                self.before(event)

    def before(self, name: str, descriptor: int = -1) -> None:  # noqa: ARG002 -- for others
        """Decide what becomes of a call, which is done when this returns."""
        if self.calls == self.last:
            os.kill(os.getpid(), signal.SIGKILL)

    def before_write(self, write: Callable[[memoryview, int], int], data: memoryview, offset: int) -> tuple[Any, ...]:
        """Decide what becomes of a ``pwrite``; return what is written, and where."""
        if self.calls == self.last:
            write(data[: _torn(len(data), offset, self.last)], offset)
        self.before("pwrite")
        return data, offset


def _torn(size: int, offset: int, seed: int) -> int:
    """Return how many bytes of a write at an offset are done: none, all, or those up to the end of some page."""
    ends = range(offset - offset % _PAGE + _PAGE, offset + size, _PAGE)
    return random.Random(seed).choice([0, size, *(end - offset for end in ends)])  # noqa: S311 -- no secret
