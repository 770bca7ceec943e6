# SPDX-License-Identifier: Apache-2.0
"""Whoever reads a log between two calls of its writer, or after it was killed there, sees the log up to a record."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from store_core import read_messages
from store_core.files.file_system import OsFileSystem
from store_core.files.mapped_file import MappedFile, TransientStorePool
from store_core.files.store_lock import StoreLock
from store_core.format.record.decode import client_batch
from tests.builders import LogBuilder
from tests.store_core.fakes import FaultyFileSystem
from tests.store_core.store.logs import Log, message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def put_alone(log: Log, first: int) -> int:
    log.log.put_message(message(b"%d:" % first + bytes(500)))
    return 1


def put_together(log: Log, first: int) -> int:
    log.log.put_messages(client_batch([message(b"%d:" % (first + number) + bytes(100)) for number in range(9)]))
    return 9


def append_batch(log: Log, first: int) -> int:
    bodies = [b"%d:" % (first + number) + bytes(200) for number in range(20)]  # more than a segment has room for
    log.log.append_batch(pa.table({"topic": ["orders"] * len(bodies), "body": bodies}))
    return len(bodies)


@pytest.mark.parametrize("put", [put_alone, put_together, append_batch])
@pytest.mark.parametrize("is_held", [True, False])
def test_a_reader_sees_a_prefix_at_any_call_of_a_writer(
    put: Callable[[Log, int], int], is_held: bool, tmp_path: Path
) -> None:
    log, seen = Log(tmp_path / "commitlog"), set[int]()

    def look() -> None:
        for mode in ("FAILFAST", "DROPMALFORMED", "PERMISSIVE"):
            read = read_messages(tmp_path, mode=mode, columns=["body"]).read_all()["body"].to_pylist()
            bodies = [body for body in read if body is not None]  # a torn tail is a row of what was not finished
            assert list(range(len(bodies))) == [int(body.partition(b":")[0]) for body in bodies]
            assert len(read) - len(bodies) in ((0, 1) if mode == "PERMISSIVE" and not is_held else (0,))
            seen.add(len(bodies))

    with StoreLock(tmp_path, OsFileSystem()) if is_held else nullcontext():
        count = put(log, 0)
        log.disk.before = dict.fromkeys(("open", "write", "grow", "sync"), look)
        for _ in range(4):
            count += put(log, count)

    assert {count - (count // 5), count // 5} <= seen


def test_a_reader_sees_a_prefix_at_any_call_of_a_commit_of_many_messages(tmp_path: Path) -> None:
    """Those in a write buffer have times of their own: later ones after a gap would look like the end of damage."""
    log, disk = LogBuilder(1 << 16), FaultyFileSystem()
    records = [log.append(b"%d:" % number + bytes(number * 67 % 2900)) for number in range(30)]
    path, seen = tmp_path / "commitlog" / f"{0:020d}", set[int]()
    file = MappedFile.create(path, log.segment_size, disk, TransientStorePool(1, log.segment_size))

    def look() -> None:
        read = read_messages(tmp_path, columns=["body"], mode="FAILFAST").read_all()["body"].to_pylist()
        assert [record.body for record in records[: len(read)]] == read
        seen.add(len(read))

    disk.before = dict.fromkeys(("write", "sync"), look)
    for record in records:
        assert file.append(record.encode())
    file.commit(0)
    look()

    assert {0, len(records)} < seen
