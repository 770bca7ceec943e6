# SPDX-License-Identifier: Apache-2.0
"""Deletes segments by age and by the disk's use."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from store_core.errors import InvalidOptionError
from store_core.files.service_thread import ServiceThread
from store_core.store.state.store_stats import RunningFlag

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo

    from store_core.files.clock import Clock
    from store_core.files.mapped_file import MappedFile
    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.store.clean.disk_space import DiskSpace, SpaceVerdict
    from store_core.store.config.message_store_config import MessageStoreConfig
    from store_core.store.state.store_stats import RunningFlags

__all__ = [
    "MAX_MANUAL_DELETE_FILE_TIMES",
    "CleanCommitLogService",
    "CleanService",
    "ExpiryRule",
    "delete_expired_file_by_time",
    "expiry_rule",
    "hour_at",
    "parse_delete_when",
]

_FIRST_AFTER: Final = 60.0
_MS: Final = 1000.0


class CleanService(ServiceThread):
    """Runs its step first after a minute, then every ``cleanResourceInterval``.

    (RocketMQ: ``DefaultMessageStore.addScheduleTask``.)

    * `on_error`: Called with errors of the system.
    """

    def __init__(
        self, config: MessageStoreConfig, clock: Clock, on_error: Callable[[OSError], None] | None = None
    ) -> None:
        super().__init__(clock, on_error)
        if config.clean_resource_interval <= 0:
            found = config.clean_resource_interval
            raise InvalidOptionError(f"MessageStoreConfig.clean_resource_interval must be positive, found {found} ms")
        self._interval = config.clean_resource_interval / _MS
        self._next_pause = _FIRST_AFTER

    def pause(self) -> None:
        """Wait for the next step; only a shutdown interrupts the wait."""
        seconds, self._next_pause = self._next_pause, self._interval
        self.wait_until_stopped(seconds)


MAX_MANUAL_DELETE_FILE_TIMES: Final = 20
"""Rounds for which a manual request stays in effect."""

_LOG: Final = logging.getLogger("store_core")
_HOUR_MS: Final = 3_600_000
_BATCH_MAX_4: Final = 10
_HOUR: Final = re.compile(r"[+-]?[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class ExpiryRule:
    """How segments are deleted by age."""

    reserved_ms: int  # age, since the last change of the file, from which it may be deleted (``fileReservedTime``)
    pause: float
    """Seconds between two deletions, so that the disk has time for other work (``deleteCommitLogFilesInterval``)."""
    forcibly_after: float
    """Seconds after which readers that hold a file are overruled (``destroyMapedFileIntervalForcibly``)."""
    batch_max: int  # most files deleted in one round (``deleteFileBatchMax``; ten in 4.x)

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

    * `clock`: Wall clock for the age; also sleeps for the pause.
    * `clean_at_once`: Delete regardless of age, because the disk is nearly full.
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


def parse_delete_when(text: str, name: str = "MessageStoreConfig.delete_when") -> frozenset[int]:
    """Parse ``deleteWhen``: hours of the day, separated by semicolons.

    * `name`: What errors call it.

    Examples
    --------
    >>> sorted(parse_delete_when("04;16"))
    [4, 16]
    """
    parts = text.rstrip(";").split(";")
    wrong = next((part for part in parts if not _HOUR.fullmatch(part)), None)
    if wrong is not None:
        raise InvalidOptionError(
            f"{name}: expected hours of the day separated by semicolons, without blanks, found {wrong!r} in {text!r}"
        )
    return frozenset(int(part) for part in parts)


def hour_at(now_ms: int, zone: tzinfo | None) -> int:
    """Return the hour of the day at a time, which ``deleteWhen`` names; None is the machine's zone, as in Java."""
    return datetime.fromtimestamp(now_ms // 1000, zone).hour


def expiry_rule(config: MessageStoreConfig) -> ExpiryRule:
    """Return how segments are deleted by age, as a configuration says."""
    return ExpiryRule(
        config.file_reserved_time * _HOUR_MS,
        config.delete_commit_log_files_interval / _MS,
        config.destroy_maped_file_interval_forcibly / _MS,
        config.delete_file_batch_max if config.features.has_delete_file_batch_max else _BATCH_MAX_4,
    )


class CleanCommitLogService(CleanService):
    """Deletes the oldest segments of the commit log (RocketMQ: ``DefaultMessageStore.CleanCommitLogService``).

    Files are deleted in the hours of ``deleteWhen``, when a disk fills up, or on a manual request. Files younger than
    ``fileReservedTime`` are deleted only if a disk is over the forcible limit and ``cleanFileForciblyEnable`` is on.
    See `delete_expired_file_by_time` for which files and how many, `store_core.store.clean.disk_space` for the limits.

    * `queue`: The commit log's files.
    * `flags`: Flags of which DISK_FULL is set and cleared.
    * `time_zone`: Time zone of ``deleteWhen``; None means the machine's, as in Java.
    * `on_error`: Called with errors of the system.
    """

    def __init__(  # noqa: PLR0913 -- what is deleted, why, and when
        self,
        config: MessageStoreConfig,
        queue: MappedFileQueue,
        flags: RunningFlags,
        space: DiskSpace,
        clock: Clock,
        *,
        time_zone: tzinfo | None = None,
        on_error: Callable[[OSError], None] | None = None,
    ) -> None:
        super().__init__(config, clock, on_error)
        self._config = config
        self._queue = queue
        self._flags = flags
        self._space = space
        self._time_zone = time_zone
        self._hours = parse_delete_when(config.delete_when)
        self._rule = expiry_rule(config)
        self._manual_rounds = 0
        self._last_retry: float | None = None

    def execute_delete_files_manually(self) -> None:
        """Request that expired files be deleted in the next twenty rounds, at any hour; others stay."""
        self._manual_rounds = MAX_MANUAL_DELETE_FILE_TIMES

    def run_once(self) -> None:
        """Do one round: delete expired files, then retry files that readers held last time."""
        self.delete_expired_files()
        self._retry_hung_file()

    def delete_expired_files(self) -> int:
        """Delete expired files if there is a reason to, and return their number."""
        verdict = self._space.check()
        self._note_fullness(verdict)
        is_manual = self._manual_rounds > 0
        if not (self._is_time or verdict.wants_deletion or is_manual):
            return 0
        if is_manual:
            self._manual_rounds -= 1
        at_once = verdict.at_once and self._config.clean_file_forcibly_enable
        deleted = delete_expired_file_by_time(self._queue, self._rule, self._clock, clean_at_once=at_once)
        if deleted == 0 and verdict.wants_deletion:
            _LOG.warning("the disk fills up (%s), and no file of the commit log may be deleted yet", verdict)
        return deleted

    @property
    def _is_time(self) -> bool:
        """Return whether it is one of the hours of ``deleteWhen``, by wall clock."""
        return hour_at(self._clock.now_ms(), self._time_zone) in self._hours

    def _note_fullness(self, verdict: SpaceVerdict) -> None:
        """Set or clear the flag that refuses puts (RocketMQ: ``getAndMakeDiskFull``, ``getAndMakeDiskOK``)."""
        if verdict.is_full is None:
            return
        if verdict.is_full and self._flags.set(RunningFlag.DISK_FULL):
            _LOG.error("a disk is over %d %%: the store takes no more messages", self._space.limits.warning)
        elif not verdict.is_full and self._flags.clear(RunningFlag.DISK_FULL):
            _LOG.info("the disks have room again: the store takes messages")

    def _retry_hung_file(self) -> None:
        """Retry deleting the first file if readers hold it, every ``redeleteHangedFileInterval``."""
        now = self._clock.monotonic()
        interval = self._config.redelete_hanged_file_interval / _MS
        if self._last_retry is None or now - self._last_retry > interval:
            self._last_retry = now
            self._queue.retry_delete_first_file(self._rule.forcibly_after)
