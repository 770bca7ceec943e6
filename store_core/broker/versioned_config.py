# SPDX-License-Identifier: Apache-2.0
"""A configuration file of a broker with its data version, by which brokers and name servers detect changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from store_core.broker.config_file import ConfigManager
from store_core.format.releases.release import rules_of

if TYPE_CHECKING:
    import os

    from store_core.broker.config_fields import ConfigFields
    from store_core.broker.config_json import JsonObject
    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem
    from store_core.format.releases.release import Release

__all__ = ["DataVersion", "VersionedConfigManager"]


@dataclass(frozen=True, slots=True)
class DataVersion:
    """Version of a configuration (RocketMQ: ``DataVersion``).

    Attributes
    ----------
    timestamp : int
        Time of the change, ms since 1970.
    counter : int
        How many versions preceded this one.
    state_version : int
        The broker's in controller mode, else 0 (5.x).
    """

    timestamp: int
    counter: int = 0
    state_version: int = 0

    @classmethod
    def decode(cls, fields: ConfigFields) -> Self:
        """Decode it; missing members are 0."""
        return cls(fields.integer("timestamp"), fields.integer("counter"), fields.integer("stateVersion"))

    def encode(self, release: Release) -> JsonObject:
        """Encode it as a release does: 4.x has no state version."""
        state: JsonObject = {"stateVersion": self.state_version} if rules_of(release).has_state_version else {}
        return {"counter": self.counter, **state, "timestamp": self.timestamp}

    def next_version(self, now_ms: int, state_version: int = 0) -> DataVersion:
        """Return the next version."""
        return DataVersion(now_ms, self.counter + 1, state_version)


class VersionedConfigManager(ConfigManager):
    """Data kept in one JSON file of a broker, with the version by which others detect changes.

    Parameters
    ----------
    root : path-like
        The store's root.
    name : str
        The file's name.
    file_system : FileSystem or None
    clock : Clock or None
    release : str
        Decides which members the file has.

    Attributes
    ----------
    data_version : DataVersion
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        name: str,
        file_system: FileSystem | None,
        clock: Clock | None,
        release: Release,
    ) -> None:
        super().__init__(root, name, file_system, clock, release)
        self.data_version = DataVersion(self._clock.now_ms())

    def _next_version(self) -> None:
        self.data_version = self.data_version.next_version(self._clock.now_ms())

    def _load_version(self, fields: ConfigFields | None) -> None:
        """Load the version of a file; without one, the current version stays.

        Raises
        ------
        CorruptRecordError
            If a member of the version has the wrong type.
        """
        if fields is not None and fields.members:
            self.data_version = DataVersion.decode(fields)
