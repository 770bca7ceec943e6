# SPDX-License-Identifier: Apache-2.0
"""A process that puts messages until it is killed, and says which ones it was told are safe.

Run as ``python appender.py STORE FIRST FILE_SIZE``: messages are numbered from FIRST on; after each put that returned
PUT_OK its number goes to standard output.
"""

from __future__ import annotations

import sys
from itertools import count

import pyarrow as pa

from store_core import DefaultMessageStore, Message, MessageStoreConfig, PutMessageStatus

if __name__ == "__main__":
    path, first, file_size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    config = MessageStoreConfig(mapped_file_size_commit_log=file_size, flush_disk_type="SYNC_FLUSH")
    store = DefaultMessageStore.open(path, config)
    for number in count(first):
        body = b"%d:" % number + b"x" * (number * 37 % 700)
        if number % 5 == 0:
            status = store.append_batch(pa.table({"topic": ["orders"], "body": [body]})).status
        else:
            status = store.put_message(Message("orders", body)).status
        if status is not PutMessageStatus.PUT_OK:
            sys.exit(f"put {number}: {status}")
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
