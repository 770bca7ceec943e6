# SPDX-License-Identifier: Apache-2.0
"""Compares answers about 4.3 million messages, and a check of them, with the scans that they need."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from store_core.answers import (
    bill,
    check,
    dead_letters,
    delays,
    lag,
    producers,
    retention,
    trace,
    transactions,
)
from store_core.answers.report import Verdict
from store_core.answers.store_bill import BILL_COLUMNS
from store_core.answers.store_producers import SEND_COLUMNS
from store_core.store.read.option_table import NamedBy
from tests.benchmarks.measure import compare, drained, ended_seconds, measure, report_limit
from tests.benchmarks.segments import link_log, make_indexed, make_log, make_store

if TYPE_CHECKING:
    from collections.abc import Callable


_GIBIBYTE: Final = 1 << 30
_LOG_BYTES: Final = 3 * _GIBIBYTE // 2
_BODY: Final = 200
_TWICE: Final = 2.0
_LAG_SECONDS: Final = 2.0
_NOW: Final = 1_700_100_000_000
_GROUPS: Final = 50


def bench_answers(folder: Path, runs: int) -> list[dict[str, object]]:
    """Time each answer beside the scan whose columns it needs; where queues help, on a store that has none, too."""
    bare = link_log(folder / "bare", make_log(folder, _LOG_BYTES, _GIBIBYTE, _BODY))
    whole = _with_offsets(folder)
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
        ("scan of a bill's columns", _scan(bare, BILL_COLUMNS), {"bill": lambda: bill(bare)}),
        (
            "scan of keys",
            _scan(bare, ("physical_offset",), key=_unique_key(2_000_000)),
            {"trace by unique key, no index": lambda: trace(bare, _unique_key(2_000_000), kind=NamedBy.KEY)},
        ),
        ("scan of what producers sent", _scan(bare, SEND_COLUMNS), {"producers": lambda: producers(bare)}),
    ]
    rows = []
    for name, scan, answers in groups:
        rows += compare({name: scan} | answers, runs, dict.fromkeys(answers, _TWICE))
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
    limits = {next(iter(answers)): _LAG_SECONDS}
    timings = measure(answers, runs, time.perf_counter)
    rows = [report_limit(timing, limits.get(name)) for name, timing in timings.items()]
    return [{**row, "group": "by queues, elapsed"} for row in rows]


def _scan(store: Path, columns: tuple[str, ...], **given: str) -> Callable[[], None]:
    options = {"verify_crc": False, "use_consume_queues": "never", "use_index_files": "never"}
    return drained(store, columns=columns, **options, **given)


def _unique_key(number: int) -> str:
    return f"7F0000010A1B18B4AAC2{number:012X}"


def _with_offsets(folder: Path) -> Path:
    """Let groups have consumed half of each queue of the store with queues."""
    store = make_indexed(folder, _LOG_BYTES, _BODY)
    queues = [path for path in (store / "consumequeue").glob("*/*") if path.is_dir()]
    topics: dict[str, dict[str, int]] = {}
    for queue in queues:
        half = sum(path.stat().st_size for path in queue.iterdir()) // 40
        for number in range(_GROUPS):
            topics.setdefault(f"{queue.parent.name}@group-{number}", {})[queue.name] = half
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": topics}))
    return store


_PROCESSES: Final = 2
_SECOND: Final = 1.0


def bench_checking(folder: Path, runs: int) -> list[dict[str, object]]:
    """Time decoding in one process, then checks, as elapsed time; then the count of a warm segment."""
    store = make_indexed(folder, _LOG_BYTES, _BODY)
    print("==> checking 4.3 million messages, beside decoding them; elapsed time, then processor time", flush=True)
    candidates: dict[str, Callable[[], object]] = {
        "all default columns, CRC checked, one process": drained(store, verify_crc=True),
        "check, two processes": lambda: _check(store, _PROCESSES),
        "check, one process": lambda: _check(store, 1),
    }
    rows = []
    for group, clock in (("elapsed", time.perf_counter), ("processor time", _processor_time)):
        targets = {"check, two processes": _TWICE} if group == "elapsed" else {}
        rows += [row | {"group": group} for row in compare(candidates, runs, targets, clock)]
    return [*rows, *_count(folder, runs)]


def _processor_time() -> float:
    """Return user and system time of this process and of those that it started and that have ended."""
    return time.process_time() + ended_seconds()


def _check(store: Path, processes: int) -> None:
    found = check(store, processes=processes)
    if found.verdict is not Verdict.CLEAN:
        raise SystemExit(f"a sound store has findings: {found.counts}")


def _count(folder: Path, runs: int) -> list[dict[str, object]]:
    """Time the command, from its start to its exit, on one warm segment of 1 GiB."""
    store = make_store(folder, _GIBIBYTE, _BODY)
    command = [str(Path(sys.executable).with_name("commitlog")), "count", str(store)]

    def count() -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 -- our own command

    (timing,) = measure({"commitlog count of a warm segment of 1 GiB": count}, runs, time.perf_counter).values()
    return [{**report_limit(timing, _SECOND), "group": "the command, elapsed"}]
