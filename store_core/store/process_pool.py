# SPDX-License-Identifier: Apache-2.0
"""An engine that runs parts of a job in processes of this machine."""

from __future__ import annotations

import pickle
import signal
import traceback
from collections import deque
from contextlib import contextmanager, suppress
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from store_core.errors import LostWorkerError, StoreError
from store_core.store.least_value import check_least
from store_core.store.parts import LocalEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection

    from store_core.store.parts import ProgressSink

__all__ = ["ProcessPool"]

Part = TypeVar("Part")
Partial = TypeVar("Partial")

_CONTEXT: Final = get_context("spawn")
"""Spawn, because a fork would copy locks that other threads hold, such as those of Arrow's own pool."""

_AHEAD: Final = 4
"""How many parts per process may run ahead of the one being waited for: bounds the results kept."""

_PATIENCE: Final = 5.0
"""Seconds an idle process is given to exit on its own."""


class ProcessPool(LocalEngine):
    """Runs parts in several processes, started by `expect` or the first job; use it in a ``with`` block.

    A process is started by ``spawn``, so it imports the program's main module again: guard that module's code with
    ``if __name__ == "__main__":``. Workers ignore ^C; the process that runs the job receives it, and stops them.

    Parameters
    ----------
    processes : int
    on_progress : callable, optional
        Called with a `store_core.store.parts.PartsDone` after each part.

    Raises
    ------
    InvalidOptionError
        If `processes` is less than 1.
    """

    def __init__(self, processes: int, on_progress: ProgressSink | None = None) -> None:
        super().__init__(on_progress)
        check_least(1, processes=processes)
        self._processes = processes
        self._workers: list[_Worker] = []

    @property
    def slots(self) -> int:
        """How many parts run at once."""
        return self._processes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end(is_patient=True)

    def expect(self, *kinds: type) -> None:
        """Start the processes, which import what these jobs need while their owner does something else."""
        self._started(self._processes, kinds)

    def _map(self, call: Callable[[Part], Partial], parts: Sequence[Part]) -> Iterator[Partial]:
        """Call a function for each part, and yield what it returns in the order of the parts.

        Raises
        ------
        LostWorkerError
            If a process exits before its part is done. The others are then stopped, as they are if a part fails.
        """
        try:
            yield from self._in_order(call, parts)
        except BaseException:  # including ^C, and a caller that stops iterating
            self._end(is_patient=False)
            raise

    def _in_order(self, call: Callable[[Part], Partial], parts: Sequence[Part]) -> Iterator[Partial]:
        idle = deque(self._started(min(self._processes, len(parts))))
        busy: dict[Connection, _Worker] = {}
        made: dict[int, Partial] = {}
        given = taken = 0
        while taken < len(parts):
            while idle and given < min(len(parts), taken + _AHEAD * self._processes):
                worker = idle.popleft()
                worker.give(call, parts[given], f"part {given + 1} of {len(parts)}", given)
                busy[worker.connection] = worker
                given += 1
            ready = wait(list(busy))
            for worker in [worker for connection, worker in busy.items() if connection in ready]:
                del busy[worker.connection]
                made[worker.number] = worker.take()
                idle.append(worker)
            while taken in made:
                yield made.pop(taken)
                taken += 1

    def _started(self, count: int, expected: tuple[type, ...] = ()) -> list[_Worker]:
        """Return this many idle processes, starting them if needed."""
        with _interrupts_held():
            while len(self._workers) < count:
                self._workers.append(_Worker(expected))
        return self._workers[:count]

    def _end(self, *, is_patient: bool) -> None:
        """Stop all processes; if not patient, their current work is lost."""
        while self._workers:
            self._workers.pop().end(is_patient=is_patient)


class _Worker:
    """A process of the pool, as its owner sees it.

    Parameters
    ----------
    expected : tuple of type
        Classes that the process imports at once.

    Attributes
    ----------
    connection : Connection
    number : int
        Number of the part it was given last.
    """

    def __init__(self, expected: tuple[type, ...]) -> None:
        self.connection, theirs = _CONTEXT.Pipe()
        self.number = -1
        self._call: object = None
        self._what = ""
        self._process = _CONTEXT.Process(target=_serve, args=(theirs, expected), daemon=True)
        with theirs:
            self._process.start()

    def give(self, call: Callable[[Any], Any], part: object, what: str, number: int) -> None:
        """Send a part to the process, with the function if it has changed."""
        self.number, self._what = number, what
        try:
            self.connection.send((None if call is self._call else call, part))
        except BrokenPipeError:
            raise self._lost() from None
        self._call = call

    def take(self) -> Any:  # noqa: ANN401 -- whatever the function returns
        """Return the part's result, or raise what it raised."""
        try:
            is_done, made = self.connection.recv()
        except (EOFError, ConnectionResetError):
            raise self._lost() from None
        if is_done:
            return made
        raise made

    def end(self, *, is_patient: bool) -> None:
        """Stop the process and release its resources."""
        self.connection.close()  # with no more work to wait for, the process exits
        if is_patient:
            self._process.join(_PATIENCE)
        self._process.kill()
        self._process.join()
        self._process.close()

    def _lost(self) -> LostWorkerError:
        self._process.join(_PATIENCE)
        return LostWorkerError(self._what, self._process.exitcode)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Block ^C while processes start, since it would interrupt their imports; they inherit the block."""
    resource_tracker.ensure_running()  # this unblocks ^C again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(connection: Connection, _expected: tuple[type, ...]) -> None:
    """Run the parts received until the connection closes; runs in a pool process.

    The classes have been imported by then, because an argument is unpickled before the call.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    call: Callable[[Any], Any] = _no_call
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            packed = connection.recv_bytes()
            try:
                given, part = pickle.loads(packed)  # noqa: S301 -- from the process that started this one
                call = call if given is None else given
                answer = pickle.dumps((True, call(part)), pickle.HIGHEST_PROTOCOL)
            except Exception as error:  # noqa: BLE001 -- all errors go to the process that runs the job
                answer = _failure(error)
            connection.send_bytes(answer)


def _no_call(_: object) -> None:
    raise RuntimeError("received a part before the function to call")


def _failure(error: Exception) -> bytes:
    """Pickle an error, or only its text if it does not survive pickling."""
    text = "".join(traceback.format_exception(error))
    if not isinstance(error, StoreError):  # those say where they come from
        error.add_note(f"In a worker process:\n{text}")
    try:
        packed = pickle.dumps((False, error), pickle.HIGHEST_PROTOCOL)
        pickle.loads(packed)  # noqa: S301 -- made in the line before
    except Exception:  # noqa: BLE001 -- pickling may raise anything
        packed = pickle.dumps((False, RuntimeError(text)))
    return packed
