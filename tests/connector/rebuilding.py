# SPDX-License-Identifier: Apache-2.0
"""Rebuilds without Spark, the rules by which golden stores were written, and comparisons of trees of files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import SparkSession

from pyspark_commitlog.rebuild.driver import rebuild_by
from store_core.queue.index_files import INDEX_DIRECTORY
from store_core.store.config import MessageStoreConfig
from store_core.store.rebuild.files import QUEUE_KINDS
from store_core.store.rebuild.rules import RebuildRules

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable
    from pathlib import Path

    import pytest

    from pyspark_commitlog.rebuild.driver import Rows
    from pyspark_commitlog.rebuild.report import RebuildReport
    from pyspark_commitlog.rebuild.tasks import RebuildTasks
    from store_core.store.rebuild.compare import LogBounds
    from tests.golden_stores import UnpackedStore

__all__ = ["LocalRunner", "golden_rules", "index_files", "queue_files", "rebuild_here", "run_without_spark"]

T = TypeVar("T")

LIVE_CONF = {"cl-size": "16777216", "cq-size": "600000", "slot-num": "5000", "index-num": "20000"}
"""A broker wrote this store, with a configuration file of its own."""


@dataclass
class LocalRunner:
    """Runs tasks in this process, one after the other: in random order, and each as often as it is told.

    Attributes
    ----------
    random : random.Random, optional
    attempts : int
    is_spilled : bool
        Whether runs go through files.
    """

    random: random.Random | None = None
    attempts: int = 1
    is_spilled: bool = False

    def __call__(self, tasks: RebuildTasks) -> Rows:
        tasks = replace(tasks, is_spilled=self.is_spilled)
        runs = [run for number in self._ordered(range(len(tasks.parts))) for run in tasks.scan([number])]
        buckets = groupby(sorted(runs), key=lambda run: run[0].bucket)
        rows: Rows = []
        for group in self._ordered([list(group) for _, group in buckets]):
            made = [list(tasks.write(iter(group))) for _ in range(self.attempts)]
            rows += made[-1]
        return rows

    def _ordered(self, things: Iterable[T]) -> list[T]:
        listed = list(things)
        if self.random is not None:
            self.random.shuffle(listed)
        return listed


def rebuild_here(store: Path, target: Path, rules: RebuildRules, compared: LogBounds | None = None) -> RebuildReport:
    return rebuild_by(LocalRunner(), 2, store, target, rules, compared=compared)


def run_without_spark(patch: pytest.MonkeyPatch) -> None:
    """Have commands run their tasks in this process."""

    class Context:
        defaultParallelism = 2  # noqa: N815 -- Spark's name

        def statusTracker(self) -> None:  # noqa: N802 -- Spark's name
            pass

    class Session:
        sparkContext = Context()  # noqa: N815 -- Spark's name

        def stop(self) -> None:
            pass

    patch.setattr("pyspark_commitlog.rebuild.driver.spark_runner", lambda _: LocalRunner())
    patch.setattr(SparkSession, "getActiveSession", Session)


def golden_rules(store: UnpackedStore) -> RebuildRules:
    """Return the rules by which a golden store was written."""
    path = store.path / "store.conf"
    conf = (
        dict(line.split("=", 1) for line in path.read_text().split("\n") if "=" in line) if path.exists() else LIVE_CONF
    )
    release: Any = store.golden.release
    is_light = conf.get("set.enableLmq") == "true"
    config = MessageStoreConfig(
        release=release,
        mapped_file_size_consume_queue=int(conf["cq-size"]),
        max_hash_slot_num=int(conf["slot-num"]),
        max_index_num=int(conf["index-num"]),
        enable_consume_queue_ext=conf.get("ext") == "true",
        mapped_file_size_consume_queue_ext=int(conf.get("ext-size", 48 << 20)),
        mapper_file_size_batch_consume_queue=int(conf.get("bcq-size", 13_800_000)),
        enable_lmq=is_light,
        enable_multi_dispatch=is_light,
    )
    topics = [topic for topic in conf.get("bcq-topics", "").split(",") if topic]
    return RebuildRules(config.queue_rules(topics), has_index=True)


def queue_files(root: Path) -> dict[str, bytes]:
    """Return the files of all queues by their path."""
    files = (path for kind in QUEUE_KINDS for path in sorted((root / kind).rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def index_files(root: Path) -> list[bytes]:
    """Return the files of the index in their order, without their names, which are times."""
    directory = root / INDEX_DIRECTORY
    return [path.read_bytes() for path in sorted(directory.iterdir())] if directory.is_dir() else []
