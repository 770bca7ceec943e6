# SPDX-License-Identifier: Apache-2.0
"""Several stores as one DataFrame, one stream and one answer, each told by its name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_commitlog.append import AppendSource, append
from pyspark_commitlog.source import CommitLogDataSource
from pyspark_commitlog.stream import HAS_LIMITS, CommitLogStreamReader, ReadAllAvailable, bytes_behind
from store_core import read_messages
from store_core.errors import InvalidOptionError
from store_core.store.read.follow.log_follower import _shares
from tests.builders import LogBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.connector.stores import Reader

    Rows = list[tuple[str, int]]

needs_limits = pytest.mark.skipif(not HAS_LIMITS, reason="PySpark 4.1 has no limits")


class Cluster:
    """Two brokers' stores that grow, ``broker-a`` and ``broker-b``, with segments of the same names."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.logs = {name: LogBuilder(4096) for name in ("broker-a", "broker-b")}
        self.append("broker-a", 60)
        self.append("broker-b", 35)

    def root(self, name: str) -> Path:
        return self.directory / name / "store"

    @property
    def paths(self) -> list[str]:
        return [str(self.root(name)) for name in self.logs]

    @property
    def rows(self) -> Rows:
        return [(name, record.physical_offset) for name, log in self.logs.items() for record in log.records]

    def append(self, name: str, count: int) -> None:
        log = self.logs.setdefault(name, LogBuilder(4096))
        for number in range(count):
            log.append(b"%d" % number * 20, topic="odd" if number % 2 else "even", queue_id=number % 4)
        log.write(self.root(name), preallocated=1)
        self.root(name).joinpath("checkpoint").touch()

    def reader(self, *names: str, **options: str) -> CommitLogStreamReader:
        paths = json.dumps([str(self.root(name)) for name in names or self.logs])
        source = CommitLogDataSource({"paths": paths, "columns": "store,physical_offset", **options})
        reader = source.streamReader(source.schema())
        assert isinstance(reader, CommitLogStreamReader)
        return reader


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "data")


def rows_of(reader: CommitLogStreamReader, start: dict[str, Any], end: dict[str, Any]) -> Rows:
    def read() -> Iterator[tuple[str, int]]:
        for part in reader.partitions(json.loads(json.dumps(start)), json.loads(json.dumps(end))):
            for batch in reader.read(part):
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    return list(read())


# ---- batches


@pytest.mark.parametrize("form", ["list", "commas", "pattern"])
def test_stores_are_one_frame_with_partitions_of_each(read: Reader, cluster: Cluster, form: str) -> None:
    path: dict[str, str | list[str]] = {
        "list": cluster.paths,
        "commas": ",".join(cluster.paths),
        "pattern": f"{cluster.directory}/*/store",
    }
    frame = read(path[form], columns="store,physical_offset")
    segments = sum(len(log.segments()) for log in cluster.logs.values())

    assert cluster.rows == [tuple(row) for row in frame.collect()]
    assert segments == frame.rdd.getNumPartitions()


def test_the_name_of_a_store_is_a_column_on_request_only(read: Reader, cluster: Cluster) -> None:
    frame = read(cluster.paths, topic="even")
    named = read(cluster.paths, topic="even", columns="topic,STORE")
    counts = {row.store: row["count"] for row in named.groupBy("store").count().collect()}

    assert "store" not in frame.columns
    assert frame.count() == named.count()
    assert {"broker-a": 30, "broker-b": 18} == counts


def test_a_view_has_the_rows_of_all_stores(read: Reader, cluster: Cluster) -> None:
    frame = read(cluster.paths, view="segments", columns="store,start_offset")
    preallocated = 1
    expected = [
        (name, 4096 * number)
        for name, log in cluster.logs.items()
        for number in range(len(log.segments()) + preallocated)
    ]

    assert expected == [tuple(row) for row in frame.collect()]


def test_messages_are_not_written_to_several_stores(spark: SparkSession, cluster: Cluster) -> None:
    frame = spark.createDataFrame([("t", bytearray(b"x"))], "topic string, body binary")
    for path in (",".join(cluster.paths), f"{cluster.directory}/*/store"):
        with pytest.raises(Exception, match="option path: expected the root of one store, as messages are appended"):
            frame.write.format("commitlog").mode("append").save(path)

    assert sorted(cluster.logs) == sorted(path.name for path in cluster.directory.iterdir())


def test_messages_of_several_stores_are_appended_to_one(cluster: Cluster, tmp_path: Path) -> None:
    source = AppendSource("store", f"{cluster.directory}/*/store", {})
    made = append({"path": str(tmp_path / "one"), "mappedFileSizeCommitLog": "65536"}, source, on_spark=False)
    bodies = read_messages(tmp_path / "one", columns=["body"]).read_all()["body"].to_pylist()

    assert len(cluster.rows) == made["records"]
    assert [record.body for log in cluster.logs.values() for record in log.records] == bodies


# ---- streams


def test_batches_of_several_logs_follow_one_another(cluster: Cluster) -> None:
    reader = cluster.reader()
    start = reader.initialOffset()
    middle = reader.latestOffset(start, ReadAllAvailable())
    before = cluster.rows
    cluster.append("broker-b", 5)
    end = reader.latestOffset(middle, ReadAllAvailable())

    assert before == rows_of(reader, start, middle)
    assert cluster.rows[-5:] == rows_of(cluster.reader(), middle, end)
    assert end is reader.latestOffset(end, ReadAllAvailable())


@needs_limits
@pytest.mark.parametrize("options", [{"maxOffsetsPerTrigger": "7"}, {"maxBytesPerTrigger": "1k"}])
def test_limits_are_those_of_all_logs_together(cluster: Cluster, options: dict[str, str]) -> None:
    reader = cluster.reader(**options)
    start, found, batches = reader.initialOffset(), [], []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) is not start:
        batches.append(rows_of(reader, start, end))
        found += batches[-1]
        start = end

    assert sorted(cluster.rows) == sorted(found)
    assert {"broker-a", "broker-b"} == {name for name, _ in batches[0]}
    assert max(map(len, batches)) <= 8


@needs_limits
@pytest.mark.parametrize("most", [1, 2, 3])
def test_each_store_has_its_turn_where_a_batch_has_no_record_for_each(cluster: Cluster, most: int) -> None:
    cluster.append("broker-c", 1)
    cluster.append("broker-d", 50)
    reader = cluster.reader(maxOffsetsPerTrigger=str(most))
    start, found = reader.initialOffset(), []
    for _ in range(8):
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        found.append(rows_of(reader, start, end))
        start = end

    assert {most} == set(map(len, found))
    assert {"broker-a", "broker-b", "broker-c", "broker-d"} == {name for batch in found[:4] for name, _ in batch}
    turns = [
        sum(name == other for batch in found for name, _ in batch) for other in ("broker-a", "broker-b", "broker-d")
    ]
    assert max(turns) - min(turns) <= 1


@needs_limits
def test_what_is_available_is_read_to_its_end_whatever_grows_behind_it(cluster: Cluster) -> None:
    reader = cluster.reader(maxOffsetsPerTrigger="1")
    expected = sorted(cluster.rows)
    reader.prepareForTriggerAvailableNow()
    for name in cluster.logs:
        cluster.append(name, 9)
    start, found = reader.initialOffset(), []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) is not start:
        found += rows_of(reader, start, end)
        start = end

    assert expected == sorted(found)


def test_a_checkpoint_of_one_store_goes_on_with_that_store_alone(cluster: Cluster) -> None:
    single = cluster.reader("broker-a")
    start = json.loads(json.dumps(single.initialOffset()))

    assert "physicalOffset" in start
    assert single.latestOffset(start, ReadAllAvailable()) is not start
    with pytest.raises(
        InvalidOptionError, match=r"checkpoint is of one store, and the paths are of broker-a, broker-b"
    ):
        cluster.reader().latestOffset(start, ReadAllAvailable())


def test_a_store_that_comes_or_goes_is_refused(cluster: Cluster) -> None:
    start = cluster.reader().initialOffset()
    cluster.append("broker-c", 3)

    with pytest.raises(
        InvalidOptionError, match=r"of broker-a, broker-b, and the paths are of broker-a, broker-b, broker-c"
    ):
        cluster.reader().latestOffset(start, ReadAllAvailable())
    with pytest.raises(InvalidOptionError, match=r"of broker-a, broker-b, and the paths are of one store"):
        cluster.reader("broker-a").latestOffset(start, ReadAllAvailable())


def test_how_far_a_query_is_behind_is_the_sum_over_its_stores(cluster: Cluster) -> None:
    reader = cluster.reader()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    size = sum(each["physicalOffset"] for each in end["stores"].values())

    assert (size if HAS_LIMITS else None) == bytes_behind({"sources": [{"endOffset": start, "latestOffset": end}]})
    assert (0 if HAS_LIMITS else None) == bytes_behind(
        {"sources": [{"endOffset": json.dumps(end), "latestOffset": end}]}
    )


def test_a_query_over_two_stores_goes_on_where_it_was(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    found: Rows = []

    def run() -> None:
        frame = (
            spark.readStream.format("commitlog")
            .option("columns", "store,physical_offset")
            .load(f"{cluster.directory}/*/store")
        )
        query = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        query.foreachBatch(lambda batch, _: found.extend(map(tuple, batch.collect()))).start().awaitTermination()

    run()
    first = sorted(found)
    cluster.append("broker-a", 4)
    run()

    assert first == sorted(set(cluster.rows) - {*cluster.rows[60:64]})
    assert sorted(cluster.rows) == sorted(found)


@given(st.dictionaries(st.text(max_size=2), st.integers(0, 50), min_size=1), st.integers(1, 100))
def test_shares_use_the_limit_and_no_more(waiting: dict[str, int], most: int) -> None:
    found = _shares(waiting, most)

    assert waiting.keys() == found.keys()
    assert min(most, sum(waiting.values())) == sum(found.values())
    assert all(0 <= share <= waiting[name] for name, share in found.items())
    assert all(share >= min(waiting[name], most // len(waiting)) for name, share in found.items())
    assert min(most, sum(map(bool, waiting.values()))) == sum(map(bool, found.values()))
