# SPDX-License-Identifier: Apache-2.0
"""Work as plan, part and merge, and the processes that do it.

A job defines the work and knows nothing of processes; an engine runs any job, and decides where. The parts of a job
run in any order and in any process, perhaps more than once, and their results are merged in plan order. So the
result is the same whichever engine ran them: `InProcess` here,
`store_core.store.process_pool.ProcessPool`, or Spark with `pyspark_commitlog.answers.SparkEngine`.
"""

from __future__ import annotations

import os
import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from store_core.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from store_core.queue.index_format import MessageKeys


_MOST: Final = 2**63 - 1
"""What Arrow takes for a number of rows."""


def check_least(least: int, **values: int) -> None:
    """Refuse values that are too small, or do not fit into 64 bits.

    * `least`: The smallest that is accepted.
    * `values`: By the names of their options.
    """
    for name, value in values.items():
        if value < least:
            raise InvalidOptionError(f"{name}: expected {least} or more, found {value}")
        if value > _MOST:
            raise InvalidOptionError(f"{name}: expected {_MOST} or less, found {value}")


Key = TypeVar("Key", bound=tuple[Any, ...])
Piece = TypeVar("Piece")
Part = TypeVar("Part")
Partial = TypeVar("Partial")
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


class Job(Protocol[Part, Partial, Result_co]):
    """Work whose parts are independent of each other. The job, its parts and partial results are pickled."""

    def plan(self) -> Sequence[Part]:
        """Return the parts; called once, by whoever runs the job."""

    def run(self, part: Part, /) -> Partial:
        """Do one part, in any process."""

    def merge(self, partials: Iterable[Partial], /) -> Result_co:
        """Combine the parts' results, in plan order; called once, in the process that called `plan`."""


@dataclass(frozen=True)
class EachPart(ABC, Generic[Part, Partial]):
    """A `Job` whose parts are known when it is made, and whose result is what they return, in their order."""

    parts: Sequence[Part]

    def plan(self) -> Sequence[Part]:
        """Return the parts."""
        return self.parts

    @abstractmethod
    def run(self, part: Part, /) -> Partial:
        """Do one part, in any process."""

    def merge(self, partials: Iterable[Partial], /) -> list[Partial]:
        """Return what the parts returned."""
        return list(partials)


class GroupedJob(Protocol[Part, Key, Piece, Partial, Result_co]):
    """Work in two steps: parts yield pieces, then each group's pieces are gathered, whichever parts they came from.

    For example, the units of one queue come from many parts of the log.
    """

    @property
    def groups(self) -> int:
        """Number of groups; they are numbered from 0."""

    def plan(self) -> Sequence[Part]:
        """Return the parts; called once, by whoever runs the job."""

    def run(self, part: Part, /) -> Iterable[tuple[Key, Piece]]:
        """Do one part, in any process.

        A key begins with the number of the piece's group. Keys within a group are distinct, and pieces are gathered in
        key order.
        """

    def gather(self, pieces: Iterable[tuple[Key, Piece]], /) -> Iterable[Partial]:
        """Process one group, in any process; may be skipped for a group without pieces."""

    def merge(self, partials: Iterable[Partial], /) -> Result_co:
        """Combine the groups' results, in group order; called once, in the process that called `plan`."""


class Engine(ABC):
    """Runs jobs."""

    slots: int  # how many parts run at once
    is_one_machine: bool  # whether all parts run on this machine, so that large data can be passed in files
    keeps_pieces: bool
    """Whether this process's memory holds all pieces of a grouped job between its two steps."""

    def expect(self, *kinds: type) -> None:  # noqa: B027 -- most engines have nothing to do
        """Get ready for jobs of these classes; others can be run, too."""

    @abstractmethod
    def run(self, job: Job[Part, Partial, Result]) -> Result:
        """Run a job, and return its result."""

    @abstractmethod
    def run_grouped(self, job: GroupedJob[Part, Key, Piece, Partial, Result]) -> Result:
        """Run a job in two steps, and return its result."""


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


class LocalEngine(Engine):
    """Base of engines on this machine; a subclass only supplies a way to map a function over parts.

    * `on_progress`: Called with a `PartsDone` after each part, in the process that runs the job.
    """

    is_one_machine = True
    keeps_pieces = True

    def __init__(self, on_progress: ProgressSink | None = None) -> None:
        self._on_progress = on_progress

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End what the engine has started: here nothing."""

    @abstractmethod
    def _map(self, call: Callable[[Part], Partial], parts: Sequence[Part]) -> Iterator[Partial]:
        """Call a function for each part, and yield what it returns in the order of the parts."""

    def run(self, job: Job[Part, Partial, Result]) -> Result:
        """Run a job, and return its result."""
        return job.merge(self._counted(Step.RUN, job.run, job.plan()))

    def run_grouped(self, job: GroupedJob[Part, Key, Piece, Partial, Result]) -> Result:
        """Run a job in two steps, and return its result."""
        made = self._counted(Step.RUN, partial(_run_part, job), job.plan())
        pieces = sorted((piece for some in made for piece in some), key=lambda piece: piece[0])
        groups = [list(group) for _, group in groupby(pieces, key=lambda piece: piece[0][0])]
        gathered = self._counted(Step.GATHER, partial(_gather, job), groups)
        return job.merge(each for some in gathered for each in some)

    def _counted(self, step: Step, call: Callable[[Part], Partial], parts: Sequence[Part]) -> Iterator[Partial]:
        for done, made in enumerate(self._map(call, parts), 1):
            if self._on_progress is not None:
                self._on_progress(PartsDone(step, done, len(parts)))
            yield made


def _run_part(job: GroupedJob[Part, Key, Piece, Partial, Result], part: Part) -> list[tuple[Key, Piece]]:
    return list(job.run(part))


def _gather(job: GroupedJob[Part, Key, Piece, Partial, Result], pieces: list[tuple[Key, Piece]]) -> list[Partial]:
    return list(job.gather(iter(pieces)))


class InProcess(LocalEngine):
    """Runs the parts one after another in this process."""

    slots = 1

    def _map(self, call: Callable[[Part], Partial], parts: Sequence[Part]) -> Iterator[Partial]:
        return map(call, parts)


# ---- runs of rows in files, for tasks on one machine: then only their locations are transported


Carried = TypeVar("Carried")


def packed(table: pa.RecordBatch | pa.Table) -> bytes:
    """Return a table, or one batch of it, as Arrow's stream format."""
    import pyarrow as pa  # noqa: PLC0415 -- whoever only names an engine starts without it

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpacked(data: bytes) -> pa.RecordBatch:
    """Return the one batch of `packed` bytes."""
    import pyarrow as pa  # noqa: PLC0415 -- whoever only names an engine starts without it

    with pa.ipc.open_stream(data) as stream:
        return stream.read_next_batch()


class SpilledRun(NamedTuple):
    """The location of a run.

    * `position`, `size`: Bytes.
    """

    path: str
    position: int
    size: int
    entries: int = 0  # of the index, in a run of these
    reach: tuple[int, int] | None = None  # first and last physical offset of their messages; None if they descend


class RunSpill:
    """One attempt's own file of runs, kept until the job ends, even if another attempt writes the same runs."""

    def __init__(self, directory: Path) -> None:
        from store_core.files.file_system import OsFileSystem  # noqa: PLC0415 -- as above

        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / f"{uuid.uuid4().hex}.runs"
        self._file = OsFileSystem().open(self._path, create=True)
        self._position = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def put(self, data: bytes, keys: MessageKeys | None = None) -> SpilledRun:
        """Write a run, and return its location; `keys` are those that it has, if it is one of these."""
        from store_core.files.file_system import write_all  # noqa: PLC0415 -- as above

        run = SpilledRun(str(self._path), self._position, len(data))
        if keys is not None:
            run = run._replace(entries=len(keys.rows), reach=keys.reach)
        write_all(self._file, memoryview(data), self._position)
        self._position += len(data)
        return run


class RunReader:
    """Reads runs, whether in memory or in files; keeps the files open until it is closed."""

    def __init__(self) -> None:
        self._descriptors: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def read(self, run: Carried | SpilledRun) -> Carried | bytes:
        """Return the bytes of a run in a file, or anything else unchanged."""
        if not isinstance(run, SpilledRun):
            return run
        descriptor = self._descriptors.get(run.path)
        if descriptor is None:
            descriptor = self._descriptors[run.path] = os.open(run.path, os.O_RDONLY | os.O_CLOEXEC)
        data = os.pread(descriptor, run.size, run.position)
        if len(data) < run.size:
            raise OSError(f"{run.path} ends at {run.position + len(data)}: expected {run.size} bytes at {run.position}")
        return data
