# SPDX-License-Identifier: Apache-2.0
"""Streams from a store, and into one: what Spark asks of the reader, and that each batch is appended once."""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
from typing import TYPE_CHECKING, Any, Final

import pytest

from pyspark_commitlog.reader import dataframe_schema
from pyspark_commitlog.source import CommitLogDataSource
from pyspark_commitlog.stream import HAS_LIMITS, CommitLogStreamReader, ReadAllAvailable, StreamOptions, bytes_behind
from store_core.errors import InvalidOptionError, TruncatedLogError
from tests.builders import LogBuilder
from tests.connector.stores import SMALL, Writer, consumed, error_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


needs_limits = pytest.mark.skipif(not HAS_LIMITS, reason="PySpark 4.1 has no limits of a batch")

SEGMENT = 2048
HOUR = 3600.0


class Clock:
    """A clock that stands until it is set."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Store:
    """A store that grows."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = LogBuilder(SEGMENT)
        self.append(60)

    def append(self, count: int) -> None:
        for number in range(count):
            self.log.append(b"%d" % number * 20, topic="odd" if number % 2 else "even", properties={"TAGS": "t"})
        self.log.write(self.root, preallocated=1)

    @property
    def offsets(self) -> list[int]:
        return [record.physical_offset for record in self.log.records]

    def source(self, **options: str) -> CommitLogDataSource:
        return CommitLogDataSource({"path": str(self.root), **options})

    def reader(self, **options: str) -> CommitLogStreamReader:
        source = self.source(columns="physical_offset", **options)
        reader = source.streamReader(source.schema())
        assert isinstance(reader, CommitLogStreamReader)
        return reader

    def frame(self, spark: SparkSession, **options: Any) -> DataFrame:  # noqa: ANN401 -- those of the source
        return spark.readStream.format("commitlog").options(**options).load(str(self.root))


@pytest.fixture
def growing(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture(autouse=True)
def _tracebacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.tracebacklimit", None, raising=False)


def rows(reader: CommitLogStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """Read a batch as Spark does: offsets pass through JSON, tasks get the reader and a partition pickled."""
    start, end = json.loads(json.dumps(start)), json.loads(json.dumps(end))
    parts = reader.partitions(start, end)
    reader, parts = pickle.loads(pickle.dumps((reader, parts)))  # noqa: S301 -- our own
    return [offset for part in parts for batch in reader.read(part) for offset in batch[0].to_pylist()]


# --------------------------------------------------------------------------------------------- what Spark's driver asks


def test_batches_follow_one_another(growing: Store) -> None:
    reader = growing.reader()
    start = reader.initialOffset()
    middle = reader.latestOffset(start, reader.getDefaultReadLimit())
    growing.append(5)
    end = reader.latestOffset(middle, reader.getDefaultReadLimit())

    assert rows(reader, start, middle) == growing.offsets[:-5]
    assert rows(growing.reader(), middle, end) == growing.offsets[-5:]
    assert rows(reader, start, start) == []


def test_an_offset_with_nothing_after_it_is_returned_as_it_is(growing: Store) -> None:
    reader = growing.reader()
    end = json.loads(json.dumps(reader.latestOffset(reader.initialOffset(), ReadAllAvailable())))

    assert reader.latestOffset(end, ReadAllAvailable()) is end
    assert json.dumps(reader.reportLatestOffset()) == json.dumps(end)


def test_pyspark_4_1_passes_nothing_and_gets_the_log_s_end(growing: Store) -> None:
    reader = growing.reader()

    assert rows(reader, reader.initialOffset(), reader.latestOffset()) == growing.offsets


def test_limits_need_a_pyspark_that_passes_the_start(growing: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_commitlog.stream.HAS_LIMITS", False)

    with pytest.raises(InvalidOptionError, match=r"need PySpark 4\.2 or later"):
        growing.reader(maxBytesPerTrigger="1k").latestOffset()


@needs_limits
@pytest.mark.parametrize("option", [{"maxOffsetsPerTrigger": "7"}, {"maxBytesPerTrigger": "1k"}])
def test_a_batch_is_limited_unless_all_is_asked_for(growing: Store, option: dict[str, str]) -> None:
    reader = growing.reader(**option)
    start = reader.initialOffset()
    limited = reader.latestOffset(start, reader.getDefaultReadLimit())
    whole = reader.latestOffset(start, ReadAllAvailable())

    assert 0 < len(rows(reader, start, limited)) <= 10
    assert rows(reader, start, whole) == growing.offsets


@needs_limits
def test_a_query_of_what_is_available_ends_where_the_log_ended(growing: Store) -> None:
    reader = growing.reader(maxOffsetsPerTrigger="25", minOffsetsPerTrigger="20")
    before = growing.offsets
    reader.prepareForTriggerAvailableNow()
    growing.append(30)
    seen, start = [], reader.initialOffset()
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        seen.append(rows(reader, start, end))
        start = end

    assert [len(batch) for batch in seen] == [25, 25, 10]
    assert [offset for batch in seen for offset in batch] == before


@needs_limits
def test_a_batch_waits_for_enough_records_but_not_forever(growing: Store) -> None:
    clock = Clock()
    options = StreamOptions.from_spark(
        {"path": str(growing.root), "minOffsetsPerTrigger": "10", "maxTriggerDelay": "1h"}
    )
    reader = CommitLogStreamReader(options, dataframe_schema(["physical_offset"], nullable=False), clock)
    limit, start = reader.getDefaultReadLimit(), reader.initialOffset()
    first = reader.latestOffset(start, limit)
    growing.append(9)
    early = reader.latestOffset(first, limit)
    clock.now += HOUR
    late = reader.latestOffset(first, limit)
    growing.append(10)
    enough = reader.latestOffset(late, limit)

    assert early is first
    assert [len(rows(reader, *pair)) for pair in ((start, first), (first, late), (late, enough))] == [60, 9, 10]


@pytest.mark.parametrize("kind", ["startingOffsets", "startingTimestamp"])
def test_a_stream_begins_where_it_is_told(growing: Store, kind: str) -> None:
    record = growing.log.records[20]
    reader = growing.reader(
        **{kind: str(record.physical_offset if kind == "startingOffsets" else record.store_timestamp)}
    )
    latest = growing.reader(startingOffsets="LATEST ").initialOffset()

    assert rows(reader, reader.initialOffset(), latest) == growing.offsets[20:]


def test_a_query_that_goes_on_where_it_was_compares_no_time(growing: Store) -> None:
    later = growing.log.records[-1].store_timestamp + 10**6
    start, latest = growing.reader().initialOffset(), growing.reader(startingOffsets="latest").initialOffset()

    assert rows(growing.reader(startingTimestamp=str(later)), start, latest) == growing.offsets


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"endingOffsets": "5"}, "option endingOffsets: a stream has no end"),
        ({"endingTimestamp": "2024-01-01T00:00Z"}, "option endingTimestamp: a stream has no end"),
        ({"asOf": "2024-01-01T00:00Z"}, "option asOf: a stream has no end"),
        ({"startingTimestamp": "2024-01-01T00:00"}, "no time zone, and spark.sql.session.timeZone is not known where"),
        pytest.param(
            {"minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"},
            "expected at most maxOffsetsPerTrigger, 5",
            marks=needs_limits,
        ),
        ({"maxTriggerDelay": "1h"}, "option maxTriggerDelay: expected minOffsetsPerTrigger as well"),
    ],
)
def test_what_a_stream_can_not_do_is_refused_when_it_starts(growing: Store, options: dict[str, str], says: str) -> None:
    reader = growing.reader(**options)

    with pytest.raises(InvalidOptionError, match=says):
        reader.initialOffset()
    with pytest.raises(InvalidOptionError, match=says):
        reader.prepareForTriggerAvailableNow()


def test_a_stream_of_another_view_is_refused_when_it_starts(growing: Store) -> None:
    source = growing.source(view="topics")
    reader = source.streamReader(source.schema())

    for first_call in (reader.initialOffset, lambda: reader.latestOffset({}, ReadAllAvailable())):
        with pytest.raises(InvalidOptionError, match=r"view 'topics' is read by spark\.read"):
            first_call()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"maxOffsetsPerTrigger": "0"}, "expected a number from 1 to 2147483647"),
        ({"maxBytesPerTrigger": "many"}, "expected a number of bytes from 1 to 9223372036854775807"),
        ({"startingOffsets": "newest"}, r"from 0 to [0-9]+, earliest \(of a stream also latest\), or queue"),
        ({"maxTriggerDelay": "soon"}, "expected a time such as 30s, 15m or 1h, found 'soon'"),
        ({"maxOffsetPerTrigger": "1"}, "unknown option 'maxoffsetpertrigger'"),
    ],
)
def test_values_are_checked_when_the_stream_is_loaded(growing: Store, options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidOptionError, match=says):
        growing.source(**options).schema()


def test_a_loss_ends_the_query_with_its_name_and_without_our_frames(growing: Store) -> None:
    reader = growing.reader()
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    growing.log.truncate(growing.offsets[-3])
    growing.append(9)

    with pytest.raises(TruncatedLogError) as caught:
        growing.reader().latestOffset(end, ReadAllAvailable())
    assert len(caught.traceback) <= 2


def test_a_loss_that_is_allowed_is_logged_once(growing: Store, caplog: pytest.LogCaptureFixture) -> None:
    reader = growing.reader(failOnDataLoss="false")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    growing.log.truncate(growing.offsets[-3])
    growing.append(9)
    with caplog.at_level(logging.WARNING, "store_core"):
        later = reader.latestOffset(end, ReadAllAvailable())

        assert rows(reader, end, later) == growing.offsets[-9:]
    assert len(caplog.records) == 1


# ------------------------------------------------------------------------------------------------------- with a session


@needs_limits
@pytest.mark.spark
def test_a_query_goes_on_where_it_was_and_reports_what_is_left(
    spark: SparkSession, growing: Store, tmp_path: Path
) -> None:
    batches: list[list[int]] = []
    options = {"maxOffsetsPerTrigger": 40, "maxPartitionBytes": 1000, "topic": "even"}

    def keep(frame: DataFrame, _: int) -> None:
        batches.append([row.physical_offset for row in frame.collect()])

    def run() -> None:
        stream = growing.frame(spark, **options).writeStream.foreachBatch(keep).trigger(availableNow=True)
        query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination()
        behind.extend(bytes_behind(progress) for progress in query.recentProgress)

    behind: list[int | None] = []
    run()
    growing.append(10)
    run()
    even = [record.physical_offset for record in growing.log.records if record.topic == "even"]
    stored = (tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[-1]

    assert batches == [even[:20], even[20:30], even[30:]]
    assert json.loads(stored)["physicalOffset"] == growing.log.records[40].physical_offset
    assert behind[0] == growing.log.records[59].end - growing.log.records[40].physical_offset
    assert behind[-1] == 0


# ---- into a store


_FIRST_TIME: Final = 1_700_000_000


class Query:
    """A query that appends the lines of the text files in a directory; by default a batch for each file."""

    def __init__(self, session: SparkSession, directory: Path) -> None:
        self.session = session
        self.source = directory / "source"
        self.checkpoint = directory / "checkpoint"
        self.writer = Writer(session, directory / "store")
        self.most_files = 1
        self.source.mkdir()

    def add(self, name: str, *lines: str) -> None:
        """Add a file as the newest one: Spark reads files in the order of their times, of which two may be equal."""
        partial = self.source.parent / name
        partial.write_text("".join(line + "\n" for line in lines))
        seconds = _FIRST_TIME + len(list(self.source.iterdir()))
        os.utime(partial, (seconds, seconds))
        partial.rename(self.source / name)

    def run(self, mode: str = "append", **options: str) -> None:
        """Append what is there, and stop."""
        reader = self.session.readStream.format("text").option("maxFilesPerTrigger", self.most_files)
        lines = reader.load(str(self.source))
        frame = lines.selectExpr("'lines' AS topic", "value AS body")
        if mode == "complete":
            frame = frame.groupBy("topic", "body").count().drop("count")
        stream = frame.writeStream.format("commitlog").outputMode(mode).options(**(SMALL | options))
        stream = stream.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        stream.start(str(self.writer.root)).awaitTermination()

    @property
    def bodies(self) -> list[str]:
        return [row.body.decode() for row in self.writer.read("body")]


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Query:
    return Query(spark, tmp_path)


@pytest.mark.spark
def test_batches_are_appended_in_their_order_and_one_that_spark_commits_again_is_not_appended_again(
    query: Query,
) -> None:
    query.add("1", "a")
    query.add("2", "b")
    query.run()
    # Spark ended between the sink's commit and its own: its log of commits does not have the batch.
    for path in (query.checkpoint / "commits").iterdir():
        path.unlink()
    query.run()
    query.add("3", "c", "d")
    query.run()

    assert ["a", "b", "c", "d"] == query.bodies
    assert 4 == consumed(query.writer.root)
    assert not (query.writer.root / "abort").exists()
    assert [] == list((query.writer.root / "commitlog-sink" / "staged").iterdir())


@pytest.mark.spark
def test_a_checkpoint_that_went_back_is_refused_instead_of_losing_messages(query: Query) -> None:
    query.add("1", "a", "b")
    query.run()
    kept = shutil.copytree(query.checkpoint, query.checkpoint.with_name("older"))
    query.add("2", "c")
    query.run()
    shutil.rmtree(query.checkpoint)
    kept.rename(query.checkpoint)
    query.add("3", "d", "e")
    query.most_files = 9
    text = error_of(query.run)

    assert "does not fit the store, as if it went back" in text
    assert "the last batch was 1, with 1 row," in text
    assert ["a", "b", "c"] == query.bodies


@pytest.mark.spark
def test_another_query_s_batches_are_others_whatever_their_numbers(query: Query) -> None:
    query.add("1", "a", "b")
    query.run()
    shutil.rmtree(query.checkpoint)
    query.run()

    assert ["a", "b", "a", "b"] == query.bodies


@pytest.mark.spark
def test_a_batch_that_fails_leaves_nothing_and_is_tried_again_after_a_restart(query: Query) -> None:
    query.add("1", "a", "b" * 20000)
    text = error_of(query.run)
    query.run(badRows="skip")

    assert "row 1 of partition 0 can't be a message" in text
    assert ["a"] == query.bodies
    assert [] == list((query.writer.root / "commitlog-sink" / "staged").iterdir())


@pytest.mark.spark
@pytest.mark.parametrize(
    ("mode", "options", "says"),
    [
        ("complete", {}, "a stream is appended: use outputMode('append')"),
        ("append", {"overwriteStore": "true"}, "a stream is appended"),
        ("append", {"commitId": "x"}, "option commitId is for df.write"),
    ],
)
def test_what_is_not_for_streams_is_refused(mode: str, options: dict[str, str], says: str, query: Query) -> None:
    query.add("1", "a")

    assert says in error_of(lambda: query.run(mode, **options))
    assert not query.writer.root.exists()
