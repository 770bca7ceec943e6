# SPDX-License-Identifier: Apache-2.0
"""Puts of RocketMQ and of this package, side by side in one run on one machine.

Usage: vs_rocketmq.py [--count N] [--runs N] [--releases 5.3 ...]

One thread puts the same messages of 200-byte bodies (about 370 bytes a record) into a fresh store with 1 GiB files.
RocketMQ's messages are made beforehand and its JIT is warm; its dispatch to queues and index runs beside, on another
core. Rounds alternate, so that what else the machine does hits both; figures are of the fastest round, with the median
beside.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import pyarrow as pa

from store_core import DefaultMessageStore, Message, MessageStoreConfig
from store_core.format.encode_batch import encode_batch
from tests.interop.judge import Judge
from tests.interop.puts import Put
from tests.interop.rocketmq import RocketMq
from tests.interop.toolchain import RELEASES, harness_command

if TYPE_CHECKING:
    from collections.abc import Callable

_TOPICS: Final = ("orders-eu", "orders-us", "payments", "clicks", "%RETRY%billing", "stock", "mail", "audit-log")
_QUEUES: Final = 8
_BODY_SIZE: Final = 200
_BATCH_ROWS: Final = 16_384
_SYNC_COUNT: Final = 1000
_SCALAR_SHARE: Final = 20
"""Our single puts are measured with this much fewer messages: their rate does not depend on how many there are."""


@dataclass
class Rate:
    """Records a second of several rounds."""

    name: str
    rounds: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        return max(self.rounds)

    def report(self, base: Rate | None, target: float | None = None) -> None:
        """Print a line: best and median, and how many times the base's best that is."""
        ratio = "" if base is None else f"  x {self.best / base.best:7.2f}"
        wanted = "" if target is None or base is None else self._verdict(base, target)
        print(f"  {self.name:<44} {self.best:12,.0f} /s  median {statistics.median(self.rounds):12,.0f}{ratio}{wanted}")

    def _verdict(self, base: Rate, target: float) -> str:
        return f"  {'reached' if self.best / base.best >= target else 'MISSED'} (>= {target})"


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
    parser.add_argument("--runs", type=int, default=3, help="rounds (default 3)")
    parser.add_argument("--releases", nargs="+", default=["5.3", "4.9"], choices=sorted(RELEASES))
    parser.add_argument("--folder", type=Path, help="where stores are made (default: the system's temporary folder)")
    return parser.parse_args()


def _compare(release: str, folder: Path, count: int, runs: int) -> None:
    print(f"==> {count:,} messages, {runs} rounds, beside RocketMQ {RELEASES[release]}; load {os.getloadavg()[0]:.1f}")
    table = _table()
    theirs, dispatched = Rate("RocketMQ putMessage, async flush"), Rate("  until queues and index have them")
    ours, scalar = Rate("append_batch, async flush"), Rate("put_message, async flush")
    synced, ours_synced = Rate("RocketMQ putMessage, sync flush"), Rate("put_message, sync flush")
    bulk_synced = Rate(f"append_batch of {_BATCH_ROWS:,}, sync flush")
    with RocketMq(harness_command(RELEASES[release])) as process:
        judge = Judge(release, process)
        for _ in range(runs):
            answer = _theirs(judge, folder, count, count // 5)
            theirs.rounds.append(count / answer["seconds"])
            dispatched.rounds.append(count / answer["dispatchedSeconds"])
            ours.rounds.append(_in_store(folder, release, "ASYNC_FLUSH", lambda store: _append(store, table, count)))
            puts = count // _SCALAR_SHARE
            scalar.rounds.append(_in_store(folder, release, "ASYNC_FLUSH", lambda store: _put(store, puts)))  # noqa: B023
            answer = _theirs(judge, folder, _SYNC_COUNT, 100, flushDiskType="SYNC_FLUSH")
            synced.rounds.append(_SYNC_COUNT / answer["seconds"])
            ours_synced.rounds.append(_in_store(folder, release, "SYNC_FLUSH", lambda store: _put(store, _SYNC_COUNT)))
            bulk_synced.rounds.append(
                _in_store(folder, release, "SYNC_FLUSH", lambda store: _append(store, table, count))
            )
    theirs.report(None)
    dispatched.report(theirs)
    ours.report(theirs, 5.0 if release == "5.3" else None)
    scalar.report(theirs)
    synced.report(None)
    ours_synced.report(synced)
    bulk_synced.report(synced)


def _theirs(judge: Judge, folder: Path, count: int, warm_up: int, **settings: object) -> dict[str, float]:
    store = folder / "theirs"
    answer = judge.bench_put(store, _puts(), warm_up=warm_up, count=count, **settings)
    shutil.rmtree(store)
    return answer


def _puts() -> list[Put]:
    return [_message(number) for number in range(len(_TOPICS) * _QUEUES)]


def _message(number: int) -> Put:
    names = (("KEYS", f"order{number:07d}"), ("UNIQ_KEY", f"7F0000010A1B18B4AAC2{number:012X}"), ("TAGS", "TagA"))
    queue = number // len(_TOPICS) % _QUEUES
    return Put(_TOPICS[number % len(_TOPICS)], bytes(range(_BODY_SIZE)), queue, names)


def _table() -> pa.Table:
    """Make the messages of one batch of ours; keys differ from row to row."""
    puts = [_message(number) for number in range(_BATCH_ROWS)]
    return pa.table(
        {
            "topic": pa.array([put.topic for put in puts]),
            "body": pa.array([put.body for put in puts], pa.binary()),
            "queue_id": pa.array([put.queue_id for put in puts], pa.int32()),
            "properties": pa.array([put.properties for put in puts], pa.map_(pa.string(), pa.string())),
            "born_timestamp": pa.array([put.born_timestamp for put in puts], pa.int64()),
        }
    )


def _in_store(folder: Path, release: str, flush: str, put: Callable[[DefaultMessageStore], int]) -> float:
    """Time puts into a fresh store of ours; gives records a second."""
    path = folder / "ours"
    config = MessageStoreConfig(release=release, flush_disk_type=flush)  # type: ignore[arg-type]
    with DefaultMessageStore.open(path, config) as store:
        begin = time.perf_counter()
        count = put(store)
        seconds = time.perf_counter() - begin
    shutil.rmtree(path)
    return count / seconds


def _append(store: DefaultMessageStore, table: pa.Table, count: int) -> int:
    batches = -(-count // _BATCH_ROWS)
    for _ in range(batches):
        if not store.append_batch(table).is_ok:
            raise RuntimeError("an append was refused")
    return batches * _BATCH_ROWS


def _put(store: DefaultMessageStore, count: int) -> int:
    made = [
        Message(put.topic, put.body, put.queue_id, properties=dict(put.properties), born_timestamp=put.born_timestamp)
        for put in _puts()
    ]
    for number in range(count):
        if not store.put_message(made[number % len(made)]).is_ok:
            raise RuntimeError("a put was refused")
    return count


def _encoding(runs: int) -> None:
    """Compare encode_batch with a copy of its output."""
    table = _table()
    data = encode_batch(table).data
    repeats = 20
    copy = _least(runs, lambda: [data.copy() for _ in range(repeats)])
    plain = _least(runs, lambda: [encode_batch(table, compute_crc=False) for _ in range(repeats)])
    with_crc = _least(runs, lambda: [encode_batch(table) for _ in range(repeats)])
    assert np.array_equal(data, encode_batch(table).data)
    size = data.size / len(table)
    print(f"==> encode_batch of {len(table):,} records, {size:.0f} bytes each, against a copy of its output")
    for name, seconds, target in (("without CRC", plain, 6.0), ("with CRC", with_crc, None)):
        ratio = seconds / copy
        wanted = "" if target is None else f"  {'reached' if ratio <= target else 'MISSED'} (<= {target})"
        rate = repeats * len(table) / seconds
        print(f"  {name:<44} {rate:12,.0f} /s  x {ratio:7.2f}{wanted}")


def _least(runs: int, function: Callable[[], object]) -> float:
    seconds = []
    for _ in range(runs + 1):
        begin = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - begin)
    return min(seconds[1:])


if __name__ == "__main__":
    main()
