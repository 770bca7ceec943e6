# SPDX-License-Identifier: Apache-2.0
"""Runs of units in files, for tasks on one machine: the shuffle then only transports their locations."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

import pyarrow as pa

from store_core.files.file_system import OsFileSystem, write_all

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.queue.index_format import MessageKeys


Carried = TypeVar("Carried")


def packed(table: pa.RecordBatch | pa.Table) -> bytes:
    """Return a table, or one batch of it, as Arrow's stream format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpacked(data: bytes) -> pa.RecordBatch:
    """Return the one batch of `packed` bytes."""
    with pa.ipc.open_stream(data) as stream:
        return stream.read_next_batch()


class SpilledRun(NamedTuple):
    """The location of a run.

    * `position`, `size`: Bytes.
    """

    path: str
    position: int
    size: int
    entries: int = 0  # of the index, in a run of these
    reach: tuple[int, int] | None = None  # first and last physical offset of their messages; None if they descend


class RunSpill:
    """One attempt's own file of runs, kept until the job ends, even if another attempt writes the same runs."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / f"{uuid.uuid4().hex}.runs"
        self._file = OsFileSystem().open(self._path, create=True)
        self._position = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def put(self, data: bytes, keys: MessageKeys | None = None) -> SpilledRun:
        """Write a run, and return its location; `keys` are those that it has, if it is one of these."""
        run = SpilledRun(str(self._path), self._position, len(data))
        if keys is not None:
            run = run._replace(entries=len(keys.rows), reach=keys.reach)
        write_all(self._file, memoryview(data), self._position)
        self._position += len(data)
        return run


class RunReader:
    """Reads runs, whether in memory or in files; keeps the files open until it is closed."""

    def __init__(self) -> None:
        self._descriptors: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def read(self, run: Carried | SpilledRun) -> Carried | bytes:
        """Return the bytes of a run in a file, or anything else unchanged."""
        if not isinstance(run, SpilledRun):
            return run
        descriptor = self._descriptors.get(run.path)
        if descriptor is None:
            descriptor = self._descriptors[run.path] = os.open(run.path, os.O_RDONLY | os.O_CLOEXEC)
        data = os.pread(descriptor, run.size, run.position)
        if len(data) < run.size:
            raise OSError(f"{run.path} ends at {run.position + len(data)}: expected {run.size} bytes at {run.position}")
        return data
