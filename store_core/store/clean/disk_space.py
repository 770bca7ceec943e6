# SPDX-License-Identifier: Apache-2.0
"""Disk usage of a store, and what follows from it: deleting files and refusing messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from store_core.files.file_system import FileSystem
    from store_core.format.releases.release_rules import ReleaseRules
    from store_core.store.config.message_store_config import MessageStoreConfig

__all__ = ["DiskLimits", "DiskSpace", "SpaceVerdict"]

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
    * `queue_path`: Directory of the consume queues.
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
