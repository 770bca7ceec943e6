# SPDX-License-Identifier: Apache-2.0
"""A store in an object store is a DataFrame, and no setting of it is shown anywhere."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException

from pyspark_commitlog.command import main
from store_core import read_messages
from tests.connector.called import append
from tests.connector.submitting import SECONDS, environment
from tests.object_store import SECRET, Faults, ObjectStore

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.golden_stores import Golden

pytestmark = pytest.mark.spark


def read(spark: SparkSession, url: str, settings: dict[str, str], **options: str) -> DataFrame:
    """Load a URL with settings as options."""
    named = {f"storage.{name}": value for name, value in settings.items()}
    return spark.read.format("commitlog").options(**named, **options).load(url)


def test_dataframe_of_a_url_is_that_of_the_directory(spark: SparkSession, server: ObjectStore, golden: Golden) -> None:
    store = golden("5.3.3/tx")
    url = server.upload(store.root, "tx")
    server.faults = Faults(every=10)
    found = read(spark, url, server.settings)
    assert_df_equality(found, spark.read.format("commitlog").load(str(store.root)))


def test_settings_are_in_no_plan_and_no_error(spark: SparkSession, server: ObjectStore, golden: Golden) -> None:
    url = server.upload(golden("5.3.3/tx").root, "hidden")
    frame = read(spark, url, server.settings)
    plan = io.StringIO()
    with redirect_stdout(plan):
        frame.explain("extended")
    with pytest.raises(PySparkException) as caught:
        read(spark, f"{url}-gone", server.settings).count()
    assert SECRET not in plan.getvalue()
    assert SECRET not in str(caught.value)
    assert f"{url}-gone" in str(caught.value)


def test_view_of_a_url_is_that_of_the_directory(spark: SparkSession, server: ObjectStore, golden: Golden) -> None:
    root = golden("5.3.3/tx").root
    url = server.upload(root, "views")
    server.faults = Faults(every=10)
    found = read(spark, url, server.settings, view="topics")
    assert_df_equality(found, spark.read.format("commitlog").option("view", "topics").load(str(root)))


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


def test_spark_keeps_no_secret_in_its_logs_and_files(server: ObjectStore, golden: Golden, tmp_path: Path) -> None:
    url = server.upload(golden("5.3.3/tx").root, "logged")
    server.faults = Faults(every=10)
    command = [sys.executable, "-m", "tests.connector.secret_trial", url, json.dumps(server.settings), str(tmp_path)]
    done = subprocess.run(  # noqa: S603 -- our own program
        command, env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    shown = done.stdout + done.stderr
    assert (0, 3) == (done.returncode, done.stdout.count("failed: ")), shown[-3000:]
    assert "of 8 follows" in done.stderr  # the log of a worker, too
    assert SECRET not in shown
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any("events" in path.parts for path in kept)
    assert not [path for path in kept if SECRET.encode() in path.read_bytes()]


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


@pytest.mark.parametrize("column", ["topic", "physical_offset"])
def test_dataframe_of_a_look_up_in_a_url_is_the_filtered_one(
    column: str, spark: SparkSession, server: ObjectStore, golden: Golden
) -> None:
    root = golden("5.3.3/tx").root
    url = server.upload(root, "look-up")
    options = {"topic": "topic", "physical_offset": "physicalOffset"}
    row = spark.read.format("commitlog").load(str(root)).orderBy("physical_offset").collect()[-1]
    found = read(spark, url, server.settings, **{options[column]: str(row[column])})
    expected = spark.read.format("commitlog").load(str(root)).where(f"{column} = '{row[column]}'")
    assert not expected.isEmpty()
    assert_df_equality(found.orderBy("physical_offset"), expected.orderBy("physical_offset"))
