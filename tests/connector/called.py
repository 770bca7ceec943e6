# SPDX-License-Identifier: Apache-2.0
"""Calls of `commitlog append` and `commitlog rebuild` in this process, and rebuilds without Spark."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from store_core.command.program import program
from store_core.store.parts import Engine
from store_core.store.rebuild.job import rebuild_by
from tests.builders import LogBuilder, Record

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from store_core.store.parts import GroupedJob, Job
    from store_core.store.rebuild.plan import RebuildRules
    from store_core.store.rebuild.queue_compare import LogBounds
    from store_core.store.rebuild.report import RebuildReport


def commitlog(*words: str) -> int:
    """Run the program, which writes to this process's streams; return its exit code."""
    try:
        program(list(words), prog_name="commitlog")
    except SystemExit as ended:
        return int(ended.code or 0)
    raise AssertionError("click ends by SystemExit")


def append(arguments: Sequence[str]) -> int:
    return commitlog("append", *arguments)


def rebuild_consume_queue(arguments: Sequence[str]) -> int:
    return commitlog("rebuild", "queues", *arguments)


def rebuilt_queues(store: Path, *options: str) -> dict[str, Any]:
    """Rebuild, and return the report, which has the exit code."""
    report = store.parent / "report.json"
    code = rebuild_consume_queue([str(store), "--json", str(report), *options])
    found: dict[str, Any] = json.loads(report.read_text())
    assert code == found["exit_code"]
    return found


def rebuild_index(arguments: Sequence[str]) -> int:
    return commitlog("rebuild", "index", *arguments)


Part = TypeVar("Part")
Partial = TypeVar("Partial")
Key = TypeVar("Key", bound=tuple[Any, ...])
Piece = TypeVar("Piece")
Result = TypeVar("Result")


@dataclass
class LocalRunner(Engine):
    """Runs parts in this process, one by one: in random order, and each group `attempts` times.

    * `is_one_machine`: Whether runs are passed in files.
    """

    random: random.Random | None = None
    attempts: int = 1
    is_one_machine: bool = False
    slots: int = 2
    keeps_pieces: bool = False

    def run(self, job: Job[Part, Partial, Result]) -> Result:
        parts = list(job.plan())
        made = {}
        for number in self._ordered(range(len(parts))):
            for _ in range(self.attempts):
                made[number] = job.run(parts[number])
        return job.merge(made[number] for number in range(len(parts)))

    def run_grouped(self, job: GroupedJob[Part, Key, Piece, Partial, Result]) -> Result:
        pieces = [piece for part in self._ordered(job.plan()) for piece in job.run(part)]
        groups = groupby(sorted(pieces, key=itemgetter(0)), key=lambda piece: piece[0][0])
        partials: list[Partial] = []
        for group in self._ordered([list(group) for _, group in groups]):
            made = [list(job.gather(iter(group))) for _ in range(self.attempts)]
            partials += made[-1]
        return job.merge(partials)

    def _ordered(self, things: Iterable[Part]) -> list[Part]:
        listed = list(things)
        if self.random is not None:
            self.random.shuffle(listed)
        return listed


def rebuild_here(store: Path, target: Path, rules: RebuildRules, compared: LogBounds | None = None) -> RebuildReport:
    return rebuild_by(LocalRunner(), store, target, rules, compared=compared)


def log_of(records: int, segment_size: int = 4096, queues: int = 3, start_offset: int = 0) -> LogBuilder:
    """Build a log whose queues have no gap."""
    log = LogBuilder(segment_size=segment_size, start_offset=start_offset)
    for number in range(records):
        properties = {"UNIQ_KEY": f"u{number}", "KEYS": f"k{number % 7} all", "TAGS": "AB"[number % 2]}
        body, topic = b"body %d " % number * (number % 5), f"topic{number % queues}"
        log.append(Record(body, topic=topic, queue_offset=number // queues, properties=properties))
    return log


def differing(report: RebuildReport) -> dict[tuple[str, int], dict[str, int]]:
    """Return how many units are wrong of each queue that has some, by what is wrong."""
    return {
        (each.topic, each.queue_id): {verdict.value: count for verdict, count in each.counts}
        for each in report.judged
        if each.counts
    }
