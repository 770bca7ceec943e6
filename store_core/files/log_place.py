# SPDX-License-Identifier: Apache-2.0
"""Which log a store and a configuration mean together, and a root that knows it.

A copy of a store is often used with the configuration of the broker that it was copied from, whose
``storePathCommitLog`` is an absolute path: that of the live log. So the store that was named is what is meant, and
this is the one place that says which log that is:

====================================  ===================================  ==========================================
the store that was named              is read                              is written
====================================  ===================================  ==========================================
no log is configured                  its ``commitlog``                    its ``commitlog``
its ``commitlog`` is among those      those that are configured            those that are configured
has a ``commitlog`` besides           its ``commitlog``, with a note       refused, until the caller says which
has none                              those that are configured            the same, unless they are another store's
====================================  ===================================  ==========================================

Whatever reads a store takes its root as a path. A `ConfiguredRoot` is one, so that those readers know nothing of
configurations: `log_directories` and `roots_to_lock` say where its log is, and whose lock guards it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, Any, Final, Self

from store_core.errors import InvalidOptionError
from store_core.files.file_system import names_in
from store_core.files.remote.url_path import UrlPath
from store_core.files.segment_paths import SegmentPaths
from store_core.files.store_parts import CHECKPOINT_FILE, COMMIT_LOG, CONSUME_QUEUE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from store_core.files.file_system import FileSystem

__all__ = ["ChosenPaths", "ConfiguredRoot", "LogPlace", "lock_places", "log_directories", "notes_of", "roots_to_lock"]

_OPTION: Final = "option storePathCommitLog (--store-path-commit-log)"
_SIGNS: Final = frozenset({CHECKPOINT_FILE, CONSUME_QUEUE})
"""What a broker makes below the root of each store that it opens."""


class ChosenPaths(str):
    """``storePathCommitLog`` as the caller gave it besides a configuration, to say which log is meant.

    It is ordinary text that ``dataclasses.replace`` preserves, so it stays known that nobody has to be asked.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where the log of a store is."""

    paths: SegmentPaths
    note: str = ""  # what readers are told; empty if there is nothing to tell
    doubt: str = ""
    """Why nothing is written before the caller has said which log is meant; empty if that is beyond doubt."""

    @classmethod
    def of(cls, root: Path, configured: SegmentPaths, broker_root: Path | None, file_system: FileSystem) -> Self:
        """Apply the rule to a store that was named and the directories that a configuration names.

        * `root`: Of the store that was named.
        * `configured`: ``storePathCommitLog`` and ``readOnlyCommitLogStorePaths``; without any path if no log is
          configured.
        * `broker_root`: ``storePathRootDir``, if it is configured.
        """
        own = root / COMMIT_LOG
        is_among = _real(own) in map(_real, configured.all_paths)
        if not configured.paths and not is_among:
            return cls._without_log(own, configured, broker_root)
        if is_among:
            return cls(configured if configured.paths else replace(configured, paths=(own,)))
        names = ", ".join(map(str, configured.paths))
        if names_in(own, file_system):
            found = f"{root} has a commit log of its own, and the configuration names another (storePathCommitLog)"
            both = f"{own}, or {names}"
            return cls(
                SegmentPaths((own,), full_paths=configured.full_paths),
                f"{found}: {own} is used, and not {names}. To use the other, give it as {_OPTION}",
                f"{found}, so which one is to be written is not certain: expected one of {both}",
            )
        other = next(_others(root, configured, broker_root, file_system), None)
        if other is None:
            return cls(configured)
        return cls(
            configured,
            doubt=f"{root} has no commit log of its own, and {names}, which the configuration names "
            f"(storePathCommitLog), is that of the store at {other}",
        )

    @classmethod
    def _without_log(cls, own: Path, configured: SegmentPaths, broker_root: Path | None) -> Self:
        """Return the place where no log is configured, but perhaps more directories of one, which are only read."""
        here = replace(configured, paths=(own,))
        if not configured.read_only_paths or broker_root is None or _real(broker_root) == _real(own.parent):
            return cls(here)
        names = ", ".join(map(str, configured.read_only_paths))
        found = f"the configuration is that of the store at {broker_root}, whose log is in {names}, too"
        is_own = f"{own} is used alone. If more is meant, give all of its directories as {_OPTION}"
        return cls(replace(here, read_only_paths=()), f"{found}: {is_own}", f"{found}, and not that of {own.parent}")

    def check_is_certain(self) -> None:
        """Refuse to write where two logs may be meant."""
        if self.doubt:
            raise InvalidOptionError(f"{self.doubt}. Nothing was changed. Say which log is meant: {_OPTION}")


def lock_places(root: Path, log: Iterable[Path], broker_root: Path | None) -> tuple[Path, ...]:
    """Return the roots whose locks keep others from writing a log: the store's own, and where the log lies.

    Two stores may have one log: by the configuration, or because a directory or a segment is a link. A broker that
    runs on that log holds the lock of its own root, which is above the log unless the configuration says otherwise.

    * `root`: Of the store that was named; comes first.
    * `log`: The directories of its log.
    * `broker_root`: ``storePathRootDir``, if it is configured and the log lies outside of the store.
    """
    log = tuple(log)
    places = [Path(os.path.realpath(path)).parent for path in log]
    places += [link.parent.parent for path in log for link in _linked(path)]
    is_outside = any(place != Path(os.path.realpath(root)) for place in places)
    places += [broker_root] if broker_root is not None and is_outside and broker_root.is_dir() else []
    found = {_real(root): root}
    for place in places:
        found.setdefault(_real(place), place)
    return tuple(found.values())


def _linked(directory: Path) -> list[Path]:
    """Return the files to which links in a directory of segments lead."""
    try:
        with os.scandir(directory) as entries:
            return [Path(os.path.realpath(entry.path)) for entry in entries if entry.is_symlink()]
    except OSError:
        return []


def _others(root: Path, configured: SegmentPaths, broker_root: Path | None, file_system: FileSystem) -> Iterator[Path]:
    """Yield the roots of other stores to which configured directories belong."""
    if broker_root is not None and _real(broker_root) != _real(root):
        yield broker_root
    for path in configured.paths:
        above = Path(_real(path)).parent
        if str(above) != _real(root) and not _SIGNS.isdisjoint(names_in(above, file_system)):
            yield above


def _real(path: Path) -> str:
    return os.path.realpath(path)


class ConfiguredRoot(PosixPath):
    """The root of a store, with what a configuration says of it. Paths below it are ordinary ones."""

    log: tuple[Path, ...] = ()  # the directories of its log, which need not all be there; empty for a path below a root
    member: Path | None = None  # the directory ``dledger-SELFID``, if that is a DLedger log elsewhere
    broker_root: Path | None = None  # ``storePathRootDir``
    notes: tuple[str, ...] = ()  # what its readers are told of the configuration

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
