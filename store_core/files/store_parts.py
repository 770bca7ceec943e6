# SPDX-License-Identifier: Apache-2.0
"""Names of the directories below a store's root, and checks that a path is a root and not a part of a store."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from store_core.errors import InvalidOptionError, StoreAccessError, UnsupportedStoreError
from store_core.files.config_paths import CONFIG_DIRECTORY
from store_core.files.file_system import names_in
from store_core.files.segment_names import archive_codec, archive_error

if TYPE_CHECKING:
    from collections.abc import Collection

    from store_core.files.file_system import FileSystem

__all__ = [
    "BATCH_CONSUME_QUEUE",
    "CHECKPOINT_FILE",
    "COMMIT_LOG",
    "CONSUME_QUEUE",
    "CONSUME_QUEUE_EXT",
    "INDEX_DIRECTORY",
    "check_is_no_url",
    "check_is_root",
    "check_parts",
    "is_root",
    "is_root_of",
    "path_exists",
]

COMMIT_LOG: Final = "commitlog"
"""Directory of the segments below a store root (RocketMQ: ``storePathCommitLog``)."""

CHECKPOINT_FILE: Final = "checkpoint"
"""File below a store root with up to where log, queues and index were on disk (RocketMQ: ``getStoreCheckpoint``)."""

CONSUME_QUEUE: Final = "consumequeue"
CONSUME_QUEUE_EXT: Final = "consumequeue_ext"
BATCH_CONSUME_QUEUE: Final = "batchconsumequeue"
INDEX_DIRECTORY: Final = "index"
"""Directory of the key index (RocketMQ: ``StorePathConfigHelper.getStorePathIndex``)."""

_PARTS: Final = {
    COMMIT_LOG: "the commit log",
    CONSUME_QUEUE: "the consume queues",
    CONSUME_QUEUE_EXT: "the extensions of consume queues",
    BATCH_CONSUME_QUEUE: "the batch consume queues",
    INDEX_DIRECTORY: "the key index",
    CONFIG_DIRECTORY: "the broker's configuration",
}
_SIGNS: Final = frozenset({COMMIT_LOG, CONSUME_QUEUE, CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE, CHECKPOINT_FILE})
"""Entries that identify a store's root: hardly any other directory has them."""

_BEFORE_LOG: Final = frozenset({CONFIG_DIRECTORY, INDEX_DIRECTORY, "abort", "abort.bak", "lock", "commitlog-sink"})
"""Entries that a store may have before its log; other directories have such names, too, so they identify no root."""

_SEGMENT: Final = re.compile(r"[0-9]{20,}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
"""What is left of a URL's scheme in a path, which has only one slash after it."""

_DEEPEST: Final = 3
"""Most directory levels between a root and RocketMQ's files: ``consumequeue/TOPIC/NUMBER``, then files."""


def check_is_root(path: Path, file_system: FileSystem, log_paths: Collection[Path] = ()) -> None:
    """Refuse a path that can't be a store's root because it is part of a store, or a file.

    A store opened there would be empty, and would put its own files among those already there. This writes nothing.

    * `path`: Absolute or relative; it need not exist.
    * `log_paths`: Configured segment directories: a root among them may hold segments itself.
    """
    path = path.absolute()
    if file_system.status(path) is None:
        check_is_no_url(path)
    holder = _store_around(path, file_system)
    if holder is not None:
        root, part = holder
        what = "is" if path == root / part else "lies in"
        raise InvalidOptionError(
            f"{path} {what} {_PARTS[part]} of the store at {root}: expected a store's root. Nothing was changed. Give "
            f"{root}"
        )
    status = file_system.status(path)
    if status is not None and not status.is_directory:
        if archive_codec(path.name) is not None:
            raise archive_error(path)
        raise InvalidOptionError(
            f"{path} is a file: expected a store's root, a directory with {COMMIT_LOG}/ in it. If a store was packed "
            f"into it, unpack it"
        )
    segment = _segment_in(path, file_system)
    if segment is not None and path not in {each.absolute() for each in log_paths}:
        raise InvalidOptionError(
            f"{path} is a directory of segments, or of a queue's files: expected a store's root, which has segments in "
            f"{COMMIT_LOG}/, found {segment}. Nothing was changed. Give the directory above {COMMIT_LOG}/; if there is "
            f"none, and these are the segments of a log, move them into {path / COMMIT_LOG}"
        )


def check_is_no_url(path: Path) -> None:
    """Refuse a path that does not exist because it was a URL before it was taken for a path.

    A directory that is named like a scheme is one, if it is there.
    """
    at = next((at for at, part in enumerate(path.parts) if _SCHEME.fullmatch(part)), None)
    if at is not None and not path_exists(Path(*path.parts[: at + 1])):
        url = f"{path.parts[at]}//{'/'.join(path.parts[at + 1 :])}"
        raise UnsupportedStoreError(
            f"{url} looks like a URL, and this needs the store on a local disk, or on one that is mounted. Nothing "
            f"was changed. Copy the store there, or write it there and copy it to where it belongs"
        )


def path_exists(path: str | os.PathLike[str]) -> bool:
    """Return whether a path exists; one that the system can't even look up does not."""
    try:
        return os.path.exists(path)  # noqa: PTH110 -- Path.exists raises where a path is too long
    except ValueError:
        return False


def is_root(path: Path, file_system: FileSystem) -> bool:
    """Return whether a directory holds a part of a store."""
    return not (_PARTS.keys() | _SIGNS).isdisjoint(names_in(path, file_system))


def is_root_of(names: Collection[str]) -> bool:
    """Return whether the names in a directory are those of a store's root, and of nothing else's."""
    return not _SIGNS.isdisjoint(names) or _BEFORE_LOG.issuperset(names)


def check_parts(root: Path, file_system: FileSystem) -> None:
    """Refuse a store if a part of it that must be a directory is something else.

    RocketMQ treats such a part as empty, and fails when it writes there.
    """
    for name in (COMMIT_LOG, CONSUME_QUEUE, CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE, INDEX_DIRECTORY):
        status = file_system.status(root / name)
        if status is not None and not status.is_directory:
            raise StoreAccessError(
                f"{root / name}: expected a directory with {_PARTS[name]} of the store at {root}, found a file of "
                f"{status.size} bytes. Nothing was changed. Move it elsewhere: queues and index are rebuilt from the "
                f"log"
            )


def _store_around(path: Path, file_system: FileSystem) -> tuple[Path, str] | None:
    """Return the root of the store that a path is in, and the part of the store that it is or is in."""
    for part in (path, *path.parents[:_DEEPEST]):
        if part.name in _PARTS and (
            _holds_other_parts(part, file_system) or (part.name == COMMIT_LOG and _segment_in(part, file_system))
        ):
            return part.parent, part.name
    return None


def _holds_other_parts(part: Path, file_system: FileSystem) -> bool:
    """Return whether other parts of a store are next to one; a directory that holds segments is not a root."""
    names = names_in(part.parent, file_system)
    return not any(map(_SEGMENT.fullmatch, names)) and not _SIGNS.isdisjoint(set(names) - {part.name})


def _segment_in(directory: Path, file_system: FileSystem) -> str | None:
    return next(filter(_SEGMENT.fullmatch, names_in(directory, file_system)), None)
