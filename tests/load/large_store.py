# SPDX-License-Identifier: Apache-2.0
"""A store of many segments and many queues, what it costs to open it, and what a process holds.

Run as ``python -m tests.load.large_store SEGMENTS QUEUES FOLDER``: it makes the store by puts, and opens, plans and
reads it in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from store_core import DefaultMessageStore, MessageStoreConfig, read_messages

_ROOT: Final = Path(__file__).parents[2]
_SEGMENT: Final = 4096
_QUEUES_EACH: Final = 100
_CONFIG: Final = MessageStoreConfig(
    mapped_file_size_commit_log=_SEGMENT, mapped_file_size_consume_queue=400, message_index_enable=False
)


def make_large(root: Path, segments: int, queues: int) -> None:
    """Append one message to each queue, of such a size that they fill as many segments."""
    each = _SEGMENT * segments // queues
    body = bytes(max(each - 120, 1))
    with DefaultMessageStore.open(root, _CONFIG) as store:
        for first in range(0, queues, 5000):
            numbers = range(first, min(first + 5000, queues))
            batch = {
                "topic": [f"topic{number // _QUEUES_EACH}" for number in numbers],
                "queue_id": pa.array([number % _QUEUES_EACH for number in numbers], pa.int32()),
                "body": pa.array([body for _ in numbers], pa.binary()),
            }
            if not store.append_batch(pa.table(batch)).is_ok:
                raise RuntimeError("a batch was refused")


def open_large(root: Path) -> dict[str, Any]:
    """Open a store in a process of its own, and read one queue; return seconds of processor time, and what it holds."""
    command = [sys.executable, "-m", "tests.load.large_store", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=_ROOT)  # noqa: S603 -- our own
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _measure(root: Path) -> dict[str, Any]:
    before, began = Usage.now(), time.process_time()
    with DefaultMessageStore.open(root, _CONFIG):
        opened, held = time.process_time() - began, Usage.now()
    began = time.process_time()
    rows = read_messages(root, columns=["body"], topic="topic0", queue_id=1).read_all().num_rows
    return {
        "open_seconds": opened,
        "open_memory": held.memory - before.memory,
        "open_handles": held.handles - before.handles,
        "open_mappings": held.mappings - before.mappings,
        "read_seconds": time.process_time() - began,
        "rows": rows,
        "segments": len(list((root / "commitlog").iterdir())),
    }


_PROCESS: Final = Path("/proc/self")
_KIBIBYTE: Final = 1024


class Usage(NamedTuple):
    """What this process holds.

    * `memory`: Anonymous resident bytes: without the pages of mapped files.
    """

    memory: int
    handles: int
    mappings: int

    @classmethod
    def now(cls) -> Usage:
        """Look."""
        lines = (_PROCESS / "status").read_text().splitlines()
        memory = next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * _KIBIBYTE
        return cls(memory, len(list((_PROCESS / "fd").iterdir())), (_PROCESS / "maps").read_text().count("\n"))


def growth(samples: list[Usage]) -> Usage:
    """Return by how much each grew over the second half of the samples, by the straight line that fits best."""
    half = np.array(samples[len(samples) // 2 :], np.float64)
    at = np.arange(len(half))
    return Usage(*(int(np.polyfit(at, column, 1)[0] * (len(half) - 1)) for column in half.T))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        count, number_of_queues, folder = sys.argv[1:]
        make_large(Path(folder, "store"), int(count), int(number_of_queues))
        sys.stdout.write(json.dumps(open_large(Path(folder, "store"))) + "\n")
    else:
        sys.stdout.write(json.dumps(_measure(Path(sys.argv[1]))) + "\n")
