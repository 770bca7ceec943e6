# SPDX-License-Identifier: Apache-2.0
"""Kills a writer again and again: at random calls and at random times, in forks of one warm process."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Final, Protocol

from tests.store_core.kills.fate import Fate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Kills", "Target", "run_campaign"]

_TIMED: Final = 0.3
"""Share of the kills that come at a random time instead of a random call."""

_SECONDS: Final = 60.0
"""After this a child counts as hanging."""

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 -- a kill loses nothing that was written, so a real disk adds only time


class Target(Protocol):
    """A writer that is killed.

    Each method runs in a process of its own, and folder is where it may write.
    """

    def prepare(self, folder: Path) -> None:
        """Make what the writer finds; the same for all kills."""
        ...

    def work(self, folder: Path, seed: int, tell: Callable[[int], None]) -> None:
        """Write; `tell` says that something is acknowledged."""
        ...

    def check(self, folder: Path, seed: int, told: list[int]) -> None:
        """Check what is left: what was told is there, nothing is half there, and the next run works."""
        ...


@dataclass(slots=True)
class Kills:
    """What a campaign did.

    Attributes
    ----------
    at_calls, at_times : int
        Processes that died of a kill.
    finished : int
        Processes that were done before their time came; what they wrote was checked as well.
    calls : int
        System calls of a run that is not killed.
    """

    at_calls: int = 0
    at_times: int = 0
    finished: int = 0
    calls: int = 0

    @property
    def killed(self) -> int:
        """All that died."""
        return self.at_calls + self.at_times


def run_campaign(target: Target, kills: int, seed: int, folder: Path) -> Kills:
    """Kill a writer this many times, each time with a copy of what it begins with, and check what it leaves.

    Raises
    ------
    AssertionError
        With the number of the kill, and what the check said.
    """
    done = Kills()
    with _scratch(folder) as scratch:
        begin = scratch / "begin"
        begin.mkdir()
        _in_child(lambda: target.prepare(begin), scratch)
        _measure(target, begin, scratch, seed)
        seconds, done.calls = _measure(target, begin, scratch, seed)  # with all imported
        number = 0
        while done.killed < kills:
            number += 1
            _kill_once(target, begin, scratch, random.Random(f"{seed}-{number}"), (seconds, done))  # noqa: S311 -- no secret
            assert number < 4 * kills + 20, f"most of {number} runs were done before they could be killed: {done}"
    return done


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="kills-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else folder))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _measure(target: Target, begin: Path, scratch: Path, seed: int) -> tuple[float, int]:
    """Run without a kill, and return the seconds and calls that this takes."""
    place = scratch / "whole"
    shutil.copytree(begin, place, symlinks=True)
    started = time.monotonic()
    _, told = _run(target, place, seed, 0, None)
    seconds, calls = time.monotonic() - started, told.pop()
    loaded = scratch / "loaded"

    def check() -> None:
        target.check(place, seed, told)
        loaded.write_text("\n".join(sys.modules))

    _in_child(check, scratch)
    for name in loaded.read_text().split("\n"):
        with suppress(ImportError):
            import_module(name)  # so that no child has to
    shutil.rmtree(place)
    return seconds, calls


def _kill_once(target: Target, begin: Path, scratch: Path, chance: random.Random, so_far: tuple[float, Kills]) -> None:
    (seconds, done), place, seed = so_far, scratch / "killed", chance.randrange(2**32)
    shutil.copytree(begin, place, symlinks=True)
    is_timed = chance.random() < _TIMED
    last = 0 if is_timed else chance.randint(1, done.calls)
    status, told = _run(target, place, seed, last, chance.uniform(0, seconds) if is_timed else None)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        done.at_times += is_timed
        done.at_calls += not is_timed
    else:
        assert status == 0, f"the writer ended with {status}"
        done.finished += 1
        told.pop()
    try:
        _in_child(lambda: target.check(place, seed, told), scratch)
    except AssertionError as error:
        where = f"after {seconds * is_timed:.3f} s at most" if is_timed else f"at call {last} of {done.calls}"
        raise AssertionError(f"seed {seed}, killed {where}, {done}:\n{error}") from None
    shutil.rmtree(place)


def _run(target: Target, place: Path, seed: int, last: int, delay: float | None) -> tuple[int, list[int]]:
    """Let a child write; return its status and what it told: at last, if it ended, the count of its calls."""
    answers, tells = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(answers)
        _as_child(lambda: _write(target, place, seed, last, tells))
    os.close(tells)
    timer = Timer(_SECONDS if delay is None else delay, _kill, (child,))
    timer.start()
    with os.fdopen(answers, "rb") as stream:
        told = [int(line) for line in stream.read().split(b"\n")[:-1]]
    _, status = os.waitpid(child, 0)
    timer.cancel()
    timer.join()
    return status, told


def _kill(child: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)


def _write(target: Target, place: Path, seed: int, last: int, tells: int) -> None:
    def tell(number: int) -> None:
        os.write(tells, b"%d\n" % number)

    fate = Fate(place, last)
    fate.watch()
    target.work(place, seed, tell)
    tell(fate.calls)


def _in_child(action: Callable[[], None], scratch: Path) -> None:
    """Do something in a child, so that this process stays as it is; raise what it raised as text."""
    said = scratch / "said"
    child = os.fork()
    if child == 0:
        _as_child(action, said)
    timer = Timer(_SECONDS, _kill, (child,))
    timer.start()
    _, status = os.waitpid(child, 0)
    timer.cancel()
    timer.join()
    assert status == 0, said.read_text() if said.exists() else f"a child ended with {status}"


def _as_child(action: Callable[[], None], said: Path | None = None) -> None:
    """Do something, and end this process, whatever happens."""
    code = 1
    try:
        action()
        code = 0
    except BaseException:  # noqa: BLE001 -- pytest above must not see it: it would run the rest of the tests here
        text = traceback.format_exc()
        if said is None:
            sys.__stderr__.write(text)  # type: ignore[union-attr]  # there is one
        else:
            said.write_text(text)
    finally:
        os._exit(code)
