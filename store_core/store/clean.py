# SPDX-License-Identifier: Apache-2.0
"""Deleting expired files, as a broker does: by age and by the disk's use, which also makes it refuse messages."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Final, Self

from store_core.errors import InvalidOptionError
from store_core.files.service_thread import ServiceThread
from store_core.queue.consume_queue.batch_consume_queue import BatchConsumeQueue
from store_core.store.store_state import RunningFlag, RunningFlags

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from store_core.files.file_system import FileSystem
    from store_core.files.machine import Clock
    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.format.release_rules import ReleaseRules
    from store_core.queue.consume_queue.consume_queue_store import ConsumeQueueStore
    from store_core.queue.index_service import IndexService
    from store_core.store.message_store_config import MessageStoreConfig
    from store_core.store.put.commit_log import CommitLog


_MS: Final = 1000.0
_LOG: Final = logging.getLogger("store_core")

_WARNING_BOUNDS: Final = (35, 90)
_FORCIBLE_BOUNDS: Final = (30, 85)
_DELETE_BOUNDS: Final = (10, 95)
_NEVER_MEASURED: Final = 10_000
"""RocketMQ starts its search for the emptiest disk at a ratio of 100, i.e. 10,000 %."""


@dataclass(frozen=True, slots=True)
class DiskLimits:
    """Disk usage percentages above which the store takes action."""

    warning: int  # the store refuses messages, and files are deleted regardless of age
    forcible: int  # files are deleted regardless of age, and a directory gets no new segments
    delete: int  # expired files are deleted, at any hour

    @classmethod
    def of(cls, config: MessageStoreConfig) -> Self:
        """Return the limits of a configuration, within RocketMQ's bounds.

        Every release limits ``diskMaxUsedSpaceRatio`` to 10 to 95; 5.x limits ``diskSpaceWarningLevelRatio`` to 35 to
        90 and ``diskSpaceCleanForciblyRatio`` to 30 to 85. In 4.x these two are JVM properties, without bounds.
        """
        warning, forcible = config.disk_space_warning_level_ratio, config.disk_space_clean_forcibly_ratio
        if config.features.bounds_disk_ratios:
            warning, forcible = _within(warning, _WARNING_BOUNDS), _within(forcible, _FORCIBLE_BOUNDS)
        return cls(warning, forcible, _within(config.disk_max_used_space_ratio, _DELETE_BOUNDS))

    def is_full(self, percent: int) -> bool | None:
        """Return the new disk-full flag; None leaves it unchanged, so that it does not flap at one limit."""
        if percent > self.warning:
            return True
        return None if percent > self.forcible else False

    def wants_deletion(self, percent: int) -> bool:
        """Return whether expired files should be deleted; also true if usage can't be measured (-1)."""
        return percent < 0 or percent > self.delete


@dataclass(frozen=True, slots=True)
class SpaceVerdict:
    """Actions that the current disk usage requires."""

    wants_deletion: bool  # whether expired files should be deleted now
    at_once: bool  # whether to delete files regardless of age
    is_full: bool | None  # new value of the flag DISK_FULL; None leaves it unchanged

    @classmethod
    def of(cls, limits: DiskLimits, features: ReleaseRules, log_percent: int, queue_percent: int) -> Self:
        """Judge the disks of commit log and queues (RocketMQ: ``CleanCommitLogService.isSpaceToDelete``).

        The log's disk is judged first. Its verdict is final in 5.x if it is over the forcible limit, in 4.x if it is
        over the deletion limit, which is usually lower. Otherwise the queues' disk decides the flag, which they share:
        in 4.x with ``diskMaxUsedSpaceRatio`` above the warning level, a queue disk with room clears the flag that a
        full log disk has just set.
        """
        by_forcible = features.judges_disk_by_forcible_ratio
        log_full = limits.is_full(log_percent)
        at_once = log_percent > limits.forcible
        wants = limits.wants_deletion(log_percent)
        if at_once if by_forcible else wants:
            return cls(wants_deletion=True, at_once=at_once, is_full=log_full)
        queue_full = limits.is_full(queue_percent)
        at_once = at_once or queue_percent > limits.forcible
        wants = wants or limits.wants_deletion(queue_percent) or (by_forcible and at_once)
        return cls(wants, at_once, log_full if queue_full is None else queue_full)


class DiskSpace:
    """Measures the disks of a store.

    Two things differ from RocketMQ: ``replicasPerDiskPartition``, by which 5.x lets several brokers share a disk, is
    ignored; and 4.3 measures differently: it divides by all blocks, including those reserved for root, and does not
    round.

    * `log_paths`: Directories for new segments of the commit log; read-only directories are not included.
    """

    def __init__(
        self, config: MessageStoreConfig, log_paths: Collection[Path], queue_path: Path, file_system: FileSystem
    ) -> None:
        self.limits = DiskLimits.of(config)
        self._features = config.features
        self._log_paths = tuple(log_paths)
        self._queue_path = queue_path
        self._file_system = file_system
        self._full_paths: frozenset[Path] = frozenset()

    def full_paths(self) -> Collection[Path]:
        """Return the log directories too full for a new segment at the last `check`; used by `SegmentPaths`."""
        return self._full_paths

    def check(self) -> SpaceVerdict:
        """Measure the disks, note which directories are full, and return the verdict.

        Of several log directories the emptiest one counts; one that is missing counts as -1, the emptiest of all.
        """
        percents = {path: self._file_system.used_percent(path) for path in self._log_paths}
        self._full_paths = frozenset(path for path, percent in percents.items() if percent > self.limits.forcible)
        log_percent = min(percents.values(), default=_NEVER_MEASURED)
        return SpaceVerdict.of(
            self.limits, self._features, log_percent, self._file_system.used_percent(self._queue_path)
        )


def _within(value: int, bounds: tuple[int, int]) -> int:
    low, high = bounds
    return min(max(value, low), high)


_FIRST_AFTER: Final = 60.0


class CleanService(ServiceThread):
    """Runs its step first after a minute, then every ``cleanResourceInterval``.

    (RocketMQ: ``DefaultMessageStore.addScheduleTask``.)
    """

    def __init__(self, config: MessageStoreConfig, clock: Clock) -> None:
        super().__init__(clock)
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

_HOUR_MS: Final = 3_600_000
_BATCH_MAX_4: Final = 10
_HOUR: Final = re.compile(r"[+-]?[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class ExpiryRule:
    """How segments are deleted by age."""

    reserved_ms: int  # age, since the last change of the file, from which it may be deleted (``fileReservedTime``)
    pause: float
    """Seconds between two deletions, so that the disk has time for other work (``deleteCommitLogFilesInterval``)."""
    batch_max: int  # most files deleted in one round (``deleteFileBatchMax``; ten in 4.x)

    def may_delete(self, last_modified_ms: int, now_ms: int, *, at_once: bool) -> bool:
        """Return whether a file may be deleted that was last changed at a time; `at_once` is regardless of age."""
        return at_once or now_ms >= last_modified_ms + self.reserved_ms


def delete_expired_file_by_time(
    queue: MappedFileQueue, rule: ExpiryRule, clock: Clock, *, clean_at_once: bool = False
) -> int:
    """Delete a queue's oldest files and return how many (RocketMQ: ``MappedFileQueue.deleteExpiredFileByTime``).

    From the oldest on, each file that is old enough is deleted; the first that is not ends the round, so that the queue
    never gets a hole. The last file stays, however old.

    Age is by the **modification time of the file**, not by store times in it: a store copied without its times looks
    new, and one unpacked with old times loses its log at the next hour of ``deleteWhen``.

    * `clock`: Wall clock for the age; also sleeps for the pause.
    * `clean_at_once`: Delete regardless of age, because the disk is nearly full.
    """
    candidates = queue.mapped_files[:-1]
    deleted = 0
    for position, file in enumerate(candidates):
        changed = file.last_modified_ms
        if not rule.may_delete(changed, clock.now_ms(), at_once=clean_at_once):
            break
        file.destroy()
        queue.forget([file])  # at once, and not at the end of the round as in RocketMQ
        _LOG.info("deleted %s, last changed at %d ms", file.path, changed)
        deleted += 1
        if deleted >= rule.batch_max:
            break
        if rule.pause > 0 and position + 1 < len(candidates):
            clock.sleep(rule.pause)
    return deleted


def parse_delete_when(text: str, name: str = "MessageStoreConfig.delete_when") -> frozenset[int]:
    """Parse ``deleteWhen``: hours of the day, separated by semicolons.

    * `name`: What errors call it.

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
        config.delete_file_batch_max if config.features.has_delete_file_batch_max else _BATCH_MAX_4,
    )


class CleanCommitLogService(CleanService):
    """Deletes the oldest segments of the commit log (RocketMQ: ``DefaultMessageStore.CleanCommitLogService``).

    Files are deleted in the hours of ``deleteWhen``, when a disk fills up, or on a manual request. Files younger than
    ``fileReservedTime`` are deleted only if a disk is over the forcible limit and ``cleanFileForciblyEnable`` is on.
    See `delete_expired_file_by_time` for which files and how many, `store_core.store.clean` for the limits.

    * `flags`: Flags of which DISK_FULL is set and cleared.
    * `time_zone`: Time zone of ``deleteWhen``; None means the machine's, as in Java.
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
    ) -> None:
        super().__init__(config, clock)
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
        """Do one round: delete expired files, then retry one that could not be deleted before."""
        self.delete_expired_files()
        now = self._clock.monotonic()
        interval = self._config.redelete_hanged_file_interval / _MS
        if self._last_retry is None or now - self._last_retry > interval:
            self._last_retry = now
            self._queue.retry_delete_first_file()

    def delete_expired_files(self) -> int:
        """Delete expired files if there is a reason to, and return their number."""
        verdict = self._space.check()
        self._note_fullness(verdict)
        is_manual = self._manual_rounds > 0
        is_time = hour_at(self._clock.now_ms(), self._time_zone) in self._hours
        if not (is_time or verdict.wants_deletion or is_manual):
            return 0
        if is_manual:
            self._manual_rounds -= 1
        at_once = verdict.at_once and self._config.clean_file_forcibly_enable
        deleted = delete_expired_file_by_time(self._queue, self._rule, self._clock, clean_at_once=at_once)
        if deleted == 0 and verdict.wants_deletion:
            _LOG.warning("the disk fills up (%s), and no file of the commit log may be deleted yet", verdict)
        return deleted

    def _note_fullness(self, verdict: SpaceVerdict) -> None:
        """Set or clear the flag that refuses puts (RocketMQ: ``getAndMakeDiskFull``, ``getAndMakeDiskOK``)."""
        if verdict.is_full is None:
            return
        if verdict.is_full and self._flags.set(RunningFlag.DISK_FULL):
            _LOG.error("a disk is over %d %%: the store takes no more messages", self._space.limits.warning)
        elif not verdict.is_full and self._flags.clear(RunningFlag.DISK_FULL):
            _LOG.info("the disks have room again: the store takes messages")


def needs_correction(queue: BatchConsumeQueue, min_physical_offset: int, *, is_deep: bool) -> bool:
    """Return whether a queue begins before the log does (RocketMQ 5.x: ``CorrectLogicOffsetService.needCorrect``).

    That is so if the deletion of its first file failed, or if all its units point below the log's start although it
    is not marked empty. A deep check also examines its first unit.

    * `min_physical_offset`: Where the commit log starts; -1 if there is no file.
    """
    first = queue.mapped_file_queue.first_mapped_file
    if first is not None and not first.is_available:
        return True
    if queue.max_physical_offset == -1 or min_physical_offset == -1:
        return False
    low, high = queue.min_offset_in_queue, queue.max_offset_in_queue
    if queue.max_physical_offset < min_physical_offset:
        return low < high
    if not is_deep:
        return False
    units = queue.get_index_buffer(low)
    if units is None or not len(units):
        return low != high
    return int(units[0]["physical_offset"]) < min_physical_offset


_DEEP_EVERY: Final = 300.0
"""Seconds between deep checks of batch consume queues (``correctLogicMinOffsetForceInterval``)."""


class CleanConsumeQueueService(CleanService):
    """Deletes files of queues and index that point below the commit log (RocketMQ: ``CleanConsumeQueueService``).

    Whenever the log's min offset has grown, each queue's leading files whose **last** unit points below it are deleted,
    and the queue's min offset is updated; so are the index's leading files that end below it. The last file of each
    stays.

    In 5.x, batch consume queues that begin before the log are also corrected in every round, with a deep check every
    five minutes (RocketMQ: ``CorrectLogicOffsetService``).

    * `min_offset`: Returns the commit log's min offset; -1 if there is no file.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        min_offset: Callable[[], int],
        queues: ConsumeQueueStore,
        index: IndexService,
        clock: Clock,
    ) -> None:
        super().__init__(config, clock)
        self._pause = config.delete_consume_queue_files_interval / _MS
        self._min_offset = min_offset
        self._queues = queues
        self._index = index
        self._last_min_offset = 0
        self._corrects = config.features.corrects_batch_queues
        self._last_deep: float | None = None

    def run_once(self) -> None:
        """Correct batch queues; delete what points below the log if the log's min offset has grown."""
        if self._corrects:
            self.correct_batch_queues()
        self.delete_expired_files()

    def correct_batch_queues(self) -> int:
        """Correct the start of batch consume queues that begin before the log, and return their number."""
        now = self._clock.monotonic()
        is_deep = self._last_deep is None or now - self._last_deep > _DEEP_EVERY
        if is_deep:
            self._last_deep = now
        min_offset = self._min_offset()
        corrected = 0
        for queue in self._queues.queues():
            if isinstance(queue, BatchConsumeQueue) and needs_correction(queue, min_offset, is_deep=is_deep):
                queue.delete_expired_file(min_offset)
                corrected += 1
        return corrected

    def delete_expired_files(self) -> int:
        """Delete files of queues and index that point below the log; return the number of queue files."""
        min_offset = self._min_offset()
        if min_offset <= self._last_min_offset:
            return 0
        deleted = 0
        for queue in self._queues.queues():
            count = queue.delete_expired_file(min_offset) or 0
            if count > 0 and self._pause > 0:
                self._clock.sleep(self._pause)
            deleted += count
        self._index.delete_expired_file(min_offset)
        self._last_min_offset = min_offset
        return deleted


class CleanServices:
    """Both cleaning services of a store, started and stopped together.

    * `space`: The one whose `full_paths` the commit log's `SegmentPaths` call.
    * `time_zone`: Time zone of ``deleteWhen``; None means the machine's.
    """

    def __init__(  # noqa: PLR0913 -- what is cleaned, why, and when
        self,
        config: MessageStoreConfig,
        commit_log: CommitLog,
        space: DiskSpace,
        queues: ConsumeQueueStore,
        index: IndexService,
        clock: Clock,
        *,
        time_zone: tzinfo | None = None,
    ) -> None:
        self.commit_log_service = CleanCommitLogService(
            config,
            commit_log.mapped_file_queue,
            commit_log.running_flags,
            space,
            clock,
            time_zone=time_zone,
        )
        self.queue_service = CleanConsumeQueueService(config, lambda: commit_log.min_offset, queues, index, clock)

    def start(self) -> None:
        """Start both threads; their first round is after a minute."""
        self.commit_log_service.start()
        self.queue_service.start()

    def shutdown(self) -> bool:
        """Stop both; return False if one hangs. To be called before the log is shut down."""
        ended = self.commit_log_service.shutdown()
        return self.queue_service.shutdown() and ended

    def execute_delete_files_manually(self) -> None:
        """Request that expired files be deleted in the next rounds, see `CleanCommitLogService`."""
        self.commit_log_service.execute_delete_files_manually()

    def run_once(self) -> None:
        """Do one round of each now: the log first, so that queues and index follow it."""
        self.commit_log_service.run_once()
        self.queue_service.run_once()
