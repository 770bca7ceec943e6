# SPDX-License-Identifier: Apache-2.0
"""Records staged for an append, and stores to append them to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from store_core import DefaultMessageStore, MessageStoreConfig, read_messages
from store_core.files.machine import SystemClock
from store_core.format.columnar.encode_batch import encode_batch
from store_core.store.sink.commit import SinkCommit
from store_core.store.sink.staged_batch import SinkDirectory, StagedBatch, StagedBatchWriter, StagedFile
from tests.store_core.fakes import FaultyFileSystem

if TYPE_CHECKING:
    from pathlib import Path
    from threading import Event

    from store_core.files.file_system import FileSystem
    from store_core.store.sink.commit import CommitReport


CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=1 << 13, mapped_file_size_consume_queue=2000, max_hash_slot_num=40, max_index_num=4000
)


JOB = f"job-{'0' * 32}"


class ImpatientClock(SystemClock):
    """The machine's clock, on which sleeps and waits end almost at once."""

    def sleep(self, seconds: float) -> None:
        super().sleep(min(seconds, 0.001))

    def wait(self, event: Event, seconds: float | None) -> bool:
        return super().wait(event, 0.2 if seconds is None else min(seconds, 0.2))


def table(bodies: list[bytes]) -> pa.Table:
    """Make messages of two topics, with a key each."""
    numbers = range(len(bodies))
    return pa.table(
        {
            "topic": ["orders" if number % 3 else "payments" for number in numbers],
            "body": pa.array(bodies, pa.binary()),
            "queue_id": pa.array([number % 2 for number in numbers], pa.int32()),
            "keys": [f"key{number}" for number in numbers],
        }
    )


def stage(
    path: Path,
    *batches: list[bytes],
    times: list[int] | None = None,
    file_system: FileSystem | None = None,
    derives: bool = True,
) -> StagedFile:
    """Stage messages with these bodies; `times` are their store times, the same in each batch.

    With `derives`, the data for queues and index is staged, too.
    """
    with StagedBatchWriter(path, file_system or FaultyFileSystem()) as writer:
        for bodies in batches:
            stamps = None if times is None else np.array(times, np.int64)
            batch = StagedBatch(encode_batch(table(bodies)), stamps)
            writer.write(batch.with_derived(CONFIG.queue_rules()) if derives else batch)
        return writer.finish()


def make_store(root: Path, bodies: list[bytes], file_system: FileSystem | None = None) -> None:
    """Append messages with these bodies, and close the store."""
    with DefaultMessageStore.open(root, CONFIG, file_system=file_system or FaultyFileSystem()) as store:
        if bodies:
            assert store.append_batch(table(bodies)).is_ok


def bodies_of(root: Path) -> list[bytes]:
    """Read all bodies of a store in the log's order, only from its segments."""
    return [row["body"] for row in _rows(root, ["body"])]


def _rows(root: Path, columns: list[str]) -> list[dict[str, Any]]:
    if not any((root / "commitlog").glob("*")):
        return []
    rows: list[dict[str, Any]] = read_messages(root, columns=columns).read_all().to_pylist()
    return rows


def check_queues(root: Path) -> int:
    """Open a store, and compare its queues and index with its log; return the number of messages."""
    with DefaultMessageStore.open(root, CONFIG, file_system=FaultyFileSystem()) as store:
        rows = _rows(root, ["topic", "queue_id", "queue_offset", "body", "keys"])
        ends: dict[tuple[str, int], int] = {}
        for row in rows:
            queue = row["topic"], row["queue_id"]
            assert ends.get(queue, 0) == row["queue_offset"]
            ends[queue] = row["queue_offset"] + 1
            found = store.get_message("group", *queue, row["queue_offset"], 1)
            assert found is not None
            assert [row["body"]] == [message.body for message in found.messages]
        for (topic, queue_id), end in ends.items():
            assert end == store.get_max_offset_in_queue(topic, queue_id)
        for row in rows[-3:]:
            by_key = store.query_message(row["topic"], row["keys"][0], 64, 0, 2**63 - 1)
            assert row["body"] in [message.body for message in by_key.messages]
    return len(rows)


def commit(root: Path, bodies: list[bytes], job: str = JOB, **settings: Any) -> CommitReport:  # noqa: ANN401 -- any
    """Stage and commit messages with these bodies; a failure is cleaned up as Spark does it."""
    disk = settings.pop("file_system", None) or FaultyFileSystem()
    sink = SinkCommit(root, job, settings.pop("config", CONFIG), ImpatientClock(), disk, **settings)
    try:
        directory = SinkDirectory(root, disk).claim(job, "me", "1")
        return sink.run([stage(directory / "part", bodies, file_system=disk)])
    except OSError:
        sink.discard()
        raise
