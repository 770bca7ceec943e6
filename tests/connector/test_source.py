# SPDX-License-Identifier: Apache-2.0
"""Reading through Spark: paths, schemas, SQL, and queries that scan a store more than once."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

from pyspark_commitlog import CommitLogDataSource
from store_core.format.columns import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.connector.stores import Reader, WrittenStore

pytestmark = pytest.mark.spark

ALL = [column.name for column in COLUMNS]


def test_columns_on_request_come_with_the_others(read: Reader, store: WrittenStore) -> None:
    row = read(store.root, columns=",".join(ALL)).where("flag = 7").first()

    assert row is not None
    assert list(row.asDict()) == ALL
    assert (row.unique_key, row.tags, row["keys"]) == ("uid7", "B", ["k7", "all"])
    assert (row.transaction_type, row.compression, row._corrupt_record) == ("NOT_TYPE", "NONE", None)
    assert row.properties == {"TAGS": "B", "KEYS": "k7 all", "UNIQ_KEY": "uid7", "WAIT": "true"}
    assert (row.born_host, row.store_host) == ("[2001:db8::1]:1000", "192.168.1.2:10911")


@pytest.mark.parametrize("form", ["root", "commitlog", "commitlog/", "segments", "relative", "odd name", "option path"])
def test_a_store_can_be_named_in_many_ways(form: str, read: Reader, store: WrittenStore, tmp_path: Path) -> None:
    odd = tmp_path / "a store, größer 100% {x}" / "店"
    path: dict[str, str | list[str]] = {
        "commitlog": f"{store.root}/commitlog",
        "commitlog/": f"{store.root}/commitlog/",
        "segments": [str(each) for each in sorted((store.root / "commitlog").iterdir(), reverse=True)],
        "relative": os.path.relpath(store.root),
        "odd name": str(odd),
    }
    if form == "odd name":
        shutil.copytree(store.root, odd)
    if form == "option path":
        frame = read.session.read.format("commitlog").options(path=str(store.root), columns="physical_offset").load()
        assert store.offsets == [row.physical_offset for row in frame.collect()]
    else:
        assert store.offsets == read.offsets(path.get(form, str(store.root)))


def test_segments_on_several_disks_are_one_store(read: Reader, store: WrittenStore, tmp_path: Path) -> None:
    disks = [tmp_path / "disk 1", tmp_path / "Platte,ü"]
    for number, segment in enumerate(sorted((store.root / "commitlog").iterdir())):
        (disks[number % 2] / "commitlog").mkdir(parents=True, exist_ok=True)
        shutil.copy(segment, disks[number % 2] / "commitlog")

    assert store.offsets == read.offsets([str(disk) for disk in disks])


def test_single_properties_are_columns_that_equal_those_of_the_map(read: Reader, store: WrittenStore) -> None:
    names = ("TAGS", "KEYS", "none")
    rows = read(store.root, columns=",".join(["properties", *(f"property.{name}" for name in names)])).collect()

    assert rows
    assert [tuple(row.properties.get(name) for name in names) for row in rows] == [row[1:] for row in rows]


def test_names_in_a_schema_keep_the_user_s_spelling(read: Reader, store: WrittenStore) -> None:
    frame = read(store.root, "Body binary, TOPIC string NOT NULL, `msg_ID` string")

    assert list(frame.first().asDict()) == ["Body", "TOPIC", "msg_ID"]  # type: ignore[union-attr]
    assert frame.schema["TOPIC"].nullable is False


def test_a_schema_may_promise_elements_that_are_not_null(spark: SparkSession, store: WrittenStore) -> None:
    strict = StructType(
        [
            StructField("keys", ArrayType(StringType(), containsNull=False)),
            StructField("properties", MapType(StringType(), StringType(), valueContainsNull=False), nullable=False),
        ]
    )
    row = spark.read.format("commitlog").schema(strict).load(str(store.root)).collect()[1]

    assert row["keys"] == ["k1", "all"]
    assert row.properties["UNIQ_KEY"] == "uid1"


def test_sql_reads_a_temporary_view_with_options(spark: SparkSession, store: WrittenStore) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW orders USING commitlog OPTIONS (path '{store.root}', topic 'orders', columns 'topic,body')"  # noqa: E501
    )
    row = spark.sql("SELECT count(*) AS messages, sum(length(body)) AS bytes, max(topic) AS topic FROM orders").first()
    orders = [record for record in store.records if record.topic == "orders"]

    assert row is not None
    assert (len(orders), sum(len(record.body) for record in orders), "orders") == tuple(row)


def test_sql_takes_a_schema_for_a_view(spark: SparkSession, store: WrittenStore) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v (Body binary) USING commitlog OPTIONS (path '{store.root}')")

    assert [record.body for record in store.records] == [bytes(row.Body) for row in spark.table("v").collect()]


def test_a_union_of_two_filters_of_one_dataframe_has_the_rows_of_both(read: Reader, store: WrittenStore) -> None:
    """Spark 4.3 shares filters pushed into a Python source among all scans of a DataFrame, so none are pushed."""
    base = read(store.root, columns="flag,topic")
    both = base.where("flag = 1").union(base.where("flag = 3"))

    assert sorted(row.flag for row in both.collect()) == [1, 3]


def test_a_union_of_two_filters_of_one_view_has_the_rows_of_both(spark: SparkSession, store: WrittenStore) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW twice USING commitlog OPTIONS (path '{store.root}')")
    both = spark.sql("SELECT flag FROM twice WHERE flag = 1 UNION ALL SELECT flag FROM twice WHERE flag = 3")

    assert sorted(row.flag for row in both.collect()) == [1, 3]


def test_a_store_joins_with_itself(read: Reader, store: WrittenStore) -> None:
    base = read(store.root, columns="physical_offset,reconsume_times")
    again = base.withColumnRenamed("reconsume_times", "again")
    joined = base.join(again, "physical_offset")

    assert len(store.records) == joined.where("again = reconsume_times").count()


def test_a_store_without_records_is_an_empty_dataframe(read: Reader, tmp_path: Path) -> None:
    segment = tmp_path / "store" / "commitlog" / ("0" * 20)
    segment.parent.mkdir(parents=True)
    segment.write_bytes(bytes(4096))

    assert read(tmp_path / "store").collect() == []


def test_timestamps_are_instants_whatever_the_session_s_time_zone(
    spark: SparkSession, read: Reader, store: WrittenStore
) -> None:
    record = store.records[3]
    spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    try:
        row = (
            read(store.root)
            .where("flag = 3")
            .selectExpr(
                "unix_millis(store_timestamp) AS stored",
                "unix_millis(born_timestamp) AS born",
                "string(store_timestamp) AS shown",
            )
            .first()
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")

    assert row is not None
    assert (record.store_timestamp, record.born_timestamp) == (row.stored, row.born)
    assert row.shown.startswith("2023-11-14 18:43:20.")


def test_times_outside_the_calendar_are_null_and_their_numbers_are_there(
    read: Reader, field: Callable[[str], Path]
) -> None:
    columns = "keys,born_timestamp,born_timestamp_ms"
    rows = read(field("born-extreme") / "born" / "store", columns=columns).collect()
    numbers = {row["keys"][0]: row["born_timestamp_ms"] for row in rows}

    assert {row["keys"][0] for row in rows if row["born_timestamp"] is None} == {
        *("micros", "nanos", "max", "min", "y10000", "us-limit", "us-limit1")
    }
    assert (numbers["nanos"], numbers["min"]) == (1_700_000_000_000_000_000, -(1 << 63))


def test_the_source_can_be_registered_by_hand(spark: SparkSession, read: Reader, store: WrittenStore) -> None:
    spark.dataSource.register(CommitLogDataSource)

    assert store.offsets == read.offsets(store.root)


def test_each_segment_is_a_partition_unless_asked_otherwise(read: Reader, store: WrittenStore) -> None:
    assert read(store.root).rdd.getNumPartitions() == 3


def test_python_workers_are_reused_for_task_after_task(read: Reader, store: WrittenStore) -> None:
    frame = read(store.root, columns="physical_offset", minPartitions="6")

    assert [store.offsets] * 3 == [[row.physical_offset for row in frame.collect()] for _ in range(3)]
