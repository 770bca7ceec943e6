# SPDX-License-Identifier: Apache-2.0
"""What the system does to a writer that lives: errors, short writes, signals, a directory that vanishes, a clock."""

from __future__ import annotations

import errno
import os
import random
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from store_core.errors import StoreError
from tests.store_core.kills.fate import Fate

if TYPE_CHECKING:
    from collections.abc import Callable


SYNC_FAILED: Final = -1
"""Told when a sync fails."""

ASIDE: Final = "aside"
"""Name of a directory that vanished, beside the store."""

NOTE: Final = "note"
"""Name of a file with the path of the directory that vanished, or of the file whose sync failed."""

KINDS: Final = ("error", "errors", "sync", "short", "signals", "vanish", "clock", "read-only")
"""One error; errors from some call on; a sync that fails once; writes that are done in part; signals all the time; a
directory that is gone; a clock that is set; directories and files that may not be written."""

_ERRORS: Final = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)
_NOBODY: Final = 65534
_EVERY: Final = 0.0003
"""Seconds between two signals."""
_SHORTER: Final = 100
"""Of pauses between the tries of what fails each time: a queue is tried 30 times, a second apart."""

_STEPS: Final = tuple(sign * step * 1_000_000_000 for step in (1, 3600, 86_400, 300_000_000) for sign in (1, -1))
"""Nanoseconds by which a clock is set, up to ten years."""


class Trouble(Fate):
    """Something that happens to a writer at one of its system calls, or all the time.

    * `kind`: One of `KINDS`.
    * `last`: Number of the call at which it happens, from 1.
    * `seed`: Of what is drawn.
    """

    refusals: tuple[type[Exception], ...] = (StoreError, OSError, AssertionError)

    def __init__(self, kind: str, directory: Path, last: int, seed: int) -> None:
        super().__init__(directory, last)
        self.kind = kind
        self._chance = random.Random(seed)  # noqa: S311 -- no secret
        self._code = self._chance.choice(_ERRORS)
        self._failing = ""
        self._is_over = False

    def watch(self) -> None:
        """Begin."""
        if self.kind == "signals":
            self.refusals = ()
            signal.signal(signal.SIGALRM, lambda _number, _frame: None)  # without SA_RESTART, so calls are interrupted
            signal.setitimer(signal.ITIMER_REAL, _EVERY, _EVERY)
        elif self.kind == "clock":
            self.refusals = ()
            self._set_clock()
        elif self.kind == "short":
            self.refusals = ()
        elif self.kind == "errors":
            sleep = time.sleep
            time.sleep = lambda seconds: sleep(float(seconds) / _SHORTER)
        elif self.kind == "read-only":
            for path in (self.directory, *self.directory.rglob("*")):
                path.chmod(0o555 if path.is_dir() else 0o444)
            if os.geteuid() == 0:  # who may write everything
                os.setresuid(_NOBODY, _NOBODY, _NOBODY)
        super().watch()

    def _set_clock(self) -> None:
        """Set the clock once, at one of the first readings."""
        read, step, left = time.time_ns, self._chance.choice(_STEPS), self._chance.randint(0, 60)

        def reading() -> int:
            nonlocal left
            left -= 1
            return read() + (step if left < 0 else 0)

        time.time_ns = reading

    def before(self, name: str, descriptor: int = -1) -> None:
        """Let a call fail, or something else happen before it."""
        is_now = self.calls == self.last
        if (self.kind in ("error", "errors") and is_now) or name == self._failing:
            self._failing = name if self.kind == "errors" else ""
            raise OSError(self._code, os.strerror(self._code), str(self.directory))
        if self.kind == "sync" and self.calls >= self.last and not self._is_over and name in ("fsync", "fdatasync"):
            self._is_over = True
            (self.directory / NOTE).write_text(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
            self.tell(SYNC_FAILED)
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(self.directory))
        if self.kind == "vanish" and is_now and not self._is_over:
            self._is_over = True
            parts = sorted(path for path in (self.directory / "store").iterdir() if path.is_dir())
            gone = self._chance.choice([*parts, self.directory / "store"])
            gone.rename(self.directory / ASIDE)
            (self.directory / NOTE).write_text(str(gone.relative_to(self.directory)))
            self.tell(SYNC_FAILED)

    def before_write(self, write: Callable[[memoryview, int], int], data: memoryview, offset: int) -> tuple[Any, ...]:
        """Write less, if that is the trouble."""
        del write
        if self.kind == "short" and len(data) > 1:
            data = data[: self._chance.randint(1, len(data))]
        self.before("pwrite")
        return data, offset
