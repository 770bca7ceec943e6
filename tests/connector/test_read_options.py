# SPDX-License-Identifier: Apache-2.0
"""Every option that selects rows or columns works through Spark."""

from __future__ import annotations

import json
import zlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from chispa import assert_df_equality

from store_core.store.read.store_time import store_time
from tests.builders import BODY_AT, LogBuilder, Record
from tests.connector.stores import Reader, WrittenStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


pytestmark = pytest.mark.spark

SEGMENT = 4096
COMPRESSED_FLAG = 0x1


def tag(record: Record) -> str | None:
    assert not isinstance(record.properties, bytes)
    return record.properties.get("TAGS")


CASES: list[tuple[str, dict[str, Any], Callable[[Record], bool]]] = [
    ("one topic", {"topic": "orders"}, lambda r: r.topic == "orders"),
    ("topics", {"topic": "orders, Zahlungen-ü"}, lambda _: True),
    ("a list of topics", {"topic": ["orders", "Zahlungen-ü"]}, lambda _: True),
    (
        "lists of queues and tags",
        {"queueId": [1], "tag": ["A", "C"]},
        lambda r: r.queue_id == 1 and tag(r) in ("A", "C"),
    ),
    ("a topic that is not there", {"topic": "order"}, lambda _: False),
    ("topicsPattern", {"topicsPattern": "Zahlungen-."}, lambda r: r.topic == "Zahlungen-ü"),
    ("topicsPattern is for the whole topic", {"topicsPattern": "order"}, lambda _: False),
    ("queueId", {"queueId": "1"}, lambda r: r.queue_id == 1),
    ("queueIds", {"queueId": "0,1"}, lambda _: True),
    ("topic and queueId", {"topic": "orders", "queueId": "0"}, lambda r: (r.topic, r.queue_id) == ("orders", 0)),
    ("tag", {"tag": "A"}, lambda r: tag(r) == "A"),
    ("tags", {"tag": "A || C"}, lambda r: tag(r) in ("A", "C")),
    ("all tags", {"tag": "*"}, lambda _: True),
    ("filter by tags", {"filter": "A || C"}, lambda r: tag(r) in ("A", "C")),
    ("filter of all tags", {"filter": "*"}, lambda _: True),
    (
        "filter by an expression",
        {"filter": "TAGS IN ('A','B') AND UNIQ_KEY <> 'uid9'", "filterType": "SQL92"},
        lambda r: tag(r) in ("A", "B") and r.flag != 9,
    ),
    (
        "filter and topic",
        {"filter": "TAGS IS NULL OR KEYS STARTSWITH 'k1'", "filterType": "sql92", "topic": "orders"},
        lambda r: r.topic == "orders" and (tag(r) is None or r.flag == 1 or 10 <= r.flag < 20),
    ),
    ("a filter that fails on all", {"filter": "KEYS > 5", "filterType": "SQL92"}, lambda _: False),
    ("key", {"key": "k7"}, lambda r: r.flag == 7),
    ("a key of many", {"key": "all"}, lambda r: tag(r) is not None),
    ("the unique key", {"key": "uid9"}, lambda r: r.flag == 9),
    ("startingOffsets", {"startingOffsets": str(SEGMENT)}, lambda r: r.physical_offset >= SEGMENT),
    ("endingOffsets", {"endingOffsets": str(SEGMENT)}, lambda r: r.physical_offset < SEGMENT),
    ("the whole log", {"startingOffsets": "earliest", "endingOffsets": "latest"}, lambda _: True),
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


def test_times_without_a_zone_are_in_that_of_the_session(read: Reader, store: WrittenStore, shanghai: ZoneInfo) -> None:
    first, last = (shown(store.records[number].store_timestamp, shanghai) for number in (5, 30))

    assert store.offsets[5:30] == read.offsets(store.root, startingTimestamp=first, endingTimestamp=last)
    assert store.offsets[5:] == read.offsets(store.root, startingTimestamp=first, startingOffsets=str(10**6))


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


def test_the_same_rows_come_whatever_the_split(read: Reader, store: WrittenStore) -> None:
    assert_df_equality(read(store.root), read(store.root, minPartitions="11", maxRecordsPerBatch="3"))


@pytest.fixture
def damaged(tmp_path: Path) -> WrittenStore:
    """Return a store with a byte of one body changed, in the middle of the log."""
    log = LogBuilder(SEGMENT)
    log.append_all(*(f"body {number}".encode() for number in range(12)), topic="orders")
    log.flip(log.records[6].physical_offset + BODY_AT)
    return WrittenStore(log.write(tmp_path / "damaged"), log)


def test_dropmalformed_leaves_the_damaged_record_out(read: Reader, damaged: WrittenStore) -> None:
    sound = damaged.offsets[:6] + damaged.offsets[7:]
    rows = read(damaged.root, mode="dropMalformed").collect()

    assert sound == [row.physical_offset for row in rows]


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


def test_without_the_crc_the_damaged_body_is_read_as_it_is(read: Reader, damaged: WrittenStore) -> None:
    assert damaged.offsets == read.offsets(damaged.root)  # no body was requested
    assert len(damaged.records) == read(damaged.root, verifyCrc="false").count()


def test_bodies_are_decompressed_on_request(spark: SparkSession, read: Reader, tmp_path: Path) -> None:
    log = LogBuilder(SEGMENT)
    packed = zlib.compress(b"a long body " * 50)
    log.append(Record(packed, sys_flag=COMPRESSED_FLAG))
    log.append(Record(b"plain"))
    root = log.write(tmp_path / "store")
    as_stored, expanded = (
        spark.createDataFrame([("ZLIB", body), ("NONE", b"plain")], "compression string, body binary not null")
        for body in (packed, b"a long body " * 50)
    )

    assert_df_equality(as_stored, read(root, columns="compression,body"))
    assert_df_equality(expanded, read(root, columns="compression,body", decompress="true"))


def test_properties_are_parsed_by_the_rules_of_the_release(read: Reader, tmp_path: Path) -> None:
    log = LogBuilder(SEGMENT)
    log.append(Record(b"x", properties=b"a\x01b\x01c\x02d\x01e\x02"))
    root = log.write(tmp_path / "store")
    parsed = {release: read(root, release=release).collect()[0].properties for release in ("4.3", "4.9", "5.3")}

    assert parsed == {"4.3": {"d": "e"}, "4.9": {"a": "b\x01c", "d": "e"}, "5.3": {"a": "b\x01c", "d": "e"}}


def test_a_missing_segment_is_skipped_if_data_loss_is_no_failure(read: Reader, tmp_path: Path) -> None:
    log = LogBuilder(SEGMENT)
    log.fill(3)
    root = log.write(tmp_path / "store")
    (root / "commitlog" / f"{SEGMENT:020d}").unlink()
    left = [r.physical_offset for r in log.records if not SEGMENT <= r.physical_offset < 2 * SEGMENT]

    assert left == read.offsets(root, failOnDataLoss="false")
