# SPDX-License-Identifier: Apache-2.0
"""Every option that selects rows or columns works through Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from store_core.store.read.store_time import store_time
from tests.builders import BODY_AT, LogBuilder, Record
from tests.connector.stores import Reader, WrittenStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


pytestmark = pytest.mark.spark

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
