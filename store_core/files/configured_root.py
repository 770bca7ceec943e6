# SPDX-License-Identifier: Apache-2.0
"""The root of a store whose log is elsewhere: a path that knows where its broker's configuration says it is.

Whatever reads a store takes its root as a path. A `ConfiguredRoot` is one, so that those readers know nothing of
configurations: `log_directories` and `roots_to_lock` say where its log is, and whose lock guards it.
"""

from __future__ import annotations

from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, Any

from store_core.files.log_place import lock_places
from store_core.files.remote.url_path import UrlPath
from store_core.files.store_parts import COMMIT_LOG

if TYPE_CHECKING:
    import os
    from typing import Self

__all__ = ["ConfiguredRoot", "log_directories", "notes_of", "roots_to_lock"]


class ConfiguredRoot(PosixPath):
    """The root of a store, with what a configuration says of it. Paths below it are ordinary ones.

    Attributes
    ----------
    log : tuple of Path
        The directories of its log, which need not all be there; empty for a path below a root.
    member : Path or None
        The directory ``dledger-SELFID``, if that is a DLedger log elsewhere.
    broker_root : Path or None
        ``storePathRootDir``.
    notes : tuple of str
        What its readers are told of the configuration.
    """

    log: tuple[Path, ...] = ()
    member: Path | None = None
    broker_root: Path | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        root: str | os.PathLike[str],
        log: tuple[Path, ...],
        member: Path | None = None,
        broker_root: Path | None = None,
        notes: tuple[str, ...] = (),
    ) -> Self:
        """Return the root of a store with such a log."""
        self = cls(root)
        self.log, self.member, self.broker_root, self.notes = log, member, broker_root, notes
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with what is known; a path below a root is pickled as an ordinary one."""
        if not self.log:
            return Path, (str(self),)
        return ConfiguredRoot.of, (str(self), self.log, self.member, self.broker_root, self.notes)


def log_directories(root: Path) -> tuple[Path, ...]:
    """Return the directories of a store's log: as it is configured, or else the one below the root."""
    return root.log if isinstance(root, ConfiguredRoot) and root.log else (root / COMMIT_LOG,)


def notes_of(root: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return what the readers of a store are told of its configuration."""
    return root.notes if isinstance(root, ConfiguredRoot) else ()


def roots_to_lock(root: Path) -> tuple[Path, ...]:
    """Return the roots whose locks say whether a store is being written, see `store_core.files.log_place`."""
    if isinstance(root, UrlPath):
        return ()
    return lock_places(root, log_directories(root), getattr(root, "broker_root", None))
