# SPDX-License-Identifier: Apache-2.0
"""Compares each answer about 4.3 million messages with the scan that it needs; processor time, one process."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

from store_core import read_messages
from store_core.answers import (
    bill,
    dead_letters,
    delays,
    lag,
    producers,
    retention,
    trace,
    transactions,
)
from store_core.answers.producer_keys import SEND_COLUMNS
from store_core.answers.store_bill import BillScan
from store_core.store.read.option_table import NamedBy
from tests.benchmarks.checking import indexed_store
from tests.benchmarks.measure import measure, report
from tests.benchmarks.segments import make_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


_GIBIBYTE: Final = 1 << 30
_LOG_BYTES: Final = 3 * _GIBIBYTE // 2
_BODY: Final = 200
_TWICE: Final = 2.0
_LAG_SECONDS: Final = 2.0
_NOW: Final = 1_700_100_000_000
_GROUPS: Final = 50


def bench_answers(folder: Path, runs: int) -> list[dict[str, object]]:
    """Time each answer beside the scan whose columns it needs; where queues help, on a store that has none, too."""
    bare, whole = _without_queues(folder), _with_offsets(folder)
    print("==> answers about 4.3 million messages, beside the scans that they need; processor time", flush=True)
    groups: list[tuple[str, Callable[[], object], dict[str, Callable[[], object]]]] = [
        (
            "scan of topics and flags",
            _scan(bare, ("physical_offset", "store_size", "topic", "sys_flag")),
            {
                "transactions, no queues": lambda: transactions(bare),
                "delays, no queues": lambda: delays(bare),
                "deadletters, no queues": lambda: dead_letters(bare),
            },
        ),
        ("scan of a bill's columns", _scan(bare, BillScan.COLUMNS), {"bill": lambda: bill(bare)}),
        (
            "scan of keys",
            _scan(bare, ("physical_offset",), key=_unique_key(2_000_000)),
            {"trace by unique key, no index": lambda: trace(bare, _unique_key(2_000_000), kind=NamedBy.KEY)},
        ),
        ("scan of what producers sent", _scan(bare, SEND_COLUMNS), {"producers": lambda: producers(bare)}),
    ]
    rows = []
    for name, scan, answers in groups:
        base, *others = measure({name: scan} | answers, runs).values()
        rows += [report(base, base), *(report(each, base, _TWICE) for each in others)]
    rows = [{**row, "group": "by a scan, processor time"} for row in rows]
    return [*rows, *_queue_answers(whole, runs)]


def _queue_answers(store: Path, runs: int) -> list[dict[str, object]]:
    """Time the answers that read queues, and no log."""
    answers: dict[str, Callable[[], object]] = {
        f"lag of {_GROUPS} groups in 64 queues": lambda: lag(store, now=_NOW),
        "retention": lambda: retention(store, now=_NOW, disk_size=2**40, disk_used=2**39),
        "transactions, by queues": lambda: transactions(store),
        "delays, by queues": lambda: delays(store),
    }
    lagging, *others = measure(answers, runs, time.perf_counter).values()
    rows = [report(lagging, lagging), *(report(each, each) for each in others)]
    print(f"  {'reached' if lagging.least <= _LAG_SECONDS else 'MISSED'} (<= {_LAG_SECONDS:.0f} s)", flush=True)
    return [{**row, "group": "by queues, elapsed"} for row in (rows[0] | {"most": _LAG_SECONDS}, *rows[1:])]


def _scan(store: Path, columns: tuple[str, ...], **given: Any) -> Callable[[], None]:  # noqa: ANN401 -- read options
    shared: dict[str, Any] = {"verify_crc": False, "use_consume_queues": "never", "use_index_files": "never"}

    def scan() -> None:
        for _ in read_messages(store, columns=columns, **(shared | given)):
            pass

    return scan


def _unique_key(number: int) -> str:
    return f"7F0000010A1B18B4AAC2{number:012X}"


def _without_queues(folder: Path) -> Path:
    """Make a store that has the same log, and neither queues nor index."""
    store, log = folder / "bare", make_log(folder, _LOG_BYTES, _GIBIBYTE, _BODY) / "commitlog"
    (store / "commitlog").mkdir(parents=True, exist_ok=True)
    for path in log.iterdir():
        linked = store / "commitlog" / path.name
        if not linked.exists():
            linked.hardlink_to(path)
    return store


def _with_offsets(folder: Path) -> Path:
    """Let groups have consumed half of each queue of the store with queues."""
    store = indexed_store(folder)
    queues = [path for path in (store / "consumequeue").glob("*/*") if path.is_dir()]
    topics: dict[str, dict[str, int]] = {}
    for queue in queues:
        half = sum(path.stat().st_size for path in queue.iterdir()) // 40
        for number in range(_GROUPS):
            topics.setdefault(f"{queue.parent.name}@group-{number}", {})[queue.name] = half
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": topics}))
    return store
