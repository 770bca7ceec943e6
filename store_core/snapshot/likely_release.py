# SPDX-License-Identifier: Apache-2.0
"""Which release served a store last, told from what releases leave in different ways; no file names it.

Two traces show whether that was before RocketMQ 4.9.1, which changed the parser of properties:

* the slot count in an index file, which up to 4.7.0 is incremented by every put (``IndexFile.putKey``);
* the bytes after a blank record, which up to 4.9.0 are those of a buffer that still holds the record before it
  (``CommitLog.DefaultAppendMessageCallback.doAppend``).

A store without traces may be of any release. Little is read: of the log, one record in each of a few segments.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self, TypeAlias

import numpy as np

from store_core.errors import StoreError
from store_core.files.file_system import OsFileSystem, names_in
from store_core.files.segment_source import Segment, open_segment
from store_core.files.store_lock import ABORT_FILE
from store_core.format.java import hash_code, positive_hash
from store_core.format.layout import BLANK_RECORD, MESSAGE_HEAD, MagicCode, field_position, unit_dtype
from store_core.format.properties import CRC_NAME, CRC_RESERVED, PROPERTY_CRC, TAGS, decode_text, parse_properties
from store_core.format.release import DEFAULT_RELEASE, LIKELIEST_FIRST, RELEASE_RULES, Release
from store_core.queue.dispatch.dispatch_batch import INDEX_TAG_PREFIX
from store_core.snapshot.config import read_checkpoint
from store_core.snapshot.index import Index, KeyFile
from store_core.snapshot.log import Log

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


_MOST_FILES: Final = 2
"""How many index files are examined, newest first."""

_MOST_SEGMENTS: Final = 4
"""How many segments are examined, newest first; the one being written and a preallocated one give no evidence."""

_LAST_ENTRIES: Final = 4096
"""Last entries of an index file that are read: 80 KiB. With 100 000 keys in 5 million slots, some 80 share one."""

_FEWEST_SHARED: Final = 2
"""Minimum entries that must share a slot. While a broker adds an entry, its file may count one slot too many."""

_TAIL: Final = 1 << 16
"""Bytes at the end of a segment that are searched for its blank record."""

_BLANK: Final = unit_dtype(BLANK_RECORD)
_BLANK_MAGIC: Final = int(MagicCode.BLANK).to_bytes(4, "big", signed=True)
_START: Final = unit_dtype(replace(MESSAGE_HEAD, fields=MESSAGE_HEAD.fields[:7]))
"""The first fields of a record, up to and including its physical offset."""


def evidence_of_old_parser(store: Path, segments: Sequence[Segment]) -> str | None:
    """Return what in index or log shows that a store was last written by a release up to 4.9.0; None if nothing."""
    return _counted_entries(store) or _repeated_record(segments)


# ----------------------------------------------------------------------------------------------------------- the index


def _counted_entries(store: Path) -> str | None:
    """Find an index file whose slot count counts entries."""
    paths = Index(store).paths[::-1]
    for path in paths[:_MOST_FILES]:
        with suppress(OSError, ValueError, StoreError):  # ValueError: cut while it is read
            file = KeyFile(path)
            counted, entries = file.header.hash_slot_count, file.header.index_count - 1
            if 0 <= counted < entries:  # it counts slots
                return None
            if counted == entries > 0:
                file.sized_by_contents(is_full=path != paths[0], trusts_size=True)
                if file.slots and _share_slots(file):
                    return (
                        f"{path} counts {counted} slots in use for as many entries, though entries share slots, as "
                        f"RocketMQ did up to 4.7.0"
                    )
    return None


def _share_slots(file: KeyFile) -> bool:
    """Return whether an index file's last entries are sound, and some of them are not the first of their slot."""
    last = file.header.index_count - 1
    first = max(1, last - _LAST_ENTRIES + 1)
    entries = file.entries(first, last + 1)
    before = entries["previous_index"]
    is_sound = (entries["key_hash"] >= 0) & (entries["time_diff"] >= 0)
    is_sound &= (before >= 0) & (before < np.arange(first, last + 1))
    return bool(is_sound.all()) and int(np.count_nonzero(before)) >= _FEWEST_SHARED


# -------------------------------------------------------------------------------------------------------- blank records


def _repeated_record(segments: Sequence[Segment]) -> str | None:
    """Check whether the last bytes of the newest closed segment repeat the record before its blank record."""
    for segment in segments[: -_MOST_SEGMENTS - 1 : -1]:
        blank = _blank_record(segment)
        if len(blank) < _START.itemsize:
            continue  # no blank record, as in a segment being written, or too short to tell
        if not _is_repeated(segment, blank):
            return None
        return (
            f"in {segment.path} the bytes after the blank record at offset {segment.end_offset - len(blank)} repeat "
            f"the record before it, as RocketMQ left them up to 4.9.0"
        )
    return None


def _read(segment: Segment, position: int, count: int) -> bytes:
    """Read bytes of a segment, as far as they exist."""
    try:
        with open_segment(segment) as opened:
            begin, end = (min(at, segment.size) for at in (position, position + count))
            return opened.chunk(begin, end).tobytes()
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


_FILES: Final = OsFileSystem()
_RECORDS: Final = 8
"""How many of the last records with tags are looked at."""

_SINCE_5_0: Final[tuple[str, ...]] = ("abort.bak", "compaction", "timerwheel", "batchconsumequeue")
_SINCE_5_4: Final = "rocksdbstore"


_Evidence: TypeAlias = tuple[str, bool, str]
"""What a release leaves that has, or has not, a feature: the feature's name, whether it has it, and the words."""


@dataclass(frozen=True, slots=True)
class LikelyRelease:
    """The releases that may have served a store last, in the order of `LIKELIEST_FIRST`."""

    releases: tuple[Release, ...]
    why: str  # what shows it

    @classmethod
    def of(cls, store: Path) -> Self:
        """Look at a store's files; what can't be read is no evidence.

        Evidence of a later writer comes first. What contradicts it is of an earlier one, and does not count.
        """
        releases: tuple[Release, ...] = LIKELIEST_FIRST
        words: list[str] = []
        for feature, has, shown in _evidence(store):
            fitting = tuple(each for each in releases if getattr(RELEASE_RULES[each], feature) == has)
            if fitting and fitting != releases:
                releases = fitting
                words.append(shown)
        if not words:
            return cls(releases, "no file tells the release, and this is the usual one")
        which = "the usual one" if DEFAULT_RELEASE in releases else "the first of the newest series"
        left = [f"of the releases that fit this is {which}"] * (len(releases) > 1)
        return cls(releases, "; ".join([*words, *left]))


def _evidence(store: Path) -> Iterator[_Evidence]:
    segments: Sequence[Segment] = ()
    with suppress(OSError, StoreError):
        segments = Log.of(store).segments
    names = set(names_in(store, _FILES))
    with suppress(OSError, StoreError, ValueError):
        yield from _of_tags(store, segments)
    if any(map(_begins_with_checksum, segments[: -_MOST_SEGMENTS - 1 : -1])):
        yield "has_property_crc", True, f"its records carry {PROPERTY_CRC}, which brokers write since 5.2"
    with suppress(OSError, StoreError):
        if (read_checkpoint(store) or {}).get("logics_physical_offset"):
            yield "keeps_flushed_queue_offset", True, "its checkpoint says up to where queues are flushed"
    if _SINCE_5_4 in names:
        yield "indexes_tags", True, f"it has {_SINCE_5_4}/, which brokers make since 5.4"
    found = [name for name in _SINCE_5_0 if name in names]
    abort = _FILES.status(store / ABORT_FILE)
    if abort is not None and abort.size:
        found.append(f"a process id in {ABORT_FILE}")
    if found:
        yield "notes_process_in_abort_file", True, f"it has {found[0]}, which brokers leave since 5.0"
    elif "lock" in names:
        words = "it has nothing of what brokers leave since 5.0, such as abort.bak"
        yield "notes_process_in_abort_file", False, words
    old = None
    with suppress(OSError, StoreError):
        old = evidence_of_old_parser(store, segments)
    if old is not None:
        yield "splits_properties_at_first_separator", False, old
    with suppress(OSError, StoreError, ValueError):
        file = Index(store).newest_used()
        if file is not None and file.header.hash_slot_count < file.header.index_count - 1:
            yield "counts_hash_slots_in_use", True, "its index counts slots, and not entries, as since 4.7.1"


def _begins_with_checksum(segment: Segment) -> bool:
    """Return whether the first record of a segment carries a checksum over all of it."""
    size = int.from_bytes(_read(segment, 0, 4), "big")
    return _read(segment, max(size - CRC_RESERVED, 0), CRC_RESERVED).startswith(CRC_NAME)


def _of_tags(store: Path, segments: Sequence[Segment]) -> Iterator[_Evidence]:
    """Yield whether the last records with tags have entries for them; nothing if only some have."""
    file = Index(store).newest_used()
    if file is not None:
        entries = file.entries(max(1, file.stop - _LAST_ENTRIES), file.stop)
        log = Log(tuple(segments))
        found: list[bool] = []
        for offset in np.unique(entries["physical_offset"].astype(np.int64))[::-1].tolist():
            record = log.record_at(offset)
            tags = None if record is None else parse_properties(decode_text(record.properties)).get(TAGS)
            if record is not None and tags:
                hashed = positive_hash(hash_code(f"{decode_text(record.topic)}#{INDEX_TAG_PREFIX}{tags}"))
                found.append(bool(np.any(entries["key_hash"][entries["physical_offset"] == offset] == hashed)))
            if len(found) == _RECORDS:
                break
        if found and found[0]:
            yield "indexes_tags", True, "its index has the tags of messages, as since 5.4"
        elif found and not any(found):
            yield "indexes_tags", False, "its index does not have the tags of messages, as before 5.4"
