# SPDX-License-Identifier: Apache-2.0
"""The commit log of a store as it lies on disk: its segments, whether they form one log, and single records of it."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Self, TypeAlias, TypeVar

from store_core.errors import SegmentLayoutError, SegmentVanishedError, UnsupportedStoreError
from store_core.files.access import explained_access
from store_core.files.archive_listing import archive_at, archive_segments
from store_core.files.file_system import OsFileSystem
from store_core.files.names import COMMIT_LOG, archive_error, compressed_error, is_archive, twin_note
from store_core.files.segment_listing import is_all_zeros, refuse_other_file, segments_in, single_file
from store_core.files.segment_source import Segment, SegmentBytes, expanded_size, open_segment, segment_at
from store_core.files.store_kind import (
    MEMBER_DATA,
    MEMBER_PREFIX,
    StoreUse,
    begins_with_entry,
    check_log_place,
    check_store_kind,
    data_directory,
    dledger_error,
    dledger_logs,
    entry_log_of,
)
from store_core.files.store_path import ConfiguredRoot, StorePaths, located, log_directories, nothing_at, places_of
from store_core.files.url_path import UrlFile
from store_core.format.columnar.spans import EntryLog
from store_core.format.record.scan import check_record, store_timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


T = TypeVar("T")
_Packed: TypeAlias = Literal["left out", "read", "refused"]

_log: Final = logging.getLogger("store_core")

_CHUNK: Final = 1 << 20
_WAY_ON: Final = "To read what is there: failOnDataLoss=false, or mode=DROPMALFORMED or PERMISSIVE."
_MEMBER_UNKNOWN: Final = (
    f"the segments are those of a DLedger log (storePathDLedgerCommitLog): which of its entries are committed is not "
    f"known, as that is in the directory {MEMBER_PREFIX}* below the root of the store."
)


@dataclass(frozen=True)
class Log:
    """The segments of one log, in order of their offsets."""

    segments: tuple[Segment, ...]
    notes: tuple[str, ...] = ()  # for the user, on what was left out

    @classmethod
    def of(
        cls,
        paths: StorePaths,
        *,
        reads_entries: bool = False,
        packed: _Packed = "left out",
        told: set[str] | None = None,
    ) -> Self:
        """List the segment files that one path or several stand for.

        Files whose names are not offsets, and empty files at the end, are left out with a note.

        * `paths`: A store root, a ``commitlog`` directory, a segment file, or several of these that form one log
          together, as in a store with several commit log paths (RocketMQ 4.9.2 and later:
          ``MultiPathMappedFileQueue``). Also RocketMQ's notation for these, ``/a/commitlog,/b/commitlog``, if no file
          has that name; and ``file:`` URLs.
        * `reads_entries`: Whether the caller reads DLedger logs, too: those of a root, a directory ``dledger-SELFID``,
          or in it.
        * `packed`: What becomes of segments that are compressed as a whole: "left out", "read", or "refused", for
          callers that answer for the whole log and need its segments as RocketMQ writes them: what is left out would
          count as lost, or at either end of the log as never written. Archives are refused unless both are "read".
        * `told`: Notes that were logged before, to which new ones are added: for who lists again and again.
        """
        notes: list[str] = []
        places = places_of(located(paths))
        with explained_access(places[0]):
            archive = next(filter(is_archive, places), None) if packed != "read" else None
            if archive is not None:
                raise archive_error(archive)
            listing = Listing(notes, reads_entries, compressed=packed != "left out")
            listed = chain.from_iterable(map(listing.at, places))
            found = sorted(listed, key=lambda segment: (segment.start_offset, segment.path))
        if not found:
            raise nothing_at(places, notes)
        if packed == "refused":
            check_plain(found)
        segments = _with_expanded_sizes(without_twins(found, notes))
        while segments and not segments[-1].size:
            notes.append(f"ignored the empty file {segments.pop().path}.")
        for note in notes:
            if told is None or note not in told:
                _log.warning(note)
        if told is not None:
            told.update(notes)
        return cls(tuple(segments), tuple(notes))

    @classmethod
    def for_reading(cls, paths: StorePaths) -> Self:
        """List the files of a log with all that can be read: DLedger logs, archives and compressed segments, too."""
        return cls.of(paths, reads_entries=True, packed="read")

    @property
    def begin(self) -> int:
        """Physical offset of the first byte; 0 without segments."""
        return self.segments[0].start_offset if self.segments else 0

    @property
    def end(self) -> int:
        """Physical offset one past the last byte of the last file; 0 without segments."""
        return self.segments[-1].end_offset if self.segments else 0

    @cached_property
    def usual_size(self) -> int:
        """The segment size of the store, in bytes: the commonest among file sizes and distances between names.

        RocketMQ takes it from its configuration (``mappedFileSizeCommitLog``), which may not be at hand.
        """
        votes = Counter(segment.size for segment in self.segments)
        votes.update(after.start_offset - before.start_offset for before, after in pairwise(self.segments))
        return max(votes, key=lambda size: (votes[size], size), default=0)

    @property
    def problems(self) -> tuple[SegmentLayoutError, ...]:
        """An error for each place where consecutive files do not join as those of one log do.

        RocketMQ refuses to load a log with a file of another size (4.5 and later, ``MappedFileQueue.load``). A last
        file that is too short is not a layout problem: it can be a copy that was cut where a record ends.
        """
        size = self.usual_size
        problems = [_pair_problem(before, after, size) for before, after in pairwise(self.segments)]
        if self.segments and self.segments[-1].size > size:
            last = _shown(self.segments[-1])
            problems.append(_error(f"segment {last} is too long: expected {size} bytes as the others have"))
        return tuple(problem for problem in problems if problem is not None)

    @property
    def missing(self) -> tuple[tuple[int, int], ...]:
        """The physical offsets between consecutive segments that none of them has; the ends are exclusive."""
        bounds = ((before.end_offset, after.start_offset) for before, after in pairwise(self.segments))
        return tuple((begin, end) for begin, end in bounds if begin < end)

    @property
    def missing_bytes(self) -> int:
        """How many bytes are between files."""
        return sum(end - begin for begin, end in self.missing)

    def remaining(self) -> Log:
        """Return the log without segments whose files are gone, as a broker deletes the oldest.

        Who has read of a log that is being cleaned asks afterwards: whatever was not found from its beginning on was
        never there.
        """
        left = tuple(each for each in self.segments if not each.is_plain or Path(each.path).exists())
        return self if len(left) == len(self.segments) else replace(self, segments=left)

    def segment_at(self, offset: int) -> Segment | None:
        """Return the segment that a physical offset is in; None if there is none."""
        return segment_at(self.segments, offset)

    def record_at(self, offset: int) -> NamedRecord | None:
        """Return the record at a physical offset; None if there is no sound one, or not any more.

        Nothing else of the log is read.
        """
        segment = self.segment_at(offset)
        with suppress(SegmentVanishedError):
            return None if segment is None else _record_in(segment, offset)
        return None

    def time_at(self, offset: int, size: int | None = None) -> int | None:
        """Return the store time of a record, of some bytes if they are given, ms; else as of `record_at`."""
        found = self.record_at(offset)
        return None if found is None or size not in (None, found.size) else found.store_timestamp


# ---- listing


@dataclass(frozen=True, slots=True)
class Listing:
    """Lists the segment files that places stand for; see `Log.of`."""

    notes: list[str]  # gets what is left out
    reads_entries: bool = True  # whether the caller reads DLedger logs, too
    compressed: bool = True  # whether it takes compressed segments, too

    def at(self, place: Path) -> list[Segment]:
        """Return the segment files that one place stands for."""
        if is_archive(place):
            return archive_segments(archive_at(place), self.notes)
        if isinstance(place, ConfiguredRoot):
            self.notes.extend(place.notes)
            if log_directories(place) != (place / COMMIT_LOG,):
                self._check_kind(place)
                return self._configured(place)
        data = data_directory(place, OsFileSystem()) if self.reads_entries else None
        if data is not None:
            entries = entry_log_of(data, self.notes)
            is_file = place.parent == data and not place.is_dir()
            found = [single_file(place, compressed=self.compressed)] if is_file else segments_in(data, self.notes)
            return _in_entries(found, entries)
        if not place.is_dir():
            check_log_place(place, OsFileSystem())
            refuse_other_file(place)
            return self._with_entries([single_file(place, compressed=self.compressed)], place.parent)
        self._check_kind(place)
        logs = list(dledger_logs(place, OsFileSystem()))
        if len(logs) > 1:  # copies of one another
            members = ", ".join(str(data.parent) for data in logs)
            raise UnsupportedStoreError(
                f"{place} holds the DLedger logs of {len(logs)} members, each a log of its own: expected one, found "
                f"{members}. Give the directory of one member"
            )
        below = place / COMMIT_LOG
        if below.is_dir() or logs:
            ordinary = list(segments_in(below, self.notes, compressed=self.compressed)) if below.is_dir() else []
            return ordinary + [part for log in logs for part in self.at(log)]
        check_log_place(place, OsFileSystem())
        return self._in_directory(place)

    def _check_kind(self, root: Path) -> None:
        self.notes.extend(check_store_kind(root, OsFileSystem(), StoreUse.READ_LOG, reads_entries=self.reads_entries))

    def _configured(self, root: ConfiguredRoot) -> list[Segment]:
        """Return the segments in the directories that a configuration names."""
        found: list[Segment] = []
        for directory in root.log:
            if not directory.is_dir():
                self.notes.append(
                    f"there is no directory {directory}, where the configuration says that a part of the log is."
                )
                continue
            check_log_place(directory, OsFileSystem())
            found += self._in_directory(directory, root.member)
        return found

    def _in_directory(self, directory: Path, member: Path | None = None) -> list[Segment]:
        found = list(segments_in(directory, self.notes, compressed=self.compressed))
        if found:
            refuse_other_file(directory / Path(found[0].path).name)
        return self._with_entries(found, directory, member)

    def _with_entries(self, found: list[Segment], directory: Path, member: Path | None = None) -> list[Segment]:
        """Return segments as those of a DLedger log, if their content says so.

        If there are several directories (``storePathDLedgerCommitLog``), they have any names, and the checkpoint is in
        that of their `member`.
        """
        if not any(map(begins_with_entry, found[:1])):
            return found
        if not self.reads_entries:
            raise dledger_error(directory.parent, directory, OsFileSystem())
        if member is not None:
            return _in_entries(found, entry_log_of(member / MEMBER_DATA, self.notes))
        if _MEMBER_UNKNOWN not in self.notes:
            self.notes.append(_MEMBER_UNKNOWN)
        return _in_entries(found, EntryLog())


def _in_entries(segments: Iterable[Segment], entries: EntryLog) -> list[Segment]:
    return [replace(segment, entries=entries) for segment in segments]


def check_plain(segments: Iterable[Segment]) -> None:
    """Refuse segments that are compressed as a whole."""
    names = [segment.path for segment in segments if segment.codec is not None]
    if names:
        raise compressed_error(names[0], more=len(names) - 1)


def without_twins(segments: Iterable[Segment], notes: list[str]) -> list[Segment]:
    """Drop a file that was given twice, and one of zeros whose twin has the data; refuse others of the same offset."""
    kept: list[Segment] = []
    for segment in segments:
        if not kept or kept[-1].start_offset != segment.start_offset:
            kept.append(segment)
        elif _is_same(kept[-1], segment):
            notes.append(f"{segment.path} is given twice, and read once.")
        elif _is_all_zeros(segment):
            notes.append(f"{twin_note(segment.path, kept[-1].path)}.")
        elif _is_all_zeros(kept[-1]):
            notes.append(f"{twin_note(kept[-1].path, segment.path)}.")
            kept[-1] = segment
        else:
            raise SegmentLayoutError(
                f"two files claim offset {segment.start_offset}: {kept[-1].path} ({kept[-1].size} bytes) and "
                f"{segment.path} ({segment.size} bytes); expected one. Give the paths of one log only, and move the "
                f"wrong copy elsewhere; logs of several brokers are several stores: give their roots."
            )
    return kept


def _is_all_zeros(segment: Segment) -> bool:
    """Return whether a file has no data; of one on another machine only the beginning is looked at."""
    if segment.codec is not None or segment.archive:
        return False
    remote = segment.remote
    file = OsFileSystem().open(Path(segment.path), writable=False) if remote is None else UrlFile(remote)
    with closing(file):
        return is_all_zeros(file, segment.size if remote is None else min(segment.size, _CHUNK))


def _with_expanded_sizes(segments: list[Segment]) -> list[Segment]:
    """Set the sizes of compressed segments: up to where the next one begins, or else what the file expands to."""
    if all(segment.codec is None or segment.archive for segment in segments):
        return segments
    distances = Counter(after.start_offset - before.start_offset for before, after in pairwise(segments))
    usual = max(distances, key=lambda size: (distances[size], -size), default=0)
    sizes = [*(after.start_offset - before.start_offset for before, after in pairwise(segments)), 0]
    return [
        segment
        if segment.codec is None or segment.archive
        else replace(segment, size=size if size == usual > 0 else expanded_size(segment))
        for segment, size in zip(segments, sizes, strict=True)
    ]


def _is_same(one: Segment, other: Segment) -> bool:
    is_plain = all(each.remote is None and not each.archive for each in (one, other))
    return one.path == other.path or (is_plain and Path(one.path).samefile(other.path))


def _pair_problem(before: Segment, after: Segment, size: int) -> SegmentLayoutError | None:
    distance = after.start_offset - before.start_offset
    if before.size == distance:
        return None
    shown = f"{_shown(before)} is followed by {_shown(after)}"
    if before.size > distance:
        return _error(f"{shown}, which begins inside it: expected {distance} bytes, found {before.size}")
    if before.size < size:
        return _error(f"segment {before.path} is too short: expected {size} bytes, found {before.size}; {shown}")
    missing = f"{before.end_offset:020d}"
    return _error(
        f"segment {missing} is missing: expected {missing} next, found {after.name}; "
        f"{distance - before.size} bytes of the log are not there; {shown}"
    )


def _shown(segment: Segment) -> str:
    return f"{segment.path} (offset {segment.start_offset}, {segment.size} bytes)"


def _error(problem: str) -> SegmentLayoutError:
    return SegmentLayoutError(problem).advised(_WAY_ON)


# ---- a log that a broker deletes from

_ATTEMPTS: Final = 100
"""How often a step is done at most: each time there is one file less."""


def retried(step: Callable[[], T], *vanished: type[Exception]) -> T:
    """Return what a step that lists files and reads them returns; do it again if a file is deleted meanwhile.

    * `vanished`: What else says that something was deleted, besides `SegmentVanishedError`.
    """
    for _ in range(_ATTEMPTS - 1):
        with suppress(SegmentVanishedError, *vanished):
            return step()
    return step()


# ---- single records


def has_record(segment: Segment) -> bool:
    """Return whether a segment begins with a record; one that is preallocated does not."""
    with open_segment(segment) as opened:
        return _begins_with_record(segment, opened)


def _begins_with_record(segment: Segment, opened: SegmentBytes) -> bool:
    return segment.view(opened).check(0).reason is None


def first_store_timestamp(segment: Segment) -> int | None:
    """Return the store time of a segment's first record, in ms; None if unknown."""
    with open_segment(segment) as opened:
        if not _begins_with_record(segment, opened):
            return None
        time = store_timestamp(segment.view(opened).frame(0).data, segment.framing.lead)
    return time if time > 0 else None


def time_in(segment: Segment, position: int) -> int:
    """Return the store time of the record of a frame that begins at a position of a segment, ms."""
    with open_segment(segment) as opened:
        return store_timestamp(segment.view(opened).frame(position).data, segment.framing.lead)


class NamedRecord(NamedTuple):
    """A sound record: its size, store time in ms, and topic and properties as they are stored."""

    size: int
    store_timestamp: int
    topic: bytes
    properties: bytes


def _record_in(segment: Segment, offset: int) -> NamedRecord | None:
    """Return the record of a segment at a physical offset; None if there is no sound one."""
    with open_segment(segment) as opened:
        data = segment.record(opened, offset).data
        check = check_record(data, 0, offset)
        if check.spans is None:
            return None
        topic = bytes(data[check.spans.topic_start : check.spans.topic_stop])
        properties = bytes(data[check.spans.properties_start : check.spans.properties_stop])
        return NamedRecord(check.size, store_timestamp(data, 0), topic, properties)
