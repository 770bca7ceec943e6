# SPDX-License-Identifier: Apache-2.0
"""Spark finds a log on other disks by the broker's configuration, and writes no log but the store's own."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_commitlog import answers
from store_core.command.exit_code import ExitCode
from tests.connector.called import append
from tests.golden_stores import find_golden_store, unpack
from tests.store_core.files.store_kinds import every_file

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

RECORDS = 323
TOPIC = "tx_topic"


@pytest.fixture
def apart(tmp_path: Path) -> Path:
    """Make a store with its log on two other disks, beside its configuration."""
    root = shutil.copytree(unpack(find_golden_store("5.3.3/tx"), tmp_path / "unpacked").root, tmp_path / "apart")
    disks = [tmp_path / "disks" / name / "commitlog" for name in "ab"]
    for disk, segment in zip(disks, sorted((root / "commitlog").iterdir()), strict=True):
        disk.mkdir(parents=True)
        shutil.move(segment, disk)
    (root / "commitlog").rmdir()
    (tmp_path / "broker.conf").write_text(
        "mappedFileSizeCommitLog=131072\nmappedFileSizeConsumeQueue=800\nmaxHashSlotNum=100\nmaxIndexNum=400\n"
        f"storePathRootDir={root}\nstorePathCommitLog={disks[0]},{disks[1]}\n"
    )
    return root


@pytest.fixture
def copy(apart: Path, tmp_path: Path) -> Path:
    """Copy that store with its log below its root."""
    root = shutil.copytree(apart, tmp_path / "copy")
    (root / "commitlog").mkdir()
    for segment in (tmp_path / "disks").glob("*/commitlog/*"):
        shutil.copy2(segment, root / "commitlog")
    return root


def rows_in(directory: Path) -> Path:
    path = directory / "rows.parquet"
    pq.write_table(pa.table({"topic": [TOPIC], "body": [b"new"]}), path)
    return path


def test_batches_streams_and_views_follow_the_configuration(spark: SparkSession, apart: Path, tmp_path: Path) -> None:
    conf = str(tmp_path / "broker.conf")
    batch = spark.read.format("commitlog").option("config", conf).load(str(apart))
    topics = spark.read.format("commitlog").options(config=conf, view="topics").load(str(apart))
    stream = spark.readStream.format("commitlog").option("config", conf).load(str(apart))
    query = (
        stream.writeStream.format("memory")
        .queryName("configured")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    assert RECORDS == batch.count() == spark.table("configured").count()
    assert {TOPIC} <= {row["topic"] for row in topics.where("max_offset > 0").collect()}


def test_answers_on_spark_follow_the_configuration(spark: SparkSession, apart: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"

    assert RECORDS == answers.check(spark, apart, config=conf).report.found.records
    assert RECORDS == answers.bill(spark, apart, config=conf).report.found.messages
    assert answers.transactions(spark, apart, config=conf).report.tables


def test_no_write_takes_another_log_than_the_stores_own(
    spark: SparkSession, copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = str(tmp_path / "broker.conf")
    rows = rows_in(tmp_path)
    frame = spark.createDataFrame([(TOPIC, b"new")], "topic string, body binary")
    before = every_file(copy), every_file(tmp_path / "disks")
    with pytest.raises(Exception, match="option storePathCommitLog"):
        frame.write.format("commitlog").mode("append").option("config", conf).save(str(copy))
    with pytest.raises(Exception, match="option storePathCommitLog"):
        answers.replay(spark, copy, "T-1", topic=TOPIC, config=conf)
    assert ExitCode.USAGE == append([str(copy), "--parquet", str(rows), "--config", conf])
    assert "option storePathCommitLog" in capsys.readouterr().err
    assert before == (every_file(copy), every_file(tmp_path / "disks"))

    own = str(copy / "commitlog")
    frame.write.format("commitlog").mode("append").options(config=conf, storePathCommitLog=own).save(str(copy))
    asked = [str(copy), "--parquet", str(rows), "--config", conf, "--store-path-commit-log", own]
    assert ExitCode.DONE == append(asked)
    assert before[1] == every_file(tmp_path / "disks")
    assert RECORDS + 2 == spark.read.format("commitlog").load(str(copy)).count()


def test_an_append_goes_to_the_log_on_other_disks(apart: Path, tmp_path: Path) -> None:
    rows = rows_in(tmp_path)
    asked = [str(apart), "--parquet", str(rows), "--config", str(tmp_path / "broker.conf")]

    assert ExitCode.DONE == append(asked)
    assert not (apart / "commitlog").exists()
    assert any(b"new" in path.read_bytes() for path in (tmp_path / "disks").glob("*/commitlog/*"))
