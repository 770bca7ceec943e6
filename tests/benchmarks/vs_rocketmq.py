# SPDX-License-Identifier: Apache-2.0
"""Puts of RocketMQ and of this package, side by side in one run on one machine.

Usage: vs_rocketmq.py [--count N] [--runs N] [--releases 5.3 ...]

One thread puts the same messages of 200-byte bodies (about 370 bytes a record) into a fresh store with 1 GiB files, by
the same configuration. Both sides are warm: a fifth as many messages go before, into the same store. Both begin with
messages that are there already; RocketMQ's carry their properties string, as a broker hands them on, and so does the
table of the first row of ours. RocketMQ's dispatch to queues and index runs beside, on another core.

Rounds alternate, so that what else the machine does hits both. A ratio is the median of those of the rounds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyarrow as pa

from store_core import DefaultMessageStore, Message, MessageStoreConfig
from store_core.format.encode_batch import encode_batch
from tests.interop.judge import Judge
from tests.interop.puts import Put
from tests.interop.rocketmq import RocketMq
from tests.interop.toolchain import RELEASES, harness_command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store_core.format.batch_append import EncodedBatch

_TOPICS: Final = ("orders-eu", "orders-us", "payments", "clicks", "%RETRY%billing", "stock", "mail", "audit-log")
_QUEUES: Final = 8
_BODY_SIZE: Final = 200
_BATCH_ROWS: Final = 32_768
_CHUNK: Final = 8 * _BATCH_ROWS
_SYNC_COUNT: Final = 1000
_SCALAR_SHARE: Final = 20
"""Our single puts are measured with this much fewer messages: their rate does not depend on how many there are."""


@dataclass
class Rate:
    """Records a second of several rounds, and the processor's time for them."""

    name: str
    rounds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    """Nanoseconds a record, of the whole process; of RocketMQ's the putting thread's."""

    def add(self, count: int, seconds: float, cpu_seconds: float | None = None) -> None:
        self.rounds.append(count / seconds)
        if cpu_seconds is not None:
            self.cpu.append(cpu_seconds / count * 1e9)

    def report(self, base: Rate | None = None, target: float | None = None) -> None:
        """Print a line: best and median, processor's time, and how many times the base's rate that is."""
        best, median = max(self.rounds), statistics.median(self.rounds)
        cpu = f"{statistics.median(self.cpu):8,.0f} ns" if self.cpu else " " * 11
        ratio = "" if base is None else self._ratio(base, target)
        print(f"  {self.name:<46} {best:11,.0f} /s  median {median:11,.0f}  cpu {cpu}{ratio}")

    def _ratio(self, base: Rate, target: float | None) -> str:
        ratios = [own / other for own, other in zip(self.rounds, base.rounds, strict=True)]
        median = statistics.median(ratios)
        verdict = "" if target is None else f"  {'reached' if median >= target else 'MISSED'} (>= {target})"
        return f"  x {median:6.2f} (from {min(ratios):.2f} to {max(ratios):.2f}){verdict}"


def main() -> None:
    """Run the rounds and print the table."""
    options = _arguments()
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        for release in options.releases:
            _compare(release, folder, options.count, options.runs)
        _encoding(options.runs)
    finally:
        shutil.rmtree(folder)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000, help="messages of a round (default 1,000,000)")
    parser.add_argument("--runs", type=int, default=5, help="rounds (default 5)")
    parser.add_argument("--releases", nargs="+", default=["5.3", "4.9"], choices=sorted(RELEASES))
    parser.add_argument("--folder", type=Path, help="where stores are made (default: the system's temporary folder)")
    return parser.parse_args()


def _compare(release: str, folder: Path, count: int, runs: int) -> None:
    print(f"==> {count:,} messages, {runs} rounds, beside RocketMQ {RELEASES[release]}; load {os.getloadavg()[0]:.1f}")
    theirs, dispatched = Rate("RocketMQ putMessage, async flush"), Rate("  until queues and index have them")
    strings, maps = Rate("append_batch, properties strings"), Rate("append_batch, maps of properties")
    ahead = Rate("append_batch, encoded in another thread")
    encoded, scalar = Rate("append_batch of what is encoded before"), Rate("put_message, async flush")
    synced, ours_synced = Rate("RocketMQ putMessage, sync flush"), Rate("put_message, sync flush")
    bulk_synced = Rate(f"append_batch of {_BATCH_ROWS:,}, sync flush")
    with RocketMq(harness_command(RELEASES[release])) as process:
        judge = Judge(release, process)
        for _ in range(runs):
            answer = _theirs(judge, folder, count)
            theirs.add(count, answer["seconds"], answer["cpuSeconds"])
            dispatched.add(count, answer["dispatchedSeconds"])
            ours = _Ours(folder, release, "ASYNC_FLUSH")
            ours.measure(strings, count, _append(_table(as_strings=True)))
            ours.measure(ahead, count, _append_ahead(_table(as_strings=True)))
            ours.measure(maps, count, _append(_table()))
            ours.measure(encoded, count, _append_encoded(_table()))
            ours.measure(scalar, count // _SCALAR_SHARE, _put)
            answer = _theirs(judge, folder, _SYNC_COUNT, flushDiskType="SYNC_FLUSH")
            synced.add(_SYNC_COUNT, answer["seconds"], answer["cpuSeconds"])
            ours = _Ours(folder, release, "SYNC_FLUSH")
            ours.measure(ours_synced, _SYNC_COUNT, _put)
            ours.measure(bulk_synced, count, _append(_table(as_strings=True)))
    theirs.report()
    dispatched.report(theirs)
    strings.report(theirs, 5.0 if release == "5.3" else None)
    ahead.report(theirs, 5.0 if release == "5.3" else None)
    for rate in (maps, encoded, scalar):
        rate.report(theirs)
    synced.report()
    ours_synced.report(synced)
    bulk_synced.report(synced)
    print(f"    load {os.getloadavg()[0]:.1f}")


def _theirs(judge: Judge, folder: Path, count: int, **settings: object) -> dict[str, float]:
    store = folder / "theirs"
    puts = [_message(number) for number in range(len(_TOPICS) * _QUEUES)]
    answer = judge.bench_put(store, puts, warm_up=count // 5, count=count, chunk=_CHUNK, **settings)
    shutil.rmtree(store)
    return answer


def _message(number: int) -> Put:
    names = (("KEYS", f"order{number:07d}"), ("UNIQ_KEY", f"7F0000010A1B18B4AAC2{number:012X}"), ("TAGS", "TagA"))
    queue = number // len(_TOPICS) % _QUEUES
    return Put(_TOPICS[number % len(_TOPICS)], bytes(range(_BODY_SIZE)), queue, names)


def _table(*, as_strings: bool = False) -> pa.RecordBatch:
    """Make the messages of one batch of ours; keys differ from row to row."""
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


Work: TypeAlias = "Callable[[DefaultMessageStore, int], Callable[[], int]]"
"""Makes ready to put at least so many messages; what that gives puts them, and says how many they were."""


@dataclass(frozen=True)
class _Ours:
    """Fresh stores of ours."""

    folder: Path
    release: str
    flush: str

    def measure(self, rate: Rate, count: int, work: Work) -> None:
        """Time puts into a fresh store, chunk by chunk."""
        path = self.folder / "ours"
        config = MessageStoreConfig(release=self.release, flush_disk_type=self.flush)  # type: ignore[arg-type]
        seconds = cpu_seconds = 0.0
        with DefaultMessageStore.open(path, config) as store:
            done = -count // 5
            while done < 0:
                done += work(store, min(_CHUNK, -done))()
            done = 0
            while done < count:
                put = work(store, min(_CHUNK, count - done))
                begin, begin_cpu = time.perf_counter(), time.process_time()
                done += put()
                cpu_seconds += time.process_time() - begin_cpu
                seconds += time.perf_counter() - begin
        shutil.rmtree(path)
        rate.add(done, seconds, cpu_seconds)


def _append(batch: pa.RecordBatch) -> Work:
    def work(store: DefaultMessageStore, count: int) -> Callable[[], int]:
        return lambda: sum(_appended(store, batch) for _ in range(-(-count // _BATCH_ROWS)))

    return work


def _append_ahead(batch: pa.RecordBatch) -> Work:
    """Encode the next batch in a second thread while one is appended."""

    def work(store: DefaultMessageStore, count: int) -> Callable[[], int]:
        batches = -(-count // _BATCH_ROWS)

        def put() -> int:
            done = 0
            with ThreadPoolExecutor(1) as pool:
                following = pool.submit(store.encode_messages, batch)
                for number in range(1, batches + 1):
                    encoded = following.result()
                    if number < batches:
                        following = pool.submit(store.encode_messages, batch)
                    done += _appended(store, encoded)
            return done

        return put

    return work


def _append_encoded(batch: pa.RecordBatch) -> Work:
    def work(store: DefaultMessageStore, count: int) -> Callable[[], int]:
        encoded = [store.encode_messages(batch) for _ in range(-(-count // _BATCH_ROWS))]
        return lambda: sum(_appended(store, each) for each in encoded)

    return work


def _appended(store: DefaultMessageStore, messages: pa.RecordBatch | Sequence[EncodedBatch]) -> int:
    result = store.append_batch(messages)
    if not result.is_ok:
        raise RuntimeError("an append was refused")
    return result.msg_num


def _put(store: DefaultMessageStore, count: int) -> Callable[[], int]:
    made = [
        Message(put.topic, put.body, put.queue_id, properties=dict(put.properties), born_timestamp=put.born_timestamp)
        for put in map(_message, range(len(_TOPICS) * _QUEUES))
    ]

    def puts() -> int:
        for number in range(count):
            if not store.put_message(made[number % len(made)]).is_ok:
                raise RuntimeError("a put was refused")
        return count

    return puts


def _encoding(runs: int) -> None:
    """Compare encode_batch with a copy of its output."""
    batch = _table()
    data = encode_batch(batch).data
    repeats = 10
    copy = _least(runs, lambda: [data.copy() for _ in range(repeats)])
    plain = _least(runs, lambda: [encode_batch(batch, compute_crc=False) for _ in range(repeats)])
    with_crc = _least(runs, lambda: [encode_batch(batch) for _ in range(repeats)])
    size = data.size / len(batch)
    print(f"==> encode_batch of {len(batch):,} records, {size:.0f} bytes each, against a copy of its output")
    for name, seconds, target in (("without CRC", plain, 6.0), ("with CRC", with_crc, None)):
        ratio = seconds / copy
        wanted = "" if target is None else f"  {'reached' if ratio <= target else 'MISSED'} (<= {target})"
        rate = repeats * len(batch) / seconds
        print(f"  {name:<46} {rate:11,.0f} /s  x {ratio:6.2f}{wanted}")


def _least(runs: int, function: Callable[[], object]) -> float:
    seconds = []
    for _ in range(runs + 1):
        begin = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - begin)
    return min(seconds[1:])


if __name__ == "__main__":
    main()
