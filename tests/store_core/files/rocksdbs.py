# SPDX-License-Identifier: Apache-2.0
"""Small RocksDBs, made by the library that reads them."""

from __future__ import annotations

import shutil
import struct
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rocksdict import Options, Rdict

from store_core.files.rocksdb_reader import Entries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def bound_key(topic: str, kind: bytes, queue_id: int) -> bytes:
    """Return the key of a queue's bound, by the format's description alone."""
    name = topic.encode()
    return len(name).to_bytes(4) + b"\1" + name + b"\1" + kind + b"\1" + queue_id.to_bytes(4)


def bound(queue_offset: int, position: int = 0) -> bytes:
    """Return the value of a bound."""
    return position.to_bytes(8) + queue_offset.to_bytes(8, signed=True)


def unit(position: int, size: int = 100) -> bytes:
    """Return the value of a unit."""
    return struct.pack(">qiqq", position, size, 7, 1_000 + position)


@dataclass
class MemoryReader:
    """Entries in memory, read as `RocksdbReader` reads those of a database, some at a time."""

    families: Mapping[str, Mapping[bytes, bytes]]
    directory: Path = Path("memory")
    at_once: int = 5

    def entries(self, family: str, lower: bytes = b"", upper: bytes = b"", limit: int = 2**31) -> Iterator[Entries]:
        keys = sorted(self.families[family])
        stop = bisect_left(keys, upper) if upper else len(keys)
        found = keys[bisect_left(keys, lower) : stop][:limit]
        for first in range(0, len(found), self.at_once):
            some = found[first : first + self.at_once]
            values = [self.families[family][key] for key in some]
            key_sizes, value_sizes = (np.array([*map(len, each)], np.uint32) for each in (some, values))
            yield Entries(key_sizes, value_sizes, b"".join(some), b"".join(values))

    def close(self) -> None:
        """Do nothing."""


def make_rocksdb(directory: Path, families: Mapping[str, Mapping[bytes, bytes]], *, is_flushed: bool = True) -> Path:
    """Write a database; what is not flushed is only in the database's own log."""
    directory.mkdir(parents=True, exist_ok=True)
    options = Options(raw_mode=True)
    options.create_missing_column_families(True)
    options.create_if_missing(True)
    opened = {name: Options(raw_mode=True) for name in ("default", *families)}
    database = Rdict(str(directory), options=options, column_families=opened)
    handles = {name: database.get_column_family(name) for name in families}  # dropping one flushes it
    for name, entries in families.items():
        for key, value in entries.items():
            handles[name].put(key, value)
        if is_flushed:
            handles[name].flush(True)
    living = shutil.copytree(directory, directory.with_name("living"))  # closing flushes as well
    handles.clear()
    database.close()
    shutil.rmtree(directory)
    living.rename(directory)
    (directory / "rocksdict-config.json").unlink()
    return directory
