# SPDX-License-Identifier: Apache-2.0
"""Compares look-ups with scans of the same store, and with Parquet: a topic, a queue, a message, a key.

Nothing is kept between two questions. Each is asked in Python, by the command and through Spark, beside the least that
a Python source costs; and as the first question of a new process, also beside a writer that holds the store.

The store has 4.3 million messages in 1.5 GiB, and the queues and the index that this project rebuilds from them.

Usage: python -m tests.benchmarks.lookups STORE: holds a store and writes to it
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.functions import array_contains

from store_core import (
    DefaultMessageStore,
    Message,
    MessageStoreConfig,
    read_messages,
)
from tests.benchmarks.measure import Timing, compare, report_limit
from tests.benchmarks.segments import RARE_TOPIC, make_indexed
from tests.benchmarks.sources import OneRow, OneWideRow
from tests.benchmarks.spark import bench_session, drain, parquet_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame


_LOG_BYTES: Final = 3 << 29
_BODY: Final = 200
_TENTH: Final = 0.1
_TWENTIETH: Final = 0.05
_HUNDREDTH: Final = 0.01
_BOUNDS: Final = {"starting_offsets": {RARE_TOPIC: {0: 100}}, "ending_offsets": {RARE_TOPIC: {0: 132}}}
_FLOOR: Final = 1.3
"""What a look-up may take of the time of a Python source of one row."""

_WARM_UP: Final = 2.0
"""Seconds for which a writer puts messages before the first question."""

_NEW_PROCESS: Final = "first question of a new process"
_LIVE: Final = "the same, beside a writer of 1,000 messages a second"

_ASK: Final = """
import ast, importlib, sys, time
for name in sys.argv[1].split():
    importlib.import_module(name)
from store_core import read_messages
options = ast.literal_eval(sys.argv[3])
begin = time.process_time()
read_messages(sys.argv[2], **options).read_all()
print(time.process_time() - begin)
"""
"""A process that prints what its first question took, without the imports."""


def bench_lookups(folder: Path, runs: int) -> list[dict[str, object]]:
    """Time reads in the core, then through Spark beside Parquet with the same filter."""
    store = make_indexed(folder, _LOG_BYTES, _BODY, has_rare=True)
    print("==> look-ups in 4.3 million messages, beside a scan", flush=True)
    places = read_messages(store, topic=RARE_TOPIC, columns=["physical_offset"]).read_all()["physical_offset"]
    place, last = places[places.length() // 2].as_py(), places[-1].as_py()
    topics = {
        "scan for a topic": _reading(store, topic=RARE_TOPIC, use_consume_queues="never"),
        "one topic of 1 %": _reading(store, topic=RARE_TOPIC),
        "one queue of it": _reading(store, topic=RARE_TOPIC, queue_id=0),
        "32 messages of that queue": _reading(store, topic=RARE_TOPIC, queue_id=0, **_BOUNDS),
    }
    ids = {
        "scan for a position": _reading(store, physical_offset=place, mode="PERMISSIVE"),
        "one position, in an earlier segment": _reading(store, physical_offset=place),
        "one position, in the last segment": _reading(store, physical_offset=last),
    }
    rows = [*_report(topics, runs, 1, _TWENTIETH), *_report(ids, runs, 2, _HUNDREDTH), *_by_key(store, runs, place)]
    row = read_messages(store, physical_offset=last, columns=["keys", "unique_key"]).read_all().to_pylist()[0]
    core = [{**found, "group": "in Python"} for found in rows]
    command = _by_command(store, runs, last, row["keys"][0])
    spark = _through_spark(store, folder, runs, last, row["keys"][0])
    others = {"by the command, elapsed": command, "through Spark, elapsed": spark}
    found = [*core, *({**row, "group": group} for group, found in others.items() for row in found)]
    asked = _asked(place, last, row)
    return [*found, *_first_questions(store, runs, asked, _NEW_PROCESS), *_beside_a_writer(store, runs, asked)]


def _asked(place: int, last: int, row: Mapping[str, Any]) -> dict[str, tuple[dict[str, object], float]]:
    """Return questions, by what they ask for, and the most seconds that each may take of a new process."""
    return {
        "a key": ({"key": row["keys"][0]}, 0.02),
        "a unique key": ({"unique_key": row["unique_key"]}, 0.02),
        "an offset in an earlier segment": ({"physical_offset": place}, 0.01),
        "an offset in the last segment": ({"physical_offset": last}, 0.01),
        "32 messages of a queue": ({"topic": RARE_TOPIC, "queue_id": 0, **_BOUNDS}, 0.02),
    }


def _first_questions(
    store: Path, runs: int, asked: Mapping[str, tuple[dict[str, object], float]], group: str
) -> list[dict[str, object]]:
    """Time questions in new processes that have imported what this one has, in processor time."""
    modules = " ".join(sorted(name for name in sys.modules if name.split(".")[0] in {"store_core", "pyarrow"}))
    print(f"==> {group}", flush=True)
    rows = []
    for name, (options, most) in asked.items():
        call = [sys.executable, "-c", _ASK, modules, str(store), repr(options)]
        seconds = [float(subprocess.run(call, check=True, capture_output=True).stdout) for _ in range(runs)]  # noqa: S603 -- ours
        row = report_limit(Timing(name, tuple(seconds)), most if group == _NEW_PROCESS else None)
        rows.append(row | {"group": group})
    return rows


def _beside_a_writer(
    store: Path, runs: int, asked: Mapping[str, tuple[dict[str, object], float]]
) -> list[dict[str, object]]:
    """Ask a copy of the store that a writer holds, which puts about 1,000 messages a second."""
    live = store.with_name("live")
    shutil.rmtree(live, ignore_errors=True)
    subprocess.run(["cp", "-r", "--sparse=always", str(store), str(live)], check=True)  # noqa: S603, S607 -- holes stay holes
    call = [sys.executable, "-m", "tests.benchmarks.lookups", str(live)]
    writer = subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 -- ours
    try:
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(_WARM_UP)
        return _first_questions(live, runs, asked, _LIVE)
    finally:
        writer.communicate()
        shutil.rmtree(live)


def _by_command(store: Path, runs: int, place: int, key: str) -> list[dict[str, object]]:
    """Time the command, which is another process each time, as it elapses; `--help` shows what starting one costs."""

    def run(*arguments: str) -> Callable[[], object]:
        call = [sys.executable, "-c", "import sys; from store_core.command.main import main; sys.exit(main())"]
        return lambda: subprocess.run([*call, "cat", *arguments], check=True, stdout=subprocess.DEVNULL)  # noqa: S603 -- ours

    path = str(store)
    asked = {
        "command: scan for a key": run(path, "--key", key, "--mode", "DROPMALFORMED"),
        "command: one key": run(path, "--key", key),
        "command: one position, in the last segment": run(path, "--physical-offset", str(place)),
        "command: start and help alone": run("--help"),
    }
    return _report(asked, runs, 0, _HUNDREDTH, time.perf_counter)


def _by_key(store: Path, runs: int, place: int) -> list[dict[str, object]]:
    """Time reads of the message at a place by its key and its id, in processor time, and one of them as it elapses."""
    (row,) = read_messages(store, physical_offset=place, columns=["keys", "unique_key"]).read_all().to_pylist()
    key = row["keys"][0]
    keys = {
        "scan for a key": _reading(store, key=key, use_index_files="never"),
        "one key": _reading(store, key=key),
        "one id": _reading(store, unique_key=row["unique_key"]),
        "one key of a topic": _reading(store, key=key, topic=RARE_TOPIC),
        "a key that no message has": _reading(store, key="none"),
    }
    return _report(keys, runs, 4, _HUNDREDTH)


def _reading(store: Path, **options: object) -> Callable[[], object]:
    return lambda: read_messages(store, **options).read_all()  # type: ignore[arg-type]  # options by name


def _report(
    functions: Mapping[str, Callable[[], object]],
    runs: int,
    judged: int,
    target: float,
    clock: Callable[[], float] = time.process_time,
) -> list[dict[str, object]]:
    """Compare with the first; the target is for as many after it as `judged` says."""
    return compare(functions, runs, dict.fromkeys([*functions][1 : judged + 1], target), clock)


def _through_spark(store: Path, folder: Path, runs: int, place: int, key: str) -> list[dict[str, object]]:
    """Time the same through Spark: a topic, a message by place and by key, each beside Parquet with the same filter."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = bench_session()
    spark.dataSource.register(OneRow)
    spark.dataSource.register(OneWideRow)

    def log(**options: str) -> DataFrame:
        return spark.read.format("commitlog").options(**options).load(str(store))

    try:
        rows, position = parquet_of(log(), folder / f"{store.name}.parquet"), str(place)
        topics = {
            "Spark: scan for a topic": lambda: drain(log(topic=RARE_TOPIC, useConsumeQueues="never")),
            "Spark: one topic of 1 %": lambda: drain(log(topic=RARE_TOPIC)),
            "Spark: Parquet, the same filter": lambda: drain(rows.where(rows["topic"] == RARE_TOPIC)),
        }
        has_key = array_contains(rows["keys"], key) | (rows["properties"]["UNIQ_KEY"] == key)
        ten = {
            "startingOffsets": json.dumps({RARE_TOPIC: {"0": 100}}),
            "endingOffsets": json.dumps({RARE_TOPIC: {"0": 110}}),
        }
        points = {
            "Spark: floor, a Python source of one row": lambda: drain(spark.read.format(OneRow.name()).load()),
            "Spark: one position, in the last segment": lambda: drain(log(physicalOffset=position)),
            "Spark: one key": lambda: drain(log(key=key)),
            "Spark: ten messages of a queue": lambda: drain(log(topic=RARE_TOPIC, queueId="0", **ten)),
            "Spark: floor with a message's columns": lambda: drain(spark.read.format(OneWideRow.name()).load()),
            "Spark: scan for a key": lambda: drain(log(key=key, useIndexFiles="never")),
            "Spark: Parquet, the key": lambda: drain(rows.where(has_key)),
            "Spark: Parquet, the position": lambda: drain(rows.where(rows["physical_offset"] == place)),
        }
        judged = ((topics, 1, _TENTH), (points, 3, _FLOOR))
        return [
            row for reads, count, target in judged for row in _report(reads, runs, count, target, time.perf_counter)
        ]
    finally:
        spark.stop()


_LIVE_BODY: Final = b"x" * 200
_LIVE_QUEUES: Final = 8
_AT_ONCE: Final = 10
_PAUSE: Final = 0.01


def _write_steadily(path: str) -> None:
    """Put about 1,000 messages a second until standard input ends; print a line when the first are in the store."""
    with DefaultMessageStore.open(path, MessageStoreConfig(release="5.3")) as store:
        number, due = 0, time.monotonic()
        while not select.select([sys.stdin], [], [], max(due - time.monotonic(), 0))[0]:
            due += _PAUSE
            for _ in range(_AT_ONCE):
                message = Message(RARE_TOPIC, _LIVE_BODY, number % _LIVE_QUEUES, properties={"KEYS": f"live{number}"})
                if not store.put_message(message).is_ok:
                    raise RuntimeError("a put was refused")
                number += 1
            if number == _AT_ONCE:
                print("putting", flush=True)


if __name__ == "__main__":
    _write_steadily(sys.argv[1])
