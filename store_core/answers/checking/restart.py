# SPDX-License-Identifier: Apache-2.0
"""What a restart adds to the queues of a store that was not closed: the recovery of the release is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from store_core.errors import UnsupportedStoreError
from store_core.files.file_system import OsFileSystem
from store_core.files.store_kind import queue_database
from store_core.store.configured_store import config_of
from store_core.store.message_store import DefaultMessageStore

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.answers.checking.check_options import CheckOptions
    from store_core.files.clock import Clock
    from store_core.format.releases.release import Release
    from store_core.store.rebuild.options import RebuildOptions

__all__ = ["NOT_ASKED", "dispatch_start"]

NOT_ASKED: Final = -1
_NOWHERE: Final = 2**63 - 1


def dispatch_start(
    store: Path, options: CheckOptions | RebuildOptions, batch_topics: frozenset[str], clock: Clock
) -> int:
    """Return the physical offset from which a restart puts records into queues that end before them.

    Nothing is written: the recovery runs on changes that are kept in memory.

    Parameters
    ----------
    store : Path
        The store's root.
    options : CheckOptions or RebuildOptions
        With the release, and the broker's configuration.
    batch_topics : frozenset of str
    clock : Clock

    Returns
    -------
    int
        After every record if the release refuses the store; `NOT_ASKED` for queues in a RocksDB, and for a kind of
        store that can't be opened.
    """
    if queue_database(store, OsFileSystem()) is not None:
        return NOT_ASKED
    release = cast("Release", options.release)
    config = config_of(options.broker_config, options.store_path_commit_log, release)
    try:
        report = DefaultMessageStore.dry_run(store, config, batch_topics=batch_topics, clock=clock)
    except UnsupportedStoreError:
        return NOT_ASKED
    return _NOWHERE if report.is_refused else min(report.start_offset, report.reput_from_offset)
