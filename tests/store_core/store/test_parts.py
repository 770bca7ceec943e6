# SPDX-License-Identifier: Apache-2.0
"""Jobs in parts: the result is the same in this process and in others, and freed memory is used again."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import subprocess
import sys
from dataclasses import dataclass
from multiprocessing import active_children
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from store_core import InvalidOptionError, LostWorkerError, StoreNotFoundError
from store_core.files.machine import keep_freed_memory
from store_core.store.parts import InProcess, LocalEngine, PartsDone, Step
from store_core.store.process_pool import ProcessPool
from tests.short_lived import run_python

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Squares:
    """Squares of the numbers below `count`; `accident` says what happens at 3."""

    count: int
    accident: str = ""

    def plan(self) -> Sequence[int]:
        return range(self.count)

    def run(self, part: int) -> int:
        if part == 3 and self.accident == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if part == 3 and self.accident == "exit":
            os._exit(7)
        if part == 3 and self.accident == "refuse":
            raise StoreNotFoundError("/no/such/store", 2)
        if part == 3 and self.accident == "odd":
            raise Odd(1, key=2)
        return part**2

    def merge(self, partials: Iterable[int]) -> list[int]:
        return list(partials)


class Odd(Exception):  # noqa: N818 -- an error that does not come back from pickling
    def __init__(self, number: int, *, key: int) -> None:
        super().__init__(number)
        self.key = key


@dataclass(frozen=True)
class Remainders:
    """The numbers up to a limit, by their remainder; each is found twice."""

    count: int
    groups: int

    def plan(self) -> Sequence[int]:
        return range(self.count)[::-1]

    def run(self, part: int) -> Iterator[tuple[tuple[int, int, int], str]]:
        for again in range(2):
            yield (part % self.groups, part, again), f"{part}"

    def gather(self, pieces: Iterable[tuple[tuple[int, int, int], str]]) -> Iterator[str]:
        yield " ".join(piece for _, piece in pieces)

    def merge(self, partials: Iterable[str]) -> list[str]:
        return list(partials)


@pytest.fixture(params=["in process", "in a pool"], scope="module")
def engine(request: pytest.FixtureRequest) -> Iterator[LocalEngine]:
    """Provide an engine of each kind, for several consecutive jobs."""
    if request.param == "in process":
        yield InProcess()
    else:
        with ProcessPool(2) as pool:
            yield pool
        assert [] == active_children()


def test_the_parts_are_merged_in_the_order_of_the_plan(engine: LocalEngine) -> None:
    assert [number**2 for number in range(40)] == engine.run(Squares(40))
    assert [] == engine.run(Squares(0))


def test_pieces_come_together_in_the_order_of_their_keys(engine: LocalEngine) -> None:
    assert ["0 0 3 3 6 6", "1 1 4 4", "2 2 5 5"] == engine.run_grouped(Remainders(7, 3))
    assert ["0 0", "1 1"] == engine.run_grouped(Remainders(2, 5))
    assert [] == engine.run_grouped(Remainders(0, 5))


def test_a_failure_is_raised_as_it_is_and_the_next_job_is_run(engine: LocalEngine) -> None:
    with pytest.raises(StoreNotFoundError, match="/no/such/store"):
        engine.run(Squares(9, "refuse"))

    assert [0, 1, 4] == engine.run(Squares(3))


def test_an_error_that_does_not_come_back_is_raised_as_its_text() -> None:
    with ProcessPool(2) as pool, pytest.raises(RuntimeError, match="Odd: 1"):
        pool.run(Squares(9, "odd"))


@pytest.mark.parametrize(
    ("accident", "expected"),
    [
        ("kill", r"was killed by SIGKILL while it worked on one of parts \d to \d of 9, .* use fewer processes"),
        ("exit", r"ended with exit code 7 while it worked on one of parts \d to \d of 9, .*__main__"),
    ],
)
def test_a_process_that_ends_is_named_and_all_others_end(accident: str, expected: str) -> None:
    before = set(active_children())
    with ProcessPool(2) as pool:
        with pytest.raises(LostWorkerError, match=expected) as raised:
            pool.run(Squares(9, accident))

        assert before == set(active_children())
        assert [0, 1, 4] == pool.run(Squares(3))
    assert str(raised.value) == str(pickle.loads(pickle.dumps(raised.value)))  # noqa: S301 -- made here


def test_progress_counts_parts_and_groups() -> None:
    seen: list[PartsDone] = []
    InProcess(seen.append).run_grouped(Remainders(2, 2))

    assert [(Step.RUN, 1, 2), (Step.RUN, 2, 2), (Step.GATHER, 1, 2), (Step.GATHER, 2, 2)] == seen


def test_a_pool_needs_a_process() -> None:
    with pytest.raises(InvalidOptionError, match="processes: expected 1 or more, found 0"):
        ProcessPool(0)


def test_whoever_wants_no_more_ends_the_processes() -> None:
    before = set(active_children())
    with ProcessPool(2) as pool:
        found = pool._map(abs, range(-9, 0))

        assert 9 == next(found)
        found.close()  # type: ignore[attr-defined]  # a generator
        assert before == set(active_children())


PROGRAM = """
import os, signal, sys
from store_core.store.process_pool import ProcessPool

def work_on(owner):
    sys.stdout.write("works\\n")
    sys.stdout.flush()
    while os.getppid() == owner:
        pass

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit that it is ignored
    with ProcessPool(2) as pool:
        list(pool._map(work_on, [os.getpid()] * 2))
"""


@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGINT, ["KeyboardInterrupt"]), (signal.SIGKILL, [])], ids=["^C", "killed"]
)
def test_an_owner_that_ends_leaves_no_process_behind(
    number: signal.Signals, expected: list[str], tmp_path: Path
) -> None:
    tmp_path.joinpath("program.py").write_text(PROGRAM)
    with subprocess.Popen(  # noqa: S603 -- this interpreter, and the program above
        [sys.executable, tmp_path / "program.py"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as owner:
        assert owner.stdout is not None
        works = [owner.stdout.readline() for _ in range(2)]
        if number == signal.SIGINT:
            os.killpg(owner.pid, number)  # a terminal sends it to the owner and to all of its processes
        else:
            owner.kill()
        rest, words = owner.communicate()  # to the end, which comes when no process writes any more

    assert ["works\n"] * 2 == works
    assert not rest
    assert expected == [line for line in words.splitlines() if line.startswith("Keyboard")]
    assert len(expected) == words.count("Traceback")


_ARENA_MAX = -8

_ARENAS_OF_MANY_THREADS = """
import ctypes, threading
import numpy as np
from store_core.files.machine import keep_freed_memory
keep_freed_memory()
everyone = threading.Barrier(25)
def hold():
    held = np.ones(1 << 17, np.uint8)
    everyone.wait()
    everyone.wait()
threads = [threading.Thread(target=hold) for _ in range(24)]
for thread in threads:
    thread.start()
everyone.wait()
library = ctypes.CDLL(None)
library.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(library.fopen(b"arenas.xml", b"w"))
library.malloc_info(0, file)
library.fclose(file)
everyone.wait()
print(open("arenas.xml").read().count("<heap nr="))
"""


@pytest.mark.parametrize(("processors", "arenas"), [(None, 2), (1, 2), (2, 2), (6, 6), (64, 8)])
def test_there_are_no_more_arenas_than_processors(
    monkeypatch: pytest.MonkeyPatch, processors: int | None, arenas: int
) -> None:
    asked: list[tuple[int, int]] = []
    library = SimpleNamespace(mallopt=lambda *call: asked.append(call))
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    monkeypatch.setattr(os, "cpu_count", lambda: processors)

    keep_freed_memory.__wrapped__()

    assert asked == [(_ARENA_MAX, arenas)]


def test_a_c_library_without_arenas_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())

    keep_freed_memory.__wrapped__()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="the C library is not glibc")
def test_many_threads_share_few_arenas(tmp_path: Path) -> None:
    arenas = int(run_python(_ARENAS_OF_MANY_THREADS, tmp_path))

    assert 1 <= arenas <= min(max(os.cpu_count() or 1, 2), 8)
