# SPDX-License-Identifier: Apache-2.0
"""Updating the checkpoint after queues and index were rebuilt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.store.state.store_checkpoint import LOG_OFFSETS, StoreCheckpoint

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.file_system import FileSystem
    from store_core.format.releases.release import Release

__all__ = ["update_checkpoint"]


def update_checkpoint(  # noqa: PLR0913 -- one argument per fact
    root: Path,
    file_system: FileSystem,
    release: Release,
    *,
    last_store_timestamp: int,
    end_offset: int,
    are_queues_whole: bool,
    index_timestamp: int | None,
) -> StoreCheckpoint:
    """Write the checkpoint of a store whose rebuilt queues or index are on disk.

    After a crash a broker starts recovery at a segment older than the checkpoint, so a time that is too late would make
    it miss records, and one that is too early only costs time; from 5.5 on the same is true of an offset. The log's own
    time is never raised, as nothing was written to the log; no time may be later than the log's last record.

    Parameters
    ----------
    last_store_timestamp : int
        Store time of the log's last record, ms.
    end_offset : int
        Physical offset of the log's end: no offset may be greater.
    are_queues_whole : bool
        Whether all queues were rebuilt to the log's end; their time is then that of its last record, as after a
        broker's flush.
    index_timestamp : int or None
        End time of the last full index file, ms, or 0 if there is none; after a crash a broker deletes and rebuilds the
        files after it. None if the index was not rebuilt.

    Raises
    ------
    OSError
        If a system call fails.
    """
    checkpoint = StoreCheckpoint(root, file_system, release).load()
    checkpoint.physic_msg_timestamp = max(min(checkpoint.physic_msg_timestamp, last_store_timestamp), 0)
    queues = last_store_timestamp if are_queues_whole else checkpoint.logics_msg_timestamp
    checkpoint.logics_msg_timestamp = max(min(queues, last_store_timestamp), 0)
    index = checkpoint.index_msg_timestamp if index_timestamp is None else index_timestamp
    checkpoint.index_msg_timestamp = max(min(index, last_store_timestamp), 0)
    for name in LOG_OFFSETS:
        setattr(checkpoint, name, min(getattr(checkpoint, name), end_offset))
    checkpoint.flush()
    checkpoint.close()
    return checkpoint
