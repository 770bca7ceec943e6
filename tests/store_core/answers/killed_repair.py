# SPDX-License-Identifier: Apache-2.0
"""Repairs stores, each in a process that is killed by SIGKILL at one of its calls.

Run as ``python -m tests.store_core.answers.killed_repair PLAN STORE=CALL ...``: the process for a store kills itself
just before that call, counting those that open, create, rename or delete something in the store; with 0 it does not.
For each store a line with the number of calls made goes to standard output.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Final

from store_core.answers.store_repair import repair

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


def repair_one(plan: str, store: str, last: int) -> None:
    """Repair a store in a child of this process, which has imported everything and has no other thread."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    fate = Fate(store, last)
    sys.addaudithook(fate.meet)
    repair(store, plan)
    os.write(1, b"%d\n" % fate.calls)
    os._exit(0)


if __name__ == "__main__":
    for each in sys.argv[2:]:
        store, _, call = each.rpartition("=")
        repair_one(sys.argv[1], store, int(call))
