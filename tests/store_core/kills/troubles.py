# SPDX-License-Identifier: Apache-2.0
"""Troubles a writer again and again, and checks what it leaves as after a kill.

Run as ``python -m tests.store_core.kills.troubles RUNS SEED FOLDER KIND,... NAME,...``: for each kind and writer a line
of JSON goes to standard output.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from store_core.errors import StoreError
from store_core.files.names import COMMIT_LOG
from tests.store_core.kills.campaign import REFUSED, Fate, Target, in_child, measure_whole, run_watched, scratch_folder
from tests.store_core.kills.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


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


_WAITS_FOR_NO_DISK: Final = ("put-async", "put-pool", "append-batch-async")
"""Writers that acknowledge messages before they are on disk."""

_ON_THEIR_WAY: Final = 1
"""Acknowledgements that may come after a sync of the log has failed, by another thread: theirs was the one before."""


def run_troubles(
    name: str, kinds: Iterable[str], runs: int, seed: int, folder: Path
) -> Iterator[tuple[str, Counter[str] | AssertionError]]:
    """Trouble a writer this often in each way, each time at another call; yield how its runs ended, or what was wrong.

    What it begins with, and how many calls it makes, are the same for all kinds.
    """
    target = TARGETS[name]
    with scratch_folder(folder) as scratch:
        scratch.chmod(0o711)  # a user who may write nothing has to reach it
        begin = scratch / "begin"
        begin.mkdir()
        in_child(lambda: target.prepare(begin), scratch)
        measure_whole(target, begin, scratch, seed)
        _, calls = measure_whole(target, begin, scratch, seed)
        gc.collect()
        gc.freeze()
        for kind in kinds:
            ends = Counter[str]()
            try:
                for number in range(runs):
                    ends[_run_one(name, kind, number, seed, calls, begin)] += 1
            except AssertionError as error:
                yield kind, error
            else:
                yield kind, ends


def _run_one(name: str, kind: str, number: int, seed: int, calls: int, begin: Path) -> str:
    """Trouble the writer at one of its calls, in a copy of what it begins with; return how that ended.

    Raises AssertionError: With the number of the run, and what was wrong.
    """
    chance = random.Random(f"{seed}-{kind}-{number}")  # noqa: S311 -- no secret
    place = begin.with_name(f"{kind}-{number}")
    shutil.copytree(begin, place, symlinks=True)
    trouble = Trouble(kind, place, chance.randint(1, calls), chance.randrange(2**32))
    try:
        end = _run(name, TARGETS[name], trouble, chance.randrange(2**32), begin.parent)
    except AssertionError as error:
        raise AssertionError(f"{name}, {kind}, run {number} of seed {seed}, call {trouble.last}: {error}") from None
    shutil.rmtree(place)
    return end


def _run(name: str, target: Target, trouble: Trouble, seed: int, scratch: Path) -> str:
    """Run once, and check; return how it ended."""
    place = trouble.directory
    before = _content(place) if trouble.kind == "read-only" else {}
    status, told, end = run_watched(target, seed, trouble)
    assert status == 0, f"the writer ended with {os.waitstatus_to_exitcode(status)}, and told {told}"
    is_refused = end == REFUSED
    if SYNC_FAILED in told:
        at = told.index(SYNC_FAILED)
        told, after = told[:at], told[at + 1 :]
        note = (place / NOTE).read_text()
        if trouble.kind == "sync":
            (place / NOTE).unlink()
            is_log = COMMIT_LOG in Path(note).parts and name not in _WAITS_FOR_NO_DISK
            assert not is_log or len(after) <= _ON_THEIR_WAY, f"told {after} after a sync of {note} had failed"
    if trouble.kind == "read-only":
        assert is_refused
        assert told == []
        assert before == _content(place)
        for path in (place, *place.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
    if (place / ASIDE).exists() and not _put_back(place):
        return "replaced"  # by files of the same names: what is in which is up to who moved the directory
    in_child(lambda: target.check(place, seed, told), scratch)
    return "refused" if is_refused else "done"


def _content(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def _put_back(place: Path) -> bool:
    """Put a directory that vanished back, with what was made in its place meanwhile; return whether that goes."""
    name = place / NOTE
    gone, back = place / name.read_text(), place / ASIDE
    made = [path for path in sorted(gone.rglob("*")) if not path.is_dir()]
    if any((back / path.relative_to(gone)).exists() for path in made):
        return False
    for path in made:
        kept = back / path.relative_to(gone)
        kept.parent.mkdir(parents=True, exist_ok=True)
        path.rename(kept)
    shutil.rmtree(gone, ignore_errors=True)
    back.rename(gone)
    name.unlink()
    return True


if __name__ == "__main__":
    count, chosen_seed, folder, kinds, names = sys.argv[1:]
    for each in names.split(","):
        for one, ended in run_troubles(each, kinds.split(","), int(count), int(chosen_seed), Path(folder)):
            found = {"failed": str(ended)} if isinstance(ended, AssertionError) else ended
            sys.stdout.write(json.dumps({"target": each, "kind": one, **found}) + "\n")
            sys.stdout.flush()
