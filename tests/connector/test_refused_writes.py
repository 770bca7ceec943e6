# SPDX-License-Identifier: Apache-2.0
"""Writes that can't be: of stores of other kinds before any task runs, and on full disks, where nothing is left."""

from __future__ import annotations

import os
import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_commitlog import demo
from pyspark_commitlog.reader import dataframe_schema
from pyspark_commitlog.write.options import WriteOptions
from pyspark_commitlog.write.writer import plan_stream, plan_write
from store_core.command.exit_code import ExitCode
from store_core.errors import InvalidOptionError, StoreError, UnsupportedStoreError
from tests.builders import LogBuilder, Record
from tests.connector.called import append, rebuild_consume_queue, rebuild_index
from tests.store_core.command.calls import call
from tests.store_core.files.store_kinds import add_dledger, add_rocksdb, every_file, ordinary_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


SCHEMA = dataframe_schema(["topic", "body"], nullable=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return ordinary_store(tmp_path / "store")


def plan(path: Path, way: str, **more: str) -> None:
    options = {"path": str(path), "overwriteStore": str(way == "overwrite"), "dryRun": str(way == "dry run")}
    given = WriteOptions.from_spark(options | more)
    if way == "stream":
        plan_stream(given, SCHEMA, overwrite=False)
    else:
        plan_write(given, SCHEMA, overwrite=way == "overwrite")


@pytest.mark.parametrize("way", ["append", "overwrite", "dry run", "stream"])
@pytest.mark.parametrize("kind", ["dledger", "rocksdb", "commitlog", "above"])
def test_writing_is_refused_before_anything_is_staged(root: Path, way: str, kind: str) -> None:
    expected: type[StoreError] = UnsupportedStoreError
    target = root
    if kind == "dledger":
        add_dledger(root)
    elif kind == "rocksdb":
        (root / "consumequeue").rename(root.parent / "elsewhere")
        add_rocksdb(root / "consumequeue")
    else:
        expected, target = InvalidOptionError, root / "commitlog" if kind == "commitlog" else root.parent
    before = every_file(root)

    with pytest.raises(expected, match=str(root)):
        plan(target, way)

    assert before == every_file(root)


@pytest.mark.parametrize("way", ["append", "overwrite", "dry run", "stream"])
@pytest.mark.parametrize("name", ["maxIndexNum=1", "maxIndexNum=200m", "maxHashSlotNum=600m", "config"])
def test_sizes_that_make_no_index_file_are_refused_before_any_task_runs(tmp_path: Path, way: str, name: str) -> None:
    option, _, value = name.partition("=")
    (tmp_path / "broker.conf").write_text("maxIndexNum=1\n")

    with pytest.raises(InvalidOptionError, match="make no index file"):
        plan(tmp_path / "store", way, **{option: value or str(tmp_path / "broker.conf")})
    assert ["broker.conf"] == [path.name for path in tmp_path.iterdir()]


def test_append_refuses_a_directory_of_others_files_before_spark_is_started(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = every_file(root.parent)

    assert 2 == append([str(root.parent), "--from-store", str(root), "--spark"])
    assert f"A store may be at {root}" in capsys.readouterr().err
    assert before == every_file(root.parent)


def test_the_demo_refuses_the_logs_of_two_members_before_spark_is_started(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    members = [add_dledger(root, name).parent for name in ("n0", "n1")]

    assert 4 == demo.main([str(root)])
    told = capsys.readouterr().err.replace("\n", " ")
    assert all(str(member) in told for member in members)


@pytest.mark.parametrize("name", ["index", "consumequeue"])
def test_a_rebuild_names_a_file_in_the_place_of_a_directory(
    root: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if (root / name).exists():
        (root / name).rename(root.parent / name)
    (root / name).touch()
    before = every_file(root)

    assert 3 == rebuild_consume_queue([str(root), "--with-index", "--replace"])
    assert f"{root / name}: expected a directory" in capsys.readouterr().err
    assert before == every_file(root)


# ---- full disks


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
