# SPDX-License-Identifier: Apache-2.0
"""Helpers to write through Spark, and the rows that are expected to be read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark_commitlog.write.options import WriteOptions
from pyspark_commitlog.write.row_encoder import RowEncoder
from store_core import DefaultMessageStore, MessageStoreConfig, read_messages
from store_core.files.file_system import OsFileSystem
from store_core.store.sink.commit import SinkCommit
from store_core.store.sink.directory import SinkDirectory
from store_core.store.sink.staged_batch import StagedBatchWriter
from tests.store_core.store.sink.staging import ImpatientClock

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession


SMALL = {"mappedFileSizeCommitLog": "16k", "mappedFileSizeConsumeQueue": "2000", "maxHashSlotNum": "100"} | {
    "maxIndexNum": "1000"
}
"""Options of a store with small files."""

SMALL_CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=16 << 10,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=100,
    max_index_num=1000,
)
"""The same sizes."""


@dataclass(frozen=True)
class Writer:
    """``df.write.format("commitlog")`` into one store."""

    session: SparkSession
    root: Path

    def __call__(self, frame: DataFrame, mode: str = "append", **options: str) -> None:
        """Write with option names as users write them; the store's files are small."""
        frame.write.format("commitlog").mode(mode).options(**(SMALL | options)).save(str(self.root))

    def frame(self, schema: str, *rows: tuple[Any, ...], partitions: int = 1) -> DataFrame:
        """Make a DataFrame whose partitions hold the rows in order."""
        return self.session.createDataFrame(self.session.sparkContext.parallelize(rows, partitions), schema)

    def messages(self, count: int, partitions: int = 2, first: int = 0) -> DataFrame:
        """Make messages with numbers in their bodies."""
        frame = self.session.range(first, first + count, 1, partitions)
        return frame.selectExpr("concat('topic', id % 3) AS topic", "concat('body ', id) AS body")

    def read(self, *columns: str) -> list[Row]:
        """Read rows in the log's order."""
        frame = self.session.read.format("commitlog").option("columns", ",".join(columns)).load(str(self.root))
        return frame.collect()


def append_rows(root: Path, batches: Iterable[pa.RecordBatch], **options: str) -> RowEncoder:
    """Do what ``df.write`` does with one partition, without Spark; return the encoder."""
    parsed, file_system, job = WriteOptions.from_spark({"path": str(root)} | options), OsFileSystem(), f"job-{'0' * 32}"
    encoder = RowEncoder(parsed, 0, 1_700_000_000_000)
    directory = SinkDirectory(root, file_system).claim(job, "", "1")
    with StagedBatchWriter(directory / "part", file_system) as writer:
        for batch in batches:
            for encoded in encoder.encode(batch):
                writer.write(encoded)
        staged = writer.finish()
    SinkCommit(root, job, parsed.config, ImpatientClock(), file_system).run([staged])
    return encoder


def rows_of(root: Path, *columns: str) -> list[dict[str, Any]]:
    """Read a store in the log's order, without Spark."""
    rows: list[dict[str, Any]] = read_messages(root, columns=list(columns)).read_all().to_pylist()
    return rows


def consumed(root: Path) -> int:
    """Open a store as a broker does, and count the messages in its queues; all must match the log."""
    rows = rows_of(root, "topic", "queue_id", "queue_offset", "body")
    with DefaultMessageStore.open(root, SMALL_CONFIG) as store:
        for row in rows:
            found = store.get_message("group", row["topic"], row["queue_id"], row["queue_offset"], 1)
            assert found is not None
            assert [row["body"]] == [message.body for message in found.messages]
    return len(rows)


def error_of(action: Any) -> str:  # noqa: ANN401 -- any action of Spark's
    """Run an action that fails, and return the error's text up to Java's stack trace."""
    try:
        action()
    except Exception as error:  # noqa: BLE001 -- whatever class Spark makes of it
        return str(error).partition("\tat org.apache")[0]
    raise AssertionError("nothing was raised")
