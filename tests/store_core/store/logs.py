# SPDX-License-Identifier: Apache-2.0
"""Commit logs for tests: small files, a clock that stands still, a disk that fails on demand, no threads."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.files.segment_listing import SegmentPaths
from store_core.format.columnar.chain import scan
from store_core.format.message import Message, MessageExt
from store_core.format.record.decode import decode_message
from store_core.store.message_store_config import MessageStoreConfig
from store_core.store.put.commit_log import CommitLog
from store_core.store.put.put_preparation import PutMessageResult, as_future
from tests.store_core.fakes import FakeClock, FaultyFileSystem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future
    from pathlib import Path

    from store_core.files.machine import Clock


FILE_SIZE = 4096


def config(**more: Any) -> MessageStoreConfig:  # noqa: ANN401 -- any field
    """Configure a store of small files."""
    sizes = {"mapped_file_size_commit_log": FILE_SIZE, "mapped_file_size_consume_queue": 800}
    return MessageStoreConfig(**(sizes | {"max_hash_slot_num": 100, "max_index_num": 400} | more))


def message(body: bytes = b"body", **more: Any) -> Message:  # noqa: ANN401 -- any argument of Message
    return Message(more.pop("topic", "orders"), body, **more)


def messages_of(directory: Path) -> list[MessageExt]:
    """Read all messages from a log's files, independently of the log."""
    found = []
    for path in sorted(directory.iterdir()):
        data = path.read_bytes()
        starts = scan(np.frombuffer(data, np.uint8), 0, None, int(path.name)).starts.tolist()
        found += [decode_message(memoryview(data), start, int(path.name)) for start in starts]
    return found


class Listener:
    """Records what arrives, and the bit maps, and signals when it is enough."""

    def __init__(self, enough: int = 0) -> None:
        self.arrived: list[tuple[str, int, int]] = []
        self.maps: list[bytes] = []
        self.is_enough = Event()
        self._enough = enough

    def arriving(
        self,
        topic: str,
        queue_id: int,
        logic_offset: int,
        _tags_code: int,
        _store_timestamp: int,
        filter_bit_map: bytes,
        _properties: Mapping[str, str],
    ) -> None:
        self.arrived.append((topic, queue_id, logic_offset))
        self.maps.append(filter_bit_map)
        if len(self.arrived) == self._enough:
            self.is_enough.set()


@dataclass
class Log:
    """A commit log with its clock and disk."""

    directory: Path
    settings: dict[str, Any] = field(default_factory=dict)
    services: dict[str, Any] = field(default_factory=dict)
    real_clock: Clock | None = None

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        self.disk = FaultyFileSystem()
        given = {"mapped_file_size_commit_log": FILE_SIZE} | self.settings
        self.log = CommitLog(
            SegmentPaths((self.directory,)),
            MessageStoreConfig(**given),
            self.disk,
            self.real_clock or self.clock,
            **self.services,
        )

    @property
    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.directory.iterdir())}

    @property
    def messages(self) -> list[MessageExt]:
        return messages_of(self.directory)

    @property
    def positions(self) -> tuple[object, ...]:
        """Return everything that a refused message must not change."""
        queue = self.log.mapped_file_queue
        table = self.log.queue_offsets
        files = [(file.path.name, file.wrote_position) for file in queue.mapped_files]
        return files, queue.max_offset, table.as_mapping(), table.lmq_queues(), self.log.stats.put_message_times_total

    def put_message(self, given: Message) -> PutMessageResult:
        """Put a message, and wait for what is due."""
        return self.log.wait(self.log.put(given))

    def put_messages(self, batch: Message) -> PutMessageResult:
        """Put a batch, and wait for what is due."""
        return self.log.wait(self.log.put_batch(batch))

    def put_later(self, given: Message) -> Future[PutMessageResult]:
        """Put a message, and return at once."""
        return as_future(self.log.put(given))

    def put_batch_later(self, batch: Message) -> Future[PutMessageResult]:
        """Put a batch, and return at once."""
        return as_future(self.log.put_batch(batch))

    def flush(self) -> None:
        """Run one step of the group commit service."""
        assert self.log.flusher.group_commit is not None
        self.log.flusher.group_commit.run_once()
