# SPDX-License-Identifier: Apache-2.0
"""The program that reads a RocksDB in a process of its own, where a hostile file can end nothing but this process.

`store_core.files.rocksdb_reader` starts it and talks to it: requests on standard input, answers on standard output,
each a number of bytes and then these. It ends when its standard input does.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import struct
import sys
from bisect import bisect_left
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from rocksdict import RdictIter


FRAME_HEAD: Final = struct.Struct(">cQ")
"""Kind of an answer, and its bytes."""

FRAME: Final = {"found": b"F", "failed": b"E", "request": b"R"}

_MOST_BYTES: Final = 8 << 20
"""Keys and values of one answer, after which the caller asks again."""

_LARGEST_ENTRY: Final = 1 << 20
_STEP: Final = 1 << 10
"""Entries that are taken before their sizes are looked at."""

_MOST_MEMORY: Final = 2 << 30
"""Bytes of address space besides twice those of the files: a small file may ask for any amount."""


class Readable(Protocol):
    """What a frame can be read from."""

    def read(self, size: int, /) -> bytes:
        """Return so many bytes, or fewer where the stream ends."""


def write_frame(stream: IO[bytes], kind: bytes, payload: bytes) -> None:
    """Write one request or answer."""
    stream.write(FRAME_HEAD.pack(kind, len(payload)))
    stream.write(payload)
    stream.flush()


def read_frame(stream: Readable) -> tuple[bytes, bytes] | None:
    """Read one request or answer; None where the stream ends."""
    head = stream.read(FRAME_HEAD.size)
    if len(head) < FRAME_HEAD.size:
        return None
    kind, size = FRAME_HEAD.unpack(head)
    payload = stream.read(size)
    return (kind, payload) if len(payload) == size else None


def serve(directory: str) -> None:
    """Open a database, say what it consists of, and answer requests until there are none.

    The process has limits of its own: no core dump, and no more memory than a sound database of these files needs.

    * `directory`: Private to this process: the library writes a file of its own into it, even if it only reads.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the library prints is no answer
    gc.disable()  # entries are many, and none leads to another
    _set_limits(directory)
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


def _set_limits(directory: str) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    files = sum(path.stat().st_size for path in Path(directory).iterdir())
    with suppress(OSError, ValueError):  # the machine allows less
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY + 2 * files,) * 2)
    with suppress(OSError, ValueError):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # all tables stay open


class _Database:
    """An open database."""

    def __init__(self, directory: str) -> None:
        from rocksdict import AccessType, Options, Rdict  # noqa: PLC0415 -- only this process needs it

        def raw() -> Options:
            options = Options(raw_mode=True)
            options.set_max_open_files(-1)  # tables that a broker deletes meanwhile stay readable
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
        """
        entries, stop = self._families[family].iter(), bytes.fromhex(upper)
        entries.seek(bytes.fromhex(lower))
        keys: list[bytes] = []
        values: list[bytes] = []
        size = 0
        while size < _MOST_BYTES and len(keys) < limit:
            begin = len(keys)
            _take(entries, keys, values, min(_STEP, limit - begin))
            if stop and keys and keys[-1] >= stop:
                del keys[bisect_left(keys, stop) :], values[len(keys) :]
            size += _checked_size(keys[begin:], values[begin:])
            if len(keys) < begin + _STEP:
                break
        entries.status()
        sizes = struct.pack(f"<I{2 * len(keys)}I", len(keys), *map(len, keys), *map(len, values))
        return b"".join((sizes, *keys, *values))


def _take(entries: RdictIter, keys: list[bytes], values: list[bytes], count: int) -> None:
    """Append so many entries, or as many as there are. Reading units costs what a turn of this loop does."""
    is_valid, key, value, go_on = entries.valid, entries.key, entries.value, entries.next
    add_key, add_value = keys.append, values.append
    for _ in range(count):
        if not is_valid():
            return
        add_key(key())
        add_value(value())
        go_on()


def _checked_size(keys: list[bytes], values: list[bytes]) -> int:
    size = sum(map(len, keys)) + sum(map(len, values))
    if size > _LARGEST_ENTRY:
        for key, value in zip(keys, values, strict=True):
            if len(key) + len(value) > _LARGEST_ENTRY:
                found = f"an entry of {len(key)} and {len(value)} bytes"
                raise ValueError(f"{found}: expected less than {_LARGEST_ENTRY}")
    return size
