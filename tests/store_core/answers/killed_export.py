# SPDX-License-Identifier: Apache-2.0
"""Exports a store, each time in a process that is killed by SIGKILL at one of its calls.

Run as ``python -m tests.store_core.answers.killed_export STORE LAKE=CALL ...``: the process for a lake kills itself
just before that call, counting those that open, create, rename or delete something in it; with 0 it does not. For each
lake a line with the number of calls made goes to standard output.
"""

from __future__ import annotations

import os
import sys

from store_core.answers import export
from tests.store_core.answers.killed_repair import Fate


def export_one(store: str, lake: str, last: int) -> None:
    """Export in a child of this process, which has imported everything."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    fate = Fate(lake, last)
    sys.addaudithook(fate.meet)
    export(store, lake)
    os.write(1, b"%d\n" % fate.calls)
    os._exit(0)


if __name__ == "__main__":
    for each in sys.argv[2:]:
        lake, _, call = each.rpartition("=")
        export_one(sys.argv[1], lake, int(call))
