# SPDX-License-Identifier: Apache-2.0
"""A store in an object store is a DataFrame, and no setting of it is shown anywhere."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException

from pyspark_commitlog.append_cli import append
from store_core import read_messages
from tests.object_store import SECRET, Faults, ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.golden_stores import UnpackedStore

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    """Provide a server for all tests of this module."""
    with ObjectStore() as running:
        yield running


def read(spark: SparkSession, url: str, settings: dict[str, str], **options: str) -> DataFrame:
    """Load a URL with settings as options."""
    named = {f"storage.{name}": value for name, value in settings.items()}
    return spark.read.format("commitlog").options(**named, **options).load(url)


def test_dataframe_of_a_url_is_that_of_the_directory(
    spark: SparkSession, server: ObjectStore, golden: Callable[[str], UnpackedStore]
) -> None:
    store = golden("5.3.3/tx")
    url = server.upload(store.root, "tx")
    server.faults = Faults(every=10)
    found = read(spark, url, server.settings)
    assert_df_equality(found, spark.read.format("commitlog").load(str(store.root)))


def test_settings_are_in_no_plan_and_no_error(
    spark: SparkSession, server: ObjectStore, golden: Callable[[str], UnpackedStore]
) -> None:
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


@pytest.mark.parametrize("view", ["topics", "consumequeue", "index"])
def test_view_of_a_url_is_that_of_the_directory(
    view: str, spark: SparkSession, server: ObjectStore, golden: Callable[[str], UnpackedStore]
) -> None:
    root = golden("5.3.3/tx").root
    url = server.upload(root, "views")
    server.faults = Faults(every=10)
    found = read(spark, url, server.settings, view=view)
    assert_df_equality(found, spark.read.format("commitlog").option("view", view).load(str(root)))
    server.faults = Faults()


def test_stream_of_a_url_goes_on_from_its_checkpoint(
    spark: SparkSession, server: ObjectStore, golden: Callable[[str], UnpackedStore], tmp_path: Path
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
    server: ObjectStore, golden: Callable[[str], UnpackedStore], tmp_path: Path, capfd: pytest.CaptureFixture[str]
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
