# SPDX-License-Identifier: Apache-2.0
"""Puts messages with synchronous flush until it is killed; prints the number of each when its put returns.

Usage: killed_writer.py STORE RELEASE SEGMENT_SIZE
"""

from __future__ import annotations

import sys

from store_core import DefaultMessageStore, Message
from tests.interop.judge import our_small_config


def main(store_path: str, release: str, segment_size: str) -> None:
    """Put messages of changing sizes, singly and in batches."""
    config = our_small_config(release, int(segment_size), flush_disk_type="SYNC_FLUSH")
    with DefaultMessageStore.open(store_path, config) as store:
        number = 0
        while True:
            size = 10 + number * 37 % 900
            made = [Message("orders", f"{number + i}:".encode().ljust(size)) for i in range(1 + number % 3)]
            result = store.put_message(made[0]) if len(made) == 1 else store.put_messages(made)
            if not result.is_ok:
                raise RuntimeError(str(result))
            number += len(made)
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
