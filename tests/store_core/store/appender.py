# SPDX-License-Identifier: Apache-2.0
"""A process that puts messages until it is killed, and prints which ones were acknowledged.

Run as ``python appender.py STORE FIRST FILE_SIZE [CALLS]``: messages are numbered from FIRST on; after each put that
returned PUT_OK its number goes to standard output. With CALLS it kills itself at that call, counting those that change
a file or directory, including while opening; a write is then done in part.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from itertools import count
from pathlib import Path
from threading import Lock

import pyarrow as pa

from store_core import DefaultMessageStore, Message, MessageStoreConfig, PutMessageStatus
from store_core.files.file_system import OpenFile, OsFileSystem, OsOpenFile


class Fate:
    """Counts calls down, and kills the process at the last one."""

    def __init__(self, calls: int) -> None:
        self._left = calls
        self._lock = Lock()  # no call of another thread may come between the last one and the end

    def meet(self, file: OsOpenFile | None = None, data: memoryview | None = None, offset: int = 0) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                if file is not None and data is not None:
                    part = random.Random(offset).randrange(len(data) + 1)  # noqa: S311 -- no secret
                    OsOpenFile.write(file, data[:part], offset)
                os.kill(os.getpid(), signal.SIGKILL)


class FatedFile(OsOpenFile):
    def __init__(self, file: OpenFile, fate: Fate) -> None:
        super().__init__(os.dup(file.fileno()), Path("killed"))
        file.close()
        self._fate = fate

    def write(self, data: memoryview, offset: int) -> int:
        self._fate.meet(self, data, offset)
        return super().write(data, offset)

    def sync(self) -> None:
        self._fate.meet()
        super().sync()

    def grow(self, size: int) -> None:
        self._fate.meet()
        super().grow(size)


class FatedFileSystem(OsFileSystem):
    """The real file system, until the process is killed."""

    def __init__(self, fate: Fate) -> None:
        super().__init__()
        self._fate = fate

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> OpenFile:
        if create:
            self._fate.meet()
        return FatedFile(super().open(path, create=create, writable=writable), self._fate)

    def make(self, path: Path, size: int) -> OsOpenFile:
        self._fate.meet()
        return FatedFile(super().make(path, size), self._fate)

    def make_directories(self, path: Path) -> None:
        self._fate.meet()
        super().make_directories(path)

    def add_directories(self, path: Path) -> None:
        self._fate.meet()
        super().add_directories(path)

    def rename(self, source: Path, target: Path) -> None:
        self._fate.meet()
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self._fate.meet()
        super().remove(path)

    def sync_directory(self, path: Path) -> None:
        self._fate.meet()
        super().sync_directory(path)


def append(store: DefaultMessageStore, first: int) -> None:
    """Put messages, one by one and in bulk, for ever."""
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


if __name__ == "__main__":
    config = MessageStoreConfig(mapped_file_size_commit_log=int(sys.argv[3]), flush_disk_type="SYNC_FLUSH")
    fate = FatedFileSystem(Fate(int(sys.argv[4]))) if len(sys.argv) > 4 else None
    append(DefaultMessageStore.open(sys.argv[1], config, file_system=fate), int(sys.argv[2]))
