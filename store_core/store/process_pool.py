# SPDX-License-Identifier: Apache-2.0
"""An engine that runs parts of a job in processes of this machine, over `concurrent.futures`."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import traceback
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context, resource_tracker
from typing import TYPE_CHECKING, Final, TypeVar

from store_core.errors import LostWorkerError
from store_core.store.parts import LocalEngine, ProgressSink, check_least

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess


Part = TypeVar("Part")
Partial = TypeVar("Partial")

_CONTEXT: Final = get_context("spawn")
"""Spawn, because a fork would copy locks that other threads hold, such as those of Arrow's own pool."""

_AHEAD: Final = 4
"""How many parts per process may run ahead of the one being waited for: bounds the results kept."""


class ProcessPool(LocalEngine):
    """Runs parts in several processes, started by `expect` or the first job; use it in a ``with`` block.

    A process is started by ``spawn``, so it imports the program's main module again: guard that module's code with
    ``if __name__ == "__main__":``. Workers ignore ^C; the process that runs the job receives it, and stops them.

    * `on_progress`: Called with a `store_core.store.parts.PartsDone` after each part.

    Raises `InvalidOptionError`: If `processes` is less than 1.
    """

    def __init__(self, processes: int, on_progress: ProgressSink | None = None) -> None:
        super().__init__(on_progress)
        check_least(1, processes=processes)
        self.slots = processes
        self._workers: _Workers | None = None

    def __exit__(self, *_: object) -> None:
        self._end(is_patient=True)

    def expect(self, *kinds: type) -> None:
        """Start the processes, which import what these jobs need while their owner does something else."""
        for _ in range(self.slots):
            self._started().submit(_import, kinds)

    def _map(self, call: Callable[[Part], Partial], parts: Sequence[Part]) -> Iterator[Partial]:
        """Call a function for each part, and yield what it returns in the order of the parts.

        Raises `LostWorkerError`: If a process exits before its part is done. The others are then stopped, as they are
        if a part fails.
        """
        given: deque[Future[Partial]] = deque()
        done = 0
        try:
            for part in parts:
                given.append(self._started().submit(call, part))
                if len(given) >= _AHEAD * self.slots:
                    yield given[0].result()
                    given.popleft()
                    done += 1
            while given:
                yield given[0].result()
                given.popleft()
                done += 1
        except BrokenProcessPool:
            working = f"one of parts {done + 1} to {min(done + _AHEAD * self.slots, len(parts))} of {len(parts)}"
            raise LostWorkerError(working, self._end(is_patient=False)) from None
        except BaseException:  # including ^C, and a caller that stops iterating
            self._end(is_patient=False)
            raise

    def _started(self) -> _Workers:
        if self._workers is None:
            self._workers = _Workers(self.slots)
        return self._workers

    def _end(self, *, is_patient: bool) -> int | None:
        """Stop all processes, and return the exit code of one that ended by itself; if not patient, work is lost."""
        workers, self._workers = self._workers, None
        return None if workers is None else workers.end(is_patient=is_patient)


class _Workers:
    """The processes of a pool. They end when their owner does, or closes the pipe that all of them watch."""

    def __init__(self, processes: int) -> None:
        watched, self._lifeline = _CONTEXT.Pipe(duplex=False)
        self._watched = watched
        self._executor = ProcessPoolExecutor(processes, _CONTEXT, _begin, (watched,))
        self._known: set[BaseProcess] = set(active_children())
        self._processes: set[BaseProcess] = set()

    def submit(self, call: Callable[[Part], Partial], part: Part) -> Future[Partial]:
        """Let a process call a function; raise `BrokenProcessPool`, now or for the result, if one has ended."""
        with _interrupts_held():
            future = self._executor.submit(_answer, call, part)
        self._processes |= set(active_children()) - self._known
        return future

    def end(self, *, is_patient: bool) -> int | None:
        """Stop all processes; return the exit code of one that ended by itself."""
        if not is_patient:
            self._lifeline.close()
        self._executor.shutdown(cancel_futures=True)
        self._lifeline.close()
        self._watched.close()
        codes = [process.exitcode for process in self._processes if process.exitcode not in _STOPPED]
        return codes[0] if codes else None


_CUT: Final = 113
"""Exit status of a worker whose owner has ended, or wants no more of it."""

_STOPPED: Final = (None, 0, _CUT, -signal.SIGTERM)
"""How workers end that were told to; the executor terminates the others of a pool that has lost one."""


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Block ^C while processes start, since it would interrupt their imports; they inherit the block."""
    resource_tracker.ensure_running()  # this unblocks ^C again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# ---- in a worker


def _begin(lifeline: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(lifeline,), daemon=True).start()


def _watch(lifeline: Connection) -> None:
    """End this process when nobody holds the other end of a pipe any more, whatever it is doing."""
    lifeline.poll(None)
    os._exit(_CUT)


def _import(_: tuple[type, ...]) -> None:
    """Do nothing: the classes have been imported by then, because an argument is unpickled before the call."""


def _answer(call: Callable[[Part], Partial], part: Part) -> Partial:
    """Call a function; raise what it raises, or only its text if that does not survive pickling."""
    try:
        return call(part)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301 -- made in the same line
        except Exception:  # noqa: BLE001 -- pickling may raise anything
            raise RuntimeError("".join(traceback.format_exception(error))) from None
        raise
