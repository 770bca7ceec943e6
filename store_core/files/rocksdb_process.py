# SPDX-License-Identifier: Apache-2.0
"""The program that reads a RocksDB in a process of its own, where a hostile file can end nothing but this process.

`store_core.files.rocksdb_reader` starts it and talks to it: requests on standard input, answers on standard output,
each a number of bytes and then these. It ends when its standard input does.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FRAME", "FRAME_HEAD", "read_frame", "serve", "write_frame"]

FRAME_HEAD: Final = struct.Struct(">cQ")
"""Kind of an answer, and its bytes."""

FRAME: Final = {"found": b"F", "failed": b"E", "request": b"R"}

_MOST_BYTES: Final = 8 << 20
"""Keys and values of one answer, after which the caller asks again."""

_LARGEST_ENTRY: Final = 1 << 20


def write_frame(stream: IO[bytes], kind: bytes, payload: bytes) -> None:
    """Write one request or answer."""
    stream.write(FRAME_HEAD.pack(kind, len(payload)))
    stream.write(payload)
    stream.flush()


def read_frame(stream: IO[bytes]) -> tuple[bytes, bytes] | None:
    """Read one request or answer; None where the stream ends."""
    head = stream.read(FRAME_HEAD.size)
    if len(head) < FRAME_HEAD.size:
        return None
    kind, size = FRAME_HEAD.unpack(head)
    payload = stream.read(size)
    return (kind, payload) if len(payload) == size else None


def serve(directory: str) -> None:
    """Open a database, say what it consists of, and answer requests until there are none.

    Parameters
    ----------
    directory : str
        Private to this process: the library writes a file of its own into it, even if it only reads.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the library prints is no answer
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, ValueError):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # all tables stay open
    with suppress(BrokenPipeError):
        try:
            database = _Database(directory)
        except Exception as error:  # noqa: BLE001 -- the library raises nothing more specific
            write_frame(answers, FRAME["failed"], str(error).encode())
            return
        write_frame(answers, FRAME["found"], json.dumps(database.description).encode())
        while (request := read_frame(sys.stdin.buffer)) is not None:
            try:
                write_frame(answers, FRAME["found"], database.scan(**json.loads(request[1])))
            except Exception as error:  # noqa: BLE001
                write_frame(answers, FRAME["failed"], str(error).encode())


class _Database:
    """An open database."""

    def __init__(self, directory: str) -> None:
        from rocksdict import AccessType, Options, Rdict  # noqa: PLC0415 -- only this process needs it

        def raw() -> Options:
            options = Options(raw_mode=True)
            options.set_max_open_files(-1)  # tables that a broker deletes meanwhile stay readable
            options.set_skip_stats_update_on_db_open(True)
            return options

        families = Rdict.list_cf(directory, raw())
        database = Rdict(
            directory,
            options=raw(),
            column_families={name: raw() for name in families},
            access_type=AccessType.read_only(),
        )
        self._families = {name: database.get_column_family(name) for name in families}
        tables = [Path(table["name"]).name for each in self._families.values() for table in each.live_files()]
        self.description = {"families": families, "tables": tables}

    def scan(self, family: str, lower: str, upper: str, limit: int) -> bytes:
        """Return entries from a key on, up to but not including another, both in hexadecimal digits.

        The answer is the number of entries, the sizes of all keys, the sizes of all values, the keys, the values.

        Raises
        ------
        Exception
            As the library raises; ValueError for an entry larger than any that RocketMQ writes.
        """
        keys, values = [], []
        for key, value in self._entries(family, bytes.fromhex(lower), bytes.fromhex(upper), limit):
            keys.append(key)
            values.append(value)
        sizes = struct.pack(f"<I{2 * len(keys)}I", len(keys), *map(len, keys), *map(len, values))
        return b"".join((sizes, *keys, *values))

    def _entries(self, family: str, lower: bytes, upper: bytes, limit: int) -> Iterator[tuple[bytes, bytes]]:
        entries, size = self._families[family].iter(), 0
        entries.seek(lower)
        while limit > 0 and size < _MOST_BYTES and entries.valid():
            key = entries.key()
            if upper and key >= upper:
                return
            value = entries.value()
            if len(key) + len(value) > _LARGEST_ENTRY:
                raise ValueError(f"an entry of {len(key)} and {len(value)} bytes: expected less than {_LARGEST_ENTRY}")
            yield key, value
            size, limit = size + len(key) + len(value), limit - 1
            entries.next()
        entries.status()
