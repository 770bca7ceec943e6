# SPDX-License-Identifier: Apache-2.0
"""Rebuilding a store's consume queues and key index from its log, in one call and without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from store_core.answers.local_engine import local_engine
from store_core.broker.topic_config import TopicConfigManager
from store_core.files.access import explained_access
from store_core.files.clock import SystemClock
from store_core.files.config_paths import CONFIG_DIRECTORY
from store_core.files.file_system import OsFileSystem
from store_core.format.releases.release import rules_of
from store_core.store.rebuild.options import RebuildOptions
from store_core.store.rebuild.plan import RebuildPlan
from store_core.store.rebuild.store_rebuild import StoreRebuild

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from store_core.files.clock import Clock
    from store_core.format.releases.release import Release
    from store_core.store.parts import LocalEngine, ProgressSink
    from store_core.store.rebuild.result import RebuildResult
    from store_core.store.rebuild.store_rebuild import EngineSource

__all__ = [
    "configured_batch_topics",
    "plan_rebuild",
    "rebuild_consume_queue",
    "rebuild_consume_queue_by",
    "rebuild_index",
    "rebuild_index_by",
]


def plan_rebuild(path: str | os.PathLike[str], options: RebuildOptions | None = None) -> RebuildPlan:
    """Plan a rebuild without doing anything; `RebuildPlan.describe` returns the plan as lines of text.

    Parameters
    ----------
    path : path
        The store root.
    options : RebuildOptions, optional

    Raises
    ------
    StoreError
        As for `rebuild_consume_queue`, as far as it can be known without reading the log.
    """
    with explained_access(Path(path)):
        return RebuildPlan.of(path, options or RebuildOptions(), configured_batch_topics)


def rebuild_consume_queue(  # noqa: PLR0913 -- what is rebuilt, by how many processes, and who is informed
    path: str | os.PathLike[str],
    options: RebuildOptions | None = None,
    *,
    processes: int = 1,
    on_progress: ProgressSink | None = None,
    say: Callable[[str], None] | None = None,
    clock: Clock | None = None,
) -> RebuildResult:
    """Rebuild the consume queues of a store from its commit log, byte for byte as a broker writes them.

    Files and report are the same for any number of processes, and also with Spark. Nothing in the store changes unless
    `RebuildOptions.replace` or `RebuildOptions.discard_old` says so. If a process is killed, or at ^C, the old files
    stay where they are, and the new ones are deleted.

    Parameters
    ----------
    path : path
        The store root.
    options : RebuildOptions, optional
    processes : int
        1 is this process alone. More are started by ``spawn``, so a script has to call this below
        ``if __name__ == "__main__":``.
    on_progress : callable, optional
        Called with a `store_core.store.parts.PartsDone` after each part of the log read, after queues are written, and
        after each file of an index that has several.
    say : callable, optional
        Called with lines for an operator, as things are done.
    clock : Clock, optional
        Names the files of an index; by default the system's.

    Raises
    ------
    InvalidOptionError
        If options do not fit the store, or it has no such topic or queue.
    StoreNotFoundError
        If there is no log.
    StoreLockedError
        If a broker holds the store; with `RebuildOptions.verify` it may.
    UnsupportedStoreError
        If a store of this kind can't be rebuilt, or the output directory was not made by a rebuild.
    UnsafeSizeError
        If the log names more queues than `RebuildOptions.max_queues`.
    LostWorkerError
        If a process was killed.
    OSError
        As raised by the system.

    Examples
    --------
    >>> from store_core import RebuildOptions, rebuild_consume_queue
    >>> result = rebuild_consume_queue(store, RebuildOptions(with_index=True), processes=4)  # doctest: +SKIP
    >>> print(result.to_text())  # doctest: +SKIP
    """

    def engines(_: str) -> AbstractContextManager[LocalEngine]:
        return local_engine(processes, on_progress)

    return rebuild_consume_queue_by(engines, path, options, say=say, clock=clock)


def rebuild_consume_queue_by(
    engines: EngineSource,
    path: str | os.PathLike[str],
    options: RebuildOptions | None = None,
    *,
    say: Callable[[str], None] | None = None,
    clock: Clock | None = None,
) -> RebuildResult:
    """Rebuild as `rebuild_consume_queue` does, with the engines that a function provides for each step."""
    return StoreRebuild(plan_rebuild(path, options), engines, say or _say_nothing, clock=clock).run()


def rebuild_index(  # noqa: PLR0913 -- as for `rebuild_consume_queue`
    path: str | os.PathLike[str],
    options: RebuildOptions | None = None,
    *,
    processes: int = 1,
    on_progress: ProgressSink | None = None,
    say: Callable[[str], None] | None = None,
    clock: Clock | None = None,
) -> RebuildResult:
    """Rebuild the key index of a store from its commit log, and leave its queues alone.

    Everything is as for `rebuild_consume_queue`; `RebuildOptions.with_queues` and `RebuildOptions.with_index` need not
    be given.
    """
    wanted = _index_only(options)
    return rebuild_consume_queue(path, wanted, processes=processes, on_progress=on_progress, say=say, clock=clock)


def rebuild_index_by(
    engines: EngineSource,
    path: str | os.PathLike[str],
    options: RebuildOptions | None = None,
    *,
    say: Callable[[str], None] | None = None,
    clock: Clock | None = None,
) -> RebuildResult:
    """Rebuild as `rebuild_index` does, with the engines that a function provides for each step."""
    return rebuild_consume_queue_by(engines, path, _index_only(options), say=say, clock=clock)


def _index_only(options: RebuildOptions | None) -> RebuildOptions:
    return replace(options or RebuildOptions(), with_queues=False, with_index=True)


def _say_nothing(_: str) -> None:
    pass


def configured_batch_topics(store: Path, release: Release) -> frozenset[str]:
    """Return the topics that the broker's ``topics.json`` calls batch topics."""
    if not rules_of(release).has_batch_queues or not (store / CONFIG_DIRECTORY).is_dir():
        return frozenset()
    topics = TopicConfigManager(store, OsFileSystem(), SystemClock(), release)
    topics.load()
    return topics.batch_topics()
