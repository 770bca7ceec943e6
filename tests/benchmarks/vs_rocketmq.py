# SPDX-License-Identifier: Apache-2.0
"""Compares puts of RocketMQ and of this package, in one run on one machine.

One thread puts the same messages with 200-byte bodies (about 370 bytes per record) into a fresh log with 1 GiB files,
with the same configuration. Both sides are warmed up with a fifth as many messages in the same log. Both start with
messages that exist already; RocketMQ's have their properties string, as a broker passes them on, and so have ours,
except where maps are mentioned.

RocketMQ dispatches to queues and index at the same time, on another core. Ours is left out at first, since Python's
threads take turns: the rows without it measure `CommitLog` alone. Then follow a row for a whole store, and the time
until queues and index have all messages on either side.

Rounds alternate, so that other load on the machine affects both. A ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa

from store_core import DefaultMessageStore, Message, MessageStoreConfig
from store_core.files.clock import SystemClock
from store_core.files.file_system import OsFileSystem
from store_core.files.mapped_file_queue import AllocateMappedFileService
from store_core.files.segment_paths import SegmentPaths
from store_core.store.put.commit_log import CommitLog
from tests.interop.judge import Judge
from tests.interop.puts import Put
from tests.interop.rocketmq import RocketMq
from tests.interop.toolchain import RELEASES, harness_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from store_core.format.columnar.encode_batch import EncodedBatch


_TOPICS: Final = ("orders-eu", "orders-us", "payments", "clicks", "%RETRY%billing", "stock", "mail", "audit-log")
_QUEUES: Final = 8
_BODY_SIZE: Final = 200
_BATCH_ROWS: Final = 32_768
_CHUNK: Final = 4 * _BATCH_ROWS
_SYNC_COUNT: Final = 1000
_RELEASE: Final = "5.3"
_TARGET: Final = 8.0
_COUNT: Final = 300_000
_SCALAR_SHARE: Final = 20
"""Our single puts are measured with fewer messages, by this factor: their rate does not depend on the number."""


@dataclass
class Rate:
    """Records per second of several rounds, and their CPU time."""

    name: str
    rounds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    """Nanoseconds per record, of the whole process; for RocketMQ, of the putting thread."""

    def add(self, count: int, seconds: float, cpu_seconds: float | None = None) -> None:
        self.rounds.append(count / seconds)
        if cpu_seconds is not None:
            self.cpu.append(cpu_seconds / count * 1e9)

    def report(self, base: Rate | None = None, target: float | None = None) -> dict[str, object]:
        """Print a line: best and median, CPU time, and the rate as a multiple of the base's; return it as a row."""
        best, median = max(self.rounds), statistics.median(self.rounds)
        cpu = f"{statistics.median(self.cpu):8,.0f} ns" if self.cpu else " " * 11
        ratio = "" if base is None else self._ratio(base, target)
        print(f"  {self.name:<46} {best:11,.0f} /s  median {median:11,.0f}  cpu {cpu}{ratio}")
        row = {"name": self.name, "least": best / 1000, "median": median / 1000, "unit": "thousand/s"}
        if base is None:
            return row
        return {**row, "ratio": best / max(base.rounds), "median_ratio": self._median_ratio(base), "at_least": target}

    def _median_ratio(self, base: Rate) -> float:
        return statistics.median(own / other for own, other in zip(self.rounds, base.rounds, strict=True))

    def _ratio(self, base: Rate, target: float | None) -> str:
        ratios = [own / other for own, other in zip(self.rounds, base.rounds, strict=True)]
        median = statistics.median(ratios)
        verdict = "" if target is None else f"  {'reached' if median >= target else 'MISSED'} (>= {target})"
        return f"  x {median:6.2f} (from {min(ratios):.2f} to {max(ratios):.2f}){verdict}"


class Comparison:
    """The rounds against one release."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.theirs = Rate("RocketMQ putMessage, async flush")
        self.theirs_dispatched = Rate("RocketMQ, until queues and index have all")
        self.strings = Rate("append_batch, properties strings")
        self.ahead = Rate("append_batch, encoded in another thread")
        self.maps = Rate("append_batch, maps of properties")
        self.encoded = Rate("append_batch of what is encoded before")
        self.scalar = Rate("put_message")
        self.store = Rate("append_batch of a store, which dispatches beside")
        self.dispatched = Rate("a store, until queues and index have all")
        self.theirs_synced = Rate("RocketMQ putMessage, sync flush")
        self.synced = Rate("put_message, sync flush")
        self.bulk_synced = Rate(f"append_batch of {_BATCH_ROWS:,}, sync flush")

    def measure(self, judge: Judge) -> None:
        """Run one round."""
        strings, maps, count = _table(as_strings=True), _table(), _COUNT
        answer = self._theirs(judge, count)
        self.theirs.add(count, answer["seconds"], answer["cpuSeconds"])
        self.theirs_dispatched.add(count, answer["dispatchedSeconds"])
        ours = _Ours(self.folder / "ours", "ASYNC_FLUSH")
        ours.measure(self.strings, count, _append(strings))
        ours.measure(self.ahead, count, _append_ahead(strings))
        ours.measure(self.maps, count, _append(maps))
        ours.measure(self.encoded, count, _append_encoded(strings))
        ours.measure(self.scalar, count // _SCALAR_SHARE, _put)
        ours.measure(self.store, count, _append(strings), self.dispatched)
        answer = self._theirs(judge, _SYNC_COUNT, flushDiskType="SYNC_FLUSH")
        self.theirs_synced.add(_SYNC_COUNT, answer["seconds"], answer["cpuSeconds"])
        ours = _Ours(self.folder / "ours", "SYNC_FLUSH")
        ours.measure(self.synced, _SYNC_COUNT, _put)
        ours.measure(self.bulk_synced, count, _append(strings))

    def report(self) -> list[dict[str, object]]:
        """Print the table, and return it."""
        rows = [self.theirs.report()]
        rows += [rate.report(self.theirs, _TARGET) for rate in (self.strings, self.ahead)]
        rows += [rate.report(self.theirs) for rate in (self.maps, self.encoded, self.scalar, self.store)]
        rows += [self.theirs_dispatched.report(), self.dispatched.report(self.theirs_dispatched)]
        rows.append(self.theirs_synced.report())
        return rows + [rate.report(self.theirs_synced) for rate in (self.synced, self.bulk_synced)]

    def _theirs(self, judge: Judge, count: int, **settings: object) -> dict[str, float]:
        store = self.folder / "theirs"
        puts = [_message(number) for number in range(len(_TOPICS) * _QUEUES)]
        answer = judge.bench_put(store, puts, warm_up=count // 5, count=count, chunk=_CHUNK, **settings)
        shutil.rmtree(store)
        return answer


def bench_append(folder: Path, runs: int) -> list[dict[str, object]]:
    """Compare with one release; return rates in thousands per second."""
    print(
        f"==> {_COUNT:,} messages, {runs} rounds, beside RocketMQ {RELEASES[_RELEASE]}; load {os.getloadavg()[0]:.1f}"
    )
    scratch = Path(tempfile.mkdtemp(dir=folder))
    comparison = Comparison(scratch)
    try:
        with RocketMq(harness_command(RELEASES[_RELEASE])) as process:
            for _ in range(runs):
                comparison.measure(Judge(_RELEASE, process))
    finally:
        shutil.rmtree(scratch)
    rows = comparison.report()
    load = os.getloadavg()[0]
    print(f"    load {load:.1f}")
    return [{**row, "load": load} for row in rows]


def _message(number: int) -> Put:
    names = (("KEYS", f"order{number:07d}"), ("UNIQ_KEY", f"7F0000010A1B18B4AAC2{number:012X}"), ("TAGS", "TagA"))
    queue = number // len(_TOPICS) % _QUEUES
    return Put(_TOPICS[number % len(_TOPICS)], bytes(range(_BODY_SIZE)), queue, names)


def _table(*, as_strings: bool = False) -> pa.RecordBatch:
    """Make the messages of one of our batches; keys differ from row to row."""
    puts = [_message(number) for number in range(_BATCH_ROWS)]
    strings = ["".join(f"{name}\x01{value}\x02" for name, value in put.properties) for put in puts]
    maps = pa.array([put.properties for put in puts], pa.map_(pa.string(), pa.string()))
    columns = {
        "topic": pa.array([put.topic for put in puts]),
        "body": pa.array([put.body for put in puts], pa.binary()),
        "queue_id": pa.array([put.queue_id for put in puts], pa.int32()),
        "born_timestamp": pa.array([put.born_timestamp for put in puts], pa.int64()),
    }
    columns |= {"properties_string": pa.array(strings)} if as_strings else {"properties": maps}
    return pa.RecordBatch.from_pydict(columns)


Log: TypeAlias = "CommitLog | DefaultMessageStore"
Work: TypeAlias = "Callable[[Log, int], Callable[[], int]]"
"""Prepares at least so many messages, and returns a function that puts them and returns their number."""


@dataclass(frozen=True)
class _Ours:
    """Our side, with fresh stores."""

    path: Path
    flush: str

    def measure(self, rate: Rate, count: int, work: Work, dispatched: Rate | None = None) -> None:
        """Time puts into a new log, or with `dispatched` into a new store, chunk by chunk."""
        seconds = cpu_seconds = dispatched_seconds = 0.0
        with self._log() if dispatched is None else self._store() as log:
            done = -count // 5
            while done < 0:
                done += work(log, min(_CHUNK, -done))()
            done = 0
            while done < count:
                put = work(log, min(_CHUNK, count - done))
                begin, begin_cpu = time.perf_counter(), time.process_time()
                done += put()
                cpu_seconds += time.process_time() - begin_cpu
                seconds += time.perf_counter() - begin
                while isinstance(log, DefaultMessageStore) and log.dispatch_behind_bytes > 0:
                    time.sleep(0.001)
                dispatched_seconds += time.perf_counter() - begin
        shutil.rmtree(self.path)
        rate.add(done, seconds, cpu_seconds)
        if dispatched is not None:
            dispatched.add(done, dispatched_seconds)

    @property
    def _config(self) -> MessageStoreConfig:
        return MessageStoreConfig(release=_RELEASE, flush_disk_type=self.flush)  # type: ignore[arg-type]

    def _store(self) -> DefaultMessageStore:
        return DefaultMessageStore.open(self.path, self._config)

    @contextmanager
    def _log(self) -> Iterator[CommitLog]:
        system, clock = OsFileSystem(), SystemClock()
        allocate = AllocateMappedFileService(system, clock)
        log = CommitLog(SegmentPaths((self.path,)), self._config, system, clock, allocate=allocate)
        allocate.start()
        log.start()
        try:
            yield log
        finally:
            log.shutdown()
            allocate.shutdown()
            log.close()


def _append(batch: pa.RecordBatch) -> Work:
    def work(log: Log, count: int) -> Callable[[], int]:
        return lambda: sum(_appended(log, batch) for _ in range(-(-count // _BATCH_ROWS)))

    return work


def _append_ahead(batch: pa.RecordBatch) -> Work:
    """Encode the next batch in a second thread while one is appended."""

    def work(log: Log, count: int) -> Callable[[], int]:
        batches = -(-count // _BATCH_ROWS)

        def put() -> int:
            done = 0
            with ThreadPoolExecutor(1) as pool:
                following = pool.submit(log.encode_messages, batch)
                for number in range(1, batches + 1):
                    encoded = following.result()
                    if number < batches:
                        following = pool.submit(log.encode_messages, batch)
                    done += _appended(log, encoded)
            return done

        return put

    return work


def _append_encoded(batch: pa.RecordBatch) -> Work:
    def work(log: Log, count: int) -> Callable[[], int]:
        encoded = [log.encode_messages(batch) for _ in range(-(-count // _BATCH_ROWS))]
        return lambda: sum(_appended(log, each) for each in encoded)

    return work


def _appended(log: Log, messages: pa.RecordBatch | Sequence[EncodedBatch]) -> int:
    result = log.append_batch(messages)
    if not result.is_ok:
        raise RuntimeError("an append was refused")
    return result.msg_num


def _put(log: Log, count: int) -> Callable[[], int]:
    made = [
        Message(put.topic, put.body, put.queue_id, properties=dict(put.properties), born_timestamp=put.born_timestamp)
        for put in map(_message, range(len(_TOPICS) * _QUEUES))
    ]

    def puts() -> int:
        for number in range(count):
            if not log.put_message(made[number % len(made)]).is_ok:
                raise RuntimeError("a put was refused")
        return count

    return puts
