# SPDX-License-Identifier: Apache-2.0
"""Each batch of a streaming query is appended once, also when Spark commits it again after a restart."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Final

import pytest

from tests.connector.written import SMALL, Writer, consumed, error_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

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


def test_batches_are_appended_in_their_order_and_a_restart_goes_on(query: Query) -> None:
    query.add("1", "a", "b")
    query.add("2", "c")
    query.run()
    query.add("3", "d", "e")
    query.run()

    assert ["a", "b", "c", "d", "e"] == query.bodies
    assert consumed(query.writer.root) == 5
    assert not (query.writer.root / "abort").exists()


def test_a_batch_that_spark_commits_again_is_not_appended_again(query: Query) -> None:
    query.add("1", "a", "b")
    query.run()
    # Spark ended between the sink's commit and its own: its log of commits does not have the batch.
    for path in (query.checkpoint / "commits").iterdir():
        path.unlink()
    query.run()
    query.add("2", "c")
    query.run()

    assert ["a", "b", "c"] == query.bodies
    assert [] == list((query.writer.root / "commitlog-sink" / "staged").iterdir())


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


def test_another_query_s_batches_are_others_whatever_their_numbers(query: Query) -> None:
    query.add("1", "a", "b")
    query.run()
    shutil.rmtree(query.checkpoint)
    query.run()

    assert ["a", "b", "a", "b"] == query.bodies


def test_a_batch_that_fails_leaves_nothing_and_is_tried_again_after_a_restart(query: Query) -> None:
    query.add("1", "a", "b" * 20000)
    text = error_of(query.run)
    query.run(badRows="skip")

    assert "row 1 of partition 0 can't be a message" in text
    assert ["a"] == query.bodies


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
