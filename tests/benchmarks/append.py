# SPDX-License-Identifier: Apache-2.0
"""Compares puts of RocketMQ with those of this package, and with Spark writing a DataFrame, in turn on one machine.

Puts: one thread puts the same messages with 200-byte bodies (about 370 bytes per record) into a fresh log with 1 GiB
files, with the same configuration. Both sides are warmed up with a fifth as many messages in the same log. Both start
with messages that exist already; RocketMQ's have their properties string, as a broker passes them on, and so have
ours, except where maps are mentioned. RocketMQ dispatches to queues and index at the same time, on another core. Ours
is left out at first, since Python's threads take turns: the rows without it measure `CommitLog` alone. Then follow a
row for a whole store, and the time until queues and index have all messages on either side.

Spark: both write 200-byte bodies to eight topics of eight queues, and bring queues and index up to date. Three kinds of
messages take turns: only bodies; with tags and a key, as most DataFrames of messages have them; and also with a
UNIQ_KEY, which RocketMQ's clients add. RocketMQ puts in one thread and dispatches in another; Spark has two task slots.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa

from store_core import DefaultMessageStore, Message, MessageStoreConfig
from store_core.files.file_system import OsFileSystem
from store_core.files.machine import SystemClock
from store_core.files.mapped_file_queue import AllocateMappedFileService
from store_core.files.segment_listing import SegmentPaths
from store_core.store.put.commit_log import CommitLog
from tests.benchmarks.measure import Timing, report_speed
from tests.benchmarks.spark import CONF, bench_session, settings_of
from tests.interop.judge import Judge
from tests.interop.puts import Put
from tests.interop.rocketmq import RocketMq
from tests.interop.toolchain import RELEASES, harness_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from store_core.format.columnar.encode_batch import EncodedBatch


_TOPICS: Final = ("orders-eu", "orders-us", "payments", "clicks", "%RETRY%billing", "stock", "mail", "audit-log")
_QUEUES: Final = 8
_BODY_SIZE: Final = 200
_BATCH_ROWS: Final = 32_768
_CHUNK: Final = 4 * _BATCH_ROWS
_SYNC_COUNT: Final = 1000
_RELEASE: Final = "5.3"
_COUNT: Final = 300_000
_SCALAR_SHARE: Final = 20
"""Our single puts are measured with fewer messages, by this factor: their rate does not depend on the number."""


_THEIRS: Final = "RocketMQ putMessage, async flush"
_THEIRS_DISPATCHED: Final = "RocketMQ, until queues and index have all"
_OURS_DISPATCHED: Final = "a store, until queues and index have all"
_THEIRS_SYNCED: Final = "RocketMQ putMessage, sync flush"
_APPEND_TARGETS: Final = dict.fromkeys(
    ("append_batch, properties strings", "append_batch, encoded in another thread"), 8.0
)


class Comparison:
    """The rounds against one release: seconds per message of each way to put."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seconds: dict[str, list[float]] = {}

    def add(self, name: str, seconds: float, count: int) -> None:
        self.seconds.setdefault(name, []).append(seconds / count)

    def measure(self, judge: Judge) -> None:
        """Run one round."""
        strings, maps = _table(as_strings=True), _table()
        answer = self._theirs(judge, _COUNT)
        self.add(_THEIRS, answer["seconds"], _COUNT)
        self.add(_THEIRS_DISPATCHED, answer["dispatchedSeconds"], _COUNT)
        ours = _Ours(self, "ASYNC_FLUSH")
        ours.measure("append_batch, properties strings", _COUNT, _append(strings))
        ours.measure("append_batch, encoded in another thread", _COUNT, _append_ahead(strings))
        ours.measure("append_batch, maps of properties", _COUNT, _append(maps))
        ours.measure("append_batch of what is encoded before", _COUNT, _append_encoded(strings))
        ours.measure("put_message", _COUNT // _SCALAR_SHARE, _put)
        name = "append_batch of a store, which dispatches beside"
        ours.measure(name, _COUNT, _append(strings), dispatched=_OURS_DISPATCHED)
        self.add(_THEIRS_SYNCED, self._theirs(judge, _SYNC_COUNT, flushDiskType="SYNC_FLUSH")["seconds"], _SYNC_COUNT)
        ours = _Ours(self, "SYNC_FLUSH")
        ours.measure("put_message, sync flush", _SYNC_COUNT, _put)
        ours.measure(f"append_batch of {_BATCH_ROWS:,}, sync flush", _COUNT, _append(strings))

    def report(self) -> list[dict[str, object]]:
        """Print the table, and return it: each group of rows has RocketMQ first."""
        timings = {name: Timing(name, tuple(seconds)) for name, seconds in self.seconds.items()}
        synced = [name for name in timings if name.endswith("sync flush") and name != _THEIRS]
        dispatched = [_THEIRS_DISPATCHED, _OURS_DISPATCHED]
        rows = []
        for names in ([name for name in timings if name not in {*synced, *dispatched}], dispatched, synced):
            base, *others = names
            rows.append(report_speed(timings[base], is_rate=True))
            rows += [
                report_speed(timings[name], timings[base], _APPEND_TARGETS.get(name), is_rate=True) for name in others
            ]
        return rows

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
    return comparison.report()


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

    comparison: Comparison
    flush: str

    @property
    def path(self) -> Path:
        return self.comparison.folder / "ours"

    def measure(self, name: str, count: int, work: Work, *, dispatched: str = "") -> None:
        """Time puts into a new log, or with `dispatched` into a new store, chunk by chunk."""
        seconds = dispatched_seconds = 0.0
        with self._store() if dispatched else self._log() as log:
            done = -count // 5
            while done < 0:
                done += work(log, min(_CHUNK, -done))()
            done = 0
            while done < count:
                put = work(log, min(_CHUNK, count - done))
                begin = time.perf_counter()
                done += put()
                seconds += time.perf_counter() - begin
                while isinstance(log, DefaultMessageStore) and log.dispatch_behind_bytes > 0:
                    time.sleep(0.001)
                dispatched_seconds += time.perf_counter() - begin
        shutil.rmtree(self.path)
        self.comparison.add(name, seconds, done)
        if dispatched:
            self.comparison.add(dispatched, dispatched_seconds, done)

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
            message = made[number % len(made)]
            put = log.wait(log.put(message)) if isinstance(log, CommitLog) else log.put_message(message)
            if not put.is_ok:
                raise RuntimeError("a put was refused")
        return count

    return puts


_WRITTEN_TOPICS: Final = ("orders-eu", "orders-us", "payments", "clicks", "billing", "stock", "mail", "audit-log")
_BODY: Final = bytes(range(65, 91)) * 8
_PUT_CHUNK: Final = 1 << 17
_WRITTEN: Final = 5_000_000
_FEWER: Final = 1_000_000
"""The messages that RocketMQ puts: its rate does not depend on their number, and its heap is small."""

_WARM_UP: Final = 500_000
_DIFFERENT: Final = 1 << 16
"""How many different messages RocketMQ gets; then they repeat."""

_WANTED: Final = 4.0
_KINDS: Final = ("bodies alone", "tags and key", "and unique key")


def bench_sink(runs: int) -> list[dict[str, object]]:
    """Measure both in turn, round by round; return rates in thousands per second, by the kind of message."""
    folder = Path(tempfile.mkdtemp())
    spark = bench_session(settings=settings_of(CONF / "small-messages.conf"))
    seconds: dict[str, dict[str, list[float]]] = {kind: {"RocketMQ": [], "df.write": []} for kind in _KINDS}
    try:
        with RocketMq(harness_command(RELEASES[_RELEASE])) as process:
            judge = Judge(_RELEASE, process)
            for kind in _KINDS:
                _write(_frame(spark, kind, _WARM_UP), folder / "warm")
            for kind in _KINDS * runs:
                seconds[kind]["RocketMQ"].append(_put_by_rocketmq(judge, kind, folder / "theirs") / _FEWER)
                seconds[kind]["df.write"].append(_write(_frame(spark, kind, _WRITTEN), folder / "ours") / _WRITTEN)
    finally:
        spark.stop()
        shutil.rmtree(folder)
    rows = []
    for kind, measured in seconds.items():
        base, ours = (Timing(name, tuple(each)) for name, each in measured.items())
        found = report_speed(base, is_rate=True), report_speed(ours, base, _WANTED, is_rate=True)
        rows += [row | {"group": f"{kind}: best (median)"} for row in found]
    return rows


def _frame(spark: SparkSession, kind: str, count: int) -> DataFrame:
    topics = ", ".join(f"'{topic}'" for topic in _WRITTEN_TOPICS)
    columns = [
        f"element_at(array({topics}), int(id % {len(_WRITTEN_TOPICS)}) + 1) AS topic",
        f"int(id div {len(_WRITTEN_TOPICS)} % {_QUEUES}) AS queue_id",
        f"'{_BODY[:200].decode()}' AS body",
    ]
    if kind != "bodies alone":
        columns += ["'TagA' AS tags", "concat('order', id + 1000000) AS keys"]
    if kind == "and unique key":
        columns.append("map('UNIQ_KEY', concat('7F0000010A1B18B4AAC2', id + 100000000000)) AS properties")
    return spark.range(0, count, 1, 2).selectExpr(*columns)


def _write(frame: DataFrame, store: Path) -> float:
    begin = time.perf_counter()
    frame.write.format("commitlog").mode("append").option("release", _RELEASE).save(str(store))
    seconds = time.perf_counter() - begin
    shutil.rmtree(store)
    return seconds


def _put_by_rocketmq(judge: Judge, kind: str, store: Path) -> float:
    puts = [_message_of(kind, number) for number in range(_DIFFERENT)]
    answer = judge.bench_put(store, puts, warm_up=_WARM_UP, count=_FEWER, chunk=_PUT_CHUNK)
    shutil.rmtree(store)
    return float(answer["dispatchedSeconds"])


def _message_of(kind: str, number: int) -> Put:
    names: tuple[tuple[str, str], ...] = ()
    if kind != "bodies alone":
        names = (("KEYS", f"order{number + 1000000}"), ("TAGS", "TagA"))
    if kind == "and unique key":
        names += (("UNIQ_KEY", f"7F0000010A1B18B4AAC2{number + 100000000000}"),)
    return Put(
        _WRITTEN_TOPICS[number % len(_WRITTEN_TOPICS)], _BODY[:200], number // len(_WRITTEN_TOPICS) % _QUEUES, names
    )
