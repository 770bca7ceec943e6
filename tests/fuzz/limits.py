# SPDX-License-Identifier: Apache-2.0
"""A target's cases in a process of its own, with a limit of memory and of time for each."""

from __future__ import annotations

import json
import logging
import mmap
import multiprocessing
import os
import resource
import signal
import struct
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, NoReturn

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from tests.fuzz.target import Target


MEMORY: Final = 1 << 30
"""Bytes of address space that a process may add to what it has once its seeds are made."""

_PATIENCE: Final = 60.0
"""Seconds without a new case after which a process is killed: its time limit was not heeded."""

_MOST_FAILURES: Final = 20
"""Failures of a target after which it is given up."""

_COUNT: Final = struct.Struct("<q")
_GOLDEN: Final = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that did what no case may do."""

    target: str
    seed: int
    number: int
    what: str

    def __str__(self) -> str:
        return f"{self.target}: case {self.number} of seed {self.seed}: {self.what}"


@dataclass(slots=True)
class Outcome:
    """What came of a target's cases.

    * `cases`: Those that ended, failed ones included.
    * `seconds`: Processor time of the processes that ran them.
    * `memory`: Most bytes that a process added to what it had after making its seeds.
    """

    target: str
    cases: int = 0
    seconds: float = 0.0
    memory: int = 0
    failures: list[Failure] = field(default_factory=list)


def run_case(target: Target, seed: int, number: int, directory: Path) -> None:
    """Run one case again, in this process and without limits."""
    target.prepare(directory)(_random(seed, number))


def _random(seed: int, number: int) -> Random:
    return Random((seed * _GOLDEN + number) & ((1 << 64) - 1))


def run_target(target: Target, seed: int, cases: int, *, until: float = float("inf")) -> Outcome:
    """Run cases of a target in processes of their own; after one that ends a process, go on with the next one.

    * `until`: `time.monotonic` at which to stop.
    """
    memory_disk = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 -- faster, if it is there
    outcome, number = Outcome(target.name), 0
    while number < cases and len(outcome.failures) < _MOST_FAILURES and time.monotonic() < until:
        with tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory_disk) as directory:
            number = _run_process(target, seed, (number, cases), Path(directory), until, outcome)
    return outcome


def _run_process(
    target: Target, seed: int, numbers: tuple[int, int], directory: Path, until: float, outcome: Outcome
) -> int:
    """Run cases until one ends the process, or none is left; return the number of the next one."""
    progress, report = directory / "progress", directory / "report"
    progress.write_bytes(_COUNT.pack(-1))
    child = multiprocessing.get_context("spawn").Process(
        target=_child, args=(target.name, seed, numbers, directory, until - time.monotonic())
    )
    child.start()
    is_stuck = not _ended(child, progress)
    reached: int = _COUNT.unpack(progress.read_bytes())[0]
    found = json.loads(report.read_text()) if report.exists() else {}
    outcome.seconds += found.get("seconds", 0.0)
    outcome.memory = max(outcome.memory, found.get("memory", 0))
    outcome.failures += [Failure(**each) for each in found.get("failures", ())]
    if found and not child.exitcode:
        outcome.cases += found["next"] - numbers[0]
        return int(found["next"]) if found["next"] < numbers[1] and not _is_over(until) else numbers[1]
    what = "it never ended, and was killed" if is_stuck else f"the process ended with {child.exitcode}"
    outcome.failures.append(Failure(target.name, seed, reached, what))
    outcome.cases += max(reached, numbers[0]) + 1 - numbers[0]
    return max(reached, numbers[0]) + 1


def _is_over(until: float) -> bool:
    return time.monotonic() >= until


def _ended(child: multiprocessing.process.BaseProcess, progress: Path) -> bool:
    """Wait for a process as long as it goes on to new cases; kill it if it does not."""
    last, since = b"", time.monotonic()
    while child.is_alive():
        child.join(0.5)
        now = progress.read_bytes()
        if now != last:
            last, since = now, time.monotonic()
        elif time.monotonic() - since > _PATIENCE:
            child.kill()
            child.join()
            return False
    return True


# ------------------------------------------------------------------------------------------------------------ the child


class TooLongError(Exception):
    """A case took more than its time."""


def too_long(_signal: int, _frame: FrameType | None) -> NoReturn:
    """Handle the signal of a timer."""
    raise TooLongError("the case took more than its time")


def say_nothing() -> None:
    """Drop what the core logs."""
    log = logging.getLogger("store_core")
    log.addHandler(logging.NullHandler())
    log.propagate = False


def _child(name: str, seed: int, numbers: tuple[int, int], directory: Path, seconds: float) -> None:
    from tests.fuzz.targets import target_named  # noqa: PLC0415 -- a fresh process imports what it needs

    target, until = target_named(name), time.monotonic() + seconds
    work = directory / "work"
    work.mkdir()
    say_nothing()
    run = target.prepare(work)
    pa.allocate_buffer(1 << 22)  # its allocator reserves much address space when it is first used
    before = limit_memory()
    signal.signal(signal.SIGALRM, too_long)
    failures: list[Failure] = []
    number = numbers[0]
    with (directory / "progress").open("r+b") as file, mmap.mmap(file.fileno(), _COUNT.size) as progress:
        for number in _until(numbers, until):
            _COUNT.pack_into(progress, 0, number)
            signal.setitimer(signal.ITIMER_REAL, target.seconds)
            try:
                run(_random(seed, number))
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001 -- whatever it is, it is what is looked for
                failures.append(Failure(target.name, seed, number, told_of(error)))
                if len(failures) >= _MOST_FAILURES:
                    break
        signal.setitimer(signal.ITIMER_REAL, 0)
    found = {
        "next": number + 1,
        "seconds": time.process_time() + resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime,
        "memory": max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before, 0),
        "failures": [asdict(each) for each in failures],
    }
    (directory / "report").write_text(json.dumps(found))


def _until(numbers: tuple[int, int], until: float) -> Iterator[int]:
    for number in range(*numbers):
        yield number
        if time.monotonic() >= until:
            return


def told_of(error: BaseException) -> str:
    """Return what an error says, and where it was raised."""
    where = "".join(traceback.format_tb(error.__traceback__)[-4:])
    return f"{type(error).__name__}: {error!s:.600}\n{where}"


def limit_memory() -> int:
    """Limit what this process may map in addition; return its resident bytes so far."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * mmap.PAGESIZE + MEMORY,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
