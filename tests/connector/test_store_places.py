# SPDX-License-Identifier: Apache-2.0
"""Stores elsewhere: in an object store, of which no setting is shown anywhere, and with a log on other disks."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chispa import assert_df_equality

from pyspark_commitlog import answers
from pyspark_commitlog.command import main
from store_core import read_messages
from store_core.command.exit_code import ExitCode
from tests.connector.called import append
from tests.connector.processes import run_program
from tests.golden_stores import find_golden_store, unpack
from tests.object_store import SECRET, Faults, ObjectStore
from tests.store_core.files.store_kinds import every_file, spread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.golden_stores import Golden


def frame_of(spark: SparkSession, url: str, settings: dict[str, str], **options: str) -> DataFrame:
    """Load a URL with settings as options."""
    named = {f"storage.{name}": value for name, value in settings.items()}
    return spark.read.format("commitlog").options(**named, **options).load(url)


@pytest.mark.spark
@pytest.mark.parametrize("options", [{}, {"view": "topics"}], ids=["messages", "view"])
def test_dataframe_of_a_url_is_that_of_the_directory(
    options: dict[str, str], spark: SparkSession, server: ObjectStore, golden: Golden
) -> None:
    root = golden("5.3.3/tx").root
    url = server.upload(root, "tx")
    server.faults = Faults(every=10)
    found = frame_of(spark, url, server.settings, **options)
    assert_df_equality(found, spark.read.format("commitlog").options(**options).load(str(root)))


@pytest.mark.spark
def test_stream_of_a_url_goes_on_from_its_checkpoint(
    spark: SparkSession, server: ObjectStore, golden: Golden, tmp_path: Path
) -> None:
    store = golden("5.3.3/tx")
    first, *others = store.segments
    server.put(f"stream/commitlog/{first.name}", first.read_bytes())
    named = {f"storage.{name}": value for name, value in server.settings.items()}

    def run() -> None:
        rows = spark.readStream.format("commitlog").options(**named, columns="physical_offset")
        query = (
            rows.load(f"s3://{server.bucket}/stream")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("path", str(tmp_path / "rows"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    for segment in others:
        server.put(f"stream/commitlog/{segment.name}", segment.read_bytes())
    run()
    found = spark.read.parquet(str(tmp_path / "rows")).orderBy("physical_offset")
    assert_df_equality(
        found, spark.read.format("commitlog").option("columns", "physical_offset").load(str(store.root)),
        ignore_nullable=True,
    )  # fmt: skip
    kept = [path for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if SECRET.encode() in path.read_bytes()]


@pytest.mark.spark
def test_messages_of_a_url_are_appended_to_a_store(
    server: ObjectStore, golden: Golden, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    root = golden("5.3.3/tx").root
    url = server.upload(root, "source")
    settings = [f"--read-option=storage.{name}={value}" for name, value in server.settings.items()]
    new = tmp_path / "new"
    topic = next(iter(read_messages(root, columns=["topic"]).read_all()["topic"].unique().to_pylist()))
    assert append([str(new), "--from-store", url, "--topic", topic, "--to-topic", "copied", *settings]) == 0
    expected = read_messages(root, columns=["topic"], topic=topic).read_all().num_rows
    assert expected == read_messages(new, columns=["topic"]).read_all().num_rows
    assert SECRET not in "".join(capfd.readouterr())
    refused = append([url, "--from-store", str(root), "--topic", topic])
    assert (refused, "local disk" in capfd.readouterr().err) == (4, True)


@pytest.mark.spark
def test_spark_keeps_no_secret_in_its_logs_and_files(server: ObjectStore, golden: Golden, tmp_path: Path) -> None:
    url = server.upload(golden("5.3.3/tx").root, "logged")
    server.faults = Faults(every=10)
    words = ("log", url, json.dumps(server.settings), tmp_path)
    done = run_program(tmp_path, sys.executable, Path(__file__).with_name("spark_trial.py"), *words)
    shown = done.stdout + done.stderr
    assert (0, 3) == (done.returncode, done.stdout.count("failed: ")), shown[-3000:]
    assert f"{url}-gone" in done.stdout.partition("failed: ")[2]
    assert "== Optimized Logical Plan ==" in done.stdout
    assert "of 8 follows" in done.stderr  # the log of a worker, too
    assert SECRET not in shown
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any("events" in path.parts for path in kept)
    assert not [path for path in kept if SECRET.encode() in path.read_bytes()]


@pytest.mark.spark
def test_jobs_answer_about_a_url_as_about_the_directory(
    server: ObjectStore,
    spark: SparkSession,
    golden: Golden,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert spark.sparkContext.master == "local[2]"
    root = golden("5.3.3/tx").root
    url = server.upload(root, "asked")
    storage = ",".join(f"{name}={value}" for name, value in server.settings.items())
    reports = {}
    for name, given in {"url": [url, "--storage", storage], "directory": [str(root)]}.items():
        assert main(["check", *given, "--release", "5.3", "--json"]) == 0
        reports[name] = capfd.readouterr()
    found, expected = ({**json.loads(reports[name].out), "store": None} for name in ("url", "directory"))
    assert expected["records"] > 0
    assert {**expected, "seconds": None} == {**found, "seconds": None}
    assert main(["diff", str(root), url, "--storage", storage, "--by", "records"]) == 0
    assert main(["diff", str(root), f"{url}-gone", "--storage", storage]) == 2
    assert SECRET not in "".join(each for kept in (*reports.values(), capfd.readouterr()) for each in kept)


@pytest.mark.spark
@pytest.mark.parametrize("column", ["topic", "physical_offset"])
def test_dataframe_of_a_look_up_in_a_url_is_the_filtered_one(
    column: str, spark: SparkSession, server: ObjectStore, golden: Golden
) -> None:
    root = golden("5.3.3/tx").root
    url = server.upload(root, "look-up")
    options = {"topic": "topic", "physical_offset": "physicalOffset"}
    row = spark.read.format("commitlog").load(str(root)).orderBy("physical_offset").collect()[-1]
    found = frame_of(spark, url, server.settings, **{options[column]: str(row[column])})
    expected = spark.read.format("commitlog").load(str(root)).where(f"{column} = '{row[column]}'")
    assert not expected.isEmpty()
    assert_df_equality(found.orderBy("physical_offset"), expected.orderBy("physical_offset"))


# ---- a log on other disks


RECORDS = 323
TOPIC = "tx_topic"


@pytest.fixture
def apart(tmp_path: Path) -> Path:
    """Make a store with its log on two other disks, beside its configuration."""
    root = shutil.copytree(unpack(find_golden_store("5.3.3/tx"), tmp_path / "unpacked").root, tmp_path / "apart")
    disks = [tmp_path / "disks" / name / "commitlog" for name in "ab"]
    spread(root, disks)
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
