# SPDX-License-Identifier: Apache-2.0
"""What the tasks of a rebuild do: read a segment, or write queues and the index.

Between the two, Spark carries runs of units, each a row with a few thousand of them, and brings those of one queue to
one task in log order.
"""

from __future__ import annotations

import json
import shutil
import uuid
import zlib
from dataclasses import asdict, dataclass
from enum import IntEnum
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from store_core.files.clock import SystemClock
from store_core.files.file_system import OsFileSystem
from store_core.queue.index_pieces import unpack_entries
from store_core.store.rebuild_files import IndexWriter, QueueWriter
from store_core.store.rebuild_scan import QueuePiece, SegmentScan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from store_core.files.segment_source import Segment
    from store_core.store.rebuild_files import IndexReport, QueueReport
    from store_core.store.rebuild_scan import IndexPiece, RebuildRules, SegmentOutcome

__all__ = ["ATTEMPTS", "RebuildTasks", "ReportKind", "RunKey"]

ATTEMPTS: Final = ".attempts"
"""Below the target: a directory for each task that writes."""


class ReportKind(IntEnum):
    """What a row is about."""

    OUTCOME = 0
    QUEUE = 1
    INDEX = 2


class RunKey(NamedTuple):
    """What a run is of; in this order a task gets its runs.

    Attributes
    ----------
    bucket : int
        Number of the task that gets it.
    kind : ReportKind
    topic : str
    queue_id : int
    segment, sequence : int
        Its place in the log.
    """

    bucket: int
    kind: int
    topic: str
    queue_id: int
    segment: int
    sequence: int


@dataclass(frozen=True)
class RebuildTasks:
    """The functions that Spark runs; pickled to every task.

    Attributes
    ----------
    segments : tuple of Segment
        Of the log, in order.
    rules : RebuildRules
    store_root, target_root : Path
    queue_buckets : int
        Tasks that write queues; one more writes the index.
    """

    segments: tuple[Segment, ...]
    rules: RebuildRules
    store_root: Path
    target_root: Path
    queue_buckets: int

    # ---- reading

    def scan(self, numbers: Iterable[int]) -> Iterator[tuple[RunKey, bytes]]:
        """Read the segments of these numbers, and give their runs and outcomes."""
        for number in numbers:
            scan = SegmentScan(self.segments[number], self.rules)
            for sequence, piece in enumerate(scan):
                yield self._key(number, sequence, piece), piece.packed
            if scan.outcome is not None:
                yield RunKey(0, ReportKind.OUTCOME, "", 0, number, 0), _text(scan.outcome).encode()

    def _key(self, number: int, sequence: int, piece: QueuePiece | IndexPiece) -> RunKey:
        if isinstance(piece, QueuePiece):
            bucket = zlib.crc32(f"{piece.topic}/{piece.queue_id}".encode()) % self.queue_buckets
            return RunKey(bucket, ReportKind.QUEUE, piece.topic, piece.queue_id, number, sequence)
        return RunKey(self.queue_buckets, ReportKind.INDEX, "", 0, number, sequence)

    # ---- writing

    def write(self, runs: Iterable[tuple[RunKey, bytes]]) -> Iterator[tuple[int, str]]:
        """Write what runs belong to, which come in the order of their keys; give a report of each queue and so on."""
        attempt = self.target_root / ATTEMPTS / uuid.uuid4().hex
        try:
            for (kind, topic, queue_id), group in groupby(runs, key=lambda run: run[0][1:4]):
                payloads = (payload for _, payload in group)
                if kind == ReportKind.OUTCOME:
                    yield from ((kind, payload.decode()) for payload in payloads)
                elif kind == ReportKind.QUEUE:
                    yield kind, _text(self._write_queue(topic, queue_id, payloads, attempt))
                else:
                    yield kind, _text(self._write_index(payloads, attempt))
        finally:
            shutil.rmtree(attempt, ignore_errors=True)

    def _write_queue(self, topic: str, queue_id: int, payloads: Iterable[bytes], attempt: Path) -> QueueReport:
        writer = QueueWriter(
            topic, queue_id, self.rules, self.store_root, self.target_root, attempt, OsFileSystem(), SystemClock()
        )
        form = self.rules.piece_format(topic)
        for payload in payloads:
            writer.add(form.unpack(payload))
        return writer.finish()

    def _write_index(self, payloads: Iterable[bytes], attempt: Path) -> IndexReport:
        writer = IndexWriter(self.rules, self.target_root, attempt, OsFileSystem(), SystemClock())
        for payload in payloads:
            writer.add(unpack_entries(payload))
        return writer.finish()


def _text(report: SegmentOutcome | QueueReport | IndexReport) -> str:
    return json.dumps(asdict(report))
