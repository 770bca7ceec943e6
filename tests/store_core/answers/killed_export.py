# SPDX-License-Identifier: Apache-2.0
"""Exports a store, each time in a process that is killed by SIGKILL at one of its calls.

Run as ``python -m tests.store_core.answers.killed_export STORE LAKE=CALL ...``: the process for a lake kills itself
just before that call, counting those that open, create, rename or delete something in it; with 0 it does not. For each
lake a line with the number of calls made goes to standard output.
"""

from __future__ import annotations

from store_core.answers import export
from tests.store_core.answers.killed_process import run_killed

if __name__ == "__main__":
    run_killed(export)
