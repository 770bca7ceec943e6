# SPDX-License-Identifier: Apache-2.0
"""Work as plan, part and merge, and the processes that do it.

A job defines the work and knows nothing of processes; an engine runs any job, and decides where. The parts of a job
run in any order and in any process, perhaps more than once, and their results are merged in plan order. So the
result is the same whichever engine ran them: `InProcess` here,
`store_core.store.parts.ProcessPool`, or Spark with `pyspark_commitlog.engine.SparkEngine`.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import traceback
from abc import ABC, abstractmethod
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from enum import Enum
from functools import partial
from itertools import groupby
from multiprocessing import active_children, get_context, resource_tracker
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from store_core.errors import InvalidOptionError, LostWorkerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Future
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

__all__ = [
    "Engine",
    "GroupedJob",
    "InProcess",
    "Job",
    "LocalEngine",
    "PartsDone",
    "ProcessPool",
    "ProgressSink",
    "Step",
    "check_least",
]

_MOST: Final = 2**63 - 1
"""What Arrow takes for a number of rows."""


def check_least(least: int, **values: int) -> None:
    """Refuse values that are too small, or do not fit into 64 bits.

    Parameters
    ----------
    least : int
        The smallest that is accepted.
    **values
        By the names of their options.
    """
    for name, value in values.items():
        if value < least:
            raise InvalidOptionError(f"{name}: expected {least} or more, found {value}")
        if value > _MOST:
            raise InvalidOptionError(f"{name}: expected {_MOST} or less, found {value}")


Part = TypeVar("Part")
Partial = TypeVar("Partial")
Key = TypeVar("Key", bound=tuple[Any, ...])
Piece = TypeVar("Piece")
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


class Job(Protocol[Part, Partial, Result_co]):
    """Work whose parts are independent of each other. The job, its parts and partial results are pickled."""

    def plan(self) -> Sequence[Part]:
        """Return the parts; called once, by whoever runs the job."""
        ...

    def run(self, part: Part, /) -> Partial:
        """Do one part, in any process."""
        ...

    def merge(self, partials: Iterable[Partial], /) -> Result_co:
        """Combine the parts' results, in plan order; called once, in the process that called `plan`."""
        ...


class GroupedJob(Protocol[Part, Key, Piece, Partial, Result_co]):
    """Work in two steps: parts yield pieces, then each group's pieces are gathered, whichever parts they came from.

    For example, the units of one queue come from many parts of the log.
    """

    @property
    def groups(self) -> int:
        """Number of groups; they are numbered from 0."""
        ...

    def plan(self) -> Sequence[Part]:
        """Return the parts; called once, by whoever runs the job."""
        ...

    def run(self, part: Part, /) -> Iterable[tuple[Key, Piece]]:
        """Do one part, in any process.

        A key begins with the number of the piece's group. Keys within a group are distinct, and pieces are gathered in
        key order.
        """
        ...

    def gather(self, pieces: Iterable[tuple[Key, Piece]], /) -> Iterable[Partial]:
        """Process one group, in any process; may be skipped for a group without pieces."""
        ...

    def merge(self, partials: Iterable[Partial], /) -> Result_co:
        """Combine the groups' results, in group order; called once, in the process that called `plan`."""
        ...


class Engine(Protocol):
    """Runs jobs."""

    @property
    def slots(self) -> int:
        """How many parts run at once."""
        ...

    @property
    def is_one_machine(self) -> bool:
        """Whether all parts run on this machine, so that large data can be passed in files."""
        ...

    @property
    def keeps_pieces(self) -> bool:
        """Whether this process's memory holds all pieces of a grouped job between its two steps."""
        ...

    def expect(self, *kinds: type) -> None:
        """Get ready for jobs of these classes; others can be run, too."""
        ...

    def run(self, job: Job[Part, Partial, Result]) -> Result:
        """Run a job, and return its result."""
        ...

    def run_grouped(self, job: GroupedJob[Part, Key, Piece, Partial, Result]) -> Result:
        """Run a job in two steps, and return its result."""
        ...


class Step(Enum):
    """Which step of a job is being done."""

    RUN = "run"
    GATHER = "gather"


class PartsDone(NamedTuple):
    """Progress of a job.

    Attributes
    ----------
    step : Step
    done, total : int
        Parts, or groups.
    """

    step: Step
    done: int
    total: int


ProgressSink: TypeAlias = "Callable[[PartsDone], None]"


class LocalEngine(ABC):
    """Base of engines on this machine; a subclass only supplies a way to map a function over parts.

    Parameters
    ----------
    on_progress : callable, optional
        Called with a `PartsDone` after each part, in the process that runs the job.
    """

    is_one_machine = True
    keeps_pieces = True

    def __init__(self, on_progress: ProgressSink | None = None) -> None:
        self._on_progress = on_progress

    @property
    @abstractmethod
    def slots(self) -> int:
        """How many parts run at once."""

    @abstractmethod
    def _map(self, call: Callable[[Part], Partial], parts: Sequence[Part]) -> Iterator[Partial]:
        """Call a function for each part, and yield what it returns in the order of the parts."""

    def expect(self, *kinds: type) -> None:  # noqa: B027 -- most engines have nothing to do
        """Get ready for jobs of these classes; others can be run, too."""

    def run(self, job: Job[Part, Partial, Result]) -> Result:
        """Run a job, and return its result."""
        return job.merge(self._counted(Step.RUN, job.run, job.plan()))

    def run_grouped(self, job: GroupedJob[Part, Key, Piece, Partial, Result]) -> Result:
        """Run a job in two steps, and return its result."""
        made = self._counted(Step.RUN, partial(_run_part, job), job.plan())
        pieces = sorted((piece for some in made for piece in some), key=itemgetter(0))
        groups = [list(group) for _, group in groupby(pieces, key=_group_of)]
        gathered = self._counted(Step.GATHER, partial(_gather, job), groups)
        return job.merge(each for some in gathered for each in some)

    def _counted(self, step: Step, call: Callable[[Part], Partial], parts: Sequence[Part]) -> Iterator[Partial]:
        for done, made in enumerate(self._map(call, parts), 1):
            if self._on_progress is not None:
                self._on_progress(PartsDone(step, done, len(parts)))
            yield made


def _group_of(piece: tuple[Key, Piece]) -> int:
    number: int = piece[0][0]
    return number


def _run_part(job: GroupedJob[Part, Key, Piece, Partial, Result], part: Part) -> list[tuple[Key, Piece]]:
    return list(job.run(part))


def _gather(job: GroupedJob[Part, Key, Piece, Partial, Result], pieces: list[tuple[Key, Piece]]) -> list[Partial]:
    return list(job.gather(iter(pieces)))


class InProcess(LocalEngine):
    """Runs the parts one after another in this process."""

    slots = 1

    def _map(self, call: Callable[[Part], Partial], parts: Sequence[Part]) -> Iterator[Partial]:
        return map(call, parts)


_CONTEXT: Final = get_context("spawn")
"""Spawn, because a fork would copy locks that other threads hold, such as those of Arrow's own pool."""

_AHEAD: Final = 4
"""How many parts per process may run ahead of the one being waited for: bounds the results kept."""


class ProcessPool(LocalEngine):
    """Runs parts in several processes, started by `expect` or the first job; use it in a ``with`` block.

    A process is started by ``spawn``, so it imports the program's main module again: guard that module's code with
    ``if __name__ == "__main__":``. Workers ignore ^C; the process that runs the job receives it, and stops them.

    Parameters
    ----------
    on_progress : callable, optional
        Called with a `store_core.store.parts.PartsDone` after each part.
    """

    def __init__(self, processes: int, on_progress: ProgressSink | None = None) -> None:
        super().__init__(on_progress)
        check_least(1, processes=processes)
        self._processes = processes
        self._workers: _Workers | None = None

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
        for _ in range(self._processes):
            self._started().submit(_import, kinds)

    def _map(self, call: Callable[[Part], Partial], parts: Sequence[Part]) -> Iterator[Partial]:
        """Call a function for each part, and yield what it returns in the order of the parts."""
        given: deque[Future[Partial]] = deque()
        done = 0
        try:
            for part in parts:
                given.append(self._started().submit(call, part))
                if len(given) >= _AHEAD * self._processes:
                    yield given[0].result()
                    given.popleft()
                    done += 1
            while given:
                yield given[0].result()
                given.popleft()
                done += 1
        except BrokenProcessPool:
            working = f"one of parts {done + 1} to {min(done + _AHEAD * self._processes, len(parts))} of {len(parts)}"
            raise LostWorkerError(working, self._end(is_patient=False)) from None
        except BaseException:  # including ^C, and a caller that stops iterating
            self._end(is_patient=False)
            raise

    def _started(self) -> _Workers:
        if self._workers is None:
            self._workers = _Workers(self._processes)
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
