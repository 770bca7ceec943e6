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
``rebuild-swap.json``                                      a note            a note            a note
``config/tieredStoreMetadata.json``         a note         a note            a note            a note
==========================================  =============  ================  ================  ===================

A queue file is a file in a directory ``TOPIC/NUMBER`` below ``consumequeue`` or ``batchconsumequeue``.
"""

from __future__ import annotations

import os
import re
import struct
from contextlib import closing
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from store_core.errors import InvalidOptionError, StoreAccessError, UnsupportedStoreError
from store_core.files.file_system import FileSystem, OsFileSystem, is_directory, names_in
from store_core.files.names import (
    BATCH_CONSUME_QUEUE,
    CHECKPOINT_FILE,
    COMMIT_LOG,
    CONFIG_DIRECTORY,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX_DIRECTORY,
    SCHEME,
    SWAP_JOURNAL,
    archive_codec,
    archive_error,
    packed_error,
)
from store_core.files.segment_source import Segment, open_segment
from store_core.files.url_path import UrlPath
from store_core.format.columnar.spans import EntryLog
from store_core.format.layout import MIN_RECORD_SIZE, MagicCode
from store_core.format.record.scan import ENTRY_HEAD_SIZE, ENTRY_MAGIC

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


MEMBER_PREFIX: Final = "dledger-"
"""Prefix of a member's directory, ``dledger-SELFID`` (``DLedgerConfig.getDataStorePath``, DLedger 0.3)."""

MEMBER_DATA: Final = "data"
_CHECKPOINT: Final = "checkpoint"
_MOST_BYTES: Final = 4096
"""Bytes of a checkpoint that are looked at; RocketMQ writes some forty."""

_read_frame: Final = struct.Struct(">ii").unpack_from
"""Magic code and size of an entry; size and magic code of the record in it."""

_COMMITTED: Final = re.compile(r"^committedIndex=(-?[0-9]{1,19})\s*$", re.MULTILINE | re.ASCII)
_LAST_INDEX: Final = 2**63 - 1


def dledger_logs(root: Path, file_system: FileSystem) -> Iterator[Path]:
    """Yield the directories of a DLedger log; none in a root that may not be listed."""
    try:
        names = names_in(root, file_system)
    except PermissionError:
        return
    members = (root / name / MEMBER_DATA for name in sorted(names) if name.startswith(MEMBER_PREFIX))
    yield from (data for data in members if is_directory(data, file_system))


def data_directory(place: Path, file_system: FileSystem) -> Path | None:
    """Return the directory of the DLedger log that a path stands for, by its name; None if it is something else.

    * `place`: A member's directory, the directory ``data`` in it, or a file there.
    """
    for data in (place / MEMBER_DATA, place, place.parent):
        if data.name == MEMBER_DATA and data.parent.name.startswith(MEMBER_PREFIX) and is_directory(data, file_system):
            return data
    return None


def begins_with_entry(segment: Segment) -> bool:
    """Return whether a segment begins with an entry; no ordinary record is as short as an entry's magic code says.

    In another storage a directory named as that of an ordinary log is one, which spares a request.
    """
    if not segment.is_plain and (segment.codec is not None or Path(segment.path).parent.name == COMMIT_LOG):
        return False
    if segment.size < ENTRY_HEAD_SIZE + MIN_RECORD_SIZE:
        return False
    with open_segment(segment) as opened:
        head = opened.chunk(0, ENTRY_HEAD_SIZE + MIN_RECORD_SIZE).data
        magic, size = _read_frame(head, 0)
        _, magic_of_record = _read_frame(head, ENTRY_HEAD_SIZE)
    is_message = magic_of_record in (MagicCode.MESSAGE_V1, MagicCode.MESSAGE_V2)
    return magic == ENTRY_MAGIC and size >= ENTRY_HEAD_SIZE + MIN_RECORD_SIZE and is_message


def root_of_member(place: Path) -> Path | None:
    """Return the root of the store that a directory of a DLedger log is part of, by the names; None if it is none."""
    member = place.parent if place.name == MEMBER_DATA else place
    return member.parent if member.name.startswith(MEMBER_PREFIX) else None


def entry_log_of(data: Path, notes: list[str]) -> EntryLog:
    """Read what is committed from the checkpoint beside a DLedger log; `notes` gets what can't be known.

    DLedger writes the checkpoint every few seconds, and when it is shut down: what it calls committed is, and more may
    be (``DLedgerMmapFileStore.persistCheckPoint``).
    """
    path = data.parent / _CHECKPOINT
    try:
        with closing(OsFileSystem().open(path, writable=False)) as file:
            text = file.read(_MOST_BYTES, 0).decode("ascii", "replace")
    except OSError as error:
        problem = f"it can't be read ({error.strerror or error})"
    else:
        found = _COMMITTED.search(text)
        index = -2 if found is None else int(found[1])
        if -1 <= index <= _LAST_INDEX:
            return EntryLog(index)
        problem = f"expected a line committedIndex=NUMBER, found {text[:80]!r}"
    notes.append(f"{path}: {problem}, so which entries of the DLedger log are committed is not known.")
    return EntryLog()


def dledger_error(root: Path, data: Path, file_system: FileSystem) -> UnsupportedStoreError:
    """Return the error that a DLedger store can't be used as asked."""
    log = root / COMMIT_LOG
    if is_directory(log, file_system):
        meaning = f"{log} holds only what is older, and would be taken for the whole log"
        advice = f" The older records can be read alone: give the files in {log}, each by its own name."
    else:
        meaning = "without it the log would be taken for empty, and the queues for stale"
        advice = ""
    return UnsupportedStoreError(
        f"{root} is a DLedger store (enableDLegerCommitLog), which can be read, but is not supported otherwise: found "
        f"{data}, which holds the log in another form, each record in an entry of its own; {meaning}. Expected {log}, "
        f"and no directory {MEMBER_PREFIX}*/{MEMBER_DATA}. Nothing was changed. Read {root} as a whole (read_messages, "
        f"spark.read, commitlog cat, the views); to change it use its broker; or, if no broker uses that directory any "
        f"more, move it elsewhere.{advice}"
    )


_ROCKSDB_QUEUES: Final = "consumequeue_rocksdb"
"""``useSeparateStorePathForRocksdbCQ``, RocketMQ 5.5."""

QUEUE_DIRECTORIES: Final = (CONSUME_QUEUE, BATCH_CONSUME_QUEUE, _ROCKSDB_QUEUES)
"""Where below its root a store has its queues, whatever their kind."""

_OF_ROCKSDB: Final = re.compile(r"CURRENT|MANIFEST-[0-9]+|[0-9]+\.sst")
_DEEPEST: Final = 3
"""Most levels of directories and names below a root: ``consumequeue/TOPIC/NUMBER``, ``dledger-SELFID/data/FILE``."""


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
        raise UnsupportedStoreError(
            f"{root} has its queues in a RocksDB (storeType=defaultRocksDB, RocketMQ 5.2 and later), which is read and "
            f"never written: expected directories TOPIC/NUMBER with files in {root / CONSUME_QUEUE}, found the RocksDB "
            f"{databases[0]}. Nothing was changed. The store can be read, also opened read-only; "
            f"for a broker that goes back to files, make them from the log: commitlog rebuild queues {root} --to "
            f"files --replace, or with --output DIRECTORY anywhere else"
        )
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
    nothing below ``dledger-*`` is: readers of entries find those by `store_core.files.store_kind`.

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
    """Return whether a directory has some of a RocksDB's files; a topic may be named like one, but is a directory."""
    signs = filter(_OF_ROCKSDB.fullmatch, names_in(directory, file_system))
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


def interrupted_swap(root: Path, file_system: FileSystem) -> str:
    """Return what to do about a replacement of queues or index that was interrupted; empty if none was."""
    if file_system.status(root / SWAP_JOURNAL) is None:
        return ""
    return (
        f"{root / SWAP_JOURNAL} tells of an interrupted replacement of queues or index, some of which may be missing. "
        f"Run the interrupted command again, which finishes it: commitlog rebuild, or commitlog repair --apply"
    )


def _queue_notes(root: Path, file_system: FileSystem) -> Iterator[str]:
    """Yield notes for users of queues or index."""
    if half_done := interrupted_swap(root, file_system):
        yield half_done
    database = root / "rocksdbstore"
    if _holds_data(database, file_system):
        yield (
            f"{database} holds data (indexRocksDBEnable, timerRocksDBEnable or transRocksDBEnable, RocketMQ 5.4 and "
            f"later), which the view rocksdbstore shows: keys are looked up in the files of {root / INDEX_DIRECTORY}; "
            f"timers in it may be delivered where config/timercheck says that they are not."
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


# ---- roots

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
_SCHEME: Final = re.compile(f"{SCHEME}:")
"""What is left of a URL's scheme in a path, which has only one slash after it."""


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
        raise packed_error(path) or InvalidOptionError(
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
