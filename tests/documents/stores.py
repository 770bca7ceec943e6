# SPDX-License-Identifier: Apache-2.0
"""The stores that the documents' examples use: small, the same every time, at the paths that the documents name."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from store_core import DefaultMessageStore, MessageStoreConfig
from store_core.queue.store_entry import STORE_DATABASE
from tests.builders import SIZE_AT, TIMER_SLOTS, LogBuilder, Record, Timer, stored_half, write_timers
from tests.dledger_logs import DLedgerLog
from tests.life_logs import BEGIN, LifeLog, write_config
from tests.store_core.files.rocksdbs import make_rocksdb

if TYPE_CHECKING:
    from pathlib import Path


_SEGMENT: Final = 1 << 30
_SMALL_SEGMENT: Final = 4096
_MESSAGES: Final = 600
_PAUSE_MS: Final = 500
_BEGIN_MS: Final = 1_700_000_000_000
_WRITTEN_BYTES: Final = 60
"""Bytes on disk of the crashed store's last record."""

_GROUPS: Final = ("billing", "my-group")
_DAMAGED: Final = 300
"""Number of the record in the damaged store whose size is changed."""


def make_world(world: Path) -> None:
    """Make what the examples use: stores with RocketMQ's default file sizes, and a few other files."""
    log = _log()
    sound = world / "data" / "rocketmq" / "store"
    _write(log, sound)
    _close(sound)
    _write_config(sound)
    world.joinpath("mnt").mkdir()
    for copy in ("data/damaged/store", "data/crashed/store", "mnt/store"):
        copy_world(sound, world / copy)
    _damage(world / "data/damaged/store", log)
    _crash(world / "data/crashed/store", log)
    _write_dledger(world / "data/dledger/store")
    _write_timers(world / "data/timers/store")
    write_shop(world / "data/shop/store")
    _write_files(world)


def copy_world(source: Path, target: Path) -> None:
    """Copy a tree, keeping holes in its files."""
    target.parent.mkdir(parents=True, exist_ok=True)
    cp = shutil.which("cp") or "/bin/cp"
    subprocess.run([cp, "-a", "--sparse=always", source, target], check=True)  # noqa: S603 -- our own directories


def _write_timers(root: Path) -> None:
    """Write timers that are due every ten seconds, and a slot that counts too many."""
    begin = _BEGIN_MS // 1000
    write_timers(root, [Timer(begin + 10 * number, begin - 30) for number in range(20)], begin + 30)
    ids = [f"0A010203000018B4AAC2{number:012X}" for number in (7, 8)]
    halves = [stored_half(4096, "payments", ids[0], 3), stored_half(4352, "orders", ids[1])]
    make_rocksdb(root / STORE_DATABASE, {"trans": dict(halves)})
    with (root / "timerwheel").open("r+b") as wheel:
        wheel.seek((begin + 100) % TIMER_SLOTS * 32 + 24)
        wheel.write(struct.pack(">i", 9))


def _write_dledger(root: Path) -> None:
    """Write a DLedger log behind an older one, whose last entry is not committed."""
    old = LogBuilder(_SMALL_SEGMENT)
    old.append_all(b"placed", b"paid")
    old.roll()
    old.write(root)
    log = DLedgerLog(_SMALL_SEGMENT, start_offset=_SMALL_SEGMENT)
    for number in range(7):
        log.append(b"shipped", term=number // 4, queue_offset=len(old.records) + number)
    log.write(root, committed=5)


def _log() -> LogBuilder:
    log = LogBuilder(_SEGMENT)
    for number in range(_MESSAGES):
        stored = _BEGIN_MS + number * _PAUSE_MS
        log.append(_message(number), store_timestamp=stored, born_timestamp=stored - 3 - number % 5)
    return log


def _message(number: int) -> Record:
    properties = {"KEYS": f"order-{4500 + number}", "UNIQ_KEY": f"0A010203000018B4AAC2{number:012X}"}
    if number % 50 == 49:
        properties |= {"attempt": str(number // 50 % 5), "REAL_TOPIC": "%RETRY%billing"}
        return Record(b"invoice", "%DLQ%billing", properties, reconsume_times=16)
    if number % 4 == 3:
        properties |= {"TAGS": "card" if number % 8 == 3 else "transfer"}
        return Record(b'{"amount": %d}' % (number % 90), "payments", properties, queue_id=number // 4 % 2)
    properties |= {"TAGS": ("created", "paid", "shipped")[number % 3], "region": "eu" if number % 5 else "us"}
    properties |= {"price": str(number % 40)}
    return Record(b'{"order": %d}' % (4500 + number), "orders", properties, queue_id=number % 4)


def _write(log: LogBuilder, root: Path) -> None:
    """Write the log, with a hole after its last record."""
    path = root / "commitlog" / f"{0:020d}"
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.writelines(record.encode() for record in log.records)
        file.truncate(_SEGMENT)


def _close(root: Path) -> None:
    """Make queues and index, and close the store."""
    with DefaultMessageStore.open(root):
        pass


def _write_config(root: Path) -> None:
    """Write a broker's configuration: bare integer keys as it writes them, and a group that is off."""
    config = root / "config"
    config.mkdir(exist_ok=True)
    config.joinpath("consumerOffset.json").write_text('{"offsetTable":{"orders@my-group":{0:30,1:40,2:12,3:0}}}')
    config.joinpath("delayOffset.json").write_text('{"offsetTable":{3:120,5:7}}')
    topics = {name: _topic(name, queues) for name, queues in {"orders": 4, "payments": 2, "%DLQ%billing": 1}.items()}
    config.joinpath("topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    groups = {name: {"groupName": name, "consumeEnable": name != "billing", "retryMaxTimes": 16} for name in _GROUPS}
    config.joinpath("subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": groups}))


def _topic(name: str, queues: int) -> dict[str, object]:
    return {"topicName": name, "readQueueNums": queues, "writeQueueNums": queues, "perm": 6, "attributes": {}}


def _damage(root: Path, log: LogBuilder) -> None:
    """Overwrite the size of a record in the middle."""
    _patch(root, log.records[_DAMAGED].physical_offset + SIZE_AT, b"\x7f\xff\xff\xff")


def _crash(root: Path, log: LogBuilder) -> None:
    """Leave the store as after a power failure: the last record torn, one topic without queues, not closed."""
    torn = log.records[-1].physical_offset + _WRITTEN_BYTES
    _patch(root, torn, bytes(log.end - torn))
    shutil.rmtree(root / "consumequeue" / "payments")
    root.joinpath("abort").write_text("4711")


def _patch(root: Path, offset: int, data: bytes) -> None:
    with root.joinpath("commitlog", f"{0:020d}").open("r+b") as file:
        file.seek(offset)
        file.write(data)


def _write_files(world: Path) -> None:
    """Write the files that commands and examples read from the working directory."""
    world.joinpath("broker.conf").write_text("brokerName=broker-a\nmappedFileSizeCommitLog=1073741824\n")
    rows = {"topic": ["invoices", "invoices"], "body": [b"one", b"two"], "keys": [["i-1"], ["i-2"]]}
    pq.write_table(pa.table(rows), world / "data" / "rows.parquet")


_SHOP_SEGMENT: Final = 1 << 16
_MINUTE: Final = 60_000
_SHOP_GROUPS: Final = {"billing": {"groupName": "billing", "consumeEnable": True, "retryMaxTimes": 2}}


def write_shop(root: Path) -> None:
    """Write the store, with queues and the broker's configuration."""
    log = LifeLog(_SHOP_SEGMENT)
    _fail(log)
    _settle(log)
    _delay(log)
    log.send("order-9", body=b'{"order": 9}', store_timestamp=BEGIN + 30 * _MINUTE)
    log.write(root)
    with DefaultMessageStore.open(root, MessageStoreConfig(mapped_file_size_commit_log=_SHOP_SEGMENT)):
        pass
    write_config(
        root,
        delayOffset={"offsetTable": {"3": 2, "4": 1, "18": 1}},
        consumerOffset={"offsetTable": {"orders@billing": {"0": 3}, "%RETRY%billing@billing": {"0": 2}}},
        subscriptionGroup={"subscriptionGroupTable": _SHOP_GROUPS},
    )


def _fail(log: LifeLog) -> None:
    """Let a consumer fail two times, and then for good."""
    sent = log.send("order-1", body=b'{"order": 1, "price": "?"}')
    for attempt in (1, 2):
        log.failed(sent, "order-1", "billing", attempt)
    log.dead(sent, "order-1", "billing", 3)


def _settle(log: LifeLog) -> None:
    """Begin three transactions: one is committed, one rolled back, and nobody says what becomes of the third."""
    halves = [log.half(f"order-{number}") for number in (2, 3)]
    log.commit(halves[0], "order-2", body=b'{"order": 2}')
    log.op(*halves)
    log.half("order-4", TRANSACTION_CHECK_TIMES="15")


def _delay(log: LifeLog) -> None:
    """Delay messages: one is delivered, two wait, and the broker's offset has passed another one."""
    log.delayed("order-5", 3)
    log.send("order-5", properties={"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "0"})
    log.delayed("order-6", 17)
    log.timer("order-7", BEGIN + 90 * _MINUTE)
    log.delayed("order-8", 18)
