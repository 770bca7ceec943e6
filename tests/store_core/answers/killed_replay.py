# SPDX-License-Identifier: Apache-2.0
"""Replays messages into stores, each time in a process that is killed by SIGKILL at one of its calls.

Run as ``python -m tests.store_core.answers.killed_replay SOURCE STORE=CALL ...``: the process for a store kills itself
just before that call, counting those that open, create, rename or delete something in it; with 0 it does not. For each
store a line with the number of calls made goes to standard output.
"""

from __future__ import annotations

from typing import Final

from store_core import MessageStoreConfig
from store_core.answers import replay
from tests.store_core.answers.killed_process import run_killed

CONFIG: Final = MessageStoreConfig(
    mapped_file_size_commit_log=1 << 12,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=100,
    max_index_num=1000,
)


if __name__ == "__main__":
    run_killed(lambda source, store: replay(source, "T-1", store, into_config=CONFIG, topic="%DLQ%billing"))
