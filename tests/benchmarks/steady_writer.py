# SPDX-License-Identifier: Apache-2.0
"""A process that holds a store and puts about 1,000 messages a second, until its standard input ends."""

from __future__ import annotations

import select
import sys
import time
from typing import Final

from store_core import DefaultMessageStore, Message, MessageStoreConfig
from tests.benchmarks.segments import RARE_TOPIC

_BODY: Final = b"x" * 200
_QUEUES: Final = 8
_AT_ONCE: Final = 10
_PAUSE: Final = 0.01


def main() -> int:
    """Put messages; print a line when the first are in the store."""
    with DefaultMessageStore.open(sys.argv[1], MessageStoreConfig(release="5.3")) as store:
        number, due = 0, time.monotonic()
        while not select.select([sys.stdin], [], [], max(due - time.monotonic(), 0))[0]:
            due += _PAUSE
            for _ in range(_AT_ONCE):
                message = Message(RARE_TOPIC, _BODY, number % _QUEUES, properties={"KEYS": f"live{number}"})
                if not store.put_message(message).is_ok:
                    raise RuntimeError("a put was refused")
                number += 1
            if number == _AT_ONCE:
                print("putting", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
