# SPDX-License-Identifier: Apache-2.0
"""Delivery offsets of delayed messages: how far each delay level has been delivered."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from store_core.broker.concurrent_map import concurrent_map_order, initial_capacity
from store_core.broker.config_file import VersionedConfigManager
from store_core.format.releases.release import DEFAULT_RELEASE, rules_of
from store_core.snapshot.config import DELAY_OFFSETS
from store_core.snapshot.config_json import ConfigFields
from store_core.snapshot.config_tables import DataVersion

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem
    from store_core.format.releases.release import Release
    from store_core.snapshot.config_json import JsonObject

__all__ = ["DelayOffsetTable"]

_LOG: Final = logging.getLogger("store_core")
_CAPACITY: Final = initial_capacity(32)


class DelayOffsetTable(VersionedConfigManager):
    """Offsets in the queues of ``SCHEDULE_TOPIC_XXXX`` by delay level, in ``config/delayOffset.json``.

    (RocketMQ: the persisted part of ``ScheduleMessageService``.) Level 1 is queue 0. An offset is the index of the next
    message to deliver.

    Parameters
    ----------
    root : path-like
        The store's root.
    file_system : FileSystem, optional
    clock : Clock, optional
    release : str
        5.x also writes a data version.
    version_step : int
        After how many updates the data version advances (``delayOffsetUpdateVersionStep``).

    Attributes
    ----------
    data_version : DataVersion
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        file_system: FileSystem | None = None,
        clock: Clock | None = None,
        release: Release = DEFAULT_RELEASE,
        *,
        version_step: int = 200,
    ) -> None:
        super().__init__(root, DELAY_OFFSETS.name, file_system, clock, release)
        self._has_version = rules_of(release).versions_delay_offsets
        self._version_step = version_step
        self._updates = 0
        self._offsets: dict[int, int] = {}

    def offset_of(self, level: int) -> int:
        """Return the index of a level's next message; 0 if none was ever delivered."""
        return self._offsets.get(level, 0)

    def offset_table(self) -> dict[int, int]:
        """Return a copy of all offsets by level."""
        with self._lock:
            return dict(self._offsets)

    def update_offset(self, level: int, offset: int) -> None:
        """Record that a level has been delivered up to `offset`."""
        with self._lock:
            self._offsets[level] = offset
            self._updates += 1
            if self._has_version and self._updates % self._version_step == 0:
                self._next_version()

    def correct(self, bounds_of: Callable[[int], tuple[int, int] | None]) -> tuple[int, ...]:
        """Limit every known offset to its queue; return the levels that were changed.

        (RocketMQ: ``ScheduleMessageService.correctDelayOffset``.)

        Parameters
        ----------
        bounds_of : callable
            Returns the min and max index of a level's queue, or None if there is no such queue.
        """
        corrected = []
        with self._lock:
            for level, offset in self._offsets.items():
                bounds = bounds_of(level)
                kept = offset if bounds is None else min(max(offset, bounds[0]), bounds[1])
                if kept != offset:
                    _LOG.error(
                        "delay level %d continues at %d: %d is outside its queue %s", level, kept, offset, bounds
                    )
                    self._offsets[level] = kept
                    corrected.append(level)
        return tuple(corrected)

    def encode(self) -> JsonObject:
        """Return the contents of the file: in 4.x the offsets alone."""
        with self._lock:
            order = concurrent_map_order(self._offsets, _CAPACITY)
            table: JsonObject = {level: self._offsets[level] for level in order}
            if not self._has_version:
                return {"offsetTable": table}
            return {"dataVersion": self._encode_version(), "offsetTable": table}

    def decode(self, value: JsonObject, file: str) -> None:
        """Add the offsets of a file to the existing ones, replacing those of the same level."""
        fields = ConfigFields(value, file)
        offsets = DELAY_OFFSETS.decode(fields, rules_of(self._release))
        version = DataVersion.of(fields) if self._has_version else None
        with self._lock:
            self._load_version(version)
            self._offsets.update(offsets)
