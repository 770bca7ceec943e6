# SPDX-License-Identifier: Apache-2.0
"""What can't be written is named, and nothing of it is left: every command that writes, with a limit on file sizes."""

from __future__ import annotations

import os
import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from store_core.command.exit_code import ExitCode
from tests.builders import LogBuilder, Record
from tests.connector.called import append, rebuild_consume_queue, rebuild_index
from tests.store_core.command.calls import call
from tests.store_core.files.store_kinds import every_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SIZES = ["--consume-queue-file-size", "40000", "--hash-slot-num", "100", "--index-num", "4000"]
JOBS: dict[str, Callable[[list[str]], int]] = {
    "append": append,
    "rebuild_consume_queue": rebuild_consume_queue,
    "rebuild_index": rebuild_index,
}
CALLS = {
    "rows": ["cat", "STORE", "-o", "NEW/x.jsonl"],
    "parquet": ["cat", "STORE", "-o", "NEW/x.parquet"],
    "arrow": ["cat", "STORE", "-o", "NEW/x.arrow"],
    "page": ["bill", "STORE", "--html", "NEW/x.html"],
    "salvage": ["salvage", "STORE", "--into", "NEW/x"],
    "salvaged parquet": ["salvage", "STORE", "--into", "NEW/x", "--format", "parquet"],
    "redact": ["redact", "STORE", "--into", "NEW/x", "--text", "order"],
    "export": ["export", "STORE", "--into", "NEW"],
    "replay": ["replay", "STORE", "--topic", "orders", "--id", "x", "--into", "NEW"],
    "append": ["append", "NEW", "--parquet", "ROWS"],
    "append into a store": ["append", "STORE", "--parquet", "ROWS"],
    "rebuild": ["rebuild_consume_queue", "STORE", "--output", "NEW/x", *SIZES],
    "rebuild in place": ["rebuild_consume_queue", "STORE", "--replace", *SIZES],
    "index": ["rebuild_index", "STORE", "--output", "NEW/x", *SIZES],
}


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size: as a full disk, but for the number of the error."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def files_below(root: Path) -> dict[str, bytes]:
    """Return all files but locks, which stay for the next one who needs them."""
    return {path: data for path, data in every_file(root).items() if data is not None and not path.endswith("/lock")}


@pytest.mark.parametrize("limit", [0, 5000])
@pytest.mark.parametrize("name", CALLS)
def test_what_can_not_be_written_is_named_and_nothing_is_left(
    name: str, limit: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = LogBuilder(1 << 17)
    for each in range(300):
        log.append(Record(b"order " + os.urandom(200), "orders", {"KEYS": f"k-{each}"}))
    store, new, rows = log.write(tmp_path / "store"), tmp_path / "new", tmp_path / "rows"
    new.mkdir()
    pq.write_table(pa.table({"topic": ["orders"] * 300, "body": [os.urandom(100) for _ in range(300)]}), rows)
    before = files_below(tmp_path)
    places = {"STORE": str(store), "NEW": str(new), "ROWS": str(rows)}
    words = [
        word if (head := word.partition("/"))[0] not in places else places[head[0]] + "".join(head[1:])
        for word in CALLS[name]
    ]
    with file_size_limit(limit):
        if words[0] in JOBS:
            code, said = JOBS[words[0]](words[1:]), capsys.readouterr().err
        else:
            called = call(*words)
            code, said = called.code, called.errors

    assert ExitCode.FAILED == code, said
    assert f": {tmp_path}/" in said
    assert said.endswith("File too large. Raise the limit on the size of files (ulimit -f), and run this again\n")
    assert "/." not in said.replace("/.attempts/", "/")
    assert before == files_below(tmp_path)
