# SPDX-License-Identifier: Apache-2.0
"""Parts of a job in processes of this machine: the only module of the core that starts any."""

from __future__ import annotations

import pickle
import signal
import traceback
from collections import deque
from contextlib import contextmanager, suppress
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from store_core.errors import InvalidOptionError, LostWorkerError, StoreError
from store_core.store.parts import LocalEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection

    from store_core.store.parts import ProgressSink

__all__ = ["ProcessPool"]

Part = TypeVar("Part")
Partial = TypeVar("Partial")

_CONTEXT: Final = get_context("spawn")
"""A fork would copy locks that threads hold at that moment, as those of Arrow's own pool."""

_AHEAD: Final = 4
"""Parts of each process that may be done before one that is waited for: a bound on what is kept."""

_PATIENCE: Final = 5.0
"""Seconds in which a process that has nothing to do ends by itself."""


class ProcessPool(LocalEngine):
    """Runs parts in several processes, which start with the first job; use it in a ``with`` block.

    A process is started by ``spawn``, so it imports the program's main module once more: what that module does belongs
    below ``if __name__ == "__main__":``. Processes ignore ^C; the one that runs the job gets it, and ends them.

    Parameters
    ----------
    processes : int
    on_progress : callable, optional
        Gets a `store_core.store.parts.PartsDone` after each part.

    Raises
    ------
    InvalidOptionError
        If there is to be no process.
    """

    def __init__(self, processes: int, on_progress: ProgressSink | None = None) -> None:
        super().__init__(on_progress)
        if processes < 1:
            raise InvalidOptionError(f"processes: expected 1 or more, found {processes}")
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

    def _map(self, call: Callable[[Part], Partial], parts: Sequence[Part]) -> Iterator[Partial]:
        """Call a function for each part, and yield what it returns in the order of the parts.

        Raises
        ------
        LostWorkerError
            If a process ends before its part is done. The others are ended, too, as they are if a part fails.
        """
        try:
            yield from self._in_order(call, parts)
        except BaseException:  # ^C, and a caller who wants no more, too
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

    def _started(self, count: int) -> list[_Worker]:
        """Return this many processes that have nothing to do, started if need be."""
        with _interrupts_held():
            while len(self._workers) < count:
                self._workers.append(_Worker())
        return self._workers[:count]

    def _end(self, *, is_patient: bool) -> None:
        """End all processes; without patience what they are doing is lost."""
        while self._workers:
            self._workers.pop().end(is_patient=is_patient)


class _Worker:
    """A process of the pool, as its owner sees it.

    Attributes
    ----------
    connection : Connection
    number : int
        Of the part that it was given last.
    """

    def __init__(self) -> None:
        self.connection, theirs = _CONTEXT.Pipe()
        self.number = -1
        self._call: object = None
        self._what = ""
        self._process = _CONTEXT.Process(target=_serve, args=(theirs,), daemon=True)
        with theirs:
            self._process.start()

    def give(self, call: Callable[[Any], Any], part: object, what: str, number: int) -> None:
        """Have a part done; the function goes along where it is another one than before."""
        self.number, self._what = number, what
        try:
            self.connection.send((None if call is self._call else call, part))
        except BrokenPipeError:
            raise self._lost() from None
        self._call = call

    def take(self) -> Any:  # noqa: ANN401 -- whatever the function returns
        """Return what came of the part, or raise what it raised."""
        try:
            is_done, made = self.connection.recv()
        except (EOFError, ConnectionResetError):
            raise self._lost() from None
        if is_done:
            return made
        raise made

    def end(self, *, is_patient: bool) -> None:
        """End the process, and let go of what belongs to it."""
        self.connection.close()  # without work to wait for, it ends
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
    """Hold ^C back while processes start, which inherit that: it would interrupt their imports."""
    resource_tracker.ensure_running()  # which lets ^C through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(connection: Connection) -> None:
    """Do what comes, until nothing more can; runs in a process of the pool."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    call: Callable[[Any], Any] = _no_call
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            packed = connection.recv_bytes()
            try:
                given, part = pickle.loads(packed)  # noqa: S301 -- of the process that started this one
                call = call if given is None else given
                answer = pickle.dumps((True, call(part)), pickle.HIGHEST_PROTOCOL)
            except Exception as error:  # noqa: BLE001 -- all of them go to whoever runs the job
                answer = _failure(error)
            connection.send_bytes(answer)


def _no_call(_: object) -> None:
    raise RuntimeError("a part came before what is to be done with it")


def _failure(error: Exception) -> bytes:
    """Pickle an error; its text if it can't be pickled, or does not come back."""
    text = "".join(traceback.format_exception(error))
    if not isinstance(error, StoreError):  # which say themselves where they come from
        error.add_note(f"In a worker process:\n{text}")
    try:
        packed = pickle.dumps((False, error), pickle.HIGHEST_PROTOCOL)
        pickle.loads(packed)  # noqa: S301 -- made in the line before
    except Exception:  # noqa: BLE001 -- whatever a class does when it is pickled
        packed = pickle.dumps((False, RuntimeError(text)))
    return packed
