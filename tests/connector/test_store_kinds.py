# SPDX-License-Identifier: Apache-2.0
"""Stores of other kinds, and parts of stores, are refused by Spark's writers and the demo before any task runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyspark_commitlog import demo
from pyspark_commitlog.schema import dataframe_schema
from pyspark_commitlog.write.options import WriteOptions
from pyspark_commitlog.write.writer import plan_stream, plan_write
from store_core.errors import InvalidOptionError, StoreError, UnsupportedStoreError
from tests.connector.called import append, rebuild_consume_queue
from tests.store_core.files.store_kinds import add_dledger, add_rocksdb, every_file, ordinary_store

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = dataframe_schema(["topic", "body"], nullable=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return ordinary_store(tmp_path / "store")


def plan(path: Path, way: str) -> None:
    options = {"path": str(path), "overwriteStore": str(way == "overwrite"), "dryRun": str(way == "dry run")}
    given = WriteOptions.from_spark(options)
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
