# SPDX-License-Identifier: Apache-2.0
"""Where a DLedger log is: ``dledger-SELFID/data`` below a root, and what its checkpoint says is committed."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final

from store_core.errors import UnsupportedStoreError
from store_core.files.file_system import OsFileSystem, is_directory, names_in
from store_core.files.segment_source import open_pages
from store_core.files.store_parts import COMMIT_LOG
from store_core.format.columnar.entries import EntryLog
from store_core.format.layout import MIN_RECORD_SIZE, MagicCode
from store_core.format.record.scan import ENTRY_HEAD_SIZE, ENTRY_MAGIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.files.file_system import FileSystem
    from store_core.files.segment_source import Segment

__all__ = [
    "MEMBER_DATA",
    "MEMBER_PREFIX",
    "begins_with_entry",
    "data_directory",
    "dledger_error",
    "dledger_logs",
    "entry_log_of",
    "root_of_member",
    "several_members_error",
]

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
    with open_pages(segment) as opened:
        opened.load(0, ENTRY_HEAD_SIZE + MIN_RECORD_SIZE)
        magic, size = _read_frame(opened.raw.data, 0)
        _, magic_of_record = _read_frame(opened.raw.data, ENTRY_HEAD_SIZE)
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
        file = OsFileSystem().open(path, writable=False)
        text = file.read(_MOST_BYTES, 0).decode("ascii", "replace")
        file.close()
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


def several_members_error(root: Path, logs: list[Path]) -> UnsupportedStoreError:
    """Return the error that a root has logs of several members, which are copies of one another."""
    members = ", ".join(str(data.parent) for data in logs)
    return UnsupportedStoreError(
        f"{root} holds the DLedger logs of {len(logs)} members, each a log of its own: expected one, found {members}. "
        f"Give the directory of one member"
    )
