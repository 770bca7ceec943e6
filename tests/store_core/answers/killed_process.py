# SPDX-License-Identifier: Apache-2.0
"""Runs work on directories, each time in a process that is killed by SIGKILL at one of its calls."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable


_CALLS: Final = frozenset({"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "shutil.rmtree"})


class Fate:
    """Counts the calls on paths in a store, and kills the process at one of them."""

    def __init__(self, store: str, last: int) -> None:
        self._store = store
        self._last = last
        self.calls = 0

    def meet(self, event: str, arguments: tuple[object, ...]) -> None:
        if event in _CALLS and str(arguments[0]).startswith(self._store):
            self.calls += 1
            if self.calls == self._last:
                os.kill(os.getpid(), signal.SIGKILL)


def run_killed(work: Callable[[str, str], object]) -> None:
    """Do the work of a script whose arguments are a source, and a place and the number of its last call for each run.

    Each run is in a child of this process, which has imported everything and has no other thread; the child writes to
    standard output how many calls it made.
    """
    source, *runs = sys.argv[1:]
    for each in runs:
        place, _, call = each.rpartition("=")
        _run_one(work, source, place, int(call))


def _run_one(work: Callable[[str, str], object], source: str, place: str, last: int) -> None:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    fate = Fate(place, last)
    sys.addaudithook(fate.meet)
    work(source, place)
    os.write(1, b"%d\n" % fate.calls)
    os._exit(0)
