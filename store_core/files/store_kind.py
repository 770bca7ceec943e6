# SPDX-License-Identifier: Apache-2.0
"""Checks for what an ordinary store does not hold: a DLedger log, queues in RocksDB, tiered storage.

Everything that reads, opens, rebuilds or writes a store calls `check_store_kind` first. Readers of rows that can read
DLedger's entries say so; ``dledger-*/data`` is then no reason to refuse.

==========================================  =============  ================  ================  ===================
found below the root                        reads the log  reads the queues  opens the queues  replaces the queues
==========================================  =============  ================  ================  ===================
``dledger-*/data``                          refused        refused           refused           refused
RocksDB in ``consumequeue``, no queue file                 read              refused           refused
RocksDB among queue files there                            a note            a note            refused
``consumequeue_rocksdb``, no queue file                    read              refused           a note
``consumequeue_rocksdb``, and queue files                  a note            a note            a note
``rocksdbstore`` that is not empty                         a note            a note            a note
``compaction/compactionLog/TOPIC``                         a note            a note            a note
``config/tieredStoreMetadata.json``         a note         a note            a note            a note
==========================================  =============  ================  ================  ===================

A queue file is a file in a directory ``TOPIC/NUMBER`` below ``consumequeue`` or ``batchconsumequeue``.
"""

from __future__ import annotations

import os
import re
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from store_core.errors import UnsupportedStoreError
from store_core.files.config_paths import CONFIG_DIRECTORY
from store_core.files.dledger_log import MEMBER_DATA, dledger_error, dledger_logs
from store_core.files.file_system import is_directory, names_in
from store_core.files.remote.url_path import UrlPath
from store_core.files.store_parts import BATCH_CONSUME_QUEUE, COMMIT_LOG, CONSUME_QUEUE, INDEX_DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.files.file_system import FileSystem

__all__ = [
    "QUEUE_DIRECTORIES",
    "StoreUse",
    "check_log_place",
    "check_store_kind",
    "has_queues",
    "queue_database",
    "queue_databases",
]

_ROCKSDB_QUEUES: Final = "consumequeue_rocksdb"
"""``useSeparateStorePathForRocksdbCQ``, RocketMQ 5.5."""

QUEUE_DIRECTORIES: Final = (CONSUME_QUEUE, BATCH_CONSUME_QUEUE, _ROCKSDB_QUEUES)
"""Where below its root a store has its queues, whatever their kind."""

_MANIFEST: Final = re.compile(r"MANIFEST-[0-9]+")
_DEEPEST: Final = 3
"""Directory levels of a DLedger store above its files: ``dledger-SELFID/data/FILE``."""


class StoreUse(Enum):
    """What a caller is going to do with a store."""

    READ_LOG = "read the records of its commit log"
    READ_QUEUES = "read its queues, whether they are files or in a RocksDB"
    OPEN_QUEUES = "open its queues, to write them as files"
    REPLACE_QUEUES = "put other directories in the place of those with queues"


def check_store_kind(
    root: Path, file_system: FileSystem, use: StoreUse = StoreUse.OPEN_QUEUES, *, reads_entries: bool = False
) -> tuple[str, ...]:
    """Refuse a store that would be misread or harmed, and return notes on what else is ignored.

    Nothing is written. A root that does not exist, or is empty, is fine.

    * `root`: The store's root.
    * `reads_entries`: Whether the caller only reads, and reads the entries of a DLedger log, too.

    Returns: Notes on what is there but harmlessly ignored.
    """
    for data in () if reads_entries else dledger_logs(root, file_system):
        raise dledger_error(root, data, file_system)
    notes = list(_log_notes(root, file_system))
    if use is StoreUse.READ_LOG:
        return tuple(notes)
    databases = queue_databases(root, file_system)
    has_files = bool(databases) and _has_queue_files(root, file_system)
    if use is StoreUse.REPLACE_QUEUES and root / CONSUME_QUEUE in databases:
        raise _replacement_error(root, has_files=has_files)
    if use is StoreUse.OPEN_QUEUES and databases and not has_files:
        raise _rocksdb_error(root, databases[0])
    beside = databases if has_files or use is not StoreUse.READ_QUEUES else databases[1:]
    return (*notes, *map(_rocksdb_note, beside), *_queue_notes(root, file_system))


def queue_database(root: Path, file_system: FileSystem) -> Path | None:
    """Return the directory of the RocksDB that has a store's queues; None if they are files, or there are none.

    Where a broker writes both (``rocksdbCQDoubleWriteEnable``), the files are what is read, as by the broker.
    """
    databases = queue_databases(root, file_system)
    return databases[0] if databases and not _has_queue_files(root, file_system) else None


def queue_databases(root: Path, file_system: FileSystem) -> list[Path]:
    """Return the directories of every RocksDB with queues, also of such that are in files, too."""
    return [place for place in (root / CONSUME_QUEUE, root / _ROCKSDB_QUEUES) if _is_rocksdb(place, file_system)]


def has_queues(root: Path) -> bool:
    """Return whether a store has a directory for queues, of any kind."""
    return any((root / name).is_dir() for name in QUEUE_DIRECTORIES)


def check_log_place(place: Path, file_system: FileSystem) -> None:
    """Refuse to read a directory of segments that is not the whole log, because its root is that of a DLedger store.

    A single segment given by its own name is read, whatever is in the root: the caller wants only that part. But
    nothing below ``dledger-*`` is: readers of entries find those by `store_core.files.dledger_log`.

    * `place`: A directory of segments, or a file. The target of a link is checked, too.
    """
    for path, deepest in _names_of(place):
        for level, root in enumerate(path.parents[:deepest]):
            is_directory_of_it = level == 0 and is_directory(path, file_system)
            for data in dledger_logs(root, file_system):
                if is_directory_of_it or data.parent in (path, *path.parents):
                    raise dledger_error(root, data, file_system)


def _names_of(place: Path) -> Iterator[tuple[Path, int]]:
    """Yield a path and the target of a link, and how many directories above are looked at.

    In another storage, where each costs a request, those are only what the name calls for.
    """
    if not isinstance(place, UrlPath):
        yield from ((path, _DEEPEST) for path in dict.fromkeys((place, Path(os.path.realpath(place)))))
    elif place.name == COMMIT_LOG:
        yield place, 1
    elif place.parent.name == MEMBER_DATA:
        yield place, _DEEPEST


# ---- queues in RocksDB


def _rocksdb_error(root: Path, database: Path) -> UnsupportedStoreError:
    return UnsupportedStoreError(
        f"{root} has its queues in a RocksDB (storeType=defaultRocksDB, RocketMQ 5.2 and later), which is read and "
        f"never written: expected directories TOPIC/NUMBER with files in {root / CONSUME_QUEUE}, found the RocksDB "
        f"{database}. Nothing was changed. The store can be read, also opened read-only; "
        f"for a broker that goes back to files, make them from the log: commitlog rebuild queues {root} --to "
        f"files --replace, or with --output DIRECTORY anywhere else"
    )


def _replacement_error(root: Path, *, has_files: bool) -> UnsupportedStoreError:
    advice = (
        "Rebuild single topics (--topic), whose directories alone are replaced, or leave --replace out"
        if has_files
        else "Leave --replace out"
    )
    return UnsupportedStoreError(
        f"{root / CONSUME_QUEUE} holds a RocksDB with queues (storeType=defaultRocksDB or rocksdbCQDoubleWriteEnable), "
        f"and new directories of queues would take its place: expected directories of topics alone. Nothing was "
        f"changed. {advice}; or, for a broker that goes back to queues in files alone, add --to files: the RocksDB is "
        f"kept with the old files"
    )


def _rocksdb_note(database: Path) -> str:
    return (
        f"{database} holds a RocksDB with queues (rocksdbCQDoubleWriteEnable, RocketMQ 5.3 and later): the queues that "
        f"are files are used, and the RocksDB is left as it is."
    )


def _is_rocksdb(directory: Path, file_system: FileSystem) -> bool:
    """Return whether a directory has a RocksDB's files; a topic may be named like one, but is a directory."""
    signs = (name for name in names_in(directory, file_system) if name == "CURRENT" or _MANIFEST.fullmatch(name))
    return any(not is_directory(directory / name, file_system) for name in signs)


def _has_queue_files(root: Path, file_system: FileSystem) -> bool:
    queues = (
        root / kind / topic / number
        for kind in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE)
        for topic in names_in(root / kind, file_system)
        for number in names_in(root / kind / topic, file_system)
        if number.isdecimal()
    )
    return any(names_in(queue, file_system) for queue in queues)


# ---- what is harmless


def _log_notes(root: Path, file_system: FileSystem) -> Iterator[str]:
    """Yield notes for readers of the log."""
    tiered = root / CONFIG_DIRECTORY / "tieredStoreMetadata.json"
    try:
        is_tiered = file_system.status(tiered) is not None
    except PermissionError:  # who reads the log need not be allowed to look elsewhere
        yield f"{tiered.parent} can't be looked into: whether tiered storage holds more messages is not known."
        return
    if is_tiered:
        yield (
            f"{tiered} is there: tiered storage (RocketMQ 5.1 and later) may hold messages that retention has deleted "
            f"from the log. It is not read."
        )


def _queue_notes(root: Path, file_system: FileSystem) -> Iterator[str]:
    """Yield notes for users of queues or index."""
    database = root / "rocksdbstore"
    if _holds_data(database, file_system):
        yield (
            f"{database} holds data (indexRocksDBEnable, timerRocksDBEnable or transRocksDBEnable, RocketMQ 5.4 and "
            f"later), which the view rocksdbstore shows: keys are looked up in the files of {root / INDEX_DIRECTORY}."
        )
    compacted = root / "compaction" / "compactionLog"
    if names_in(compacted, file_system):
        yield (
            f"{compacted} holds compacted topics (cleanup.policy=COMPACTION), from which a broker answers; it is not "
            f"read. Messages are read from the log."
        )


def _holds_data(database: Path, file_system: FileSystem) -> bool:
    """Return whether a RocksDB has data; RocketMQ 5.4 creates an empty one in every store."""
    names = names_in(database, file_system) if _is_rocksdb(database, file_system) else []
    found = (file_system.status(database / name) for name in names if name.endswith((".sst", ".log")))
    return any(status is not None and status.size > 0 for status in found)
