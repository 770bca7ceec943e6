# SPDX-License-Identifier: Apache-2.0
"""A configuration file of a broker that has a data version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.broker.config_file import ConfigManager
from store_core.broker.data_version import DataVersion

if TYPE_CHECKING:
    import os

    from store_core.broker.config_fields import ConfigFields
    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem
    from store_core.format.releases.release import Release

__all__ = ["VersionedConfigManager"]


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
