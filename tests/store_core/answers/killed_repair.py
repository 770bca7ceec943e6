# SPDX-License-Identifier: Apache-2.0
"""Repairs stores, each in a process that is killed by SIGKILL at one of its calls.

Run as ``python -m tests.store_core.answers.killed_repair PLAN STORE=CALL ...``: the process for a store kills itself
just before that call, counting those that open, create, rename or delete something in the store; with 0 it does not.
For each store a line with the number of calls made goes to standard output.
"""

from __future__ import annotations

from store_core.answers.store_repair import repair
from tests.store_core.answers.killed_process import run_killed

if __name__ == "__main__":
    run_killed(lambda plan, store: repair(store, plan))
