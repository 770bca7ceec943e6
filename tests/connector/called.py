# SPDX-License-Identifier: Apache-2.0
"""Calls of `commitlog append` and `commitlog rebuild` in this process, and rebuilds without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING
from store_core.command.program import program
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar
from store_core.store.rebuild.job import rebuild_by

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Sequence
    from pathlib import Path
    from store_core.store.parts import GroupedJob
    from store_core.store.parts import Job
    from store_core.store.rebuild.plan import RebuildRules
    from store_core.store.rebuild.queue_compare import LogBounds
    from store_core.store.rebuild.report import RebuildReport
    import random


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


def rebuild_index(arguments: Sequence[str]) -> int:
    return commitlog("rebuild", "index", *arguments)


Part = TypeVar("Part")
Partial = TypeVar("Partial")
Key = TypeVar("Key", bound=tuple[Any, ...])
Piece = TypeVar("Piece")
Result = TypeVar("Result")


@dataclass
class LocalRunner:
    """Runs parts in this process, one by one: in random order, and each group `attempts` times.

    Attributes
    ----------
    random : random.Random, optional
    attempts : int
    is_one_machine : bool
        Whether runs are passed in files.
    slots : int
    """

    random: random.Random | None = None
    attempts: int = 1
    is_one_machine: bool = False
    slots: int = 2
    keeps_pieces: bool = False

    def expect(self, *kinds: type) -> None:
        pass

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


def differing(report: RebuildReport) -> dict[tuple[str, int], dict[str, int]]:
    """Return how many units are wrong of each queue that has some, by what is wrong."""
    return {
        (each.topic, each.queue_id): {verdict.value: count for verdict, count in each.counts}
        for each in report.judged
        if each.counts
    }
