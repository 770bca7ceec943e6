# SPDX-License-Identifier: Apache-2.0
"""How full the disks of a store are, and what follows from it."""

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
    """Percentages of a disk from above which something happens.

    Attributes
    ----------
    warning : int
        The store takes no more messages, and files are deleted whatever their age.
    forcible : int
        Files are deleted whatever their age, and a directory gets no new segments.
    delete : int
        Files that are old enough are deleted, at any hour.
    """

    warning: int
    forcible: int
    delete: int

    @classmethod
    def of(cls, config: MessageStoreConfig) -> Self:
        """Take the limits of a configuration, within the bounds that RocketMQ sets.

        ``diskMaxUsedSpaceRatio`` is kept in 10 to 95 by every release, ``diskSpaceWarningLevelRatio`` in 35 to 90 and
        ``diskSpaceCleanForciblyRatio`` in 30 to 85 by 5.x. In 4.x these two are properties of the JVM, without bounds.
        """
        warning, forcible = config.disk_space_warning_level_ratio, config.disk_space_clean_forcibly_ratio
        if config.features.bounds_disk_ratios:
            warning, forcible = _within(warning, _WARNING_BOUNDS), _within(forcible, _FORCIBLE_BOUNDS)
        return cls(warning, forcible, _within(config.disk_max_used_space_ratio, _DELETE_BOUNDS))

    def is_full(self, percent: int) -> bool | None:
        """Say what the disk-full flag becomes; None leaves it as it is, so that it does not flap at one limit."""
        if percent > self.warning:
            return True
        return None if percent > self.forcible else False

    def wants_deletion(self, percent: int) -> bool:
        """Return whether old files should go: also where nothing can be measured (-1)."""
        return percent < 0 or percent > self.delete


@dataclass(frozen=True, slots=True)
class SpaceVerdict:
    """What is to be done about the space on the disks.

    Attributes
    ----------
    wants_deletion : bool
        Files that are old enough should go now.
    at_once : bool
        Whatever their age.
    is_full : bool or None
        What the flag DISK_FULL becomes; None leaves it.
    """

    wants_deletion: bool
    at_once: bool
    is_full: bool | None

    @classmethod
    def of(cls, limits: DiskLimits, features: ReleaseRules, log_percent: int, queue_percent: int) -> Self:
        """Judge the disks of commit log and queues (RocketMQ: ``CleanCommitLogService.isSpaceToDelete``).

        The log is looked at first. What 5.x decides there for good is a disk over the forcible limit; what 4.x decides
        there for good is one over the limit of deletion, which as a rule is the lower one. Else the queues' disk has
        the last word on the flag, which they share: in 4.x with ``diskMaxUsedSpaceRatio`` above the warning level, a
        queue disk with room clears the flag that a full log disk has just set.
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

    Two things are not followed: ``replicasPerDiskPartition``, by which 5.x lets several brokers share a disk; and how
    4.3 measures, which divides by all blocks, those included that only root may use, and does not round.

    Parameters
    ----------
    config : MessageStoreConfig
    log_paths : collection of Path
        Directories that take new segments of the commit log; those that are only read do not count.
    queue_path : Path
        Directory of the consume queues.
    file_system : FileSystem
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
        """Return the log directories that were too full for a new segment at the last `check`, for `SegmentPaths`."""
        return self._full_paths

    def check(self) -> SpaceVerdict:
        """Measure, note which directories are full, and judge.

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
