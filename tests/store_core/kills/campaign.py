# SPDX-License-Identifier: Apache-2.0
"""Kills a writer again and again: at random calls and at random times, in forks of one warm process."""

from __future__ import annotations

import gc
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
from threading import RLock, Timer
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


REFUSED: Final = -2
_END: Final = b"end "

_TIMED: Final = 0.3
"""Share of the kills that come at a random time instead of a random call."""

_SECONDS: Final = 60.0
"""After this a child counts as hanging."""

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 -- a kill loses nothing that was written, so a real disk adds only time


class Target(Protocol):
    """A writer that is killed.

    Each method runs in a process of its own, and folder is where it may write.
    """

    def prepare(self, folder: Path, /) -> None:
        """Make what the writer finds; the same for all kills."""
        ...

    def work(self, folder: Path, seed: int, tell: Callable[[int], None], /) -> None:
        """Write; `tell` says that something is acknowledged."""
        ...

    def check(self, folder: Path, seed: int, told: list[int], /) -> None:
        """Check what is left: what was told is there, nothing is half there, and the next run works."""
        ...


@dataclass(slots=True)
class Kills:
    """What a campaign did.

    * `at_calls`, `at_times`: Processes that died of a kill.
    * `finished`: Processes that were done before their time came; what they wrote was checked as well.
    * `calls`: System calls of a run that is not killed.
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

    Raises AssertionError: With the number of the kill, and what the check said.
    """
    with scratch_folder(folder) as scratch:
        campaign = _Campaign(target, kills, seed, scratch)
        for end in campaign.ends():
            campaign.check(end)
            shutil.rmtree(end.place)
        return campaign.done


def leave_killed(target: Target, kills: int, seed: int, folder: Path) -> list[list[int]]:
    """Kill a writer this many times, and leave what it left in numbered folders; return what each was told."""
    told = []
    with scratch_folder(folder) as scratch:
        for number, end in enumerate(_Campaign(target, kills, seed, scratch).ends()):
            shutil.move(end.place, folder / str(number))
            told.append(end.told)
    return told


@contextmanager
def scratch_folder(folder: Path) -> Iterator[Path]:
    """Provide a folder in memory, if there is one."""
    made = Path(tempfile.mkdtemp(prefix="kills-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else folder))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def measure_whole(target: Target, begin: Path, scratch: Path, seed: int) -> tuple[float, int]:
    """Run without a kill, and return the seconds and calls that this takes."""
    place = scratch / "whole"
    shutil.copytree(begin, place, symlinks=True)
    started = time.monotonic()
    _, told, calls = run_watched(target, seed, Fate(place, 0))
    seconds = time.monotonic() - started
    assert calls is not None, "the writer was not done"
    loaded = scratch / "loaded"

    def check() -> None:
        target.check(place, seed, told)
        loaded.write_text("\n".join(sys.modules))

    in_child(check, scratch)
    for name in loaded.read_text().split("\n"):
        with suppress(ImportError):
            import_module(name)  # so that no child has to
    shutil.rmtree(place)
    return seconds, calls


@dataclass(frozen=True, slots=True)
class _End:
    """What a writer left: where, what it had told, with which seed it ran, and when it was killed."""

    place: Path
    told: list[int]
    seed: int
    when: str


class _Campaign:
    """The kills of one writer, each with a copy of the same beginning."""

    def __init__(self, target: Target, kills: int, seed: int, scratch: Path) -> None:
        self.done = Kills()
        self._target, self._kills, self._seed, self._scratch = target, kills, seed, scratch
        self._begin = scratch / "begin"
        self._begin.mkdir()
        in_child(lambda: target.prepare(self._begin), scratch)
        measure_whole(target, self._begin, scratch, seed)
        self._seconds, self.done.calls = measure_whole(target, self._begin, scratch, seed)  # with all imported
        gc.collect()
        gc.freeze()  # children look at none of it, and copy none of its pages

    def ends(self) -> Iterator[_End]:
        """Yield what each run left, those included that ended before they could be killed."""
        number = 0
        while self.done.killed < self._kills:
            number += 1
            yield self._kill(random.Random(f"{self._seed}-{number}"))  # noqa: S311 -- no secret
            most = 4 * self._kills + 20
            assert number < most, f"most of {number} runs were done before they could be killed: {self.done}"

    def _kill(self, chance: random.Random) -> _End:
        place, seed, done = self._scratch / "killed", chance.randrange(2**32), self.done
        shutil.copytree(self._begin, place, symlinks=True)
        is_timed = chance.random() < _TIMED
        last = 0 if is_timed else chance.randint(1, done.calls)
        delay = chance.uniform(0, self._seconds) if is_timed else None
        status, told, _ = run_watched(self._target, seed, Fate(place, last), delay)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            done.at_times += is_timed
            done.at_calls += not is_timed
        else:
            assert status == 0, f"the writer ended with {status}"
            done.finished += 1
        when = f"after {self._seconds:.3f} s at most" if is_timed else f"at call {last} of {done.calls}"
        return _End(place, told, seed, when)

    def check(self, end: _End) -> None:
        """Let the target check what a run left."""
        try:
            in_child(lambda: self._target.check(end.place, end.seed, end.told), self._scratch)
        except AssertionError as error:
            raise AssertionError(f"seed {end.seed}, killed {end.when}, {self.done}:\n{error}") from None


def run_watched(target: Target, seed: int, fate: Fate, delay: float | None = None) -> tuple[int, list[int], int | None]:
    """Let a child write; return its status, what it told, and its end if it came to one.

    That is the count of its calls if it was done, or `REFUSED` if it ended with an error that is allowed. A child that
    is killed just then has an end, too.
    """
    answers, tells = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(answers)
        _as_child(lambda: _write(target, seed, fate, tells))
    os.close(tells)
    timer = Timer(_SECONDS if delay is None else delay, _end, (child,))
    timer.start()
    with os.fdopen(answers, "rb") as stream:
        lines = stream.read().split(b"\n")[:-1]
    _, status = os.waitpid(child, 0)
    timer.cancel()
    timer.join()
    end = int(lines.pop().removeprefix(_END)) if lines and lines[-1].startswith(_END) else None
    return status, [int(line) for line in lines], end


def _end(child: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)


def _write(target: Target, seed: int, fate: Fate, tells: int) -> None:
    def tell(number: int) -> None:
        os.write(tells, b"%d\n" % number)

    fate.tell = tell
    fate.watch()
    try:
        target.work(fate.directory, seed, tell)
    except fate.refusals:
        os.write(tells, _END + b"%d\n" % REFUSED)
    else:
        os.write(tells, _END + b"%d\n" % fate.calls)


def in_child(action: Callable[[], None], scratch: Path) -> None:
    """Do something in a child, so that this process stays as it is; raise what it raised as text."""
    said = scratch / "said"
    child = os.fork()
    if child == 0:
        _as_child(action, said)
    timer = Timer(_SECONDS, _end, (child,))
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
