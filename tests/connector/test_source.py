# SPDX-License-Identifier: Apache-2.0
"""Reading through Spark: paths, schemas, SQL, options, and stores that grow."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

from pyspark_commitlog import CommitLogDataSource
from store_core.store.read.option_values import store_time
from tests.builders import BODY_AT, LogBuilder, Record
from tests.connector.stores import Reader, WrittenStore, plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


pytestmark = pytest.mark.spark


def test_a_store_can_be_named_in_many_ways(read: Reader, store: WrittenStore, tmp_path: Path) -> None:
    odd = shutil.copytree(store.root, tmp_path / "a store, größer 100% {x}" / "店")
    segments = [str(each) for each in sorted((store.root / "commitlog").iterdir(), reverse=True)]
    by_option = read.session.read.format("commitlog").options(path=str(store.root), columns="physical_offset").load()

    for path in (segments, odd, os.path.relpath(store.root)):
        assert store.offsets == read.offsets(path)
    assert store.offsets == [row.physical_offset for row in by_option.collect()]


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


def test_a_union_of_two_filters_of_one_dataframe_has_the_rows_of_both(read: Reader, store: WrittenStore) -> None:
    """Spark 4.3 shares filters pushed into a Python source among all scans of a DataFrame, so none are pushed."""
    base = read(store.root, columns="flag,topic")
    both = base.where("flag = 1").union(base.where("flag = 3"))

    assert sorted(row.flag for row in both.collect()) == [1, 3]


def test_a_store_without_records_is_an_empty_dataframe(read: Reader, tmp_path: Path) -> None:
    segment = tmp_path / "store" / "commitlog" / ("0" * 20)
    segment.parent.mkdir(parents=True)
    segment.write_bytes(bytes(4096))

    assert read(tmp_path / "store").collect() == []


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


# ---- options


SEGMENT = 4096


def tag(record: Record) -> str | None:
    assert not isinstance(record.properties, bytes)
    return record.properties.get("TAGS")


CASES: list[tuple[str, dict[str, Any], Callable[[Record], bool]]] = [
    ("a list of topics", {"topic": ["orders", "Zahlungen-ü"]}, lambda _: True),
    (
        "lists of queues and tags",
        {"queueId": [1], "tag": ["A", "C"]},
        lambda r: r.queue_id == 1 and tag(r) in ("A", "C"),
    ),
    (
        "filter by an expression",
        {"filter": "TAGS IN ('A','B') AND UNIQ_KEY <> 'uid9'", "filterType": "SQL92"},
        lambda r: tag(r) in ("A", "B") and r.flag != 9,
    ),
    ("key", {"key": "k7"}, lambda r: r.flag == 7),
    ("startingOffsets", {"startingOffsets": str(SEGMENT)}, lambda r: r.physical_offset >= SEGMENT),
    ("endingOffsets", {"endingOffsets": str(SEGMENT)}, lambda r: r.physical_offset < SEGMENT),
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


def test_store_times_bound_the_rows_and_win_over_offsets(read: Reader, store: WrittenStore) -> None:
    first, last = (str(store.records[number].store_timestamp) for number in (5, 30))
    found = read.offsets(store.root, startingTimestamp=first, endingTimestamp=last, startingOffsets=str(10**6))

    assert store.offsets[5:30] == found
    assert store.offsets[:30] == read.offsets(store.root, asOf=last)


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
