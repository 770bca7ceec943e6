# SPDX-License-Identifier: Apache-2.0
"""Evidence in a store's files of the release that wrote it, as far as it decides how properties are parsed.

No file of a store names its release. But releases leave different traces, and three of these show whether a store was
last served by a release before or after RocketMQ 4.9.1, which changed the parser of properties:

* ``abort.bak``, which a broker leaves at its start since 5.0 (``MixAll.string2File``);
* the slot count in an index file, which up to 4.7.0 is incremented by every put (``IndexFile.putKey``);
* the bytes after a blank record, which up to 4.9.0 are those of a buffer that still holds the record before it
  (``CommitLog.DefaultAppendMessageCallback.doAppend``).

A store without these traces may be of any release, so the absence of a note proves nothing. Little is read: of the log,
one record in each of a few segments.
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.errors import StoreError
from store_core.files.abort_file import AbortFile
from store_core.files.file_system import OsFileSystem
from store_core.files.store_parts import COMMIT_LOG, INDEX_DIRECTORY
from store_core.format.layout import BLANK_RECORD, MESSAGE_HEAD, MagicCode, field_position, unit_dtype
from store_core.format.properties import PropertyParser
from store_core.format.releases.release import DEFAULT_RELEASE, RELEASES
from store_core.queue.index.index_build import INDEX_DTYPE
from store_core.queue.index.index_header import INDEX_HEADER_SIZE, IndexHeader
from store_core.queue.index.index_slots import SLOT_SIZE
from store_core.store.config.index_sizes import IndexSizes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from store_core.files.file_system import OpenFile
    from store_core.files.segment_source import Segment

__all__ = ["evidence_of_old_parser", "release_note"]

_USUAL_SLOTS: Final = 5_000_000
_USUAL_INDEX_SIZE: Final = INDEX_HEADER_SIZE + SLOT_SIZE * _USUAL_SLOTS + INDEX_DTYPE.itemsize * 20_000_000
"""Bytes of an index file unless configured otherwise (``maxHashSlotNum``, ``maxIndexNum``)."""

_MOST_FILES: Final = 2
"""How many index files are examined, newest first."""

_MOST_SEGMENTS: Final = 4
"""How many segments are examined, newest first; the one being written and a preallocated one give no evidence."""

_MOST_NAMES: Final = 1 << 12
"""How many names of index files are examined; a bound for hostile stores."""

_MOST_ENTRIES: Final = 4096
"""Last entries of an index file that are read: 80 KiB. With 100 000 keys in 5 million slots, some 80 share one."""

_FEWEST_SHARED: Final = 2
"""Minimum entries that must share a slot. While a broker adds an entry, its file may count one slot too many."""

_SMALL_INDEX: Final = 1 << 15
"""Maximum bytes of an index file whose slot and entry counts are searched for if unknown."""

_TAIL: Final = 1 << 16
"""Bytes at the end of a segment that are searched for its blank record."""

_BLANK: Final = unit_dtype(BLANK_RECORD)
_BLANK_MAGIC: Final = int(MagicCode.BLANK).to_bytes(4, "big", signed=True)
_START: Final = unit_dtype(replace(MESSAGE_HEAD, fields=MESSAGE_HEAD.fields[:7]))
"""The first fields of a record, up to and including its physical offset."""
_LAST_OF_OLD_PARSER: Final = next(
    name for name in reversed(RELEASES) if PropertyParser.of_release(name) is PropertyParser.EXACT_PAIR
)


def release_note(segments: Sequence[Segment], release: str) -> str | None:
    """Return a note if a store looks written by a release that parses properties differently from the given one.

    Files that are missing, unreadable or inconsistent are no evidence.

    Parameters
    ----------
    segments : sequence of Segment
        The log's, in order. The store's other files are looked for beside a directory ``commitlog``.
    release : str
        Value of the option, one of `RELEASES`.
    """
    later = next(_backups(_roots_of(segments)), None)
    if PropertyParser.of_release(release) is PropertyParser.EXACT_PAIR:
        return None if later is None else _note(later, "RocketMQ 5", release, DEFAULT_RELEASE)
    if later is not None:
        return None
    earlier = evidence_of_old_parser(segments)
    return None if earlier is None else _note(earlier, "RocketMQ 4.9.0 or earlier", release, _LAST_OF_OLD_PARSER)


def evidence_of_old_parser(segments: Sequence[Segment]) -> str | None:
    """Return what shows that a log was last written by a release up to 4.9.0; None if nothing does."""
    return next(_shared_slots(_roots_of(segments)), None) or next(_repeated_records(segments), None)


def _roots_of(segments: Sequence[Segment]) -> list[Path]:
    directories = dict.fromkeys(Path(segment.path).parent for segment in segments)
    return [directory.parent for directory in directories if directory.name == COMMIT_LOG]


def _note(evidence: str, writer: str, release: str, other: str) -> str:
    return (
        f"the store looks as if {writer} had written it: {evidence}. It is read as RocketMQ {release} reads it, but "
        f"releases up to 4.9.0 read some properties differently from later ones: they lose a value that holds the "
        f"byte 1, wholly or from that byte on, and keep a property without a name. To read it as {writer} does, write "
        f"release={other}."
    )


def _backups(roots: Iterable[Path]) -> Iterator[str]:
    """Find the backup file that a broker leaves at its start since 5.0."""
    for root in roots:
        path = AbortFile(root, OsFileSystem()).backup_path
        if os.path.isfile(path):  # noqa: PTH113 -- no error without permission
            yield f"{path} is there, which brokers create since 5.0"


# ----------------------------------------------------------------------------------------------------------- the index


def _shared_slots(roots: Iterable[Path]) -> Iterator[str]:
    """Find an index file whose slot count counts entries."""
    for root in roots:
        paths = _index_files(root / INDEX_DIRECTORY)
        for path in paths[:_MOST_FILES]:
            counted = _count_of(path, is_full=path != paths[0])
            if counted is None:
                continue
            if counted:
                yield (
                    f"{path} counts {counted} slots in use for as many entries, though entries share slots, as "
                    f"RocketMQ did up to 4.7.0"
                )
            break


def _index_files(directory: Path) -> list[Path]:
    """List index files, newest first."""
    try:
        with os.scandir(directory) as entries:
            names = [entry.name for entry in islice(entries, _MOST_NAMES)]
    except OSError:
        return []
    return [directory / name for name in sorted(filter(str.isdecimal, names), reverse=True)]


def _count_of(path: Path, *, is_full: bool) -> int | None:
    """Return an index file's slot count if it counts entries; 0 if it counts slots, None if unclear."""
    try:
        file = OsFileSystem().open(path, writable=False)
        size = path.stat().st_size
        header = IndexHeader.from_bytes(file.read(INDEX_HEADER_SIZE, 0))
        entries = header.index_count - 1
        if 0 <= header.hash_slot_count < entries:
            return 0
        if header.hash_slot_count != entries:
            return None
        slots = _slots_of(path, size, header, is_full=is_full)
        return entries if slots is not None and _share_slots(file, slots, entries) else None
    except (OSError, ValueError, StoreError):  # ValueError: mapped while being truncated
        return None


def _slots_of(path: Path, size: int, header: IndexHeader, *, is_full: bool) -> int | None:
    """Return the slots of an index file as created; None if unclear: only a full, usual or small file shows it."""
    if is_full:
        slots, rest = divmod(size - INDEX_HEADER_SIZE - INDEX_DTYPE.itemsize * header.index_count, SLOT_SIZE)
        return slots if slots > 0 and not rest else None
    if size == _USUAL_INDEX_SIZE:
        return _USUAL_SLOTS
    found = IndexSizes.of_file(path, OsFileSystem(), is_full=False) if size <= _SMALL_INDEX else None
    return None if found is None else found.slots


def _share_slots(file: OpenFile, slots: int, last: int) -> bool:
    """Return whether an index file's last entries are sound, and some of them are not the first of their slot."""
    first = max(1, last - _MOST_ENTRIES + 1)
    count = last - first + 1
    start = INDEX_HEADER_SIZE + SLOT_SIZE * slots + INDEX_DTYPE.itemsize * first
    stored = file.read(INDEX_DTYPE.itemsize * count, start) if count > 0 else b""
    if len(stored) < INDEX_DTYPE.itemsize * max(count, 1):
        return False
    entries = np.frombuffer(stored, INDEX_DTYPE)
    before = entries["previous_index"]
    is_sound = (entries["key_hash"] >= 0) & (entries["time_diff"] >= 0)
    is_sound &= (before >= 0) & (before < np.arange(first, last + 1))
    return bool(is_sound.all()) and int(np.count_nonzero(before)) >= _FEWEST_SHARED


# -------------------------------------------------------------------------------------------------------- blank records


def _repeated_records(segments: Sequence[Segment]) -> Iterator[str]:
    """Check whether the last bytes of the newest closed segment repeat the record before its blank record."""
    for segment in segments[: -_MOST_SEGMENTS - 1 : -1]:
        blank = _blank_record(segment)
        if len(blank) < _START.itemsize:
            continue  # no blank record, as in a segment being written, or too short to tell
        if _is_repeated(segment, blank):
            yield (
                f"in {segment.path} the bytes after the blank record at offset {segment.end_offset - len(blank)} "
                f"repeat the record before it, as RocketMQ left them up to 4.9.0"
            )
        return


def _read(segment: Segment, position: int, count: int) -> bytes:
    """Read bytes of a segment, as far as they exist."""
    try:
        return OsFileSystem().open(Path(segment.path), writable=False).read(count, position)
    except (OSError, StoreError):
        return b""


def _blank_record(segment: Segment) -> bytes:
    """Return the blank record near a segment's end whose length reaches exactly to that end; empty if there is none."""
    tail = _read(segment, max(0, segment.size - _TAIL), _TAIL)
    at = len(tail)
    while (at := tail.rfind(_BLANK_MAGIC, 0, at)) >= 0:
        start = at - field_position(_BLANK, "magic_code")
        if start >= 0 and int.from_bytes(tail[start:at], "big") == len(tail) - start:
            return tail[start:]
    return b""


def _is_repeated(segment: Segment, blank: bytes) -> bool:
    """Return whether the bytes after a blank record's fields equal those of the preceding record at the same position.

    That record was written to the start of the buffer, with its physical offset; the blank one then overwrote its
    first bytes. Remains of a truncated log can't look like that: they lie where the offset in them says.
    """
    position = int(np.frombuffer(blank, _START, 1)["physical_offset"][0]) - segment.start_offset
    if not 0 <= position < segment.size - len(blank):
        return False
    record = _read(segment, position, len(blank))
    if len(record) < len(blank):
        return False
    head = np.frombuffer(record, _START, 1)[0]
    size = int(head["total_size"])
    is_before = head["magic_code"] == MagicCode.MESSAGE_V1 and position + size == segment.size - len(blank)
    return bool(is_before) and record[_BLANK.itemsize : size] == blank[_BLANK.itemsize : size]
