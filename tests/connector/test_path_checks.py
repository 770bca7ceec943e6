# SPDX-License-Identifier: Apache-2.0
"""Paths that can't be read or written are reported in one sentence before Spark is started."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

from pyspark_commitlog.append import check_source
from store_core.command.new_file import check_report
from store_core.errors import InvalidOptionError, StoreError, UnsupportedStoreError
from store_core.files.access import check_writable
from tests.builders import LogBuilder
from tests.connector.called import append, rebuild_consume_queue

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every attempt to start Spark fail with a missing Java, so that these tests would see another message."""
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    for name in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("JAVA_HOME", "/no/such/jdk")


@pytest.fixture
def without_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.json"
    path.write_text('{"topic": "t", "body": "x"}\n')
    return path


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["new", "--json", "nowhere.json"], "--json: no such path: '{here}/nowhere.json'. Give the file"),
        (["new", "--csv", "nowhere.csv"], "--csv: no such path"),
        (["new", "--parquet", "nowhere"], "--parquet: no such path"),
        (["new", "--from-store", "nowhere"], "no such path: '{here}/nowhere'"),
        (
            ["new", "--json", "rows.json", "--report", "nowhere/r.json"],
            "there is no directory {here}/nowhere. Create",
        ),
        (["new", "--json", "rows.json", "--report", "."], "it is a directory: expected a file for the report"),
        (
            ["rows.json/new", "--json", "rows.json"],
            "{here}/rows.json/new can't be created: {here}/rows.json is not a dir",
        ),
        (["rows.json", "--json", "rows.json"], "{here}/rows.json is not a directory. Give another path"),
    ],
)
def test_what_an_append_can_not_use_is_told_before_spark_is_started(
    arguments: list[str], says: str, rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = rows.parent
    given = [argument if argument.startswith("--") else str(here / argument) for argument in arguments]

    assert append(given) == 2
    told = capsys.readouterr().err
    assert says.format(here=here) in told
    assert told.count("\n") == 1
    assert [rows] == list(here.iterdir())


def test_a_wrong_option_of_reading_is_told_before_spark_is_started_and_before_a_wrong_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert append([str(tmp_path / "new"), "--from-store", str(tmp_path / "nowhere"), "--where", "a >"]) == 2
    assert "option filter" in capsys.readouterr().err


@pytest.mark.usefixtures("without_permission")
def test_missing_permissions_are_told_before_spark_is_started(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = LogBuilder(4096)
    log.append(b"x")
    store = log.write(tmp_path / "store")
    runs = [
        (functools.partial(append, [str(tmp_path / "new"), "--json", str(rows)]), f"{rows} can't be read"),
        (
            functools.partial(append, [str(tmp_path / "new"), "--from-store", str(store)]),
            f"{tmp_path} can't be written",
        ),
        (functools.partial(rebuild_consume_queue, [str(store)]), f"{store} can't be written"),
        (functools.partial(rebuild_consume_queue, [str(store), "--json", str(tmp_path / "r")]), "it can't be written"),
    ]

    for run, says in runs:
        assert run() == 3
        assert says in capsys.readouterr().err


def test_a_report_of_a_rebuild_needs_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = LogBuilder(4096)
    log.append(b"x")
    store = log.write(tmp_path / "store")

    assert rebuild_consume_queue([str(store), "--verify", "--json", str(tmp_path / "nowhere" / "r.json")]) == 2
    assert "Create it, or give another file" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["hdfs:/rows", "s3a://bucket/rows", "rows-*.json", "{a,b}.json", "a.json,b.json"])
def test_paths_that_only_spark_can_look_up_are_left_to_it(path: str) -> None:
    check_source("--json", path)


def test_paths_are_looked_up_where_spark_looks_by_default(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_source("--json", f"file://{rows}")
    with pytest.raises(StoreError):
        check_source("--json", f"file:{rows}s")
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    check_source("--json", f"{rows}s")


def test_what_can_be_written_passes(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "store")
    check_report("--report", str(tmp_path / "report.json"))
    check_report("--report", "-")
    check_report("--report", None)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InvalidOptionError, match="is not a directory"):
        check_writable(tmp_path / "dangling")


def test_an_archive_is_not_written_to(tmp_path: Path) -> None:
    archive = tmp_path / "backup.tar.gz"
    archive.touch()
    for path in (archive, archive / "store"):
        with pytest.raises(UnsupportedStoreError, match=f"{archive} is an archive.*Unpack it"):
            check_writable(path)


def test_a_directory_that_goes_with_a_session_of_spark_connect_is_not_written_to(tmp_path: Path) -> None:
    name = "01234567-89ab-cdef-0123-456789abcdef"
    directory = tmp_path / f"spark-{name}" / f"userFiles-{name}" / "session"
    directory.mkdir(parents=True)
    with pytest.raises(InvalidOptionError, match=r"deleted with the session: expected an absolute path"):
        check_writable(directory / "store")
