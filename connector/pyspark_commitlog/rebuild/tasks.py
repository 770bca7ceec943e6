# SPDX-License-Identifier: Apache-2.0
"""What the tasks of a rebuild do: read a part of a segment; write queues or the index, or compare them.

Between the two, Spark carries runs of units, each a row with thousands of them, and brings those of one queue to one
task in log order.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import asdict, dataclass
from enum import IntEnum
from itertools import count, groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pyspark_commitlog.rebuild.attempt import ATTEMPTS, RebuildAttempt
from pyspark_commitlog.rebuild.spill import RunReader, RunSpill, SpilledRun
from store_core.files.clock import SystemClock
from store_core.files.deferred_sync import DeferredSyncFileSystem
from store_core.files.file_system import OsFileSystem
from store_core.format.crc32 import crc32
from store_core.queue.index_pieces import unpack_entries
from store_core.queue.unit_pieces import unpack_units
from store_core.store.rebuild.compare import StoredQueues, compare_queues
from store_core.store.rebuild.files import IndexWriter, QueueWriter
from store_core.store.rebuild.gap_filler import FillBudget
from store_core.store.rebuild.index_compare import IndexComparison
from store_core.store.rebuild.lost_ranges import LostBytes
from store_core.store.rebuild.scan import SegmentScan
from store_core.store.rebuild.segment_units import QueuePiece
from store_core.store.rebuild.stored_names import stored_queue_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from store_core.store.rebuild.compare import LogBounds, QueueDifferences
    from store_core.store.rebuild.files import IndexReport, QueueReport
    from store_core.store.rebuild.rules import RebuildRules
    from store_core.store.rebuild.scan import IndexPiece
    from store_core.store.rebuild.segment_part import SegmentPart

__all__ = ["RebuildTasks", "ReportKind", "Run", "RunKey"]

Run: TypeAlias = bytes | SpilledRun
"""Units or entries, or where they are."""

_FIRST_BUCKET = 0
"""Its task gets the outcomes, and the index if that is to be written; it starts first, and takes longest then."""

_FIRST_SEQUENCE = -1


class ReportKind(IntEnum):
    """What a row is about."""

    LOST = -1
    OUTCOME = 0
    QUEUE = 1
    INDEX = 2
    DIFFERENCE = 3


class RunKey(NamedTuple):
    """What a run is of; in this order a task gets its runs.

    Attributes
    ----------
    bucket : int
        Number of the task that gets it.
    kind : ReportKind
    topic : str
    queue_id : int
    part, sequence : int
        Its place in the log.
    """

    bucket: int
    kind: int
    topic: str
    queue_id: int
    part: int
    sequence: int


@dataclass(frozen=True)
class RebuildTasks:
    """The functions that Spark runs; pickled to every task.

    Attributes
    ----------
    parts : tuple of SegmentPart
        Of the log, in order.
    rules : RebuildRules
    store_root, target_root : Path
        Without anything to write, the target is not used.
    queue_buckets : int
        Tasks that write queues; if the index is to be written, one more writes that.
    compared : LogBounds, optional
        Compare with what the store has, and write nothing but scratch files of each worker's own.
    is_spilled : bool
        Whether runs go through files below the target, and the shuffle carries where they are. On one machine that
        spares what it takes to send them through Spark's JVM and back. On several, the shuffle carries the runs.
    """

    parts: tuple[SegmentPart, ...]
    rules: RebuildRules
    store_root: Path
    target_root: Path
    queue_buckets: int
    compared: LogBounds | None = None
    is_spilled: bool = False

    @property
    def buckets(self) -> int:
        """Tasks that write."""
        return self.queue_buckets + (self.rules.has_index and self.compared is None)

    # ---- reading

    def scan(self, numbers: Iterable[int]) -> Iterator[tuple[RunKey, Run]]:
        """Read the parts of these numbers, and give their runs and outcomes."""
        if not self.is_spilled or self.compared is not None:
            yield from self._scan(numbers)
            return
        with RunSpill(self.target_root / ATTEMPTS) as spill:
            for key, data in self._scan(numbers):
                yield key, spill.put(data) if data and key.kind != ReportKind.OUTCOME else data

    def _scan(self, numbers: Iterable[int]) -> Iterator[tuple[RunKey, bytes]]:
        for number in numbers:
            if number == 0:
                yield from self._first_runs()
            scan = SegmentScan(self.parts[number], self.rules, self._comparison(self.parts[number]))
            for sequence, piece in enumerate(scan):
                yield self._key(number, sequence, piece), piece.packed
            if scan.outcome is not None:
                text = json.dumps({"part": number, **asdict(scan.outcome)})
                yield RunKey(_FIRST_BUCKET, ReportKind.OUTCOME, "", 0, number, 0), text.encode()
            if self.rules.is_salvaged and scan.lost.count:
                for bucket in range(self.buckets):
                    yield RunKey(bucket, ReportKind.LOST, "", 0, number, 0), scan.lost.packed()

    def _first_runs(self) -> Iterator[tuple[RunKey, bytes]]:
        """Yield empty runs for what is taken over from the store, whether or not more comes: each queue, the index."""
        if self.rules.has_index and self.compared is None:
            yield RunKey(_FIRST_BUCKET, ReportKind.INDEX, "", 0, 0, _FIRST_SEQUENCE), b""
        is_taken_over = self.rules.has_queues and self.rules.since_offset > 0
        for topic, queue_id in stored_queue_names(self.store_root, OsFileSystem()) if is_taken_over else ():
            if self.rules.wants(topic, queue_id):
                nothing = QueuePiece(topic, queue_id, b"")
                yield self._key(0, _FIRST_SEQUENCE, nothing), nothing.packed

    def _comparison(self, part: SegmentPart) -> IndexComparison | None:
        if self.compared is None or not self.rules.has_index:
            return None
        first = part.segment.start_offset
        files, clock = OsFileSystem(), SystemClock()
        return IndexComparison(
            self.store_root, self.rules.queue_rules, first + part.begin, first + part.end, files, clock
        )

    def _key(self, number: int, sequence: int, piece: QueuePiece | IndexPiece) -> RunKey:
        if isinstance(piece, QueuePiece):
            name = f"{piece.topic}/{piece.queue_id}".encode(errors="surrogatepass")
            bucket = self.buckets - 1 - crc32(name) % self.queue_buckets
            return RunKey(bucket, ReportKind.QUEUE, piece.topic, piece.queue_id, number, sequence)
        return RunKey(_FIRST_BUCKET, ReportKind.INDEX, "", 0, number, sequence)

    # ---- writing

    def write(self, runs: Iterable[tuple[RunKey, Run]]) -> Iterator[tuple[int, str]]:
        """Write what runs belong to, which come in the order of their keys; give a report of each queue and so on."""
        with RunReader() as reader:
            yield from self._write(((key, reader.read(run)) for key, run in runs))

    def _write(self, runs: Iterable[tuple[RunKey, bytes]]) -> Iterator[tuple[int, str]]:
        grouped = groupby(runs, key=lambda run: run[0].kind == ReportKind.LOST)
        lost: list[bytes] = []
        for is_lost, group in grouped:
            if is_lost:
                lost += [payload for _, payload in group]
            elif self.compared is not None:
                yield from self._compare_all(group, self.compared, self._budget(lost))
            else:
                with RebuildAttempt(self.target_root) as attempt:
                    reports = list(self._write_all(group, attempt, self._budget(lost)))
                    attempt.settle()
                yield from reports

    def _budget(self, lost: Iterable[bytes]) -> FillBudget | None:
        """Return what a queue's writer must know of damage, which comes before all else."""
        if not self.rules.is_salvaged:
            return None
        segments = {part.segment.start_offset: part.segment for part in self.parts}
        return FillBudget(LostBytes(list(segments.values()), lost))

    def _write_all(
        self, runs: Iterable[tuple[RunKey, bytes]], attempt: RebuildAttempt, budget: FillBudget | None
    ) -> Iterator[tuple[int, str]]:
        for (kind, topic, queue_id), group in groupby(runs, key=lambda run: run[0][1:4]):
            payloads = (payload for _, payload in group)
            if kind == ReportKind.OUTCOME:
                yield from ((kind, payload.decode()) for payload in payloads)
            elif kind == ReportKind.QUEUE:
                root = attempt.new_root() if self.rules.since_offset else attempt.root
                yield kind, _text(self._write_queue(topic, queue_id, payloads, root, budget))
            else:
                yield kind, _text(self._write_index(payloads, attempt.root))

    def _write_queue(
        self, topic: str, queue_id: int, payloads: Iterable[bytes], root: Path, budget: FillBudget | None
    ) -> QueueReport:
        clock, files = SystemClock(), DeferredSyncFileSystem()
        writer = QueueWriter(topic, queue_id, self.rules, self.store_root, root, files, clock, budget)
        for payload in payloads:
            if payload:
                writer.add(unpack_units(payload))
        return writer.finish()

    def _write_index(self, payloads: Iterable[bytes], root: Path) -> IndexReport:
        writer = IndexWriter(self.rules, self.store_root, root, DeferredSyncFileSystem(), SystemClock())
        for payload in payloads:
            if payload:
                writer.add(unpack_entries(payload))
        return writer.finish()

    # ---- comparing

    def _compare_all(
        self, runs: Iterable[tuple[RunKey, bytes]], bounds: LogBounds, budget: FillBudget | None
    ) -> Iterator[tuple[int, str]]:
        with tempfile.TemporaryDirectory(prefix="commitlog-compared-") as scratch:
            roots = (Path(scratch, str(number)) for number in count())
            for (kind, topic, queue_id), group in groupby(runs, key=lambda run: run[0][1:4]):
                payloads = (payload for _, payload in group)
                if kind == ReportKind.OUTCOME:
                    yield from ((kind, payload.decode()) for payload in payloads)
                    continue
                root = next(roots)
                yield kind, _text(self._write_queue(topic, queue_id, payloads, root, budget))
                yield ReportKind.DIFFERENCE, _text(self._compare(topic, queue_id, root, bounds))
                shutil.rmtree(root, ignore_errors=True)

    def _compare(self, topic: str, queue_id: int, root: Path, bounds: LogBounds) -> QueueDifferences:
        rules, files, clock = self.rules.queue_rules, OsFileSystem(), SystemClock()
        rebuilt = StoredQueues(root, rules, files, clock)
        stored = StoredQueues(self.store_root, rules, files, clock)
        return compare_queues(topic, queue_id, rebuilt, stored, bounds)


def _text(report: QueueReport | IndexReport | QueueDifferences) -> str:
    return json.dumps(asdict(report))
