# SPDX-License-Identifier: Apache-2.0
"""Reading through Spark: paths, schemas, SQL, options, and stores that grow."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

from pyspark_commitlog import CommitLogDataSource
from store_core.format.columns import COLUMNS
from store_core.store.read.option_values import store_time
from tests.builders import BODY_AT, LogBuilder, Record
from tests.connector.stores import Reader, WrittenStore, plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


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


# ---- options


SEGMENT = 4096


def tag(record: Record) -> str | None:
    assert not isinstance(record.properties, bytes)
    return record.properties.get("TAGS")


CASES: list[tuple[str, dict[str, Any], Callable[[Record], bool]]] = [
    ("topics", {"topic": "orders, Zahlungen-ü"}, lambda _: True),
    ("a list of topics", {"topic": ["orders", "Zahlungen-ü"]}, lambda _: True),
    (
        "lists of queues and tags",
        {"queueId": [1], "tag": ["A", "C"]},
        lambda r: r.queue_id == 1 and tag(r) in ("A", "C"),
    ),
    ("topicsPattern", {"topicsPattern": "Zahlungen-."}, lambda r: r.topic == "Zahlungen-ü"),
    ("queueId", {"queueId": "1"}, lambda r: r.queue_id == 1),
    ("tag", {"tag": "A"}, lambda r: tag(r) == "A"),
    (
        "filter by an expression",
        {"filter": "TAGS IN ('A','B') AND UNIQ_KEY <> 'uid9'", "filterType": "SQL92"},
        lambda r: tag(r) in ("A", "B") and r.flag != 9,
    ),
    ("key", {"key": "k7"}, lambda r: r.flag == 7),
    ("the unique key", {"key": "uid9"}, lambda r: r.flag == 9),
    ("startingOffsets", {"startingOffsets": str(SEGMENT)}, lambda r: r.physical_offset >= SEGMENT),
    ("endingOffsets", {"endingOffsets": str(SEGMENT)}, lambda r: r.physical_offset < SEGMENT),
    ("behind the log", {"startingOffsets": str(10**9)}, lambda _: False),
]


@pytest.mark.parametrize(("options", "holds"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_an_option_leaves_the_rows_that_it_is_for(
    read: Reader, store: WrittenStore, options: dict[str, str], holds: Callable[[Record], bool]
) -> None:
    assert [record.physical_offset for record in store.records if holds(record)] == read.offsets(store.root, **options)


def test_queue_offsets_narrow_the_queues_that_they_name(read: Reader, store: WrittenStore) -> None:
    start, end = json.dumps({"orders": {"0": 3, "1": -2}}), json.dumps({"orders": {"0": 7}, "Zahlungen-ü": {"1": -1}})
    expected = [
        record.physical_offset
        for record in store.records
        if (record.topic, record.queue_id) != ("orders", 0) or 3 <= record.queue_offset < 7
    ]

    assert expected == read.offsets(store.root, startingOffsets=start, endingOffsets=end)


@pytest.mark.parametrize("as_text", [str, lambda ms: datetime.fromtimestamp(ms / 1000, UTC).isoformat()])
def test_store_times_bound_the_rows_and_win_over_offsets(
    read: Reader, store: WrittenStore, as_text: Callable[[int], str]
) -> None:
    first, last = store.records[5].store_timestamp, store.records[30].store_timestamp
    found = read.offsets(
        store.root, startingTimestamp=as_text(first), endingTimestamp=as_text(last), startingOffsets=str(10**6)
    )

    assert store.offsets[5:30] == found
    assert store.offsets[:30] == read.offsets(store.root, asOf=as_text(last))


@pytest.fixture
def shanghai(spark: SparkSession) -> Iterator[ZoneInfo]:
    """Put the session into the time zone of Shanghai."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Shanghai")
    yield ZoneInfo("Asia/Shanghai")
    spark.conf.set("spark.sql.session.timeZone", str(zone))


def shown(time: int, zone: ZoneInfo) -> str:
    """Return what a clock in a zone shows at a store time."""
    return datetime.fromtimestamp(time / 1000, zone).replace(tzinfo=None).isoformat()


@pytest.mark.usefixtures("shanghai")
def test_option_time_zone_wins_over_that_of_the_session(read: Reader, store: WrittenStore) -> None:
    first = shown(store.records[5].store_timestamp, ZoneInfo("Europe/Berlin"))

    assert store.offsets[5:] == read.offsets(store.root, startingTimestamp=first, timeZone="Europe/Berlin")


def test_a_time_that_is_skipped_or_shown_twice_means_what_it_means_to_spark(spark: SparkSession) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
        for text in ("2024-03-31T02:30:00", "2024-10-27T02:30:00"):
            row = spark.sql(f"SELECT unix_millis(TIMESTAMP '{text}')").first()
            assert row is not None

            assert store_time("starting_timestamp", text, berlin) == row[0]
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))


@pytest.mark.parametrize("split", [{"maxPartitionBytes": "300"}, {"maxPartitionBytes": "1k"}, {"minPartitions": "17"}])
def test_splits_inside_segments_give_every_record_once(
    read: Reader, store: WrittenStore, split: dict[str, str]
) -> None:
    frame = read(store.root, columns="physical_offset", **split)

    assert frame.rdd.getNumPartitions() >= 9
    assert store.offsets == [row.physical_offset for row in frame.collect()]


@pytest.fixture
def damaged(tmp_path: Path) -> WrittenStore:
    """Return a store with a byte of one body changed, in the middle of the log."""
    log = LogBuilder(SEGMENT)
    log.append_all(*(f"body {number}".encode() for number in range(12)), topic="orders")
    log.flip(log.records[6].physical_offset + BODY_AT)
    return WrittenStore(log.write(tmp_path / "damaged"), log)


def test_permissive_gives_the_damaged_record_a_row_of_its_own(read: Reader, damaged: WrittenStore) -> None:
    frame = read(damaged.root, mode="PERMISSIVE")
    bad = frame.where("_corrupt_record IS NOT NULL").collect()
    broken = damaged.records[6]

    assert all(field.nullable for field in frame.schema)
    assert len(damaged.records) == frame.count()
    assert [broken.size] == [len(row._corrupt_record) for row in bad]
    assert [row.topic for row in bad] == [None]


def test_permissive_takes_a_schema(read: Reader, damaged: WrittenStore) -> None:
    frame = read(damaged.root, "Body binary, _Corrupt_Record binary", mode="PERMISSIVE")

    assert [place for place, row in enumerate(frame.collect()) if row.Body is None] == [6]


# ---- a store that a broker keeps writing


SMALL_SEGMENT = 2048


def offsets(frame: DataFrame) -> list[int]:
    return [row.physical_offset for row in frame.collect()]


@pytest.fixture
def log() -> LogBuilder:
    log = LogBuilder(SMALL_SEGMENT)
    log.fill(1)
    log.append_all(*[b"x" * 50] * 3)
    return log


def test_what_is_appended_and_rolled_behind_the_plan_is_not_read(read: Reader, log: LogBuilder, tmp_path: Path) -> None:
    root = log.write(tmp_path / "store", preallocated=1)
    planned, before = plan(read(root)), [record.physical_offset for record in log.records]
    log.fill(2)
    log.write(root)

    assert before == offsets(planned)
    assert [record.physical_offset for record in log.records] == offsets(read(root))


def test_a_second_action_reads_the_same_log(read: Reader, log: LogBuilder, tmp_path: Path) -> None:
    root = log.write(tmp_path / "store")
    frame = read(root)
    first = offsets(frame)
    log.append(b"later")
    log.write(root)

    assert first == offsets(frame)
