# SPDX-License-Identifier: Apache-2.0
"""Deletion of segments by age."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from store_core.files.clock import Clock
    from store_core.files.mapped_file import MappedFile
    from store_core.files.mapped_file_queue import MappedFileQueue

__all__ = ["ExpiryRule", "delete_expired_file_by_time"]

_LOG: Final = logging.getLogger("store_core")


@dataclass(frozen=True, slots=True)
class ExpiryRule:
    """How segments are deleted by age.

    Attributes
    ----------
    reserved_ms : int
        Age, since the last change of the file, from which it may be deleted (``fileReservedTime``).
    pause : float
        Seconds between two deletions, so that the disk has time for other work (``deleteCommitLogFilesInterval``).
    forcibly_after : float
        Seconds after which readers that hold a file are overruled (``destroyMapedFileIntervalForcibly``).
    batch_max : int
        Most files deleted in one round (``deleteFileBatchMax``; ten in 4.x).
    """

    reserved_ms: int
    pause: float
    forcibly_after: float
    batch_max: int

    def may_delete(self, last_modified_ms: int, now_ms: int, *, at_once: bool) -> bool:
        """Return whether a file may be deleted that was last changed at a time; `at_once` is regardless of age."""
        return at_once or now_ms >= last_modified_ms + self.reserved_ms


def delete_expired_file_by_time(
    queue: MappedFileQueue, rule: ExpiryRule, clock: Clock, *, clean_at_once: bool = False
) -> int:
    """Delete a queue's oldest files and return how many (RocketMQ: ``MappedFileQueue.deleteExpiredFileByTime``).

    From the oldest on, each file that is old enough is deleted; the first that is not, or that readers hold, ends the
    round, so that the queue never gets a hole. The last file stays, however old.

    Age is by the **modification time of the file**, not by store times in it: a store copied without its times looks
    new, and one unpacked with old times loses its log at the next hour of ``deleteWhen``.

    Parameters
    ----------
    queue : MappedFileQueue
    rule : ExpiryRule
    clock : Clock
        Wall clock for the age; also sleeps for the pause.
    clean_at_once : bool
        Delete regardless of age, because the disk is nearly full.

    Raises
    ------
    OSError
        As the system reports while deleting; files deleted before have left the queue, and the next call tries again.
    """
    candidates = queue.mapped_files[:-1]
    deleted = 0
    for position, file in enumerate(candidates):
        if not rule.may_delete(file.last_modified_ms, clock.now_ms(), at_once=clean_at_once):
            break
        if not _delete(queue, file, rule.forcibly_after):
            break
        deleted += 1
        if deleted >= rule.batch_max:
            break
        if rule.pause > 0 and position + 1 < len(candidates):
            clock.sleep(rule.pause)
    return deleted


def _delete(queue: MappedFileQueue, file: MappedFile, forcibly_after: float) -> bool:
    """Delete one file; unlike in RocketMQ it leaves the queue at once, not at the end of the round."""
    if not file.destroy(forcibly_after):
        return False
    queue.forget([file])
    _LOG.info("deleted %s, last changed at %d ms", file.path, file.last_modified_ms)
    return True
