# SPDX-License-Identifier: Apache-2.0
"""Stores that tests read and write through Spark, and what they hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark_commitlog.write.options import WriteOptions
from pyspark_commitlog.write.row_encoder import RowEncoder
from store_core import DefaultMessageStore, MessageStoreConfig, read_messages
from store_core.files.file_system import OsFileSystem
from store_core.store.sink.commit import SinkCommit
from store_core.store.sink.staged_batch import SinkDirectory, StagedBatchWriter
from tests.builders import LogBuilder, Record
from tests.store_core.store.sink.staging import ImpatientClock

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession


@dataclass(frozen=True, slots=True)
class WrittenStore:
    """A store on disk, and the builder that knows what is in it."""

    root: Path
    log: LogBuilder

    @property
    def records(self) -> list[Record]:
        return self.log.records

    @property
    def offsets(self) -> list[int]:
        """Physical offsets of all records, in the log's order."""
        return [record.physical_offset for record in self.records]


class Reader:
    """A short form of ``spark.read.format("commitlog")``; no option is kept from one read to the next."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session

    def __call__(self, path: Path | str | list[str], schema: str | None = None, **options: str) -> DataFrame:
        """Load `path`, with option names as users write them."""
        reader = self.session.read.format("commitlog").options(**options)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.load(path if isinstance(path, list) else str(path))

    def offsets(self, path: Path | str | list[str], **options: str) -> list[int]:
        """Return the physical offsets of the rows, in the order of the result."""
        rows = self(path, columns="physical_offset", **options).collect()
        return [row.physical_offset for row in rows]


def plan(frame: DataFrame) -> DataFrame:
    """Let Spark plan a query now, as in the first step of its first action."""
    frame._jdf.queryExecution().toRdd().getNumPartitions()
    return frame


def mixed_log() -> LogBuilder:
    """Build three segments with two topics, three queues, tags, keys, IPv6 hosts, and bodies that look like records."""
    log = LogBuilder(segment_size=4096)
    for number in range(40):
        hostile = Record(f"record in a body {number}".encode(), physical_offset=log.end + 200).encode()
        log.append(
            Record(
                body=hostile if number % 5 == 0 else f"body {number}".encode() * (number % 4),
                topic="orders" if number % 3 else "Zahlungen-ü",
                queue_id=number % 2,
                properties={
                    "TAGS": "ABC"[number % 3],
                    "KEYS": f"k{number} all",
                    "UNIQ_KEY": f"uid{number}",
                    "WAIT": "true",
                }
                if number % 4
                else {},
                flag=number,
                reconsume_times=number % 3,
                born_host=("2001:db8::1", 1000) if number % 7 == 0 else ("10.1.2.3", 5555),
            )
        )
    while len(log.segments()) < 3:
        log.append(b"filler " * 10, topic="orders")
    return log


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


def left_behind(root: Path) -> list[str]:
    """Return what jobs have left in a store."""
    return [path.name for name in ("staged", "segments") for path in (root / "commitlog-sink" / name).glob("*")]


def error_of(action: Any) -> str:  # noqa: ANN401 -- any action of Spark's
    """Run an action that fails, and return the error's text up to Java's stack trace."""
    try:
        action()
    except Exception as error:  # noqa: BLE001 -- whatever class Spark makes of it
        return str(error).partition("\tat org.apache")[0]
    raise AssertionError("nothing was raised")
